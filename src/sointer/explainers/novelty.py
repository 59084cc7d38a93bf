"""How far rows lie from the training data, judged by the sample of it that is kept with an explainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc

from sointer._support import cached_property
from sointer._support.containers import is_sparse
from sointer.data.images import ImageShape
from sointer.data.text_tables import Records
from sointer.errors import FarInputWarning, warn_caller
from sointer.masking.removal import Background

FLAGGED = 0.01
"""Share of rows like those of the training data that may be called far."""
BY_CHANCE = 0.02
"""So many far rows may be there by chance, if that happens more often than this; a single row is not."""
SURELY = 10.0
"""Rows as far as this many times the limit are worth a warning, however few they are."""
MAX_NEIGHBOURS, MAX_NUMBERS = 256, 2**16
"""Of all neighbours together: with many columns fewer neighbours do, for they are all about as far."""
MIN_NEIGHBOURS = 64
CHUNK_ROWS = 256
ROUNDING = 1e-5  # by how much single precision may exceed a limit; many rows may lie on it, as with ratings of 1 to 5
SLACK = 1.5  # for the limits of samples too small to tell what one row in a hundred does
CLOSE = 0.05  # deviations; nearer than this is near enough, also where the training rows are all alike
HUGE = 1e15

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Distance:
    """Two distances of a row: to the most similar training row, and of its oddest column to the middle of the data.

    Both are divided by a limit that at most one training row in four hundred exceeds while it is compared with the
    others (conformal prediction, leaving one out), and the larger counts: above 1, a row is far. Of tables the columns
    are compared, of sparse rows and images a few numbers that sum them up.
    """

    view: Callable[[Any], FloatArray]
    center: FloatArray
    weight: FloatArray
    """One over the deviation of each column; 0 where columns are not compared."""
    reach: FloatArray
    """How far from the middle the training rows get in each column."""
    neighbours: NDArray[np.float32]
    limits: tuple[float, float]

    @classmethod
    def of(cls, background: Background, image: ImageShape | None) -> Distance | BesideTexts:
        """By the training data, as the explainer keeps it."""
        rows = background.rows
        if isinstance(rows, Records) and rows.values is not None and rows.values.shape[1]:
            values = np.asarray(rows.values, dtype=np.float64)
            varies = np.ptp(values, axis=0) > 0
            beside = cls._of_table(Background(values, varies))
            return BesideTexts(cls._of_words(rows), beside)
        if is_sparse(rows):
            return cls._of_words(rows)
        if image is not None:
            pixels = ImageSummary(image)
            return cls._of(pixels, pixels(rows), np.full(5 * image.channels, 0.05 * max(np.abs(rows).max(), 1e-9)))
        return cls._of_table(background)

    @classmethod
    def _of_words(cls, rows: Any) -> Distance:
        words = SparseSummary.of(rows)
        return cls._of(words, words(rows), words.floor, words(rows, n_own=1))

    @classmethod
    def _of_table(cls, background: Background) -> Distance:
        rows = background.rows
        # What was always the same must stay so; what varies, but not in the sample, cannot be judged.
        constant = np.ptp(rows, axis=0) == 0
        unknown = np.where(background.varies, np.inf, 0.01 * np.maximum(np.abs(rows[0]), 1.0))
        return cls._of(_as_it_is, np.asarray(rows, dtype=np.float64), np.where(constant, unknown, 0.0))

    @classmethod
    def _of(
        cls, view: Callable[[Any], FloatArray], table: FloatArray, floor: FloatArray, alone: FloatArray | None = None
    ) -> Distance:
        """From the training rows as seen by `view`; `alone`, if it differs, as each would be seen among the others."""
        low, high, center = table.min(axis=0), table.max(axis=0), np.median(table, axis=0)
        two_values = ((table == low) | (table == high)).all(axis=0)
        deviation = np.maximum(np.where(two_values, high - low, table.std(axis=0)), floor)
        weight = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)
        alone = table if alone is None else alone
        away = np.abs(table - center)
        first = np.maximum(away.max(axis=0), floor)
        without_first = np.partition(away, -2, axis=0)[-2] if len(table) > 1 else first
        second = np.where(two_values, first, np.maximum(without_first, floor))
        most = min(MAX_NEIGHBOURS, max(MIN_NEIGHBOURS, MAX_NUMBERS // table.shape[1]))
        neighbours = np.arange(len(table))[:: -(-len(table) // most)]
        made = cls(view, center, weight, first, _scaled(table - center, weight)[neighbours], (1.0, 1.0))
        squares = made._squares(_scaled(alone - center, weight))
        squares[neighbours, np.arange(len(neighbours))] = np.inf  # a row is no neighbour of its own
        oddest = _ratio(np.abs(alone - center), np.where(away >= first, second, first)).max(axis=1)
        nearest, furthest = max(_limit(made._nearest(squares)), CLOSE), max(_limit(oddest), 1.0)
        limits = nearest * (1 + ROUNDING), furthest * (1 + ROUNDING)
        return cls(view, center, weight, first, made.neighbours, limits)

    def __call__(self, data: Any) -> FloatArray:
        """For each encoded row, dense or CSR, its distance: 1 is the limit, more is far."""
        parts = [self._of_rows(self.view(data[i : i + CHUNK_ROWS])) for i in range(0, data.shape[0], CHUNK_ROWS)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _of_rows(self, table: FloatArray) -> FloatArray:
        away = table - self.center
        scaled = _scaled(away, self.weight)
        nearest = self._nearest(self._squares(scaled)) / self.limits[0]
        return np.asarray(np.maximum(nearest, self._oddest(away, scaled) / self.limits[1]))

    def _nearest(self, squares: NDArray[np.float32]) -> FloatArray:
        """Root mean square difference to the nearest neighbour over the columns, in deviations."""
        return np.asarray(np.sqrt(np.maximum(squares.min(axis=1), 0.0) / len(self.center)), dtype=np.float64)

    def _squares(self, scaled: NDArray[np.float32]) -> NDArray[np.float32]:
        """(rows, neighbours) sum of squared differences over the columns, in deviations."""
        squares: NDArray[np.float32] = scaled @ self.neighbours.T
        squares *= -2
        squares += self._length_of_neighbours
        squares += _length(scaled)[:, None]
        return squares

    @cached_property
    def _length_of_neighbours(self) -> NDArray[np.float32]:
        return _length(self.neighbours)

    def _oddest(self, away: FloatArray, scaled: NDArray[np.float32]) -> FloatArray:
        """How far the oddest column is from the middle, of how far training rows get."""
        of_reach, still = self._deviations_of_reach
        share = scaled * of_reach
        oddest = np.maximum(share.max(axis=1), -share.min(axis=1)).astype(np.float64)
        return np.where((away[:, still] != 0).any(axis=1), HUGE, oddest)

    @cached_property
    def _deviations_of_reach(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """A deviation as a share of how far training rows get; and the columns in which they get nowhere."""
        compared = (self.weight > 0) & (self.reach > 0)
        share = np.zeros(len(compared), dtype=np.float32)
        share[compared] = 1 / (self.weight[compared] * self.reach[compared])
        return share, np.flatnonzero(self.reach == 0)


@dataclass(frozen=True)
class BesideTexts:
    """Of tables with texts: the larger of the distances of their words and of the other columns."""

    words: Distance
    table: Distance

    def __call__(self, records: Any) -> FloatArray:
        """For each row, its distance: 1 is the limit, more is far."""
        return np.asarray(np.maximum(self.words(records), self.table(records.values)))


@dataclass(frozen=True, eq=False)
class SparseSummary:
    """Mostly-zero rows in four numbers: how rare their entries are among training rows, how many, how large."""

    n_rows: int
    n_having: NDArray[np.int64]
    """(columns,) training rows of the sample with an entry there."""
    floor: FloatArray

    @classmethod
    def of(cls, rows: Any) -> SparseSummary:
        """By the words of the training data."""
        n_having = np.bincount(_entries(rows).indices, minlength=rows.shape[1])
        return cls(rows.shape[0], n_having, np.array([0.3, 0.3, 0.3, 0.3]))

    def __call__(self, rows: Any, n_own: int = 0) -> FloatArray:
        """How rare, how many and how large the entries of rows are; n_own=1 of rows that were counted themselves."""
        entries = _entries(rows)
        sizes = np.diff(entries.indptr)
        owner = np.repeat(np.arange(len(sizes)), sizes)

        def total(of_entries: FloatArray) -> FloatArray:
            return np.bincount(owner, weights=of_entries, minlength=len(sizes)).astype(np.float64)

        rarity = np.log((self.n_rows + 1) / (np.maximum(self.n_having - n_own, 0) + 0.5))
        amounts = np.abs(entries.data).astype(np.float64)
        largest = np.zeros(len(sizes))
        np.maximum.at(largest, owner, amounts)
        mean_rarity = total(rarity[entries.indices]) / np.maximum(sizes, 1)
        return np.column_stack([mean_rarity, np.log1p(sizes), np.log1p(total(amounts)), np.log1p(largest)])


@dataclass(frozen=True)
class ImageSummary:
    """Images in five numbers for each channel: mean, deviation, least, most, and how rough it is."""

    image: ImageShape

    def __call__(self, rows: Any) -> FloatArray:
        """Mean, deviation, extremes and roughness of every channel."""
        shape = self.image
        images = np.asarray(rows, dtype=np.float64).reshape(-1, shape.channels, shape.height, shape.width)
        flat = images.reshape(len(images), shape.channels, -1)
        rough = sum(np.abs(np.diff(images, axis=axis)).sum(axis=(2, 3)) for axis in (2, 3)) / flat.shape[2]
        return np.concatenate([flat.mean(2), flat.std(2), flat.min(2), flat.max(2), rough], axis=1)


class FarRows:
    """Counts far rows over many parts, and warns once."""

    def __init__(self) -> None:
        self.n, self.n_far, self.n_very_far = 0, 0, 0

    def add(self, distance: FloatArray) -> FarRows:
        """Count these rows too."""
        self.n += len(distance)
        self.n_far += int((distance > 1).sum())
        self.n_very_far += int((distance > SURELY).sum())
        return self

    def warn(self) -> None:
        """If more rows are far than chance explains, or if any is very far."""
        by_chance = self.n_far == 0 or bdtrc(self.n_far - 1, self.n, FLAGGED) > BY_CHANCE
        if UNWARNED.get() or (by_chance and not self.n_very_far):
            return
        found = f"{self.n_very_far} of {self.n} rows lie very far from the data that the explainer was fitted on"
        if not by_chance:
            found = (
                f"{self.n_far} of {self.n} rows lie far from the data that the explainer was fitted on (at most "
                f"{FLAGGED:.0%} of rows like these data do)"
            )
        warn_caller(
            f"{found}, so their explanations may be wrong. explainer.distance(X) > 1 tells which; check them with "
            "explanation.verify(), or fit on data that hold such rows.",
            FarInputWarning,
        )


UNWARNED: ContextVar[bool] = ContextVar("UNWARNED", default=False)


@contextmanager
def unwarned() -> Iterator[None]:
    """Within the block nothing is said of far rows: whoever explains many times says it once, or elsewhere."""
    before = UNWARNED.set(True)
    try:
        yield
    finally:
        UNWARNED.reset(before)


def _as_it_is(rows: Any) -> FloatArray:
    return np.asarray(rows, dtype=np.float64)


def _entries(rows: Any) -> Any:
    if (rows.data == 0).any():
        rows = rows.copy()
        rows.eliminate_zeros()
    return rows


def _scaled(away: FloatArray, weight: FloatArray) -> NDArray[np.float32]:
    scaled = np.empty(away.shape, dtype=np.float32)
    with np.errstate(over="ignore"):
        np.multiply(away, weight, out=scaled, casting="same_kind")
    return np.clip(scaled, -HUGE, HUGE, out=scaled)


def _length(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """The square of it."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


def _ratio(away: FloatArray, reach: FloatArray) -> FloatArray:
    """away / reach; nothing where both are 0."""
    return np.divide(away, reach, out=np.where(away > 0, HUGE, 0.0), where=reach > 0)


def _limit(values: FloatArray) -> float:
    """What another value like these exceeds with a probability of a quarter of FLAGGED at most, if they are enough.

    A quarter, as there are two limits, and as limits from a sample may be somewhat off.
    """
    place = int(np.ceil((len(values) + 1) * (1 - FLAGGED / 4)))
    return float(np.sort(values)[place - 1]) if place <= len(values) else SLACK * float(values.max())
