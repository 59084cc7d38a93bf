"""Localities: regions of the input space in which other units decide a target, found as a small tree.

A unit's *effect* on a target at a sample is how much the target changes, as root mean square, when the unit alone is
redrawn. The tree is grown on the energy's effects and looks at features and at the other outputs; a split counts only
if it switches units off, which redraws that the black box was queried about must confirm. In each leaf the same redraws
say which units matter there, and masked samples, that the others do not.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer._support import cached_property
from sointer.interpreter.splits import (
    CLEARLY_ON,
    MIN_REDRAWS,
    BoolArray,
    FloatArray,
    IntArray,
    Mixtures,
    Redraws,
    Split,
    WeightedSum,
    best_threshold,
    mean_by_unit,
    refitted,
    split_gains,
    two_cuts,
    weighted_sums,
)
from sointer.interpreter.trees import Node, prune

MAX_DEPTH = 3
MIN_LEAF = 0.05
MIN_GAIN, MIN_EXPLAINED, MIN_CLEARLY_EXPLAINED = 0.015, 0.1, 0.2
"""Of the summed variance of effect shares: what a split must explain, at the least, and of the node's as a share."""
WEAK_GAIN, QUIET = 0.5, 0.1
"""Of graded targets: share of that which does if redraws confirm that the split switches much off, and cleanly; and
share of the largest effect in the whole space below which a part of it is not split any further."""
OUTPUT_PRICE = 1.15
"""A split on another output must explain this much more than one on a feature."""
SUM_PRICE = 1.15
"""A split on a weighted sum must explain, and switch off, this much more than one on a single column."""
OFF_BY_QUERIES, OFF_BY_ENERGY = 0.1, 0.15
ON_BY_ENERGY, MIN_INERT = 0.2, 20
"""Of the largest effect on the energy, what makes a single change count; and how many redraws without one it takes to
say that a unit does nothing."""
MIN_CHANGES = 4.0
BAND, SUM_BAND, WIDE_BAND = 0.02, 0.1, 0.15
"""Share of samples nearest to a threshold, which are not counted on either side of it: the threshold is estimated.

The second where weights are estimated, too, the third while nothing is refined yet."""
N_CANDIDATES, N_UNITS_COMPARED = 24, 24
NOISE_WEIGHT, MIN_EFFECT = 2_000.0, 0.05
"""Of noisy black boxes: how many redraws the noise makes up for, and how large the effect of a unit must be."""
WEAK, SUFFICES_WITHOUT = 0.12, 0.98
"""Units that change a label so seldom, as a share of the largest, are left out if the others suffice without them."""
MIN_SIGNAL = 0.5
"""By how much redrawing everything must change the target, in units of its noise, for anything to decide it."""
STILL_ON, MIN_ON = 0.3, 0.05
"""Of its effect in a node, what a unit must keep in a part of it to count as on there, where redraws do not tell; and
of the largest effect there."""
STANDS_OUT = 4.0
"""How many times the score of all others units must have, to count as few that decide where few queries are left."""
MIN_EXPECTED = 3.0
"""Changes that would have been seen if a unit mattered as around it: of none at all, chance is then one in twenty."""
MIN_TESTS, MIN_SHARE_TESTED, MAX_OTHERS_KEPT = (10, 24), 0.1, 0.75
"""Mixtures that it takes to know whether units suffice: that share of all, within these bounds."""


@dataclass(eq=False)
class TargetData:
    """What is known of one target: effects on the energy, and changes that the black box made."""

    effects: FloatArray
    """(pool, units) on the energy."""
    pool_conditions: FloatArray
    """(pool, conditions) what a split may look at: input columns, then columns of other outputs."""
    conditions: FloatArray
    """(whole samples, conditions)."""
    unit_of_column: IntArray
    """Of the input columns."""
    redraws: Redraws
    mixtures: Mixtures
    tolerance: float
    """Changes up to this are none."""
    noise: float
    """Mean squared change of the target between two queries of the same sample."""
    noise_rate: float
    """Share of such queries that changed it by more than the tolerance."""
    min_relative: float = 0.0
    """Share of the largest score, there or in the whole space, that a unit must have to matter; 0 for labels."""
    numeric: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The conditions that are plain numbers, of which splits may look at weighted sums."""
    sums: list[WeightedSum] = field(default_factory=list)
    """Those that splits look at: conditions, too, behind the columns of `conditions`."""

    def grow(self) -> Node:
        """The tree, with scores and active units in every node."""
        root = self._grow(np.arange(len(self.effects)))
        self.describe_all(root)
        return root

    def describe_all(self, root: Node) -> None:
        """Scores and active units of every node, from what is known now; splits that change nothing are taken back."""
        for node in root.walk():
            self.describe(node)
        prune(root, lambda left, right: np.array_equal(left.active, right.active))

    # --- splits --------------------------------------------------------------------------------------------

    def _grow(self, pool: IntArray, parent: Node | None = None, *, is_left: bool = False, depth: int = 0) -> Node:
        node = Node(pool, self.effects[pool].mean(axis=0), parent, is_left)
        split = self._best_split(node) if depth < MAX_DEPTH else None
        is_first_of_two = split is None and depth < MAX_DEPTH - 1
        if is_first_of_two:
            split = self._first_of_two(node)
        if split is None:
            return node
        node.condition, node.threshold, node.band = split.condition, split.threshold, split.band
        left = self.at(self.pool_conditions, node.condition)[pool] <= node.threshold
        node.children = (
            self._grow(pool[left], node, is_left=True, depth=depth + 1),
            self._grow(pool[~left], node, depth=depth + 1),
        )
        if is_first_of_two and all(child.children is None for child in node.children):
            node.children, node.condition = None, -1
        return node

    def at(self, conditions: FloatArray, condition: int) -> FloatArray:
        """What splits on a condition look at, for each row of conditions."""
        own = condition - conditions.shape[1]
        return conditions[:, condition] if own < 0 else self.sums[own].of(conditions)

    @property
    def min_tests(self) -> float:
        return float(np.clip(MIN_SHARE_TESTED * len(self.mixtures.row), *MIN_TESTS))

    @cached_property
    def _shares(self) -> FloatArray:
        total = self.effects.sum(axis=1, keepdims=True)
        return np.asarray(self.effects / np.maximum(total + 0.01 * total.mean(), 1e-12))

    def _best_split(self, node: Node) -> Split | None:
        """The split that switches most off, of those that explain most of how effects are shared out."""
        n_least, graded = max(10, int(MIN_LEAF * len(self.effects))), self.min_relative > 0
        is_quiet = node.effect.max() < QUIET * node.path()[0].effect.max()
        if len(node.pool) < 2 * n_least or (graded and is_quiet):
            return None
        shares = self._shares[node.pool]
        strongest = np.argsort(-shares.mean(axis=0), kind="stable")[:N_UNITS_COMPARED]
        here, n_single, n_sums = self.pool_conditions[node.pool], self.pool_conditions.shape[1], len(self.sums)
        self.sums += weighted_sums(here, self.numeric, shares[:, strongest])
        looked_at = np.column_stack([here, *(one.of(here) for one in self.sums)])
        gains, thresholds = split_gains(looked_at, shares[:, strongest], n_least)
        gains[len(self.unit_of_column) : n_single] /= OUTPUT_PRICE
        gains[n_single:] /= SUM_PRICE
        variance = float(shares.var(axis=0).sum())
        least, clear = max(MIN_GAIN, MIN_EXPLAINED * variance), MIN_CLEARLY_EXPLAINED * variance
        weakest = WEAK_GAIN * least if graded else least
        candidates = [j for j in np.argsort(-gains, kind="stable")[:N_CANDIDATES].tolist() if gains[j] >= weakest]
        inside = self.rows_in(node)[self.redraws.row]

        def is_good(gain: float, split: Split) -> bool:
            if split.condition >= n_single:
                switches = gain >= least and split.swaps
            else:
                confirmed = gain >= least and split.switches(clearly=bool(gain >= clear))
                switches = confirmed or (graded and split.is_clean)
            return min(split.left, 1 - split.left) * len(here) >= n_least and switches

        splits = [(gains[j], self._refined(node, inside, j, float(thresholds[j]))) for j in candidates]
        good = [split for gain, split in splits if is_good(gain, split)]
        best = max(
            good, key=lambda split: split.saved / (SUM_PRICE if split.condition >= n_single else 1), default=None
        )
        if best is None or best.condition < n_single + n_sums:
            del self.sums[n_sums:]
            return best
        self.sums[n_sums:] = [self.sums[best.condition - n_single]]
        return replace(best, condition=n_single + n_sums)

    def _first_of_two(self, node: Node) -> Split | None:
        """A split that switches much off on one side of a second split, which is yet to be made."""
        here, shares = self.pool_conditions[node.pool], self._shares[node.pool]
        gain, first, second = two_cuts(here, shares)
        if gain < max(MIN_GAIN, MIN_CLEARLY_EXPLAINED * float(shares.var(axis=0).sum())):
            return None
        beyond = here[:, second.condition] - second.threshold
        is_below = first.condition == second.condition or (beyond <= 0).mean() >= 0.5  # else the larger part tells more
        part = Node(node.pool[(beyond <= 0) == is_below], node.effect, node.parent, node.is_left)
        beyond, band = self.conditions[:, second.condition] - second.threshold, np.quantile(np.abs(beyond), SUM_BAND)
        inside = self.rows_in(node) & ((beyond <= 0) == is_below) & (np.abs(beyond) >= band)
        split = self._refined(part, inside[self.redraws.row], first.condition, first.threshold)
        return split if split.swaps else None

    def _refined(self, node: Node, inside: BoolArray, condition: int, threshold: float) -> Split:
        """The split moved to where the units that it switches off stop to matter, judging by redraws."""
        split = self._split(node, inside, condition, threshold, WIDE_BAND)
        unit, n_single, changes = self.redraws.unit, self.conditions.shape[1], self.redraws.change > self.tolerance
        own = inside & (split.off_left | split.off_right)[unit] & changes
        if own.sum() >= MIN_REDRAWS:
            row = self.redraws.row
            size = self.redraws.change**2 / float((self.redraws.change[own] ** 2).mean())
            if condition >= n_single:
                by_energy, is_on_right = self.sums[condition - n_single], split.off_left[unit[own]]
                better, threshold = refitted(by_energy, threshold, self.conditions[row[own]], is_on_right, size[own])
                condition = n_single + len(self.sums)
                self.sums.append(better)
            at, is_on_right = self.at(self.conditions, condition)[row], split.off_left[unit]
            threshold = best_threshold(at[own], is_on_right[own], size[own], threshold)
        return self._split(node, inside, condition, threshold, BAND if condition < n_single else SUM_BAND)

    def _split(self, node: Node, inside: BoolArray, condition: int, threshold: float, width: float) -> Split:
        """What a split switches off on either side; samples near the threshold are not counted."""
        place, shares = self.at(self.pool_conditions, condition)[node.pool], self._shares[node.pool]
        band = float(np.quantile(np.abs(place - threshold), width))
        left = place <= threshold
        here, there = (shares[side].mean(axis=0) if side.any() else shares.mean(axis=0) for side in (left, ~left))
        off_right, off_left = there < OFF_BY_ENERGY * here, here < OFF_BY_ENERGY * there
        at = self.at(self.conditions, condition)[self.redraws.row]
        counted = inside & (np.abs(at - threshold) >= band)
        square = np.maximum(self.redraws.change**2 - self.noise, 0.0)
        n_units = shares.shape[1]
        sides, unit = (counted & (at <= threshold), counted & (at > threshold)), self.redraws.unit
        changes = self.redraws.change > self.tolerance
        (n_a, a), (n_b, b) = (mean_by_unit(unit[side], square[side], n_units) for side in sides)
        (_, rate_a), (_, rate_b) = (mean_by_unit(unit[side], changes[side], n_units) for side in sides)
        # Where a unit seldom changes a label, that it did not on one side may be by chance.
        enough = np.maximum(rate_a * n_b, rate_b * n_a) >= MIN_CHANGES
        known = (n_a >= MIN_REDRAWS) & (n_b >= MIN_REDRAWS) & enough & ((here > 0.02) | (there > 0.02))
        off_right = np.where(known, b < OFF_BY_QUERIES * a, off_right)
        off_left = np.where(known, a < OFF_BY_QUERIES * b, off_left)
        off = float(here[off_right].sum()), float(there[off_left].sum())
        confirmed = float(here[off_right & known].sum()), float(there[off_left & known].sum())
        leaking = float(b[off_right & known].sum() + a[off_left & known].sum())
        leak = leaking / max(float(a[off_right & known].sum() + b[off_left & known].sum()), 1e-12)
        return Split(condition, threshold, band, off_left, off_right, off, confirmed, leak, float(left.mean()))

    def rows_in(self, node: Node) -> BoolArray:
        """Whole samples that lie in a node, and not near the thresholds above it."""
        inside = np.ones(len(self.conditions), dtype=bool)
        for above, below in pairwise(node.path()):
            at = self.at(self.conditions, above.condition)
            inside &= ((at <= above.threshold) == below.is_left) & (np.abs(at - above.threshold) >= above.band)
        return inside

    # --- what matters in a node ----------------------------------------------------------------------------

    def describe(self, node: Node) -> None:
        n_units, node.noise_rate = self.effects.shape[1], self.noise_rate
        inside = self.rows_in(node)
        own = inside[self.redraws.row]
        unit, change = self.redraws.unit[own], self.redraws.change[own]
        n_redraws = np.bincount(unit, minlength=n_units)
        square = np.bincount(unit, weights=change**2, minlength=n_units) / np.maximum(n_redraws, 1)
        changed = np.bincount(unit, weights=change > self.tolerance, minlength=n_units)
        node.rate = changed / np.maximum(n_redraws, 1)
        rms = np.sqrt(np.maximum(square - self.noise, 0.0)) * (changed > 0)
        # The noisier the black box, the more redraws it takes to count more than the energy.
        weight = n_redraws / (n_redraws + MIN_REDRAWS + NOISE_WEIGHT * self.noise_rate)
        node.score = weight * rms + (1 - weight) * node.effect
        by_chance = self.noise_rate * n_redraws
        surely = changed - by_chance - 2 * np.sqrt(by_chance)
        relative = node.effect / max(float(node.effect.max()), 1e-12)
        node.inert = (changed == 0) & (n_redraws >= MIN_INERT) & (relative <= ON_BY_ENERGY)
        node.doubtful, node.left_out, node.idle = np.zeros((3, n_units), dtype=bool)
        is_on = relative > ON_BY_ENERGY
        node.active = (surely >= 2) | ((surely >= 1) & is_on) | ((n_redraws < MIN_REDRAWS) & (relative > 0.1))
        if self.noise_rate > 0:
            node.active |= (relative > CLEARLY_ON) & (node.effect > MIN_EFFECT)
        if self.min_relative > 0:
            least = self.min_relative * max(node.score.max(), node.path()[0].score.max())
            # One redraw alone, which happened to change much, says as little as one of a label.
            top = np.zeros(n_units)
            np.maximum.at(top, unit, change**2)
            rest = np.sqrt(np.maximum(square - top / np.maximum(n_redraws, 1) - self.noise, 0.0))
            is_steady = weight * rest + (1 - weight) * node.effect >= least
            node.active &= (node.score >= least) & (is_steady | is_on)
            node.idle = node.inert.copy()
        else:
            self._leave_out(node, np.where(n_redraws >= MIN_REDRAWS, square, np.inf))
        if node.parent is not None:
            node.doubtful = self._in_doubt(node, node.parent, inside, n_redraws, changed)
            node.active |= node.doubtful
            if self._nothing_changes(node, node.parent, inside, n_redraws, changed):
                node.active[:], node.doubtful[:] = False, False
        node.sufficiency = self.sufficiency(node, node.active)

    def _leave_out(self, node: Node, square: FloatArray) -> None:
        """Units that hardly change a label, in turn, as long as the others suffice."""
        weak = node.active & (square < WEAK * square[node.active & np.isfinite(square)].max(initial=0.0))
        weak[self._units_above(node)] = False  # they decide that samples are here at all
        for unit in sorted(np.flatnonzero(weak), key=square.__getitem__):
            others = node.active & (np.arange(len(weak)) != unit)
            if self.sufficiency(node, others) >= SUFFICES_WITHOUT:
                node.active, node.left_out[unit] = others, True

    def _units_above(self, node: Node) -> IntArray:
        """The units that the splits above a node look at."""
        looked_at: list[int] = []
        for above in node.path()[:-1]:
            own = above.condition - self.conditions.shape[1]
            looked_at += [above.condition] if own < 0 else self.sums[own].columns.tolist()
        return np.asarray(self.unit_of_column[[i for i in looked_at if i < len(self.unit_of_column)]])

    def _in_doubt(
        self, node: Node, parent: Node, inside: BoolArray, n_redraws: IntArray, changed: NDArray[Any]
    ) -> BoolArray:
        """Units that matter in the parent, of which too few queries here say otherwise and the energy does not.

        Where redraws of a unit changed nothing, so do mixtures count that keep all units that matter, but not this one.
        """
        expected = parent.rate * n_redraws
        unlike = changed < expected - 2 * np.sqrt(expected)
        is_on = node.effect > np.maximum(STILL_ON * parent.effect, MIN_ON * node.effect.max())
        doubtful = parent.active & ~unlike & is_on & (changed < 2)
        mixtures = inside[self.mixtures.row] & self.mixtures.kept[:, node.active & ~doubtful].all(axis=1)
        for unit in np.flatnonzero(doubtful & (changed == 0)):
            without = mixtures & ~self.mixtures.kept[:, unit]
            is_quiet = not (self.mixtures.change[without] > self.tolerance).any()
            if is_quiet and parent.rate[unit] * (n_redraws[unit] + without.sum()) >= MIN_EXPECTED:
                doubtful[unit] = False
        return np.asarray(doubtful)

    def _nothing_changes(
        self, node: Node, parent: Node, inside: BoolArray, n_redraws: IntArray, changed: NDArray[Any]
    ) -> bool:
        """Whether nothing was seen to change the target, where it would have been if this were as in the parent."""
        around, here = self.rows_in(parent)[self.mixtures.row], inside[self.mixtures.row]
        changes = self.mixtures.change > self.tolerance
        if changed.any() or changes[here].any():
            return False
        return bool(parent.rate @ n_redraws + changes[around].mean() * here.sum() >= MIN_EXPECTED)

    def sufficiency(self, node: Node, units: BoolArray) -> float:
        """How much of the change by redrawing everything is avoided while these units are kept; NaN if unknown."""
        inside = self.rows_in(node)[self.mixtures.row]
        if units.all():
            return 1.0
        # Mixtures that keep these units mostly keep others too, which says little.
        others = self.mixtures.kept[:, ~units].mean(axis=1)
        kept = inside & self.mixtures.kept[:, units].all(axis=1) & (others <= MAX_OTHERS_KEPT)
        if kept.sum() < self.min_tests:
            return float("nan")
        return self.share_kept(self.mixtures.change[kept], inside)

    def seem_to_suffice(self, root: Node, units: BoolArray, least: float) -> bool:
        """Whether units suffice everywhere as far as few queries can tell.

        They must stand out; redraws of all others, one by one, must change next to nothing, and redraws of these must
        account for what redrawing everything changes (by the Efron-Stein inequality, what all single redraws change
        adds up to no less). So must the mixtures that happened to keep these units, and there must be so many that
        changes would have been seen.
        """
        everywhere = np.ones(len(self.mixtures.row), dtype=bool)
        all_redrawn = self.all_redrawn(everywhere)
        kept = self.mixtures.kept[:, units].all(axis=1)
        if kept.sum() * all_redrawn < MIN_EXPECTED:
            return False
        _, square = mean_by_unit(self.redraws.unit, self.redraws.change**2, len(units))
        stand_out = root.score[units].min() > STANDS_OUT * root.score[~units].max(initial=0.0)
        others_quiet = square[~units].sum() <= (1 - least) * all_redrawn
        these_account = square[units].sum() >= all_redrawn
        return bool(
            stand_out
            and others_quiet
            and these_account
            and self.share_kept(self.mixtures.change[kept], everywhere) >= least
        )

    def share_kept(self, changes: FloatArray, inside: BoolArray) -> float:
        """How much of the change by redrawing everything these changes avoid; none if that is hardly above noise."""
        whole = self.all_redrawn(inside) - self.noise
        if self.noise > 0 and whole < MIN_SIGNAL * self.noise:
            return 0.0
        return 1.0 - max(float((changes**2).mean()) - self.noise, 0.0) / max(whole, 1e-12)

    def all_redrawn(self, inside: BoolArray) -> float:
        """Mean squared change when (nearly) everything is redrawn."""
        few = inside & (self.mixtures.kept.mean(axis=1) < 0.1)
        square = self.mixtures.change[few if few.sum() >= self.min_tests else inside] ** 2
        return float(square.mean()) if len(square) else 0.0
