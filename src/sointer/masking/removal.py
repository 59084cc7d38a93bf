"""What every removal can do."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.ndimage import gaussian_filter1d

from sointer._support import containers
from sointer._support.validation import call_function
from sointer.data.images import ImageShape
from sointer.data.text_tables import Records
from sointer.data.texts import Documents
from sointer.errors import InputError, LoadError

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
RemovalFunction = Callable[[FloatArray, BoolArray, np.random.Generator], npt.ArrayLike]


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
        """Plain JSON and arrays from which `restore_removal` makes the same removal."""


def check_mask(Z: FloatArray, keep: BoolArray, n_columns: int) -> None:
    """InputError unless Z is dense, of this width, and the mask is of its shape."""
    if not isinstance(Z, np.ndarray) or Z.ndim != 2 or Z.shape[1] != n_columns:
        raise InputError(
            f"Removal got {containers.describe(Z)}, expected a dense array (n, {n_columns}). Encode X first."
        )
    if keep.shape != Z.shape or keep.dtype != np.bool_:
        raise InputError(
            f"The mask is {containers.describe(keep)}, expected booleans of shape {Z.shape}, True for what is kept."
        )


class FixedRemoval(Removal):
    """Every removed column takes the same value in every sample."""

    is_random = False

    def __init__(self, name: str, reference: FloatArray) -> None:
        self.name = name
        self.reference = reference
        self.keeps_zeros = not reference.any()

    def apply(self, Z: FloatArray, keep: BoolArray, rng: np.random.Generator) -> FloatArray:
        check_mask(Z, keep, len(self.reference))
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


class TextRemoval(FixedRemoval):
    """Words are deleted from texts, or replaced by a token."""

    def __init__(self, n_columns: int, token: str | None = None) -> None:
        super().__init__("delete" if token is None else "token", np.zeros(n_columns))
        self.token = token

    def reduce(self, rows: Any, keep: BoolArray, rng: np.random.Generator) -> Any:
        return rows.masked(keep, self.token) if isinstance(rows, Documents) else super().reduce(rows, keep, rng)

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        return {"type": "text", "name": self.name, "token": self.token, "n_columns": len(self.reference)}, {}


MAX_BACKGROUND_ROWS = 1000


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
        if n > MAX_BACKGROUND_ROWS:
            chosen = np.sort(rng.choice(n, MAX_BACKGROUND_ROWS, replace=False))
        return cls(data[chosen], (low != high).ravel())

    def known_rows(self) -> Any:
        """The rows, if there are any."""
        if self.rows.shape[0] == 0:
            raise InputError(
                "This explainer was saved with rows='none': it holds no rows of the training data, which verify, paths "
                "and refine put in the place of what is removed. Save it with rows='synthetic' or rows='keep'."
            )
        return self.rows

    def draw(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Whole rows, drawn with replacement: (n, n_columns)."""
        return self.take(rng.integers(self.known_rows().shape[0], size=n))

    def take(self, index: npt.NDArray[np.int64]) -> FloatArray:
        """Whole rows by number, dense: (n, n_columns)."""
        taken = self.rows[index]
        return np.asarray(taken.toarray() if containers.is_sparse(taken) else taken, dtype=np.float64)

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Metadata for JSON, and arrays."""
        if not containers.is_sparse(self.rows):
            return {"shape": None}, {"varies": self.varies, "rows": self.rows}
        kept = {"data": self.rows.data, "indices": self.rows.indices, "indptr": self.rows.indptr}
        if isinstance(self.rows, Records) and self.rows.values is not None:
            kept["values"] = self.rows.values
        return {"shape": [int(side) for side in self.rows.shape]}, {"varies": self.varies, **kept}

    @classmethod
    def from_state(cls, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Background:
        """What `state` described."""
        varies = np.asarray(arrays["varies"], dtype=bool)
        if meta["shape"] is None:
            return cls(np.asarray(arrays["rows"], dtype=np.float64), varies)
        parts, shape = (arrays["data"], arrays["indices"], arrays["indptr"]), tuple(meta["shape"])
        if "values" not in arrays:
            return cls(containers.csr_array(parts, shape=shape), varies)
        values = np.asarray(arrays["values"], dtype=np.float64)
        return cls(Records.holding(containers.csr_array(parts, shape=shape), values), varies)


class RemovalByRows(Removal):
    """What is removed comes from rows of the training data: from any of them where nothing is kept."""

    is_random = True
    background: Background

    def references(self, n: int, rng: np.random.Generator) -> FloatArray:
        return self.background.draw(n, rng)

    def differs(self, Z: FloatArray) -> BoolArray:
        return np.tile(self.background.varies, (len(Z), 1))


class MarginalRemoval(RemovalByRows):
    """The removed columns of a sample are taken together from one training row drawn at random.

    One row for all of them keeps one-hot blocks valid and the absent features consistent with each other.
    """

    name = "marginal"

    def __init__(self, background: Background) -> None:
        self.background = background

    def apply(self, Z: FloatArray, keep: BoolArray, rng: np.random.Generator) -> FloatArray:
        check_mask(Z, keep, self.background.n_columns)
        drawn = self.background.draw(len(Z), rng)
        np.copyto(drawn, Z, where=keep)
        return drawn

    def draws(self, Z: FloatArray, keep: BoolArray, n: int, rng: np.random.Generator) -> Iterator[FloatArray]:
        for reference in self.references(n, rng):
            yield np.where(keep, Z, reference)

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        meta, arrays = self.background.state()
        return {"type": "marginal", "name": self.name, **meta}, arrays


class TextTableRemoval(TextRemoval):
    """Words are deleted, or replaced by a token; other removed columns come together from one training row."""

    is_random = True

    def __init__(
        self, n_columns: int, token: str | None, background: Background, owners: npt.NDArray[np.int64]
    ) -> None:
        super().__init__(n_columns, token)
        self.name += ", marginal"
        self.background = background
        """The other columns of training rows, encoded."""
        self.owners = owners
        """The column of the data that each of their numbers belongs to."""

    def reduce(self, rows: Any, keep: BoolArray, rng: np.random.Generator) -> Any:
        return self._filled(rows, keep, self.background.draw(rows.shape[0], rng))

    def draws(self, Z: Any, keep: BoolArray, n: int, rng: np.random.Generator) -> Iterator[Any]:
        for reference in self.background.draw(n, rng):
            yield self._filled(Z, keep, reference)

    def _filled(self, rows: Records, keep: BoolArray, drawn: FloatArray) -> Records:
        made = rows.masked(keep, self.token)
        assert rows.values is not None
        made.values = np.where(keep[:, self.owners], rows.values, drawn)
        return made

    def differs(self, Z: FloatArray) -> BoolArray:
        """Words that are there, and other columns that vary."""
        found, varies = super().differs(Z), np.zeros(Z.shape[1], dtype=bool)
        varies[self.owners[self.background.varies]] = True
        others = np.unique(self.owners)
        found[:, others] &= varies[others]
        return found

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        meta, arrays = self.background.state()
        own = super().state()[0] | {"type": "text table"}
        return own | meta, arrays | {"owners": self.owners}


# The function is its owner's: fit calls it while training and while querying, which are two threads.
_one_at_a_time = threading.RLock()


class FunctionRemoval(RemovalByRows):
    """The user's own function (Z, keep, rng) -> Z, on encoded numbers; what it returns is checked.

    Images, and what to keep of them, are given to it as (n, channels, height, width).
    """

    def __init__(
        self, function: RemovalFunction | None, background: Background, name: str, image: ImageShape | None = None
    ) -> None:
        self.function = function
        self.background = background
        self.name = name
        self.image = image

    def apply(self, Z: FloatArray, keep: BoolArray, rng: np.random.Generator) -> FloatArray:
        check_mask(Z, keep, self.background.n_columns)
        if self.function is None:
            raise LoadError(
                f"This explainer removes features with its owner's function {self.name!r}, which is not "
                "saved; expected it to be given again on loading. Load it with sointer.load(path, removal=function)."
            )
        given, kept = (Z, keep) if self.image is None else (self.image.unflatten(Z), self.image.unflatten(keep))
        with _one_at_a_time:
            returned = call_function(
                self.function,
                given.copy(),
                kept.copy(),
                rng,
                what=f"The removal function {self.name!r}",
                signature="(x, keep, rng) -> x",
                given=f"{containers.describe(given)}, keep of the same shape and a numpy Generator",
            )
        filled = np.asarray(returned)
        where = f"The removal function {self.name!r} returned"
        if filled.shape != given.shape or filled.dtype.kind not in "biuf":
            raise InputError(
                f"{where} {containers.describe(filled)}, expected numbers of shape {given.shape}. Return the array it "
                "is given, with values filled in where the mask is False."
            )
        filled = filled.astype(np.float64).reshape(Z.shape)
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

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        meta, arrays = self.background.state()
        image = None if self.image is None else [self.image.channels, self.image.height, self.image.width]
        return {"type": "function", "name": self.name, "image": image, **meta}, arrays


SHARE_OF_HEIGHT = 1 / 8
TOLERANCE = 1e-9  # blurring rounds: smaller differences, as a share of the largest value, are none


class BlurRemoval(Removal):
    """Each channel of an image, blurred by a Gaussian with a standard deviation of an eighth of the image's height.

    Beyond the edges an image goes on with the values at its edges. Where images hold integers, so do blurred ones.
    """

    name = "blur"
    is_random = False

    def __init__(self, image: ImageShape, usual: FloatArray, *, whole: bool) -> None:
        self.image = image
        self.usual = usual
        self.whole = whole
        sigma = SHARE_OF_HEIGHT * image.height
        # A blur is linear in the rows and in the columns, so it is two small matrix products.
        self._down = gaussian_filter1d(np.eye(image.height), sigma, axis=0, mode="nearest")
        self._across = gaussian_filter1d(np.eye(image.width), sigma, axis=0, mode="nearest").T

    def blurred(self, Z: FloatArray) -> FloatArray:
        """Encoded images with everything removed."""
        images = self._down @ self.image.unflatten(Z) @ self._across
        return np.asarray((np.rint(images) if self.whole else images).reshape(Z.shape))

    def apply(self, Z: FloatArray, keep: BoolArray, rng: np.random.Generator) -> FloatArray:
        check_mask(Z, keep, self.image.n_columns)
        return np.where(keep, Z, self.blurred(Z))

    def references(self, n: int, rng: np.random.Generator) -> FloatArray:
        """The blurred mean of the training images; what an image becomes itself depends on the image."""
        return self.blurred(self.usual[None])

    def differs(self, Z: FloatArray) -> BoolArray:
        return np.asarray(np.abs(Z - self.blurred(Z)) > TOLERANCE * np.abs(Z).max(axis=1, keepdims=True))

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        image = [self.image.channels, self.image.height, self.image.width]
        return {"type": "blur", "name": self.name, "image": image, "whole": self.whole}, {"usual": self.usual}
