"""Conditional removal: similar data take the place, rows near in what is kept or tokens from the same kind of place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.sparsefuncs import mean_variance_axis

from sointer._support import containers
from sointer._support.validation import call_function
from sointer.config import Rows
from sointer.data.sequences import TokenIndex, Tokens
from sointer.errors import InputError
from sointer.masking.removal import Background, BoolArray, FloatArray, RemovalByRows, check_mask

N_NEAREST = 10
MAX_SHARE = 0.1  # of few background rows, at most this share counts as near
TOLERANCE = 1e-9  # squared distances that differ by less are equal
MIN_VARIANCE = 1e-24  # as a share of the squared mean
CHUNK_ENTRIES = 2**21
HASH_ROWS = 256


class ConditionalRemoval(RemovalByRows):
    """The removed columns of a sample are taken together from one of the training rows nearest to it in the kept ones.

    Every feature has the same weight in a distance, whatever its unit and however many columns it has. A
    training row is never its own donor. With nothing kept, all rows are equally near: a marginal draw.
    """

    name = "conditional"

    def __init__(self, background: Background, scale: FloatArray) -> None:
        self.background = background
        self.scale = scale
        rows = background.rows
        n_rows = int(rows.shape[0])
        self.n_nearest = max(1, min(N_NEAREST, int(MAX_SHARE * n_rows)))
        self._center = np.zeros(background.n_columns)
        if containers.is_sparse(rows):
            scaled: Any = rows.multiply(scale).T.tocsr()
            self._terms: Any = sparse.vstack([scaled.multiply(scaled), -2.0 * scaled], format="csc")
        else:
            self._center = rows.mean(axis=0)
            scaled = ((rows - self._center) * scale).T
            self._terms = np.ascontiguousarray(np.vstack([scaled**2, -2.0 * scaled]))
        hashes = row_hashes(rows)
        self._by_hash = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._by_hash]

    @classmethod
    def of(cls, background: Background, column_feature: npt.NDArray[np.int64]) -> ConditionalRemoval:
        """Scale columns so that two rows differ equally much, on average, in every feature that varies."""
        variance = np.bincount(column_feature, weights=_variances(background.rows))[column_feature]
        return cls(background, np.where(variance > 0, 1.0 / np.sqrt(np.where(variance > 0, variance, 1.0)), 0.0))

    def apply(self, Z: FloatArray, keep: BoolArray, rng: np.random.Generator) -> FloatArray:
        """Each row is completed from one training row that resembles what is kept."""
        check_mask(Z, keep, self.background.n_columns)
        return self._fill(Z, keep, self._donors(Z, keep, rng.random((1, len(Z))))[0])

    def draws(self, Z: FloatArray, keep: BoolArray, n: int, rng: np.random.Generator) -> Iterator[FloatArray]:
        """As `apply`, n times, with the same random numbers for all rows."""
        check_mask(Z, keep, self.background.n_columns)
        for donors in self._donors(Z, keep, rng.random((n, 1))):
            yield self._fill(Z, keep, donors)

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        meta, arrays = self.background.state()
        return {"type": "conditional", "name": self.name, **meta}, {**arrays, "scale": self.scale}

    def _fill(self, Z: FloatArray, keep: BoolArray, donors: npt.NDArray[np.int64]) -> FloatArray:
        return np.where(keep, Z, self.background.take(donors))

    def _donors(self, Z: FloatArray, keep: BoolArray, uniforms: FloatArray) -> npt.NDArray[np.int64]:
        """Background rows for every draw and sample: (draws, n); `uniforms` are for each sample, or for all."""
        uniforms = np.broadcast_to(uniforms, (len(uniforms), len(Z)))
        donors = np.empty(uniforms.shape, dtype=np.int64)
        step = max(1, CHUNK_ENTRIES // max(self._terms.shape))
        for start in range(0, len(Z), step):
            chunk = slice(start, start + step)
            near = self._near(Z[chunk], keep[chunk])
            count = near.sum(axis=1)
            first = np.cumsum(count) - count
            donors[:, chunk] = np.nonzero(near)[1][first + (uniforms[:, chunk] * count).astype(np.int64)]
        return donors

    def _near(self, Z: FloatArray, keep: BoolArray) -> BoolArray:
        """Which background rows are among the nearest, with all that are as near as the last: (n, background rows)."""
        kept = (np.where(keep, Z, self._center) - self._center) * self.scale
        # Squared distances over the kept columns, less what is the same for all background rows.
        distances = np.asarray(np.hstack([keep.astype(np.float64), kept]) @ self._terms)
        hashes = row_hashes(Z)
        place = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        known = np.flatnonzero(self._hashes[place] == hashes)
        distances[known, self._by_hash[place[known]]] = np.inf  # the row itself; its twins may be donors
        last = np.partition(distances, self.n_nearest - 1, axis=1)[:, self.n_nearest - 1 : self.n_nearest]
        return np.asarray(distances <= last + TOLERANCE)


def _variances(rows: Any) -> FloatArray:
    """Of every column; zero where there is only what rounding leaves of equal numbers."""
    if containers.is_sparse(rows):
        mean, variance = mean_variance_axis(rows, axis=0)
    else:
        mean, variance = rows.mean(axis=0), rows.var(axis=0)
    return np.where(variance > MIN_VARIANCE * np.square(mean), variance, 0.0)


def row_hashes(rows: Any) -> npt.NDArray[np.uint64]:
    """One number per row, dense or CSR; rows of equal numbers have equal ones. Zeros add nothing to it."""
    odd = np.random.default_rng(0).integers(2**63, size=rows.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    if containers.is_sparse(rows):
        before = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_mixed(rows.data, odd[rows.indices]))])
        return np.asarray(before[rows.indptr[1:]] - before[rows.indptr[:-1]])
    parts = [rows[start : start + HASH_ROWS] for start in range(0, len(rows), HASH_ROWS)]
    return np.concatenate([_mixed(part, odd).sum(axis=1, dtype=np.uint64) for part in parts])


def _mixed(numbers: npt.NDArray[Any], odd: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    bits = np.ascontiguousarray(numbers + 0.0, dtype=np.float64).view(np.uint64)  # adding turns -0.0 into 0.0
    mixed = (bits ^ (bits >> np.uint64(32))) * odd
    return np.asarray(mixed ^ (mixed >> np.uint64(32)))


ReplacementFunction = Callable[[Tokens, int, np.random.Generator], str]
N_NEAR_END = 2
"""Places are distinguished up to this distance from either end."""


def place_of(position: int, length: int) -> int:
    """The kind of place a token stands at: how near it is to the beginning and to the end."""
    return (N_NEAR_END + 1) * min(position, N_NEAR_END) + min(length - 1 - position, N_NEAR_END)


N_PLACES = (N_NEAR_END + 1) ** 2


@dataclass(frozen=True, eq=False)
class Replacement:
    """Draws what stands in for removed tokens.

    Parameters
    ----------
    tokens : the different tokens of the training data; none if they were not saved.
    pools : for each kind of place, numbers into `tokens`, each as often as it stood there in the training data.
    function : of the user, (tokens, position, rng) -> token; it replaces the draws.
    """

    tokens: list[str]
    pools: list[NDArray[np.int64]]
    function: ReplacementFunction | None = None

    @property
    def name(self) -> str:
        """As records and verifications call it: that of the user's function, or "same place"."""
        return "same place" if self.function is None else str(getattr(self.function, "__name__", "function"))

    @classmethod
    def of(cls, sequences: Sequence[Tokens], function: Any = None) -> Replacement:
        """The replacement learned from sequences, or the function given for it."""
        if function is not None and not callable(function):
            raise InputError(
                f"replacement must be a function (tokens, position, rng) -> token, or None for other tokens of the "
                f"data at the same kind of place, got {function!r:.60}."
            )
        index = TokenIndex()
        pools: list[list[int]] = [[] for _ in range(N_PLACES)]
        for tokens in sequences:
            for position, number in enumerate(index.ids(tokens)):
                pools[place_of(position, len(tokens))].append(number - 2)
        every = [number for pool in pools for number in pool]
        # A kind of place that the data do not have, such as a sequence of one token: any token may stand there.
        return cls(index.tokens, [np.array(pool or every, dtype=np.int64) for pool in pools], function)

    def saved(self, rows: Rows) -> Replacement:
        """What is saved: all, the tokens of each place in the order of their numbers, or nothing."""
        if rows == "none":
            return Replacement([], [np.zeros(0, dtype=np.int64) for _ in self.pools], self.function)
        # In the order of the data, the first tokens of all sequences beside the second ones are these sequences.
        return self if rows == "keep" else replace(self, pools=[np.sort(pool) for pool in self.pools])

    def draw(
        self, sequences: Sequence[Tokens], keep: Sequence[NDArray[np.bool_]], rng: np.random.Generator
    ) -> list[Tokens]:
        """The sequences with every token that is not kept replaced; `keep` has one mask for each of them."""
        lengths = np.array([len(tokens) for tokens in sequences])
        owner = np.repeat(np.arange(len(sequences)), lengths)
        position = np.concatenate([np.arange(n) for n in lengths]) if len(lengths) else np.zeros(0, dtype=np.int64)
        removed = np.flatnonzero(~np.concatenate(list(keep)))
        result = [list(tokens) for tokens in sequences]
        if self.function is not None:
            for i in removed.tolist():
                tokens, place = sequences[owner[i]], int(position[i])
                token = call_function(
                    self.function,
                    list(tokens),
                    place,
                    rng,
                    what="replacement",
                    signature="(tokens, position, rng) -> token",
                    given=f"the tokens {tokens!r:.80} and position {place}",
                )
                if not isinstance(token, str):
                    raise InputError(
                        f"replacement returned {token!r:.40} for position {place} of {tokens!r:.80}, expected a "
                        "string: the token to put there."
                    )
                result[owner[i]][place] = token
            return result
        if len(removed) and not self.tokens:
            raise InputError(
                "This explainer was saved with rows='none': it holds no tokens of the training data, which verify and "
                "paths put in the place of what is removed. Save it with rows='synthetic' or rows='keep'."
            )
        after = lengths[owner[removed]] - 1 - position[removed]
        place = (N_NEAR_END + 1) * np.minimum(position[removed], N_NEAR_END) + np.minimum(after, N_NEAR_END)
        chance = rng.random(len(removed))
        sizes = np.array([len(pool) for pool in self.pools])
        chosen = (chance * sizes[place]).astype(np.int64)
        for kind in np.unique(place):
            of_kind = np.flatnonzero(place == kind)
            numbers = self.pools[kind][chosen[of_kind]]
            for i, number in zip(removed[of_kind].tolist(), numbers.tolist(), strict=True):
                result[owner[i]][position[i]] = self.tokens[number]
        return result
