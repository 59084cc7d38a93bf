"""What explaining returns: what was selected, for which target, and whether the model predicts the same from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer._support.files import put
from sointer._support.frames import BACKENDS, to_backend
from sointer._support.validation import check_positive_int
from sointer.data.values import ValueSource, is_value, target_values, tolerance_of
from sointer.errors import InputError, require_extra
from sointer.masking.build import make_removal
from sointer.masking.rows import ExplainedRows
from sointer.masking.selection import Scored, first_units, most_needed, share_bounds
from sointer.masking.unit_values import feature_values
from sointer.paths import Paths, Trace

LEVEL = 0.7
"""Share of draws in which a confirmed explanation holds, at the least."""


@dataclass(frozen=True)
class Verification:
    """What the model predicts for samples masked to their selected features, compared with the values explained.

    Where what is removed becomes something random, the black box was asked about a few draws only, so that there are
    three verdicts: a row is confirmed if the target surely keeps its value in at least `level` of all draws,
    refuted if it surely does not, and unsure else. Surely: the bound of `interval` says so.
    """

    agreement: NDArray[np.float64]
    """For each row, the share of draws in which the target kept its value; of a region, the share of its pixels too."""
    difference: NDArray[np.float64]
    """For each row, how far the target moved on average; labels 0 or 1, probabilities `|p - q|`, else in deviations."""
    n_queries: int
    n_draws: int | None = None
    """How many draws; None where nothing is random, so that one answer tells all."""
    level: float = LEVEL
    value_source: ValueSource = "model"
    """What the masked predictions were compared with; the model's own, given ones, or values that are only expected."""
    removal: str | None = None
    """How everything else was removed."""
    random_state: int = 0
    tolerance: float | None = None
    """Numbers that differ by at most so many standard deviations agree; None unless all targets are numbers."""

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
        return share_bounds(self.agreement, self.n_draws)

    @property
    def confirmed(self) -> NDArray[np.bool_]:
        """Rows whose target surely keeps its value; where nothing is random, those where it did."""
        return np.asarray(self.agreement == 1.0 if self.n_draws is None else self.interval[:, 0] >= self.level)

    @property
    def refuted(self) -> NDArray[np.bool_]:
        """Rows that are surely refuted; the model relied on more than was selected, or on something else."""
        return np.asarray(self.agreement < 1.0 if self.n_draws is None else self.interval[:, 1] < self.level)

    @property
    def unsure(self) -> NDArray[np.bool_]:
        """Rows that are neither; more draws would tell."""
        return ~(self.confirmed | self.refuted)

    @property
    def verdict(self) -> NDArray[np.object_]:
        """For each row "confirmed", "refuted" or "unsure"."""
        return np.where(self.confirmed, "confirmed", np.where(self.refuted, "refuted", "unsure")).astype(object)

    def _repr_html_(self) -> str:
        from sointer.viz.plots.notebook import html_verification

        return html_verification(self)

    def __repr__(self) -> str:
        expected = " of expected values" if self.value_source == "expected" else ""
        unsure = f"unsure of {int(self.unsure.sum())}, " if self.unsure.any() else ""
        off = "" if self.tolerance is None else f"off by {self.difference.mean():.2g} standard deviations, "
        return (
            f"Verification(fidelity={self.fidelity:.3f}, confirmed {int(self.confirmed.sum())} of "
            f"{len(self.agreement)} rows{expected}, {unsure}{off}n_queries={self.n_queries})"
        )


@dataclass(frozen=True, eq=False)
class Explanation:
    """The selected features of every row, best first.

    Attributes
    ----------
    selected
        (rows, k) feature (or group) numbers, best first; -1 where a row has fewer, so use `mask` or `to_frame()` to
        look features up.
    scores
        (rows, features or groups) relevance: how much the target depends on each here. It has no sign; which way a
        feature pushes is said by `effects`.
    target
        (rows,) the output that was explained, as a place in `output_names`; of masks, a pixel or a region.
    value
        (rows,) the value that is explained: exactly what the model predicted (a label, a probability or a number; of a
        region, the label of most pixels, or their mean), or what is expected of it, as `value_source` says.
    """

    selected: NDArray[np.int64]
    scores: NDArray[np.float32]
    target: NDArray[np.int64]
    value: NDArray[Any]
    feature_names: list[str]
    output_names: list[str]
    source: ExplainedRows
    trace: Trace | None = field(default=None, repr=False)
    """Computes `paths`, given by the explainer."""
    distance: NDArray[np.float64] | None = field(default=None, repr=False)
    """(rows,) how far each row lies from the training data; above 1 it is far. See docs/trust.md."""
    effects: NDArray[np.float32] | None = field(default=None, repr=False)
    """(rows, features or groups) which way each pushes the output and how far, in the unit of the output; the number,
    the probability, or the probability of the label explained. Of images: how strongly each speaks for the prediction
    (above 0) or against it, in log-odds that a mixture of two images follows this one. None where signs are unknown."""
    base_value: NDArray[np.float32] | None = field(default=None, repr=False)
    """(rows,) what the output is with everything removed (on average, where removal is random); effects lead from here
    to what the explainer expects for the row."""
    needed: NDArray[np.bool_] | None = field(default=None, repr=False)
    """(rows, features or groups) those that matter for this row; others are there only because k asked for as many."""
    locality: NDArray[np.int64] | None = field(default=None, repr=False)
    """(rows,) the locality of each row, as numbered by `explainer.localities(target)`."""
    n_opposite: NDArray[np.int64] | None = field(default=None, repr=False)
    """(rows,) of images, how many of those in fit have another label at the target than the one explained. Where there
    is none, nothing could be learned about the target, and what is said of it is a guess from other targets."""
    provenance: Any = field(default=None, repr=False)
    """Who made it, and how; makes its records. Given by the explainer."""

    @classmethod
    def of(
        cls,
        ranking: NDArray[np.int64],
        sizes: NDArray[np.int64],
        scored: Scored,
        targets: NDArray[np.int64],
        source: ExplainedRows,
        trace: Trace | None = None,
        distance: NDArray[np.float64] | None = None,
    ) -> Explanation:
        """The explanation of rows whose units are ranked so, each with as many as `sizes` says."""
        width = int(sizes.max())
        selected = np.where(np.arange(width) < sizes[:, None], ranking[:, :width], -1)
        if source.predicted is None:
            value = source.outputs.label_targets(scored.values, targets)
            source = replace(source, expected=value)
        else:
            value = target_values(source.outputs, source.predicted, targets, source.regions, source.sample)
        names = source.groups.unit_names, [*source.outputs.names, *source.region_names]
        known: tuple[Any, ...] = scored.effects, scored.base, scored.needed, scored.locality, scored.n_opposite
        return cls(selected, scored.scores, targets, value, *names, source, trace, distance, *known)

    def __len__(self) -> int:
        return len(self.selected)

    @property
    def sample(self) -> NDArray[np.int64]:
        """(rows,) the sample that each row is about: their numbers in X, where target="all" was given several rows."""
        return self.source.sample_of_row

    @property
    def value_source(self) -> ValueSource:
        """Where `value` comes from: "model" (queried), "given" (as predicted=) or "expected" (by the explainer)."""
        return self.source.value_source

    @property
    def unit_mask(self) -> NDArray[np.bool_]:
        """(rows, groups) True where selected; equals `mask` when no groups were given."""
        sizes = np.full(len(self), self.selected.shape[1])
        return first_units(self.selected, sizes, self.source.groups.n_units)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """(rows, features) True where selected."""
        return self.source.units().to_features(self.unit_mask)

    @property
    def needed_mask(self) -> NDArray[np.bool_]:
        """(rows, groups) True where selected and needed, which is what summaries, plots and the report count."""
        return self.unit_mask if self.needed is None else self.unit_mask & self.needed

    @property
    def n_selected(self) -> NDArray[np.int64]:
        """How many features each row has selected."""
        return np.asarray((self.selected >= 0).sum(axis=1))

    @property
    def far(self) -> NDArray[np.bool_]:
        """Rows unlike the training data, as at most 1 % of the training data would be; doubt what is said of them."""
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
        self,
        *,
        rows: Any = None,
        removal: Any = None,
        n_draws: int = 10,
        level: float = LEVEL,
        random_state: int = 0,
    ) -> Verification:
        """Does the model predict `value` from these features alone? Queries the model about masked samples.

        The other features are removed as in training, or as `removal` says (means and other rows' values are
        those of the training data); where removal is random, n_draws times. A row is confirmed if its target then
        surely keeps its value in at least `level` of all possible draws: with 10 draws, if it did in each of them; to
        be as sure of level=0.9 takes 30. Of a region, agreement is the share of pixels that stay the same (where the
        value is only expected: that have its label). Unmasked samples are not queried: what is judged is the value
        shown, wherever it comes from. With `rows`, indices or a slice, only those samples are judged.
        """
        check_positive_int(n_draws, "n_draws")
        if not 0 < level < 1:
            raise InputError(f"level must be a share of draws between 0 and 1, such as {LEVEL}, got {level!r}.")
        source, how, rng = self.source, self.source.removal, np.random.default_rng(random_state)
        before = source.sent.n
        if removal is not None:
            how = make_removal(removal, source.background.known_rows(), source.input_format, rng)
        which = np.arange(len(self))[slice(None) if rows is None else np.asarray(rows)]
        keep, target, n_drawn = self.unit_mask[which], self.target[which], n_draws if how.is_random else None
        agreement, moved = source.compare(how, keep, target, rows=which, n_draws=n_drawn or 1, rng=rng)
        judged = n_drawn, float(level), self.value_source, how.name, int(random_state)
        may_differ, n_queries = tolerance_of(source.outputs, target), source.sent.n - before
        return Verification(agreement, moved, n_queries, *judged, may_differ)

    def paths(self, *, n_draws: int = 16, n_outputs: int = 8, random_state: int = 0) -> Paths:
        """How much of each selected feature's effect on the target is direct, and how much goes through other outputs.

        The energy answers; the model is not queried. Other outputs are held at what the model predicts, where that is
        known (`value_source` is "model" or "given"), else at what the energy expects. The first call learns a small
        network for each target of the rows, which costs a few seconds per target: asking about many targets at once
        takes minutes. Where removal is random it is averaged over n_draws; at most n_outputs other outputs are looked
        at, those that matter most to the target. docs/paths.md says how it is defined, and what it cannot say.
        """
        if self.trace is None:
            raise InputError("paths: this explanation was not made by SOInter.explain(), which alone knows the paths.")
        if (self.target >= self.source.outputs.n_outputs).any():
            raise InputError("paths: a region has no paths of its own; explain one output, or one pixel, at a time.")
        return self.trace(
            self.selected,
            self.target,
            self.value,
            n_draws=check_positive_int(n_draws, "n_draws"),
            n_outputs=check_positive_int(n_outputs, "n_outputs"),
            seed=check_positive_int(random_state, "random_state", minimum=0),
        )

    def record(
        self,
        verification: Verification | None = None,
        *,
        created: datetime | str | None = None,
        ids: Sequence[Any] | None = None,
    ) -> list[dict[str, Any]]:
        """One JSON-ready dictionary per explanation, with all that it takes to check it later: evidence to keep.

        What each field says, and a JSON schema: docs/records.md. `sointer.verify_record` compares a record with an
        explainer. The first call computes the hash of the explainer.

        Parameters
        ----------
        verification : what `verify()` returned for this explanation; records then have its verdicts.
        created : the time to put down, with a time zone; default: now.
        ids : one for each sample, by which its owner knows it; default: the labels of a DataFrame, else none.
        """
        if self.provenance is None:
            raise InputError("record: this explanation was not made by an explainer, so nobody could make it again.")
        records: list[dict[str, Any]] = self.provenance.records(self, verification, created=created, ids=ids)
        return records

    def to_frame(self) -> Any:
        """One line per sample and selected feature: sample, target, value, value_source, rank, feature, score.

        After the feature comes `feature_value`, what it is in the sample, in its own type (not of pixels). Where known,
        also needed (False: selected only because k asked for as many), effect (signed, in the unit of the
        output) and locality (of the sample). `sample` counts the samples of X, from 0. Where those were a
        DataFrame with labels of its own, the lines are indexed by these, so that `explanation.to_frame().join(X)` puts
        features beside their rows. A pandas DataFrame; of polars or pyarrow where fit was given one.
        """
        pandas = require_extra("pandas", "pandas")
        row, position = np.nonzero(self.selected >= 0)
        unit, sample = self.selected[row, position], self.sample[row]
        frame = pandas.DataFrame(
            {
                "sample": sample,
                "target": np.array(self.output_names, dtype=object)[self.target[row]],
                "value": self.value[row],
                "value_source": np.full(len(sample), self.value_source, dtype=object),
                "rank": position + 1,
                "feature": np.array(self.feature_names, dtype=object)[unit],
                **feature_values(self.source, sample, unit),
                "score": self.scores[row, unit],
                **({} if self.needed is None else {"needed": self.needed[row, unit]}),
                **({} if self.effects is None else {"effect": self.effects[row, unit]}),
                **({} if self.locality is None else {"locality": self.locality[row]}),
            },
            index=None if self.source.index is None else self.source.index[sample],
        )
        kind = self.source.input_format.kind
        return to_backend(frame, kind, {}) if kind in BACKENDS else frame

    def summary(self, n: int = 10, *, value: Any = None) -> dict[str, list[tuple[str, float]]]:
        """For every target explained, the n features that most rows need, and the share of rows that need them.

        A feature that a row has selected only because k asked for as many does not count there. Where it is not known
        what is needed (texts, images), all selected ones count. `value` counts only samples where that value is
        explained: value=1 gives the reasons for a tag, without those against it; of probabilities, value=1 counts those
        above 0.5.
        """
        result: dict[str, list[tuple[str, float]]] = {}
        chosen, every = self.needed_mask, np.ones(len(self), dtype=bool)
        counted = every if value is None else is_value(self.value, value, self.source.outputs, self.target)
        for target in np.unique(self.target[counted]):
            rows = counted & (self.target == target)
            most = most_needed(chosen[rows], self.scores[rows], n)
            result[self.output_names[target]] = [(self.feature_names[unit], share) for unit, share in most]
        return result

    def to_shap(self, *, selected_only: bool = False) -> Any:
        """The same as a `shap.Explanation`, for shap's own plots: bar, beeswarm, heatmap, waterfall, force, and image.

        Values are the signed `effects` in the unit of the output, and `base_values` is `base_value`, so that shap's
        axes are true: values lead from what the output is with everything removed to what is expected for the row.
        They are not Shapley values of the model. With selected_only, all other values are 0, and values no longer lead
        all the way. A group shares its effect evenly among its features.

        Of images, values are log-odds that a mixture of two images follows this one, and `base_values` are 0. Where
        effects are not known (preset="paper", baselines, some sparse rows with numbers), values are the scores, which
        have no sign and no unit; `base_values` are then 0, and only shap's bar, heatmap and image plots mean anything.
        """
        from sointer.integrations.shap import to_shap

        return to_shap(self, selected_only=selected_only)

    def plot(self, row: int | None = None, *, kind: str | None = None, n: int | None = None, ax: Any = None) -> Any:
        """What was selected for one row, or for many; returns the matplotlib Axes.

        kind : of tables "bar" (the n best features of a row: their relevance and, in a panel beside it, which way they
            push; on an `ax` of yours the relevance alone; without a row, the share of rows that need each), "effects"
            (which way the n best features of a row push, and how far), "summary" (how often, and for which value) and
            "heatmap" (targets by features: how often); of texts also "words" (a document with its selected words
            marked); of images "image" (a row with its target in red and the selected pixels in green, beside the mask
            that the model predicts, if known, and the smallest rectangle that holds them; without a row, the first n
            (8) rows). The default is what suits the data: docs/plots.md.
        """
        from sointer.viz.plots.kinds import draw

        return draw(self, kind, row=row, n=n, ax=ax)

    def to_html(self, path: str | PathLike[str] | None = None, *, max_rows: int = 200) -> str:
        """A self-contained table of rows and what was selected for them, as HTML; written to `path` if given."""
        from sointer.viz.plots.notebook import html_page

        page = html_page(self, max_rows)
        if path is not None:
            put(Path(path), page.encode())
        return page

    def _repr_html_(self) -> str:
        from sointer.viz.plots.notebook import html_table

        return html_table(self, max_rows=20)

    def __repr__(self) -> str:
        targets = [self.output_names[t] for t in np.unique(self.target)[:3]]
        more = " ..." if len(np.unique(self.target)) > 3 else ""
        expected = ", of expected values" if self.value_source == "expected" else ""
        return f"Explanation({len(self)} rows, target {', '.join(targets)}{more}, k={self.selected.shape[1]}{expected})"
