"""What "absent" means: the values that stand in for removed features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from sointer import containers
from sointer.containers import describe
from sointer.errors import InputError, LoadError
from sointer.inputs import InputFormat
from sointer.validation import _some

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
RemovalFunction = Callable[[FloatArray, BoolArray, np.random.Generator], npt.ArrayLike]

MOST_BACKGROUND_ROWS = 1000
SPARSE_SHARE = 0.6  # a non-negative matrix with this share of zeros is read as counts, where 0 means absent


class Removal(ABC):
    """Fills removed columns; kept ones are never touched.

    All methods work on encoded numbers (n samples, n columns).
    """

    name: str
    is_random: ClassVar[bool]

    @abstractmethod
    def apply(self, Z: FloatArray, keep: BoolArray, rng: np.random.Generator) -> FloatArray:
        """Z (n, n_columns) where `keep` (n, n_columns) is True, and stand-in values elsewhere."""

    keeps_zeros: bool = False
    """Whether what is removed becomes zero, so that sparse rows stay sparse."""

    def reduce(self, rows: Any, keep: BoolArray, rng: np.random.Generator) -> Any:
        """`apply` for dense or CSR rows; the latter stay CSR where what is removed becomes zero."""
        return self.apply(rows.toarray() if containers.is_sparse(rows) else rows, keep, rng)

    def draws(self, Z: FloatArray, keep: BoolArray, n: int, rng: np.random.Generator) -> Iterator[FloatArray]:
        """Z reduced n times (once if nothing is random), each time by the same draw for all rows where possible.

        What becomes of a row then does not depend on the rows around it.
        """
        for _ in range(n if self.is_random else 1):
            yield self.apply(Z, keep, rng)

    @abstractmethod
    def references(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Rows with everything removed: (m, n_columns), m = 1 if they are all the same, else n."""

    @abstractmethod
    def differs(self, Z: FloatArray) -> BoolArray:
        """Where removal could change Z: (n, n_columns)."""

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Plain JSON and arrays from which `from_state` makes the same removal."""

    @staticmethod
    def from_state(
        meta: Mapping[str, Any],
        arrays: Mapping[str, npt.NDArray[Any]],
        function: RemovalFunction | None = None,
    ) -> Removal:
        """The inverse of `state`. A function is never saved: give it again, or using the removal fails."""
        try:
            if meta["type"] == "fixed":
                return FixedRemoval(meta["name"], np.asarray(arrays["reference"], dtype=np.float64))
            background = Background.from_state(meta, arrays)
        except (KeyError, TypeError, ValueError) as exc:
            raise LoadError(
                f"The saved removal is incomplete or of another version: {exc!r}; expected what "
                "Removal.state writes. Save it again with this version."
            ) from exc
        if meta["type"] == "marginal":
            return MarginalRemoval(background)
        return FunctionRemoval(function, background, meta["name"])


class FixedRemoval(Removal):
    """Every removed column takes the same value in every sample."""

    is_random = False

    def __init__(self, name: str, reference: FloatArray) -> None:
        self.name = name
        self.reference = reference
        self.keeps_zeros = not reference.any()

    def apply(self, Z: FloatArray, keep: BoolArray, rng: np.random.Generator) -> FloatArray:
        _check_mask(Z, keep, len(self.reference))
        # where, never multiplication: a value that is not finite must not leak into what was removed.
        return np.where(keep, Z, self.reference)

    def reduce(self, rows: Any, keep: BoolArray, rng: np.random.Generator) -> Any:
        if not (self.keeps_zeros and containers.is_sparse(rows)):
            return super().reduce(rows, keep, rng)
        row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        kept = keep[row, rows.indices]
        starts = np.concatenate([[0], np.cumsum(kept)])[rows.indptr]
        return containers.csr_array((rows.data[kept], rows.indices[kept], starts), shape=rows.shape)

    def references(self, n: int, rng: np.random.Generator) -> FloatArray:
        return np.tile(self.reference, (1, 1))

    def differs(self, Z: FloatArray) -> BoolArray:
        return np.asarray(self.reference != Z)

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        return {"type": "fixed", "name": self.name}, {"reference": self.reference}


class MarginalRemoval(Removal):
    """The removed columns of a sample are taken together from one training row drawn at random.

    One row for all of them keeps one-hot blocks valid and the absent features consistent with each other.
    """

    is_random = True
    name = "marginal"

    def __init__(self, background: Background) -> None:
        self.background = background

    def apply(self, Z: FloatArray, keep: BoolArray, rng: np.random.Generator) -> FloatArray:
        _check_mask(Z, keep, self.background.n_columns)
        return np.where(keep, Z, self.background.draw(len(Z), rng))

    def draws(self, Z: FloatArray, keep: BoolArray, n: int, rng: np.random.Generator) -> Iterator[FloatArray]:
        for reference in self.references(n, rng):
            yield np.where(keep, Z, reference)

    def references(self, n: int, rng: np.random.Generator) -> FloatArray:
        return self.background.draw(n, rng)

    def differs(self, Z: FloatArray) -> BoolArray:
        return np.tile(self.background.varies, (len(Z), 1))

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        meta, arrays = self.background.state()
        return {"type": "marginal", "name": self.name, **meta}, arrays


class FunctionRemoval(Removal):
    """The user's own function (Z, keep, rng) -> Z, on encoded numbers; what it returns is checked."""

    is_random = True

    def __init__(self, function: RemovalFunction | None, background: Background, name: str) -> None:
        self.function = function
        self.background = background
        self.name = name

    def apply(self, Z: FloatArray, keep: BoolArray, rng: np.random.Generator) -> FloatArray:
        _check_mask(Z, keep, self.background.n_columns)
        if self.function is None:
            raise LoadError(
                f"This explainer removes features with its owner's function {self.name!r}, which is not "
                "saved; expected it to be given again on loading. Load it with sointer.load(path, removal=function)."
            )
        filled = np.asarray(self.function(Z.copy(), keep.copy(), rng))
        where = f"The removal function {self.name!r} returned"
        if filled.shape != Z.shape or filled.dtype.kind not in "biuf":
            raise InputError(
                f"{where} {describe(filled)}, expected numbers of shape {Z.shape}. Return the array it is "
                "given, with values filled in where the mask is False."
            )
        filled = filled.astype(np.float64)
        if not np.array_equal(filled[keep], Z[keep], equal_nan=True):
            raise InputError(
                f"{where} other values for features that are kept, expected them as they were. Change only "
                "the entries where the mask is False, for example with np.where(keep, x, value)."
            )
        if not np.isfinite(filled[~keep]).all():
            raise InputError(f"{where} NaN or infinite values, expected finite ones. Fill every removed entry.")
        return filled

    def references(self, n: int, rng: np.random.Generator) -> FloatArray:
        base = self.background.draw(n, rng)
        return self.apply(base, np.zeros(base.shape, dtype=bool), rng)

    def differs(self, Z: FloatArray) -> BoolArray:
        return np.tile(self.background.varies, (len(Z), 1))

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        meta, arrays = self.background.state()
        return {"type": "function", "name": self.name, **meta}, arrays


class Background:
    """A sample of training rows, sparse if they came so, and which columns vary in all of them."""

    def __init__(self, rows: Any, varies: BoolArray) -> None:
        self.rows = rows
        self.varies = varies
        self.n_columns = int(rows.shape[1])

    @classmethod
    def of(cls, data: Any, rng: np.random.Generator) -> Background:
        """At most 1000 rows of the training matrix."""
        if containers.is_sparse(data):
            low, high = np.asarray(data.min(axis=0).todense()), np.asarray(data.max(axis=0).todense())
        else:
            low, high = data.min(axis=0), data.max(axis=0)
        n = data.shape[0]
        chosen = np.arange(n)
        if n > MOST_BACKGROUND_ROWS:
            chosen = np.sort(rng.choice(n, MOST_BACKGROUND_ROWS, replace=False))
        return cls(data[chosen], (low != high).ravel())

    def draw(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Whole rows, drawn with replacement: (n, n_columns)."""
        drawn = self.rows[rng.integers(self.rows.shape[0], size=n)]
        return np.asarray(drawn.toarray() if containers.is_sparse(drawn) else drawn, dtype=np.float64)

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        if not containers.is_sparse(self.rows):
            return {"shape": None}, {"varies": self.varies, "rows": self.rows}
        kept = {"data": self.rows.data, "indices": self.rows.indices, "indptr": self.rows.indptr}
        return {"shape": [int(side) for side in self.rows.shape]}, {"varies": self.varies, **kept}

    @classmethod
    def from_state(cls, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Background:
        varies = np.asarray(arrays["varies"], dtype=bool)
        if meta["shape"] is None:
            return cls(np.asarray(arrays["rows"], dtype=np.float64), varies)
        parts = (arrays["data"], arrays["indices"], arrays["indptr"])
        return cls(containers.csr_array(parts, shape=tuple(meta["shape"])), varies)


def make_removal(spec: Any, data: Any, input_format: InputFormat, rng: np.random.Generator | None = None) -> Removal:
    """Make a removal from its name, a reference row, or a function; `data` is the encoded training matrix.

    "zero" and "mean" give a category its most frequent value, since neither 0 nor a mean of a one-hot block
    names one. "auto" is "zero" for CSR and for non-negative numbers that are at least 60 % zeros, else
    "marginal". A row holds one value per feature (category names for categories) or one per numeric column.
    """
    rng = np.random.default_rng(0) if rng is None else rng
    if isinstance(spec, Removal):
        return spec
    if callable(spec):
        name = getattr(spec, "__name__", type(spec).__name__)
        return FunctionRemoval(spec, Background.of(data, rng), name)
    if isinstance(spec, str):
        chosen = _auto(data, input_format) if spec == "auto" else spec
        if chosen == "marginal":
            return MarginalRemoval(Background.of(data, rng))
        if chosen in ("zero", "mean"):
            return FixedRemoval(chosen, _fixed_reference(chosen, data, input_format))
    elif isinstance(spec, (np.ndarray, list, tuple)) or hasattr(spec, "__array__"):
        return FixedRemoval("array", _given_reference(spec, input_format))
    raise InputError(
        "removal must be 'auto', 'zero', 'mean', 'marginal', an array or a function (x, keep, rng) -> x, "
        f"got {spec!r}. Choose one of these."
    )


def _auto(data: Any, input_format: InputFormat) -> str:
    if containers.is_sparse(data) or input_format.kind == "csr":
        return "zero"
    # One-hot blocks are mostly zeros by construction and say nothing about what 0 means.
    numbers = data[:, ~input_format.is_categorical[input_format.column_feature]]
    if numbers.size and numbers.min() >= 0 and np.mean(numbers == 0) >= SPARSE_SHARE:
        return "zero"
    return "marginal"


def _fixed_reference(name: str, data: Any, input_format: InputFormat) -> FloatArray:
    means = np.asarray(data.mean(axis=0), dtype=np.float64).ravel()
    reference = means.copy() if name == "mean" else np.zeros(len(means))
    for feature in np.flatnonzero(input_format.is_categorical):
        block = np.flatnonzero(input_format.column_feature == feature)
        reference[block] = 0.0
        reference[block[np.argmax(means[block])]] = 1.0  # the mean of a 0/1 column is its frequency
    return reference


def _given_reference(spec: Any, input_format: InputFormat) -> FloatArray:
    values = np.asarray(spec, dtype=object)
    n_features, n_columns = input_format.n_features, input_format.n_columns
    if values.ndim == 1 and len(values) == n_features and input_format.is_categorical.any():
        return _encode_row(values.tolist(), input_format)
    if values.ndim != 1 or len(values) not in (n_features, n_columns):
        raise InputError(
            f"removal as an array must hold {n_features} values, one per feature"
            + (f", or {n_columns}, one per numeric column" if n_columns != n_features else "")
            + f"; got shape {values.shape}. Give one flat row."
        )
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError) as exc:
        raise InputError(f"removal as an array must hold numbers, got {_some(values.tolist())}. Convert it.") from exc
    if not np.isfinite(numbers).all():
        raise InputError(f"removal as an array must be finite, got {_some(numbers.tolist())}. Replace NaN and inf.")
    return numbers


def _encode_row(values: list[Any], input_format: InputFormat) -> FloatArray:
    """One value per feature, with names for categories, as numeric columns."""
    import pandas as pd

    columns = input_format.columns
    frame = pd.DataFrame({j: [value] for j, value in enumerate(values)})
    frame.columns = pd.Index([column.label for column in columns])
    row: FloatArray = input_format.encode(frame, caller="removal")[0]
    return row


def _check_mask(Z: FloatArray, keep: BoolArray, n_columns: int) -> None:
    if not isinstance(Z, np.ndarray) or Z.ndim != 2 or Z.shape[1] != n_columns:
        raise InputError(f"Removal got {describe(Z)}, expected a dense array (n, {n_columns}). Encode X first.")
    if keep.shape != Z.shape or keep.dtype != np.bool_:
        raise InputError(
            f"The mask is {describe(keep)}, expected booleans of shape {Z.shape}. Give True for what is kept."
        )
