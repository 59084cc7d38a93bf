"""Explanation: what was selected, for which target, and whether the black box says the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sointer.errors import InputError, require_extra
from sointer.paths import Paths, Trace
from sointer.removal import make_removal
from sointer.selection import first_units
from sointer.source import Source
from sointer.validation import check_positive_int
from sointer.verification import LEVEL, Verification

if TYPE_CHECKING:
    import pandas as pd


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
