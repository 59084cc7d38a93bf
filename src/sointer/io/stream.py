"""Explaining rows that do not fit into memory, and writing what was selected while going."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sointer._support import __version__, containers
from sointer._support.progress import Progress, make_progress
from sointer._support.validation import check_positive_int
from sointer.errors import InputError, SointerError, SointerWarning, warn_caller
from sointer.explainers.base import Explainer
from sointer.explainers.estimator import refuse_for_sequences
from sointer.explainers.novelty import FarRows
from sointer.explainers.records import make_records
from sointer.io.columns import (
    RowSource,
    as_in_fit,
    columns_needed,
    csv_dtypes,
    names_of_rows,
    slice_rows,
    with_id,
)
from sointer.io.readers import open_source, read_table
from sointer.io.writers import (
    EvidenceWriter,
    ExplainOptions,
    RecordWriter,
    TextWriter,
    Writer,
    record_schema,
    record_table,
)

if TYPE_CHECKING:
    from sointer.explainers.sequences import SequenceExplainer

CHUNK_BYTES = 2**27
BYTES_PER_NUMBER = 32  # of each feature of each row, while rows are explained
MAX_ROWS = 2**15


@dataclass(frozen=True)
class StreamResult:
    """What was written, and how fast."""

    path: Path
    """The file written."""
    n_rows: int
    """Rows explained, each for every target."""
    n_records: int
    """Records written."""
    n_queries: int
    """Rows sent to the model meanwhile."""
    seconds: float
    """Time that it took."""
    fidelity: float | None = None
    """Fidelity: how often the model predicts the same from the selected features alone, over the rows verified."""
    n_without: int = 0
    """Explanations in which no feature is needed, which have no record: one for each row and target."""

    @property
    def rows_per_second(self) -> float:
        """Explained rows per second."""
        return self.n_rows / self.seconds if self.seconds else float("inf")

    def __repr__(self) -> str:
        return (
            f"StreamResult({str(self.path)!r}: {self.n_rows:,} rows, {self.n_records:,} records, "
            f"{self.rows_per_second:,.0f} rows per second, {self.n_queries:,} queries)"
        )


def stream_explain(
    explainer: Explainer,
    source: Any,
    out: str | PathLike[str] | TextWriter,
    *,
    target: Any = None,
    k: int | Literal["auto"] | None = None,
    predicted: Any = None,
    query: bool = True,
    refine: int = 0,
    chunk_rows: int | None = None,
    text_column: str | None = None,
    id_column: str | None = None,
    verify: int = 0,
    records: str | PathLike[str] | None = None,
    progress: bool | Callable[[int, int | None], None] | None = None,
) -> StreamResult:
    """Explain every row of a source of any size; memory does not grow with it. Writes one Parquet file.

    Its columns are those of `Explanation.to_frame()`: sample (counted over the whole source), target, value,
    value_source, rank, feature, score. The file appears when it is complete; if the work is stopped, what was finished
    is in `<out>.partial`.

    Parameters
    ----------
    explainer : Explainer
        Fitted.
    source : path, table, or iterable of tables
        As for `read_chunks`: Parquet, CSV, .npy, .npz. Columns are found by name, others are ignored.
    out : path or TextWriter
        The file to write; one of that name is replaced. A `TextWriter` writes CSV or JSON lines instead.
    target : int, str, list or "all"
        An output's name or number, a list of them (each is explained for every row), or "all".
    k : as in `SOInter.explain`
    predicted : function, table or path, optional
        The model's predictions: a function from rows to outputs, such as `model.predict`, called on every chunk; or all
        outputs, as a table or the path to one.
    query, refine : as in `SOInter.explain`
        The explainer's model, if it has one, is queried once per row unless `predicted` is given or query=False.
    chunk_rows : int, optional
        Rows read at a time; default about 128 MB of them.
    text_column : str, optional
        The column that holds the texts, for explainers of texts.
    id_column : str, optional
        A column of the source that identifies the rows; records contain it as `id`.
    verify : int, default 0
        Query the model to confirm the explanations of this many first rows.
    records : path, optional
        Also write one record per explanation (`Explanation.record`) to this file, as JSON lines.
    progress : bool or function, optional
        True shows a progress bar, None only on a terminal; or a function of (rows done, total rows or None).

    Returns
    -------
    StreamResult

    Raises
    ------
    InputError
        If the source, out or an argument does not fit, or there are no rows.
    LoadError
        If the source is damaged.

    Examples
    --------
    >>> stream_explain(explainer, "rows.parquet", "why.parquet", target="rain")  # doctest: +SKIP
    """
    check_is_fitted(explainer, "outputs_")
    refuse_for_sequences(explainer, "stream_explain")
    options = ExplainOptions.of(explainer, target, k, refine, query)
    check_positive_int(verify, "verify", minimum=0)
    opened, now = open_source(source), datetime.now(timezone.utc)
    place = out.path if isinstance(out, TextWriter) else out
    if isinstance(source, str | PathLike) and os.path.exists(place) and os.path.samefile(source, place):
        raise InputError(f"out is {place}, which is the source itself; nothing was written. Choose another name.")
    size = _chunk_rows(explainer) if chunk_rows is None else check_positive_int(chunk_rows, "chunk_rows")
    columns = columns_needed(explainer, opened.columns, text_column, opened.name)
    dtypes, text_column = dict(csv_dtypes(explainer)), columns if isinstance(columns, str) else text_column
    if id_column is not None:
        columns = with_id(columns, id_column, opened)
        dtypes.setdefault(id_column, "id")
    chunks = opened.chunks(columns, size, dtypes)
    predictions = _Predicted(predicted, opened)
    schema = record_schema(explainer, options.targets, _metadata(explainer, options), has_ids=id_column is not None)
    output = StreamOutput(explainer, out, schema, records, make_progress(progress, opened.n_rows))
    far = FarRows()
    with output:
        for chunk in chunks:
            ids = None if id_column is None else names_of_rows(chunk[id_column])
            rows = as_in_fit(explainer, chunk, text_column)
            n_new, n_before = containers.n_rows(rows), output.n_rows
            tables = []
            for explanation, sample in options.explain(explainer, rows, predictions.next(rows, n_new), size):
                own = None if ids is None else [ids[i] for i in sample.tolist()]
                tables.append(record_table(explanation, n_before + sample, schema, own))
                output.n_without += int((explanation.n_selected == 0).sum())
                judged = np.flatnonzero(n_before + sample < verify)
                verified = explanation.verify(rows=judged) if len(judged) else None
                output.agreement += [] if verified is None else verified.agreement.tolist()
                if output.records is not None:
                    first, each = int(n_before + sample[0]), None if own is None else own[:: len(options.targets)]
                    found = make_records(explanation, verified, verified=judged, first=first, ids=each, created=now)
                    output.records.write(found)
                if explanation.distance is not None:
                    far.add(explanation.distance[:: len(options.targets)])
            for table in tables:
                output.writer.write(table)
            output.advance(n_new)
        predictions.check_end()
        if output.n_rows == 0:
            raise InputError(f"{opened.name} has no rows; nothing was written.")
        result = output.finish()
    far.warn()
    return result


class StreamOutput:
    """The files that explanations, and records of them, are written to while a source is read.

    An error in the block leaves what was written so far beside them, and says how far it got.
    """

    def __init__(
        self,
        explainer: Explainer | SequenceExplainer,
        out: str | PathLike[str] | Writer,
        schema: Any,
        records: str | PathLike[str] | None,
        progress: Progress,
    ) -> None:
        self.writer = out if isinstance(out, Writer) else RecordWriter(out, schema)
        self.records = None if records is None else EvidenceWriter(records)
        self.n_rows, self.n_without = 0, 0
        self.agreement: list[float] = []
        self._explainer, self._n_before = explainer, explainer.n_explain_queries_
        self._progress, self._started = progress, time.perf_counter()

    def __enter__(self) -> StreamOutput:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            if error is not None:
                if self.records is not None:
                    self.records.stop_early(self.n_rows)
                _stop_early(error, self.writer, self.n_rows)
        finally:
            self._progress.close()

    def advance(self, n_rows: int) -> None:
        """So many more rows of the source are done."""
        self.n_rows += n_rows
        self._progress.add(n_rows)

    def finish(self) -> StreamResult:
        """Give the files their names."""
        path = self.writer.finish()
        if self.records is not None:
            self.records.finish()
        n_queries = self._explainer.n_explain_queries_ - self._n_before
        fidelity = float(np.mean(self.agreement)) if self.agreement else None
        seconds = time.perf_counter() - self._started
        return StreamResult(path, self.n_rows, self.writer.n_records, n_queries, seconds, fidelity, self.n_without)


class _Predicted:
    """The model's predictions for each chunk of the rows in turn."""

    def __init__(self, predicted: Any, opened: RowSource) -> None:
        self.predict = predicted if callable(predicted) else None
        self.table = None
        if predicted is not None and self.predict is None:
            self.table = read_table(predicted) if isinstance(predicted, str | PathLike) else predicted
            if opened.n_rows is not None:
                self._refuse_unless(containers.n_rows(self.table) == opened.n_rows, opened.n_rows)
        self.done = 0

    def next(self, rows: Any, n: int) -> Any:
        if self.predict is not None:
            return self.predict(rows)
        if self.table is None:
            return None
        self.done += n
        self._refuse_unless(self.done <= containers.n_rows(self.table), f"at least {self.done}")
        return slice_rows(self.table, slice(self.done - n, self.done))

    def check_end(self) -> None:
        if self.table is not None:
            self._refuse_unless(self.done == containers.n_rows(self.table), self.done)

    def _refuse_unless(self, fits: bool, n_rows: int | str) -> None:
        if not fits:
            raise InputError(
                f"predicted has {containers.n_rows(self.table)} rows, but the source has {n_rows}; expected one row of "
                "outputs for each. Give the predictions for exactly these rows, or the function model.predict."
            )


def _chunk_rows(explainer: Explainer) -> int:
    widest = max(explainer.input_format_.n_columns, explainer.groups_.n_units)
    return int(np.clip(CHUNK_BYTES // (BYTES_PER_NUMBER * widest), 1, MAX_ROWS))


def _metadata(explainer: Explainer, options: ExplainOptions) -> dict[str, str]:
    k = explainer.k if options.k is None else options.k
    return {
        "version": __version__,
        "explainer": type(explainer).__name__,
        "k": str(k),
        "refine": str(options.refine),
        "target": json.dumps([str(target) for target in options.targets]),
    }


def _stop_early(error: BaseException, writer: Writer, n_rows: int) -> None:
    """Keep what was written, and say how far it got: in the message of an error of ours, else in a warning."""
    partial = writer.stop_early(n_rows)
    if (partial is None and n_rows == 0) or isinstance(error, BrokenPipeError):  # the reader had enough
        return
    kept = "nothing could be kept" if partial is None else f"the explanations of the rows before it are in {partial}"
    where = f"It happened in the part that begins at row {n_rows} of the source; {kept}."
    if isinstance(error, KeyboardInterrupt):
        raise KeyboardInterrupt(f"Stopped at row {n_rows} of the source; {kept}.") from error
    if isinstance(error, SointerError):
        raise type(error)(f"{error} {where}") from error
    warn_caller(where, SointerWarning)
