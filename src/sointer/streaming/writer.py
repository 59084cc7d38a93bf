"""Writing records as Parquet: row groups of even size, under the final name only when all is there."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from sointer._support.files import Draft
from sointer.errors import InputError, require_extra

GROUP_RECORDS = 2**18


class RecordWriter:
    """Gathers tables of records and writes them in row groups; what was written survives as `<path>.partial`."""

    def __init__(self, path: str | PathLike[str], schema: Any) -> None:
        self.path = Path(path)
        if self.path.suffix.lower() in (".csv", ".tsv", ".json", ".npz"):
            raise InputError(
                f"out is {self.path}, but explanations are written as Parquet. Give a name such as "
                f"{self.path.with_suffix('.parquet').name}."
            )
        if self.path.is_dir():
            raise InputError(
                f"out is {self.path}, which is a folder; expected a file such as {self.path / 'why.parquet'}."
            )
        parquet = require_extra("pyarrow.parquet", "parquet")
        self._draft = Draft(self.path)
        self._writer = parquet.ParquetWriter(self._draft.path, schema)
        self._waiting: list[Any] = []
        self._n_waiting = 0
        self.n_records = 0

    @property
    def partial(self) -> Path:
        return self.path.with_name(self.path.name + ".partial")

    def write(self, table: Any) -> None:
        """Add records; they reach the disk when there are enough of them for a row group."""
        self._waiting.append(table)
        self._n_waiting += table.num_rows
        self.n_records += table.num_rows
        if self._n_waiting >= GROUP_RECORDS:
            self._flush()

    def finish(self) -> Path:
        """All is written: give the file its name."""
        self._close()
        self.partial.unlink(missing_ok=True)  # left by an earlier run that this one replaces
        return self._draft.keep()

    def stop_early(self, n_rows: int) -> Path | None:
        """Keep what there is as `<path>.partial`, if it tells of any row."""
        with self._draft:
            try:
                self._close()
            except OSError:  # such as a full disk: what cannot be closed cannot be read
                return None
            return self._draft.keep(self.partial) if n_rows else None

    def _close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._waiting:
            pyarrow = require_extra("pyarrow", "parquet")
            tables, self._waiting, self._n_waiting = self._waiting, [], 0
            self._writer.write_table(pyarrow.concat_tables(tables).combine_chunks(), row_group_size=2 * GROUP_RECORDS)
