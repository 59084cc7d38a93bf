"""Writing records as Parquet: row groups of even size, under the final name only when all is there."""

from __future__ import annotations

import io
import json
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from sointer._support.files import AtomicFile
from sointer._support.validation import check_k
from sointer.data.outputs import Outputs
from sointer.errors import InputError, require_extra
from sointer.explainers.base import Explainer
from sointer.explainers.novelty import unwarned
from sointer.explainers.reading import ALL
from sointer.explanation import Explanation
from sointer.masking.unit_values import UnitValues, value_kind

GROUP_RECORDS = 2**18


STREAM = Path("-")
PLAIN = b"sointer.plain"
"""In a schema: the targets whose values are written as text, because others are text, but are none."""


class Writer:
    """A file of records that gets its name when it is whole; what was written before is kept as `<path>.partial`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.n_records = 0
        self._file: AtomicFile | None = None

    @property
    def partial(self) -> Path:
        """The name of the file until all is written."""
        return self.path.with_name(self.path.name + ".partial")

    def finish(self) -> Path:
        """All is written: give the file its name."""
        if self._file is None:
            return STREAM
        self._close()
        self.partial.unlink(missing_ok=True)  # left by an earlier run that this one replaces
        return self._file.commit()

    def stop_early(self, n_rows: int) -> Path | None:
        """Keep what there is as `<path>.partial`, if it has records of any row."""
        if self._file is None:
            return Path("the output") if n_rows else None
        with self._file:
            try:
                self._close()
            except OSError:  # such as a full disk: what cannot be closed cannot be read
                return None
            return self._file.commit(self.partial) if n_rows else None

    @abstractmethod
    def write(self, table: Any) -> None:
        """Add records, given as an Arrow table."""

    @abstractmethod
    def _close(self) -> None: ...


class RecordWriter(Writer):
    """Gathers tables of records and writes them to a Parquet file in row groups."""

    def __init__(self, path: str | PathLike[str], schema: Any) -> None:
        super().__init__(Path(path))
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
        self._file = AtomicFile(self.path)
        self._writer = parquet.ParquetWriter(self._file.path, schema)
        self._waiting: list[Any] = []
        self._n_waiting = 0

    def write(self, table: Any) -> None:
        """Add records; they reach the disk when there are enough of them for a row group."""
        self._waiting.append(table)
        self._n_waiting += table.num_rows
        self.n_records += table.num_rows
        if self._n_waiting >= GROUP_RECORDS:
            self._flush()

    def _close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._waiting:
            pyarrow = require_extra("pyarrow", "parquet")
            tables, self._waiting, self._n_waiting = self._waiting, [], 0
            self._writer.write_table(pyarrow.concat_tables(tables).combine_chunks(), row_group_size=2 * GROUP_RECORDS)


class TextWriter(Writer):
    """Writes tables of records as CSV or JSON lines to a file, or to an open binary stream."""

    def __init__(self, out: str | PathLike[str] | BinaryIO, *, as_json: bool = False) -> None:
        super().__init__(Path(out) if isinstance(out, str | PathLike) else STREAM)
        self._as_json, self._has_header = as_json, False
        self._stream: BinaryIO | None = None if isinstance(out, str | PathLike) else out

    def write(self, table: Any) -> None:
        """Add records; whoever reads along sees them at once."""
        if self._stream is None:
            self._file = AtomicFile(self.path)
            self._stream = self._file.path.open("wb")
        self._stream.write(self._as_text(table))
        self.n_records += len(table)
        if self._file is None:
            self._stream.flush()

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def _as_text(self, table: Any) -> bytes:
        if self._as_json:
            records = table.to_pylist()
            plain = json.loads((table.schema.field("value").metadata or {}).get(PLAIN, "[]"))
            for record in records:
                if record.get("target") in plain:  # the repr of a number or a boolean
                    record["value"] = json.loads(record["value"].lower())
            return "".join(json.dumps(record) + "\n" for record in records).encode()
        csv = require_extra("pyarrow.csv", "parquet")
        text = io.BytesIO()
        # Once, although the first tables may be empty: where nothing is needed there are no records.
        csv.write_csv(table, text, csv.WriteOptions(include_header=not self._has_header, quoting_style="needed"))
        self._has_header = True
        return text.getvalue()


class EvidenceWriter(TextWriter):
    """Writes what `Explanation.record` returns, one JSON object per line."""

    def _as_text(self, table: Any) -> bytes:
        return "".join(json.dumps(record) + "\n" for record in table).encode()


@dataclass(frozen=True)
class ExplainOptions:
    """What to explain of every sample, and how."""

    targets: list[Any]
    """Each of these is explained, of every row."""
    k: int | Literal["auto"] | None = None
    refine: int = 0
    query: bool = True
    """Whether the model is queried for what it predicts, where that is not given."""

    @classmethod
    def of(
        cls,
        explainer: Explainer,
        target: Any,
        k: int | Literal["auto"] | None,
        refine: int = 0,
        query: bool = True,
    ) -> ExplainOptions:
        """One target, a list of targets, or "all": checked before any row is read."""
        if not isinstance(query, bool | np.bool_):
            raise InputError(f"query must be True (the model is queried once per sample) or False, got {query!r}.")
        names, shape = explainer.output_names_, explainer.outputs_.shape
        check_k(explainer.k if k is None else k, explainer.groups_.n_units)
        refine = explainer._check_refine(refine, k)
        if isinstance(target, np.ndarray) and target.ndim == 1:
            target = target.tolist()
        if isinstance(target, str) and target == ALL and ALL not in names:
            return cls([names[t] for t in explainer._every_target()], k, refine, bool(query))
        if isinstance(target, list) and not target:
            raise InputError('target is an empty list; name at least one output, or give "all".')
        each = target if isinstance(target, list) else [target]
        numbers = explainer._resolve(target, len(each)).index.tolist()
        if len(set(numbers)) < len(numbers):
            raise InputError(
                "target names an output twice. Here a list means: each of these outputs, for every row; per-sample "
                "targets are not supported when streaming."
            )
        return cls(each if shape is not None else [names[t] for t in numbers], k, refine, bool(query))

    def explain(self, explainer: Explainer, X: Any, predicted: Any, max_rows: int) -> Iterator[tuple[Explanation, Any]]:
        """Explanations of parts of X, at most max_rows rows times targets at a time, and their sample numbers."""
        # Read anew: if the only target was left out, the list holds None.
        found = explainer._resolve(self.targets if self.targets != [None] else None, len(self.targets))
        source = replace(explainer._source(X, predicted), regions=found.regions, region_names=found.region_names)
        step = max(1, max_rows // len(self.targets))
        for start in range(0, source.n_samples, step):
            samples = np.arange(start, min(start + step, source.n_samples))
            rows, targets = source.take(samples).for_each(found.index)
            explanation = explainer._explain_rows(rows, targets, self.k, query=self.query, refine=self.refine)
            with unwarned():
                explainer._warn_about(explanation)
            yield explanation, start + explanation.sample


def record_table(explanation: Explanation, sample: NDArray[np.int64], schema: Any, ids: Any = None) -> Any:
    """The records of an explanation as an Arrow table; `sample` numbers its rows, `ids` are their ids as text."""
    pyarrow = require_extra("pyarrow", "parquet")
    row, position = np.nonzero(explanation.selected >= 0)
    unit = explanation.selected[row, position]
    n_records = len(row)
    columns = [
        pyarrow.array(sample[row]),
        *([] if ids is None else [pyarrow.array([ids[i] for i in row.tolist()], pyarrow.string())]),
        pyarrow.array(explanation.output_names, pyarrow.string()).take(pyarrow.array(explanation.target[row])),
        _values(pyarrow, explanation.value[row], schema.field("value").type),
        pyarrow.array([explanation.value_source] * n_records, pyarrow.string()),
        pyarrow.array((position + 1).astype(np.int32)),
        pyarrow.array(explanation.feature_names, pyarrow.string()).take(pyarrow.array(unit)),
        *_feature_values(pyarrow, explanation, row, unit, schema),
        pyarrow.array(explanation.scores[row, unit].astype(np.float32)),
    ]
    known = {"needed": explanation.needed, "effect": explanation.effects, "locality": explanation.locality}
    for name in schema.names[len(columns) :]:
        array, place = known[name], row if name == "locality" else (row, unit)
        kind = schema.field(name).type
        columns.append(pyarrow.nulls(n_records, kind) if array is None else pyarrow.array(array[place], kind))
    return pyarrow.table(columns, schema=schema)


def _feature_values(pyarrow: Any, explanation: Explanation, row: Any, unit: Any, schema: Any) -> list[Any]:
    if "feature_value" not in schema.names:
        return []
    source = explanation.source
    values, kind = UnitValues(source).own(source.sample_of_row[row], unit), schema.field("feature_value").type
    if pyarrow.types.is_string(kind):
        values = [None if value is None else str(value) for value in values]
    return [pyarrow.array(values, kind)]


def _values(pyarrow: Any, values: NDArray[Any], kind: Any) -> Any:
    if pyarrow.types.is_string(kind):
        return pyarrow.array([str(value) for value in values], kind)
    try:
        return pyarrow.array(values.tolist(), kind)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
        raise InputError(
            f"the model predicts labels of another type than in fit, which the column value ({kind}) cannot hold: "
            f"{error}. Fit on data where all labels occur."
        ) from error


def record_schema(
    explainer: Explainer, targets: list[Any], metadata: dict[str, str] | None = None, *, has_ids: bool = False
) -> Any:
    """The columns of the table of records, those of `to_frame()`; `metadata` is kept in the file."""
    pyarrow = require_extra("pyarrow", "parquet")
    outputs = explainer.outputs_
    kind = value_kind(explainer.input_format_, explainer.groups_)
    value_types = {"bool": pyarrow.bool_(), "string": pyarrow.string()}
    value_types |= {"int64": pyarrow.int64(), "float64": pyarrow.float64()}
    more = {"needed": pyarrow.bool_(), "effect": pyarrow.float32(), "locality": pyarrow.int64()}
    fields = [
        ("sample", pyarrow.int64()),
        *([("id", pyarrow.string())] if has_ids else []),
        ("target", pyarrow.string()),
        _value_field(pyarrow, outputs, targets),
        ("value_source", pyarrow.string()),
        ("rank", pyarrow.int32()),
        ("feature", pyarrow.string()),
        *([] if kind is None else [("feature_value", value_types[kind])]),
        ("score", pyarrow.float32()),
        *((name, more[name]) for name in explainer.known_columns),
    ]
    named = {f"sointer.{name}": value for name, value in (metadata or {}).items()}
    return pyarrow.schema(fields, metadata=named or None)


def _value_field(pyarrow: Any, outputs: Outputs, targets: list[Any]) -> Any:
    """One type for the values of all targets; values of several kinds are written as text.

    Then `PLAIN` lists the targets whose values are none, for formats in which each value has a type of its own.
    """
    own = [outputs.names.index(name) for name in targets if name in outputs.names] or range(outputs.n_outputs)
    kinds = {outputs.names[j]: _value_types(outputs, j) for j in own}
    every = set().union(*kinds.values())
    if every in ({bool}, {int}) or every <= {int, float}:
        kind = pyarrow.bool_() if every == {bool} else pyarrow.int64() if every == {int} else pyarrow.float64()
        return pyarrow.field("value", kind)
    plain = [name for name, types in kinds.items() if str not in types]
    return pyarrow.field("value", pyarrow.string(), metadata={PLAIN: json.dumps(plain)} if plain else None)


def _value_types(outputs: Outputs, output: int) -> set[type]:
    """The types of an output's values."""
    known = outputs.label_sets[output]
    return {float} if outputs.graded[output] or known is None else {type(label) for label in known.labels}
