"""Explanation: what was selected, for which target, and whether the black box says the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from sointer.blackbox import BlackBox
from sointer.blackbox.replies import stack
from sointer.containers import is_sparse
from sointer.errors import InputError, require_extra
from sointer.groups import Groups
from sointer.inputs import InputFormat
from sointer.outputs import Outputs
from sointer.outputs.regions import NO_REGIONS, Regions, at_targets
from sointer.paths import Paths, Trace
from sointer.removal import Background, Removal, make_removal
from sointer.selection import first_units
from sointer.validation import check_positive_int

if TYPE_CHECKING:
    import pandas as pd

ASK_ROWS = 4096
MOST_NUMBERS = 2**24  # of images asked about at a time
LEVEL = 0.7
"""Share of draws in which a confirmed explanation holds, at the least."""
DOUBT = 0.05
"""How often a bound of that share may be wrong."""


CONFIRMED, REFUTED, UNSURE = "confirmed", "not confirmed", "unsure"


@dataclass(frozen=True)
class Verification:
    """What the black box said about rows reduced to their selected features.

    Where what is removed becomes something random, the black box was asked about a few draws only, so that there are
    three verdicts: a row is confirmed if the target surely keeps its value in at least `level` of all draws, not
    confirmed if it surely does not, and unsure else. Surely: the bound of `interval` says so.
    """

    agreement: NDArray[np.float64]
    """For each row, the share of draws in which the target kept its value; of a region, the share of its pixels too."""
    difference: NDArray[np.float64]
    """For each row, how far the target moved on average: labels 0 or 1, probabilities |p - q|, else in deviations."""
    n_queries: int
    n_draws: int | None = None
    """How many draws; None where nothing is random, so that one answer tells all."""
    level: float = LEVEL

    @property
    def fidelity(self) -> float:
        """Mean agreement over the rows."""
        return float(self.agreement.mean())

    @property
    def interval(self) -> NDArray[np.float64]:
        """(rows, 2) bounds of the agreement in all possible draws; each is wrong in 5 % of cases at most.

        These are the bounds of Clopper and Pearson; where nothing is random, both are the agreement itself.
        """
        if self.n_draws is None:
            return np.stack([self.agreement, self.agreement], axis=1)
        agreed, n = self.agreement * self.n_draws, self.n_draws
        low = betaincinv(np.maximum(agreed, 1e-9), n - agreed + 1, DOUBT)
        high = betaincinv(agreed + 1, np.maximum(n - agreed, 1e-9), 1 - DOUBT)
        return np.stack([np.where(agreed > 0, low, 0.0), np.where(agreed < n, high, 1.0)], axis=1)

    @property
    def confirmed(self) -> NDArray[np.bool_]:
        """Rows whose target surely keeps its value; where nothing is random, those where it did."""
        return np.asarray(self.agreement == 1.0 if self.n_draws is None else self.interval[:, 0] >= self.level)

    @property
    def refuted(self) -> NDArray[np.bool_]:
        """Rows that are surely not confirmed: the model relied on more than was selected, or on something else."""
        return np.asarray(self.agreement < 1.0 if self.n_draws is None else self.interval[:, 1] < self.level)

    @property
    def unsure(self) -> NDArray[np.bool_]:
        """Rows that are neither; more draws would tell."""
        return ~(self.confirmed | self.refuted)

    @property
    def verdict(self) -> NDArray[np.object_]:
        """For each row "confirmed", "not confirmed" or "unsure"."""
        return np.where(self.confirmed, CONFIRMED, np.where(self.refuted, REFUTED, UNSURE)).astype(object)

    def _repr_html_(self) -> str:
        from sointer.plot import html_verification

        return html_verification(self)

    def __repr__(self) -> str:
        unsure = f"unsure of {int(self.unsure.sum())}, " if self.unsure.any() else ""
        return (
            f"Verification(fidelity={self.fidelity:.3f}, confirmed {int(self.confirmed.sum())} of "
            f"{len(self.agreement)} rows, {unsure}n_queries={self.n_queries})"
        )


class SentRows:
    """How many rows were sent to the black box for one explanation, whoever else is asking it at the same time."""

    def __init__(self) -> None:
        self.n = 0

    def add(self, rows: NDArray[np.int64], answers: NDArray[Any]) -> None:
        self.n += len(rows)


@dataclass(frozen=True)
class Source:
    """Where explained rows come from: what is needed to ask the black box about them again."""

    black_box: BlackBox | None
    input_format: InputFormat
    removal: Removal
    outputs: Outputs
    groups: Groups
    background: Background
    data: Any
    predicted: NDArray[Any] | None = None
    """What the black box said about the whole rows, if the caller knew it."""
    regions: Regions = field(default_factory=lambda: NO_REGIONS)
    """Which outputs belong to each region that is a target; target n_outputs + r is region r."""
    region_names: list[str] = field(default_factory=list)
    index: Any = None
    """The rows' own labels: the index of a DataFrame, if it is not just 0, 1, 2 ..."""
    texts: Sequence[str] | None = field(default=None, repr=False)
    """The documents, where texts were explained."""
    sent: SentRows = field(default_factory=SentRows, repr=False, compare=False)

    @cached_property
    def answers(self) -> NDArray[Any]:
        """What the black box said about the whole rows, according to the caller or, asked once, to itself."""
        return self.asked if self.predicted is None else self.predicted

    @cached_property
    def asked(self) -> NDArray[Any]:
        """What the black box itself says about the whole rows; asked once."""
        return stack([self.ask(self.data[rows]) for rows in self._chunks(self.data.shape[0])])

    @property
    def known_answers(self) -> NDArray[Any] | None:
        """`answers`, if they were given or asked for already."""
        return self.__dict__.get("asked") if self.predicted is None else self.predicted

    def rows(self, index: NDArray[np.int64] | slice) -> NDArray[np.float64]:
        """Encoded rows, dense."""
        chosen = self.data[index]
        return np.asarray(chosen.toarray() if is_sparse(chosen) else chosen, dtype=np.float64)

    def take(self, index: NDArray[np.int64]) -> Source:
        """The same with some of the rows only, and what is known about them."""
        known = self.known_answers
        predicted = None if known is None else known[index]
        return replace(
            self,
            data=self.data[index],
            groups=self.groups.take(index),
            predicted=predicted,
            index=None if self.index is None else self.index[index],
            texts=None if self.texts is None else [self.texts[row] for row in index],
        )

    def at_targets(self, table: NDArray[Any], targets: NDArray[np.int64]) -> NDArray[Any]:
        """A table (rows, outputs) at each row's target: an entry, or the mean over the outputs of a region: (rows,)."""
        return at_targets(table, targets, self.regions)

    def ask(self, points: Any) -> NDArray[Any]:
        """What the black box says about encoded points, dense or CSR."""
        if self.black_box is None:
            raise InputError(
                "this explanation has no black box to ask; load the explainer with "
                "sointer.load(path, black_box=model), then explain again."
            )
        replies = self.black_box(self.input_format.decode(points), on_answer=self.sent.add)
        if replies.shape[1] != self.outputs.n_outputs:
            raise InputError(
                f"the black box returned {replies.shape[1]} outputs, but the explainer was fitted on "
                f"{self.outputs.n_outputs}; give the model that was explained."
            )
        return replies

    def agreement(
        self,
        keep_units: NDArray[np.bool_],
        targets: NDArray[np.int64],
        *,
        rows: NDArray[np.int64],
        n_draws: int,
        seed: int,
    ) -> NDArray[np.float64]:
        """Share of draws in which each row, reduced to `keep_units`, kept its target's value.

        A region counts by the share of its outputs that kept theirs.
        """
        parts = [
            self._agreement(keep_units[some], targets[some], rows[some], n_draws, seed)
            for some in self._chunks(len(rows))
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _agreement(
        self,
        keep_units: NDArray[np.bool_],
        targets: NDArray[np.int64],
        rows: NDArray[np.int64],
        n_draws: int,
        seed: int,
    ) -> NDArray[np.float64]:
        original, outputs = self.answers[rows], self.outputs
        rng = np.random.default_rng(seed)  # the same for every part, so that all rows see the same draws
        if not self.removal.is_random:
            reduced = self.ask_reduced(self.removal, keep_units, rows, rng)
            return self.at_targets(outputs.agree(original, reduced), targets).astype(np.float64)
        columns = self.groups.take(rows).to_columns(keep_units)
        draws = self.removal.draws(self.rows(rows), columns, n_draws, rng)
        agree = [self.at_targets(outputs.agree(original, self.ask(points)), targets) for points in draws]
        return np.asarray(np.mean(agree, axis=0))

    def ask_reduced(
        self, removal: Removal, keep_units: NDArray[np.bool_], rows: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[Any]:
        """What the black box says about rows reduced to `keep_units`; a few rows are made dense at a time."""
        return stack([replies for _, replies in self.ask_in_parts(removal, keep_units, rows, rng)])

    def ask_in_parts(
        self, removal: Removal, keep_units: NDArray[np.bool_], rows: NDArray[np.int64], rng: np.random.Generator
    ) -> Iterator[tuple[slice, NDArray[Any]]]:
        """The same, some rows at a time, with their places: all masks of many images may be too much to hold."""
        for some in self._chunks(len(rows)):
            columns = self.groups.take(rows[some]).to_columns(keep_units[some])
            yield some, self.ask(removal.reduce(self.data[rows[some]], columns, rng))

    def _chunks(self, n: int) -> list[slice]:
        step = ASK_ROWS
        if self.input_format.image is not None:
            step = max(1, min(step, MOST_NUMBERS // self.input_format.n_columns))
        return [slice(start, min(start + step, n)) for start in range(0, n, step)]


@dataclass(frozen=True, eq=False)
class Explanation:
    """The selected features of every row, best first.

    selected : (rows, k) feature (or group) numbers, best first; -1 where a row had fewer to choose from, so
        use `mask` or `to_frame()` to look features up.
    mask : (rows, features), True where selected.
    scores : (rows, features or groups), larger is more important.
    target : (rows,) the output that was explained, as a place in `output_names`; of masks, a pixel or a region.
    expected : (rows,) the value that is explained: what the black box said about it where that is known, else what
        the energy expects it to say; verify() asks the black box.
    """

    selected: NDArray[np.int64]
    scores: NDArray[np.float32]
    target: NDArray[np.int64]
    expected: NDArray[Any]
    feature_names: list[str]
    output_names: list[str]
    source: Source
    trace: Trace | None = field(default=None, repr=False)
    """Computes `paths`, given by the explainer."""
    distance: NDArray[np.float64] | None = field(default=None, repr=False)
    """(rows,) how far each row lies from the training data: above 1 it is far. See docs/trust.md."""

    @classmethod
    def of(
        cls,
        ranking: NDArray[np.int64],
        sizes: NDArray[np.int64],
        scores: NDArray[np.float32],
        targets: NDArray[np.int64],
        values: NDArray[Any],
        source: Source,
        trace: Trace | None = None,
        distance: NDArray[np.float64] | None = None,
    ) -> Explanation:
        width = int(sizes.max())
        selected = np.where(np.arange(width) < sizes[:, None], ranking[:, :width], -1)
        expected = source.outputs.label_targets(values, targets, source.regions)
        names = source.groups.unit_names, [*source.outputs.names, *source.region_names]
        return cls(selected, scores, targets, expected, *names, source, trace, distance)

    def __len__(self) -> int:
        return len(self.selected)

    @property
    def unit_mask(self) -> NDArray[np.bool_]:
        """(rows, groups) True where selected; equals `mask` when no groups were given."""
        sizes = np.full(len(self), self.selected.shape[1])
        return first_units(self.selected, sizes, self.source.groups.n_units)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """(rows, features) True where selected."""
        return self.source.groups.to_features(self.unit_mask)

    @property
    def n_selected(self) -> NDArray[np.int64]:
        """How many features each row has selected."""
        return np.asarray((self.selected >= 0).sum(axis=1))

    @property
    def far(self) -> NDArray[np.bool_]:
        """Rows unlike the training data, as at most 1 % of the training data would be: doubt what is said of them."""
        if self.distance is None:
            raise InputError("far: this explanation was not made by an explainer, which alone knows its training data.")
        return np.asarray(self.distance > 1)

    @property
    def pixels(self) -> NDArray[np.int64]:
        """(rows, k, 2) row and column of the selected pixels of images, best first; -1 where there is none."""
        image, groups = self.source.input_format.image, self.source.groups
        if image is None or groups.spec is not None:
            what = "rows of a table" if image is None else f"units of groups={groups.spec!r:.60}"
            raise InputError(f"pixels: what was selected are {what}, not pixels. Use `selected` or `mask` instead.")
        pixels = np.stack(np.divmod(self.selected, image.width), axis=2)
        return np.where(self.selected[:, :, None] >= 0, pixels, -1)

    def verify(
        self, *, removal: Any = None, n_draws: int = 10, level: float = LEVEL, random_state: int = 0
    ) -> Verification:
        """Does the model say the same on these features alone? Asks the black box.

        The other features are removed as in training, or as `removal` says (means and other rows' values are
        those of the training data); where removal is random, n_draws times. A row is confirmed if its target then
        surely keeps its value in at least `level` of all possible draws: with 10 draws, if it did in each of them; to
        be as sure of level=0.9 takes 30. Of a region, agreement is the share of pixels that stay the same. Whole rows
        are asked about once, however often you verify, also where you said what the model predicts.
        """
        check_positive_int(n_draws, "n_draws")
        if not 0 < level < 1:
            raise InputError(f"level must be a share of draws between 0 and 1, such as {LEVEL}, got {level!r}.")
        source = self.source
        rng = np.random.default_rng(random_state)
        how = source.removal
        if removal is not None:
            how = make_removal(removal, source.background.rows, source.input_format, rng)
        before = source.sent.n
        original, keep, rows = source.asked, self.unit_mask, np.arange(len(self))
        n_times = n_draws if how.is_random else 1
        agree, moved = np.empty((n_times, len(self))), np.empty((n_times, len(self)))
        for draw in range(n_times):
            for some, reduced in source.ask_in_parts(how, keep, rows, rng):
                whole, targets = original[some], self.target[some]
                agree[draw, some] = source.at_targets(source.outputs.agree(whole, reduced), targets)
                moved[draw, some] = source.at_targets(source.outputs.difference(whole, reduced), targets)
        n_queries = source.sent.n - before
        asked = n_draws if how.is_random else None
        return Verification(np.mean(agree, axis=0), np.mean(moved, axis=0), n_queries, asked, float(level))

    def paths(self, *, n_draws: int = 16, n_outputs: int = 8, random_state: int = 0) -> Paths:
        """How much of each selected feature's effect on the target is direct, and how much goes through other outputs.

        The energy answers, not the black box, which at most says what all its outputs are for the whole rows: once
        per row, and not where you gave `predicted`, nor if all rows were seen in fit, nor if it is not at hand (then
        what the energy expects is taken). The first call learns a small network for each target of the rows,
        which costs a few seconds per target: asking about many targets at once takes minutes. Where removal is random
        it is averaged over n_draws; at most n_outputs other outputs are looked at, those that matter most to the
        target. docs/paths.md says how it is defined, and what it cannot say.
        """
        if self.trace is None:
            raise InputError("paths: this explanation was not made by SOInter.explain(), which alone knows the paths.")
        if (self.target >= self.source.outputs.n_outputs).any():
            raise InputError("paths: a region has no paths of its own; explain one output, or one pixel, at a time.")
        return self.trace(
            self.selected,
            self.target,
            self.expected,
            n_draws=check_positive_int(n_draws, "n_draws"),
            n_outputs=check_positive_int(n_outputs, "n_outputs"),
            seed=check_positive_int(random_state, "random_state", minimum=0),
        )

    def to_frame(self) -> pd.DataFrame:
        """One line per row and selected feature: sample, target, expected value, rank, feature, score.

        `sample` counts the rows that were explained, from 0. Where those were a DataFrame with labels of its own, the
        lines are indexed by these, so that `explanation.to_frame().join(X)` puts features beside their rows.
        """
        pandas = require_extra("pandas", "pandas")
        sample, position = np.nonzero(self.selected >= 0)
        unit = self.selected[sample, position]
        frame: pd.DataFrame = pandas.DataFrame(
            {
                "sample": sample,
                "target": np.array(self.output_names, dtype=object)[self.target[sample]],
                "expected": self.expected[sample],
                "rank": position + 1,
                "feature": np.array(self.feature_names, dtype=object)[unit],
                "score": self.scores[sample, unit],
            },
            index=None if self.source.index is None else self.source.index[sample],
        )
        return frame

    def summary(self, n: int = 10, *, expected: Any = None) -> dict[str, list[tuple[str, float]]]:
        """For every target explained, its n most often selected features and the share of rows that selected them.

        `expected` counts only rows where that value is explained: expected=1 gives the reasons for a tag, without
        those against it.
        """
        result: dict[str, list[tuple[str, float]]] = {}
        chosen = self.unit_mask
        counted = np.ones(len(self), dtype=bool) if expected is None else np.asarray(self.expected == expected)
        for target in np.unique(self.target[counted]):
            rows = counted & (self.target == target)
            share = chosen[rows].mean(axis=0)
            strength = np.abs(self.scores[rows]).mean(axis=0)
            order = np.lexsort((-strength, -share))[:n]
            result[self.output_names[target]] = [
                (self.feature_names[unit], float(share[unit])) for unit in order if share[unit] > 0
            ]
        return result

    def to_shap(self, *, selected_only: bool = False) -> Any:
        """The same as a `shap.Explanation`, for shap's own plots: bar, beeswarm, heatmap, waterfall, and image.

        Values are the scores, of all features or of the selected ones only (the others 0); groups give each of their
        features their score. They are not Shapley values: `base_values` are 0 and they add up to nothing in particular.
        """
        from sointer.interop.shap import to_shap

        return to_shap(self, selected_only=selected_only)

    def plot(self, row: int | None = None, *, kind: str | None = None, n: int | None = None, ax: Any = None) -> Any:
        """What was selected for one row, or for many; returns the matplotlib Axes.

        kind : of tables "bar" (the n best features of a row with their scores; without a row, how often each was
            selected), "summary" (how often, and for which value) and "heatmap" (targets by features: how often);
            of texts also "words" (a document with its selected words marked); of images "image" (a row with its target
            in red and the selected pixels in green, beside the black box's mask, if known, and the smallest rectangle
            that holds them; without a row, the first n (8) rows). Unless told, what suits the data: docs/plots.md.
        """
        from sointer.plot import draw

        return draw(self, kind, row=row, n=n, ax=ax)

    def to_html(self, path: str | PathLike[str] | None = None, *, max_rows: int = 200) -> str:
        """A self-contained table of rows and what was selected for them, as HTML; written to `path` if given."""
        from sointer.plot import html_page

        page = html_page(self, max_rows)
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page

    def _repr_html_(self) -> str:
        from sointer.plot import html_table

        return html_table(self, max_rows=20)

    def __repr__(self) -> str:
        targets = [self.output_names[t] for t in np.unique(self.target)[:3]]
        more = " ..." if len(np.unique(self.target)) > 3 else ""
        return f"Explanation({len(self)} rows, target {', '.join(targets)}{more}, k={self.selected.shape[1]})"
