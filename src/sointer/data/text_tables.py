"""DataFrames with texts among their columns: the words of each text are features, and so is every other column."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from sointer._support import cached_property, containers
from sointer._support.validation import brief, check_unique_names, some
from sointer.data.checks import check_container
from sointer.data.columns import FrameColumn, _dtype, _dtype_name, plain_label
from sointer.data.inputs import InputFormat
from sointer.data.texts import Document, Documents, Splitter, TextFormat, word_pattern
from sointer.errors import InputError, LoadError

FloatArray = npt.NDArray[np.float64]
MIN_ROWS, MIN_SHARE, MIN_WORDS = 20, 0.5, 3
"""A column of strings is read as text if there are so many rows, over this share of them differ, and half of them or
more have so many words of letters."""
N_BINS = 16
"""By which an energy sees numbers."""
BETWEEN = "\n"
"""Between the texts of a row, where they are shown as one."""


@dataclass(frozen=True, eq=False)
class Record(Document):
    """The texts of one row, joined as one to be shown, and each by itself."""

    parts: tuple[Document, ...] = ()

    @classmethod
    def of(cls, parts: Sequence[Document], columns: Sequence[int], words: Sequence[int]) -> Record:
        """`columns` and `words` say at which column, and at which number of a word, each text begins."""
        places, start = [], 0
        for part in parts:
            places.append(part.places + np.int32(start))
            start += len(part.text) + len(BETWEEN)
        return cls(
            BETWEEN.join(part.text for part in parts),
            np.concatenate(places),
            np.concatenate([part.columns + first for part, first in zip(parts, columns, strict=True)]),
            np.concatenate([part.words + first for part, first in zip(parts, words, strict=True)]),
            np.concatenate([part.word_columns + first for part, first in zip(parts, columns, strict=True)]),
            tuple(parts),
        )

    def each_reduced(self, kept: Sequence[bool], token: str | None) -> list[str]:
        """Each text with all pieces deleted that are not kept, as `reduced`."""
        found, start = [], 0
        for part in self.parts:
            end = start + len(part.places)
            found.append(part.reduced(kept[start:end], token))
            start = end
        return found


class Records(Documents):
    """Rows with texts: counts of pieces as in `Documents`, then a 1 for every other column, unless it is removed."""

    values: FloatArray | None = None
    """The other columns as numbers, as their format encodes them; where one is removed, what stands in its place."""

    @classmethod
    def holding(cls, counts: Any, values: FloatArray) -> Records:
        """Without texts: counts of pieces, CSR, and the other columns."""
        made = cls(counts)
        made.values = values
        return made

    def filled(self, rows: npt.NDArray[np.bool_], first: int) -> Records:
        """With the columns from `first` on, which are no words, all there in some rows: as the model saw them."""
        assert self.values is not None
        plain = containers.csr_array(self)
        others = np.maximum(plain[:, first:].toarray(), rows[:, None])
        made = Records.holding(
            sparse.hstack([plain[:, :first], containers.csr_array(others)], format="csr"), self.values
        )
        made.documents, made.token = self.documents, self.token
        return made

    def __getitem__(self, rows: Any) -> Any:
        found = super().__getitem__(rows)
        if self.values is not None and isinstance(found, Records) and not isinstance(rows, tuple):
            found.values = self.values[rows]
        return found

    def masked(self, keep: npt.NDArray[np.bool_], token: str | None) -> Records:
        """The same texts and columns with only those kept; what stands in place of a column stays as it is."""
        made = super().masked(keep, token)
        assert isinstance(made, Records)
        made.values = self.values
        return made

    @classmethod
    def stack(cls, parts: Sequence[Documents]) -> Records:
        """Some rows below others."""
        made = super().stack(parts)
        assert isinstance(made, Records)
        made.values = np.concatenate(
            [part.values for part in parts if isinstance(part, Records) and part.values is not None]
        )
        return made

    def each_text(self) -> list[list[str]]:
        """What is left of the texts of every row."""
        return [
            document.each_reduced(kept, self.token)
            for document, kept in self.kept_pieces()
            if isinstance(document, Record)
        ]

    def keys(self) -> list[str]:
        """A text for every row, which two rows share if they are the same."""
        assert self.values is not None
        pairs = zip(self.each_text(), np.ascontiguousarray(self.values), strict=True)
        return [json.dumps([*texts, values.tobytes().hex()]) for texts, values in pairs]


@dataclass(frozen=True, eq=False)
class TextTableFormat(TextFormat):
    """A DataFrame with texts: the pieces of each text column, and how the other columns are written.

    Examples
    --------
    >>> import pandas as pd
    >>> X = pd.DataFrame({"text": ["The band played.", "the song"], "age": [31, 64]})
    >>> form, data = TextTableFormat.read_frame(X, ["text"])
    >>> form.feature_names[-3:]
    ['text: song', 'text: (words not seen in fit)', 'age']
    >>> form.decode(data).equals(X)
    True
    """

    parts: tuple[TextFormat, ...] = ()
    """The text columns, in their order."""
    table: InputFormat | None = None
    """The other columns; None if there are none."""
    edges: tuple[tuple[float, ...], ...] = ()
    """For each number that the other columns are encoded as, the bounds of its bins; none of categories."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "column_feature", np.arange(len(self.feature_names)))
        object.__setattr__(self, "absence", np.zeros(0, dtype=np.int64))

    @classmethod
    def read_frame(
        cls, X: Any, text_columns: Sequence[Hashable], groups: Any = None
    ) -> tuple[TextTableFormat, Records]:
        """The format of a DataFrame with these text columns, and its rows encoded."""
        backend, enums = containers.backend_of(X), containers.enum_columns(X)
        X = check_container(X, "fit")
        labels = [plain_label(label) for label in X.columns]
        check_unique_names([str(label) for label in labels], len(labels), "The column names of X")
        places = [j for j, label in enumerate(labels) if label in set(text_columns)]
        others = [j for j in range(len(labels)) if j not in places]
        texts = [read_texts(X.iloc[:, j], labels[j], "fit") for j in places]
        parts = tuple(TextFormat.of(one, groups) for one in texts)
        table, values = InputFormat.read(X.iloc[:, others]) if others else (None, np.zeros((len(X), 0)))
        columns: list[FrameColumn] = []
        for j, label in enumerate(labels):
            if j in places:
                dtype = X.iloc[:, j].dtype
                columns.append(
                    FrameColumn(label, "object" if str(dtype) == "category" else _dtype_name(dtype), is_text=True)
                )
            else:
                assert table is not None
                columns.append(replace(table.columns[others.index(j)], is_enum=label in enums))
        edges = () if table is None else tuple(bins_of(values[:, j], table, j) for j in range(values.shape[1]))
        made = cls.of_parts(backend or "pandas", tuple(columns), parts, table, edges)
        return made, made._records(texts, values)

    @classmethod
    def of_parts(
        cls,
        kind: Any,
        columns: tuple[FrameColumn, ...],
        parts: tuple[TextFormat, ...],
        table: InputFormat | None,
        edges: tuple[tuple[float, ...], ...],
    ) -> TextTableFormat:
        """From the formats of the text columns and of the others."""
        labels = [str(column.label) for column in columns if column.is_text]
        names = [f"{label}: {name}" for label, part in zip(labels, parts, strict=True) for name in part.feature_names]
        names += [] if table is None else table.feature_names
        check_unique_names(names, len(names), "The words of texts, with the names of the other columns,")
        found = iter(() if table is None else table.fills)
        fills = tuple(None if column.is_text else next(found, None) for column in columns)
        more: dict[str, Any] = {"by": parts[0].by, "split": parts[0].split, "fills": fills if any(fills) else ()}
        return cls(kind, names, "mixed", columns, **more, parts=parts, table=table, edges=edges)

    @property
    def text_labels(self) -> list[Hashable]:
        """The labels of the text columns."""
        return [column.label for column in self.columns if column.is_text]

    @property
    def is_categorical(self) -> npt.NDArray[np.bool_]:
        """No feature is a one-hot block in the data: a category is one column there."""
        return np.zeros(self.n_features, dtype=bool)

    @property
    def missing_columns(self) -> npt.NDArray[np.int64]:
        """None: what is missing is said by the values of records."""
        return np.zeros(0, dtype=np.int64)

    @property
    def n_words(self) -> int:
        """How many different words there are, in all text columns."""
        return sum(part.n_words for part in self.parts)

    @cached_property
    def word_starts(self) -> npt.NDArray[np.int64]:
        """The number of the first word of each text column."""
        return np.cumsum([0, *(part.n_words for part in self.parts)])[:-1]

    @cached_property
    def piece_starts(self) -> npt.NDArray[np.int64]:
        """The first column of the data of each text column and, last, of the other columns."""
        return np.cumsum([0, *(part.n_columns for part in self.parts)])

    @property
    def owners(self) -> npt.NDArray[np.int64]:
        """For each number that the other columns are encoded as, the column of the data."""
        first = int(self.piece_starts[-1])
        return np.zeros(0, dtype=np.int64) if self.table is None else first + self.table.column_feature

    def encode(self, X: Any, caller: str = "encode") -> Any:
        """A DataFrame with the columns of fit as `Records`."""
        X = containers.as_pandas(X)
        if not containers.is_frame(X):
            raise InputError(
                f"{caller}: X is {containers.describe(X)}, but a DataFrame with texts in {some(self.text_labels)} was "
                "fitted; give a DataFrame with the same columns."
            )
        X = self._match_columns(check_container(X, caller), caller)
        texts = [read_texts(X.iloc[:, j], c.label, caller) for j, c in enumerate(self.columns) if c.is_text]
        others = [j for j, column in enumerate(self.columns) if not column.is_text]
        values = np.zeros((len(X), 0)) if self.table is None else self.table.encode(X.iloc[:, others], caller)
        return self._records(texts, values)

    def _records(self, texts: Sequence[Sequence[str]], values: FloatArray) -> Records:
        documents = [
            Record.of(
                [part.document(text) for part, text in zip(self.parts, own, strict=True)],
                self.piece_starts[:-1].tolist(),
                self.word_starts.tolist(),
            )
            for own in zip(*texts, strict=True)
        ]
        n_others = self.n_columns - int(self.piece_starts[-1])
        others = np.arange(self.n_columns - n_others, self.n_columns)
        whole = [replace(document, columns=np.concatenate([document.columns, others])) for document in documents]
        made = Records.of(whole, self.n_columns)
        assert isinstance(made, Records)
        made.documents = np.empty(len(documents), dtype=object)
        made.documents[:] = documents
        made.values = values
        return made

    def decode(self, Z: Any) -> Any:
        """What is left of rows, as the DataFrame that the model takes."""
        if not isinstance(Z, Records) or Z.documents is None or Z.values is None:
            return super().decode(Z)  # which says why not
        return self.frame(Z.each_text(), Z.values)

    def replaced(self, documents: Documents, change: Callable[[Document], str]) -> Any:
        """Other texts in place of these, in a DataFrame as the model takes it."""
        assert isinstance(documents, Records)
        records, values = documents.documents, documents.values
        assert records is not None
        assert values is not None
        return self.frame([[change(part) for part in record.parts] for record in records], values)

    def frame(self, texts: Sequence[Sequence[str]], values: FloatArray) -> Any:
        """A DataFrame of the owner's kind, from the texts of each row and the other columns, encoded."""
        import pandas as pd

        others = iter(()) if self.table is None else iter(self.table.decode(values).items())
        columns = iter(zip(*texts, strict=True) if len(texts) else [[]] * len(self.parts))
        parts = [
            pd.Series(list(next(columns)), dtype=_dtype(column.dtype)) if column.is_text else next(others)[1]
            for column in self.columns
        ]
        frame = pd.DataFrame(dict(enumerate(parts)), index=pd.RangeIndex(len(texts)))
        frame.columns = pd.Index([column.label for column in self.columns])
        levels = {str(c.label): c.categories for c in self.columns if c.is_enum and c.categories is not None}
        return frame if self.kind == "pandas" else containers.to_backend(frame, self.kind, levels)

    def typical(self, values: FloatArray) -> Any:
        """A DataFrame with one row that is nobody's: empty texts, and the means or usual categories of the others."""
        mean = values.mean(axis=0, keepdims=True) if len(values) else np.zeros((1, len(self.owners)))
        for j in [] if self.table is None else self.table.absence.tolist():
            mean[:, j] = 0.0
        return self.frame([[""] * len(self.parts)], mean)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `restored`."""
        return super().to_json() | {
            "parts": [part.to_json() for part in self.parts],
            "table": None if self.table is None else self.table.to_json(),
            "edges": [list(one) for one in self.edges],
        }

    @classmethod
    def restored(cls, data: dict[str, Any], split: Splitter | None = None) -> TextTableFormat:
        """The inverse of `to_json`."""
        parts = tuple(TextFormat.restored(part, split) for part in data["parts"])
        table = None if data["table"] is None else InputFormat.from_json(data["table"])
        columns = tuple(FrameColumn.from_json(column) for column in data["columns"])
        edges = tuple(tuple(float(edge) for edge in one) for one in data["edges"])
        beside = [replace(column, is_enum=False) for column in columns if not column.is_text]
        known = [] if table is None else list(table.columns)
        n_texts, n_edges = len(columns) - len(beside), 0 if table is None else table.n_columns
        fits = beside == known and n_texts == len(parts) > 0 and len(edges) == n_edges
        if not fits:
            raise LoadError("The saved format of a table with texts is damaged: its columns do not fit together.")
        made = cls.of_parts(data["kind"], columns, parts, table, edges)
        if made.feature_names != data["feature_names"]:
            raise LoadError("The saved format of a table with texts is damaged: its features have other names.")
        return made


def read_texts(series: Any, label: Hashable, caller: str) -> list[str]:
    """The strings of a text column; anything else in it is refused."""
    missing = np.asarray(series.isna())
    if missing.any():
        rows = np.flatnonzero(missing).tolist()
        raise InputError(
            f"{caller}: the text column {label!r} has {len(rows)} missing texts (rows {some(rows)}), expected "
            f"strings. Give '' for an empty text, as with X[{label!r}].fillna(''), or drop those rows."
        )
    values: list[Any] = series.tolist()
    wrong = [row for row, value in enumerate(values) if not isinstance(value, str)]
    if wrong:
        raise InputError(
            f"{caller}: the text column {label!r} has {brief(values[wrong[0]])} in row {wrong[0]}, expected strings. "
            "Convert the column with astype(str), or leave it out of text_columns."
        )
    return values


def find_text_columns(X: Any) -> list[Hashable]:
    """The columns of a DataFrame that hold free text: strings of several words, most of which occur once."""
    import pandas as pd

    found = []
    for place, label in enumerate(X.columns):
        series = X.iloc[:, place]
        is_string = pd.api.types.is_object_dtype(series.dtype) or pd.api.types.is_string_dtype(series.dtype)
        if not is_string or isinstance(series.dtype, pd.CategoricalDtype):
            continue
        values = series.dropna().tolist()
        if len(values) < MIN_ROWS or not all(isinstance(value, str) for value in values):
            continue
        if len(set(values)) <= MIN_SHARE * len(values):
            continue
        if np.median([n_letter_words(value) for value in values]) >= MIN_WORDS:
            found.append(plain_label(label))
    return found


def n_letter_words(text: str) -> int:
    """How many words of a text have no digit: dates, ids and numbers have none such, or few."""
    return sum(not any(letter.isdigit() for letter in match.group()) for match in word_pattern().finditer(text))


def chosen_text_columns(X: Any, wanted: Any) -> list[Hashable]:
    """Which columns of a DataFrame are text: those that the user names, else those that look like it."""
    labels = [plain_label(label) for label in X.columns]
    if wanted is None:
        return find_text_columns(X)
    if isinstance(wanted, str) or not isinstance(wanted, Sequence):
        raise InputError(
            f"text_columns must be a list of column names, got {wanted!r}; write text_columns=[{wanted!r}]."
        )
    unknown = [name for name in wanted if name not in labels]
    if unknown:
        raise InputError(
            f"text_columns holds {some(unknown)}, but X has the columns {some(labels)}. Name columns of X."
        )
    return list(wanted)


def bins_of(values: FloatArray, table: InputFormat, column: int) -> tuple[float, ...]:
    """The bounds of bins that hold equally many rows, of a column of numbers; none of categories and indicators."""
    if table.is_categorical[table.column_feature[column]] or column in table.absence:
        return ()
    return tuple(np.unique(np.quantile(values, np.linspace(0, 1, N_BINS + 1))).tolist())
