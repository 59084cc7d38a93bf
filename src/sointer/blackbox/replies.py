"""Turn whatever a model returned into one table of outputs, or say what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sointer._support import containers
from sointer._support.validation import some
from sointer.blackbox.mask_replies import WRONG, Size, flat_masks, has_top_two, labels_of
from sointer.errors import BlackBoxError, InputError

Table = npt.NDArray[Any]
MAX_OUTPUT, MAX_DEPTH = 1e30, 32
"""Effects are in single precision, which ends at 3.4e38: sums of them over samples and units need room."""
MAX_TEXT = 2**22
"""Characters of all labels, if all were as long as the longest."""
MAX_LABEL = 10_000  # characters


class NamedTable(NamedTuple):
    """Outputs that bring the names of their columns, as a DataFrame does, without pandas."""

    table: Any
    names: list[str]


class ModelOutputs(NamedTuple):
    """Checked outputs: a table (n_rows, n_outputs), and their height and width if they were masks, and their names."""

    table: Table
    shape: Size | None
    names: list[str] | None


class TokenTexts(NamedTuple):
    """What a tagger returns: for each row one text, which holds the outputs of all its tokens and may be long."""

    texts: Table


def read_outputs(outputs: Any, n_rows: int, n_outputs: int | None, size: Size | None = None) -> ModelOutputs:
    """A model's outputs for `n_rows` rows as a table, or BlackBoxError; label dtypes are kept.

    `size` is the height and width of the rows where they are images: the outputs may then be masks.
    """
    names: list[str] | None = None
    max_label: int | None = MAX_LABEL
    if isinstance(outputs, TokenTexts):
        outputs, max_label = outputs.texts, None
    _refuse_parts(outputs, n_rows)
    outputs = containers.as_pandas(from_records(outputs))
    if isinstance(outputs, NamedTable):
        outputs, names = outputs
    elif containers.is_frame(outputs):
        names = [str(label) for label in outputs.columns]
    table = to_array(outputs)
    wanted = f"({n_rows}, {'n_outputs' if n_outputs is None else n_outputs})"
    got = containers.describe(outputs)
    if isinstance(outputs, (list, tuple)):
        got += f" (as an array: shape {table.shape})"
    shape = size if table.ndim > 2 else None
    if shape is not None:
        table, n_outputs = flat_masks(table, n_rows, shape, got), None  # the shape says how many there are
    if table.ndim == 1 and n_outputs in (None, 1) and len(table) == n_rows:
        table = table.reshape(-1, 1)
    if table.ndim != 2:
        raise BlackBoxError(f"{WRONG}{got}, expected shape {wanted}. {_shape_hint(table, n_rows)}")
    if table.shape[0] != n_rows:
        raise BlackBoxError(
            f"{WRONG}{table.shape[0]} rows ({got}) for {n_rows} rows of input, expected shape {wanted}. "
            f"{_shape_hint(table, n_rows)}"
        )
    if table.shape[1] == 0 or (n_outputs is not None and table.shape[1] != n_outputs):
        raise BlackBoxError(
            f"{WRONG}{table.shape[1]} outputs ({got}), expected shape {wanted}. "
            "Return the same outputs, at least one, in the same order on every call."
        )
    if not has_top_two(table):
        _check_values(table, got, max_label)
    return ModelOutputs(table, shape, names)


def from_records(outputs: Any) -> Any:
    """Records as a table with names; anything else as it is.

    A record is {name: number}; or a list with {"label": name, "score": number} for every label, as text-classification
    pipelines return it. Of the best label alone, {"label": name, "score": number}, the label is the output.
    """
    if not isinstance(outputs, (list, tuple)) or not outputs:
        return outputs
    if all(isinstance(row, (list, tuple)) and row and all(map(_is_scored, row)) for row in outputs):
        outputs = [{str(one["label"]): one["score"] for one in row} for row in outputs]
    elif all(map(_is_scored, outputs)):
        return NamedTable([[str(row["label"])] for row in outputs], ["label"])
    if not all(isinstance(row, dict) for row in outputs):
        return outputs
    names = sorted(map(str, outputs[0]))  # by score, or in any order, they may come otherwise with other texts
    rows = [{str(key): value for key, value in row.items()} for row in outputs]
    for number, row in enumerate(rows):
        if sorted(row) != names:
            raise BlackBoxError(
                f"{WRONG}records with other names, {', '.join(names)[:60]} at first, {', '.join(sorted(row))[:60]} in "
                f"number {number}; expected all outputs in every record. Give a pipeline top_k=None."
            )
    return NamedTable([[row[name] for name in names] for row in rows], names)


def _is_scored(record: Any) -> bool:
    return isinstance(record, dict) and set(record) == {"label", "score"}


def _refuse_parts(outputs: Any, n_rows: int) -> None:
    """Refuse several arrays, each with all rows, as modules with several heads return them."""
    shapes = [tuple(getattr(part, "shape", ())) for part in outputs] if isinstance(outputs, list | tuple) else []
    differ = len(set(shapes)) > 1 or (isinstance(outputs, tuple) and 0 < len(shapes) != n_rows and len(shapes[0]) > 1)
    if shapes and differ and all(shape[:1] == (n_rows,) for shape in shapes):
        table = " Or return all: numpy.column_stack(model(X))." if max(map(len, shapes)) < 3 else ""
        raise BlackBoxError(
            f"{WRONG}a {type(outputs).__name__} of {len(shapes)} arrays of shapes {', '.join(map(str, shapes[:3]))}, "
            f"expected one array of shape (rows, outputs). {_choose_part('0')}{table}"
        )


def stack(tables: list[Table]) -> Table:
    """Tables of the same width, one under the other; numbers never turn into strings."""
    if len({has_top_two(table) for table in tables}) == 2:
        tables = [labels_of(table) for table in tables]
    textual = {table.dtype.kind == "U" for table in tables if table.dtype.kind != "O"}
    if len(textual) == 2:
        tables = [table.astype(object) for table in tables]
    return np.concatenate(tables, axis=0)


def to_array(outputs: Any) -> Table:
    """What a model returned, of whatever type, as a numpy array."""
    if containers.is_frame(outputs):
        return _by_column(outputs)
    if containers.is_series(outputs):
        return _clean(outputs.to_numpy())
    if containers.is_tensor(outputs):
        return containers.tensor_to_numpy(outputs)
    if containers.is_sparse(outputs):
        return np.asarray(outputs.toarray())
    if isinstance(outputs, np.ndarray):
        if np.ma.is_masked(outputs):
            raise BlackBoxError(f"{WRONG}a masked array with hidden values, expected every output. Fill it in.")
        return _clean(np.asarray(outputs))
    if isinstance(outputs, Mapping):
        keys = [repr(key) for key in outputs][:5]
        raise BlackBoxError(
            f"{WRONG}a {type(outputs).__name__} with the keys {', '.join(keys)}, expected one array of shape (rows, "
            f"outputs). {_choose_part(next(iter(keys), '...'))} If each is one output, return a table of them: "
            "pandas.DataFrame(model(X))."
        )
    if isinstance(outputs, (list, tuple)):
        if len(outputs) and all(containers.is_tensor(part) for part in outputs):
            outputs = [containers.tensor_to_numpy(part) for part in outputs]
        try:
            # numpy writes numbers beside strings as strings, all as wide as the longest; objects stay as they are.
            table = np.asarray(outputs, dtype=object if holds_text(outputs) else None)
            if table.dtype.kind == "O" and any(isinstance(cell, (list, tuple)) for cell in table.ravel()[:1]):
                raise ValueError("rows of different lengths")
            return _clean(table)
        except ValueError as exc:
            raise BlackBoxError(
                f"{WRONG}{containers.describe(outputs)} with parts of different lengths, expected a rectangular table. "
                "Return one row of equally many outputs for each row of input."
            ) from exc
    raise BlackBoxError(
        f"{WRONG}{containers.describe(outputs)}, expected an array of shape (rows, outputs). "
        "Return a numpy array, list, DataFrame, sparse matrix or tensor."
    )


def _by_column(frame: Any) -> Table:
    """A DataFrame as an array; truth values, whole numbers and fractions beside each other each stay what they are."""
    kinds = {getattr(dtype, "kind", "O").replace("u", "i") for dtype in frame.dtypes}
    if len(kinds) < 2:
        return _clean(frame.to_numpy())
    table = np.empty(frame.shape, dtype=object)
    for j in range(frame.shape[1]):
        table[:, j] = _clean(frame.iloc[:, j].to_numpy()).tolist()
    return table


def holds_text(outputs: Any, depth: int = 0) -> bool:
    """Whether there are strings in nested lists; ValueError if they are deeper than any table, as one within itself."""
    if depth > MAX_DEPTH:
        raise ValueError("lists are nested too deeply")
    return any(
        isinstance(part, (str, bytes)) or (isinstance(part, (list, tuple)) and holds_text(part, depth + 1))
        for part in outputs
    )


def _choose_part(part: str) -> str:
    """How to explain one of several things that a model returns."""
    return (
        f"Wrap the model so that it returns the one to explain: a function such as lambda X: model(X)[{part}], or for "
        f"torch a module whose forward returns self.model(x)[{part}]."
    )


def _clean(table: Table) -> Table:
    """Object and variable-width string arrays as the plainest dtype that holds their values.

    Strings of which one is very long stay objects, as in an array all are given room for the longest.
    """
    if table.dtype.kind == "U" and table.dtype.itemsize > 4 * MAX_LABEL:  # room for long labels
        return table.astype(f"U{min(max(1, int(np.char.str_len(table).max(initial=1))), MAX_LABEL + 1)}")
    if table.dtype.kind not in "OT":
        return table
    # Cells are made plain first: a numpy scalar inside an object array is still a number.
    cells = [cell.item() if isinstance(cell, np.generic) else cell for cell in table.ravel().tolist()]
    types = {type(cell) for cell in cells}
    wrong = [cell for cell in cells if type(cell) not in (str, bool, int, float)]
    if wrong:
        raise BlackBoxError(
            f"{WRONG}an array of objects that holds {wrong[0]!r:.80} of type {type(wrong[0]).__name__}, "
            "expected labels (strings, numbers, booleans). Return one label or number for each row and output."
        )
    if int in types and not all(-(2**63) <= cell < 2**64 for cell in cells if type(cell) is int):
        raise BlackBoxError(f"{WRONG}whole numbers of more than 64 bits, expected smaller ones. Return labels as text.")
    n_long = max((len(cell) for cell in cells if type(cell) is str), default=0)
    if str in types and (len(types) > 1 or n_long * len(cells) > MAX_TEXT):
        mixed = np.empty(len(cells), dtype=object)
        mixed[:] = cells
        return mixed.reshape(table.shape)
    return np.array(cells).reshape(table.shape)


def _check_values(table: Table, got: str, max_label: int | None) -> None:
    if table.dtype.kind not in "biufUO":
        raise BlackBoxError(
            f"{WRONG}values of dtype {table.dtype} ({got}), expected numbers, booleans or strings. Convert them."
        )
    longest = table.dtype.itemsize // 4 if table.dtype.kind == "U" else 0
    if table.dtype.kind == "O":
        longest = max((len(cell) for cell in table.ravel().tolist() if isinstance(cell, str)), default=0)
    if max_label is not None and longest > max_label:
        raise BlackBoxError(
            f"{WRONG}a label of more than {max_label:,} characters ({got}), expected the name of a class. Return short "
            "labels; a text that the model writes is no output that can be explained."
        )
    if table.dtype.kind == "O":
        size = np.array([[abs(c) if isinstance(c, float) else 0.0 for c in row] for row in table.tolist()])
    elif table.dtype.kind == "f":
        size = np.abs(table)
    else:
        return
    largest = min(MAX_OUTPUT, float(np.finfo(size.dtype).max))  # what the dtype cannot hold is infinite there
    wrong = ~(size <= largest)  # nor is NaN
    if wrong.any():
        what, instead = f"numbers beyond {MAX_OUTPUT:g}", "smaller ones. Divide them by a constant, or take logarithms."
        if not np.isfinite(size).all():
            what, instead = "NaN or infinite values", "finite ones. Check what it returns where features are removed."
        row, output = np.argwhere(wrong)[0]
        raise BlackBoxError(f"{WRONG}{wrong.sum()} {what} (first at row {row}, output {output}), expected {instead}")


def refuse_other_order(outputs: Any, X: Any) -> None:
    """Refuse a table whose labels are those of X in another order: a model that sorts returns other rows' outputs."""
    if not containers.is_frame(X) or not (containers.is_frame(outputs) or containers.is_series(outputs)):
        return
    given, wanted = outputs.index, X.index
    is_new = getattr(given, "step", 0) == 1 and given.start == 0  # a RangeIndex: made without labels, whatever X has
    if is_new or len(given) != len(wanted) or given.equals(wanted) or not (wanted.is_unique and given.is_unique):
        return
    if wanted.isin(given).all():
        raise BlackBoxError(
            f"{WRONG}rows in another order than those of X, by their index ({given[0]!r} comes first, expected "
            f"{wanted[0]!r}). Return outputs.loc[X.index]; if they are in the order of X, outputs.set_axis(X.index)."
        )


def refuse_other_labels(outputs: Any, X: Any) -> None:
    """Refuse a table of given outputs whose labels are those of other rows than X, where both have labels."""
    given, wanted = containers.row_labels(outputs), containers.row_labels(X)
    if given is None or wanted is None or len(given) != len(wanted) or given.equals(wanted):
        return
    other = given[~given.isin(wanted)]
    if len(other) and given.dtype == wanted.dtype:
        raise InputError(
            f"explain: predicted has the index {other[0]!r}, expected that of X, which begins with {wanted[0]!r}. Give "
            "what the model predicts for X; if these are its rows in their order, predicted.set_axis(X.index)."
        )


def in_known_order(table: Table, names: list[str] | None, known: list[str] | None) -> Table:
    """Outputs in the order of the names that the model gave them at first; other names are refused."""
    if names is None or known is None or names == known:
        return table
    if sorted(names) != sorted(known):
        new, gone = [name for name in names if name not in known], [name for name in known if name not in names]
        raise BlackBoxError(
            f"{WRONG}the outputs {some(new)} in place of {some(gone)}, expected those of earlier calls. Return the "
            "same columns on every call: of pandas.get_dummies, for example, .reindex(columns=[...], fill_value=0)."
        )
    return table[:, [names.index(name) for name in known]]


def _shape_hint(table: Table, n_rows: int) -> str:
    if table.ndim == 1 and len(table) != n_rows and n_rows == 1:
        return "For one row of input return a table with one row, not a flat list."
    if table.ndim == 3 and table.shape[1] == n_rows:
        return (
            "A list of arrays, one per output, comes from predict_proba: give the estimator itself, or return the "
            "probability of each output's second class, numpy.column_stack([one[:, 1] for one in outputs])."
        )
    if table.ndim > 2:
        return "Flatten the outputs of each row with outputs.reshape(len(outputs), -1)."
    if table.ndim == 2 and table.shape[1] == n_rows:
        return "A list of arrays, one per output, is made one table by numpy.column_stack(outputs)."
    return "Return one row of outputs for each row of input."


def check_same_shape(shape: Size | None, known: Size | None) -> None:
    """Refuse outputs that are laid out differently from those of earlier calls."""
    if shape != known:
        raise BlackBoxError(
            f"{WRONG}{_in_words(shape)}, expected {_in_words(known)} as in earlier calls. "
            "Return outputs of the same shape on every call."
        )


def _in_words(shape: Size | None) -> str:
    return "a flat table of outputs" if shape is None else f"masks of {shape[0]} x {shape[1]} pixels"


@dataclass(frozen=True, eq=False)
class ClassProbabilities:
    """Probabilities of the classes of all outputs side by side: (rows, classes of all outputs)."""

    predict: Callable[[Any], Any]
    """Rows -> such a table."""
    classes: tuple[npt.NDArray[Any], ...]
    """The labels of each output, in the order of their probabilities."""

    @property
    def n_columns(self) -> int:
        """How many columns a table of all probabilities has."""
        return sum(map(len, self.classes))

    def most_probable(self, table: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The labels that such a table speaks for: (rows, outputs)."""
        blocks = np.split(table, np.cumsum([len(labels) for labels in self.classes])[:-1], axis=1)
        parts = zip(self.classes, blocks, strict=True)
        return np.column_stack([labels[part.argmax(axis=1)] for labels, part in parts])


@dataclass(frozen=True, eq=False)
class Soft:
    """Outputs as probabilities: (rows, classes of all outputs)."""

    classes: tuple[npt.NDArray[Any], ...]
    """Of every output; none of masks, whose table is one of `TOP_TWO`: (rows, pixels)."""
    table: npt.NDArray[Any]

    @staticmethod
    def join(parts: Sequence[Soft | None]) -> Soft | None:
        """Several tables, one below the other; None unless all are there."""
        known = [part for part in parts if part is not None]
        if not known or len(known) < len(parts):
            return None
        return Soft(known[0].classes, np.concatenate([part.table for part in known]))
