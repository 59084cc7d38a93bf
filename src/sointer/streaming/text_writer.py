"""Writing records as text, CSV or JSON lines, to a file or as they come to whoever reads along."""

from __future__ import annotations

import io
import json
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

from sointer._support.files import Draft
from sointer.errors import require_extra

STREAM = Path("-")


class TextWriter:
    """Writes tables of records to a file, which gets its name when it is whole, or to an open binary stream."""

    def __init__(self, out: str | PathLike[str] | BinaryIO, *, as_json: bool = False) -> None:
        self.path = Path(out) if isinstance(out, str | PathLike) else STREAM
        self.n_records = 0
        self._as_json = as_json
        self._draft: Draft | None = None
        self._stream: BinaryIO | None = None if isinstance(out, str | PathLike) else out

    @property
    def partial(self) -> Path:
        return self.path.with_name(self.path.name + ".partial")

    def write(self, table: Any) -> None:
        """Add records; whoever reads along sees them at once."""
        if self._stream is None:
            self._draft = Draft(self.path)
            self._stream = self._draft.path.open("wb")
        self._stream.write(self._as_text(table))
        self.n_records += table.num_rows
        if self._draft is None:
            self._stream.flush()

    def finish(self) -> Path:
        """All is written: give the file its name."""
        if self._draft is None or self._stream is None:
            return STREAM
        self._stream.close()
        self.partial.unlink(missing_ok=True)  # left by an earlier run that this one replaces
        return self._draft.keep()

    def stop_early(self, n_rows: int) -> Path | None:
        """Keep what there is as `<path>.partial`, if it tells of any row."""
        if self._draft is None or self._stream is None:
            return Path("the output") if n_rows else None
        with self._draft:
            try:
                self._stream.close()
            except OSError:  # such as a full disk
                return None
            return self._draft.keep(self.partial) if n_rows else None

    def _as_text(self, table: Any) -> bytes:
        if self._as_json:
            return "".join(json.dumps(record) + "\n" for record in table.to_pylist()).encode()
        csv = require_extra("pyarrow.csv", "parquet")
        text = io.BytesIO()
        csv.write_csv(table, text, csv.WriteOptions(include_header=self.n_records == 0, quoting_style="needed"))
        return text.getvalue()
