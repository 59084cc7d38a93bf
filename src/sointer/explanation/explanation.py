"""Explanation: what was selected, for which target, and whether the black box says the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sointer._support.files import put
from sointer._support.frames import BACKENDS, to_backend
from sointer._support.validation import check_positive_int
from sointer.data.values import ValueSource, is_value, target_values
from sointer.errors import InputError, require_extra
from sointer.explanation.paths import Paths, Trace
from sointer.explanation.record import Provenance, make_records
from sointer.explanation.verification import LEVEL, Verification
from sointer.masking.build import make_removal
from sointer.masking.rows import ExplainedRows
from sointer.masking.selection import Scored, first_units
from sointer.masking.unit_values import UnitValues, value_kind

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Explanation:
    """The selected features of every row, best first.

    Attributes
    ----------
    selected
        (rows, k) indices of features (or groups), best first; -1 where a row has fewer. Use `mask` or `to_frame()` to
        look features up.
    mask
        (rows, features), True where selected.
    scores
        (rows, features or groups) relevance: how much the target depends on each here. Never negative; the direction
        is in `effects`.
    target
        (rows,) index of the output explained, in `output_names`; for masks, a pixel or a region.
    value
        (rows,) the value explained: the model's prediction (a label, a probability or a number; for a region, the
        label of most pixels, or their mean), or the value expected by the explainer.
    value_source
        Where the value comes from: "model" (queried), "given" (passed as predicted=) or "expected" (neither).
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
    """(rows,) distance from the training data; above 1 a row is far. See docs/concepts/trust.md."""
    effects: NDArray[np.float32] | None = field(default=None, repr=False)
    """(rows, features or groups) how far each pushes the output, and in which direction, in the unit of the output; for
    labels, in the probability of the label explained. For images: evidence for the prediction (positive) or against it,
    in log-odds that a mixture of two images follows this one. None where effects are not available."""
    base_value: NDArray[np.float32] | None = field(default=None, repr=False)
    """(rows,) the output with everything removed (averaged over draws, if removal is random); effects lead from here to
    the prediction."""
    needed: NDArray[np.bool_] | None = field(default=None, repr=False)
    """(rows, features or groups) True for those that matter for this row; others only fill up a fixed k."""
    locality: NDArray[np.int64] | None = field(default=None, repr=False)
    """(rows,) the number of each row's locality, as in `explainer.localities(target)`."""
    n_opposite: NDArray[np.int64] | None = field(default=None, repr=False)
    """(rows,) images only: how many training images have another label at the target. If there are none, nothing could
    be learned about the target, and its explanation is extrapolated from other targets."""
    provenance: Provenance | None = field(default=None, repr=False)
    """The explainer and its settings; needed for `record`."""

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
        width = int(sizes.max())
        selected = np.where(np.arange(width) < sizes[:, None], ranking[:, :width], -1)
        if source.predicted is None:
            value = source.outputs.label_targets(scored.values, targets)
            source = replace(source, expected=value)
        else:
            value = target_values(source.outputs, source.predicted, targets, source.regions, source.sample)
        names = source.groups.unit_names, [*source.outputs.names, *source.region_names]
        return cls(
            selected,
            scored.scores,
            targets,
            value,
            *names,
            source,
            trace,
            distance,
            scored.effects,
            scored.base,
            scored.needed,
            scored.locality,
            scored.n_opposite,
        )

    def __len__(self) -> int:
        return len(self.selected)

    @property
    def sample(self) -> NDArray[np.int64]:
        """(rows,) index in X of the sample that each row explains; with target="all", a sample has several rows."""
        return self.source.sample_of_row

    @property
    def value_source(self) -> ValueSource:
        """Where `value` comes from, "model", "given" or "expected"."""
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
        """(rows,) number of selected features."""
        return np.asarray((self.selected >= 0).sum(axis=1))

    @property
    def far(self) -> NDArray[np.bool_]:
        """(rows,) True for samples far from the training data; verify their explanations."""
        if self.distance is None:
            raise InputError("far: this explanation was not made by an explainer, which alone knows its training data.")
        return np.asarray(self.distance > 1)

    @property
    def pixels(self) -> NDArray[np.int64]:
        """(rows, k, 2) row and column of the selected pixels, best first; -1 where there is none."""
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
        """Query the model with everything removed except the selected features: does it still predict `value`?

        Parameters
        ----------
        rows : indices or slice, optional
            Rows to verify; default: all.
        removal : optional
            As in `SOInter`; default: as in fit.
        n_draws : int, default 10
            Draws per row, if removal is random.
        level : float, default 0.7
            A row is confirmed if, with 95 % confidence, its target keeps its value in at least this share of all
            possible draws: with 10 draws, if it does in each of them. level=0.9 takes 30 draws.
        random_state : int, default 0
            Seed of the draws.

        Returns
        -------
        Verification
            For a region, agreement is the share of its pixels that keep their value.
        """
        check_positive_int(n_draws, "n_draws")
        if not 0 < level < 1:
            raise InputError(f"level must be a share of draws between 0 and 1, such as {LEVEL}, got {level!r}.")
        source = self.source
        rng = np.random.default_rng(random_state)
        how = source.removal
        if removal is not None:
            how = make_removal(removal, source.background.known_rows(), source.input_format, rng)
        before = source.sent.n
        which = np.arange(len(self)) if rows is None else np.arange(len(self))[np.asarray(rows)]
        keep, target = self.unit_mask[which], self.target[which]
        n_times = n_draws if how.is_random else 1
        agree, moved = np.empty((n_times, len(which))), np.empty((n_times, len(which)))
        for draw in range(n_times):
            for chunk, masked in source.ask_in_parts(how, keep, which, rng):
                agree[draw, chunk] = source.agrees(masked, which[chunk], target[chunk])
                moved[draw, chunk] = source.moved(masked, which[chunk], target[chunk])
        n_queries, n_drawn = source.sent.n - before, n_draws if how.is_random else None
        return Verification(
            np.mean(agree, axis=0),
            np.mean(moved, axis=0),
            n_queries,
            n_drawn,
            float(level),
            self.value_source,
            how.name,
            int(random_state),
        )

    def paths(self, *, n_draws: int = 16, n_outputs: int = 8, random_state: int = 0) -> Paths:
        """Split the effect of each selected feature into a direct part and parts through other outputs.

        The model is not queried. The first call trains a small network per target, in a few seconds each. Other outputs
        are held at the model's predictions, if known. See docs/concepts/paths.md.

        Parameters
        ----------
        n_draws : int, default 16
            Draws to average over, if removal is random.
        n_outputs : int, default 8
            Maximum number of other outputs considered: those that matter most to the target.
        random_state : int, default 0
            Seed of the draws.
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
        """Return one JSON-ready dictionary per explanation, with everything needed to check it later.

        See docs/how-to/records.md for the fields, and `sointer.verify_record`.

        Parameters
        ----------
        verification : Verification, optional
            What `verify()` returned for this explanation; adds its verdicts.
        created : datetime or str, optional
            Time of creation, with a time zone; default: now.
        ids : sequence, optional
            One per sample; default: the labels of a DataFrame, if any.
        """
        return make_records(self, verification, created=created, ids=ids)

    def to_frame(self) -> Any:
        """Return a table with one line per sample and selected feature.

        Columns are sample, target, value, value_source, rank, feature, feature_value (except for pixels) and score;
        where available also needed, effect and locality. Labels of a DataFrame become the index, so that
        `explanation.to_frame().join(X)` works. The result is a pandas DataFrame, or polars or pyarrow as in fit.
        """
        pandas = require_extra("pandas", "pandas")
        row, position = np.nonzero(self.selected >= 0)
        unit, sample = self.selected[row, position], self.sample[row]
        frame: pd.DataFrame = pandas.DataFrame(
            {
                "sample": sample,
                "target": np.array(self.output_names, dtype=object)[self.target[row]],
                "value": self.value[row],
                "value_source": np.full(len(sample), self.value_source, dtype=object),
                "rank": position + 1,
                "feature": np.array(self.feature_names, dtype=object)[unit],
                **self._feature_values(sample, unit),
                "score": self.scores[row, unit],
                **({} if self.needed is None else {"needed": self.needed[row, unit]}),
                **({} if self.effects is None else {"effect": self.effects[row, unit]}),
                **({} if self.locality is None else {"locality": self.locality[row]}),
            },
            index=None if self.source.index is None else self.source.index[sample],
        )
        kind = self.source.input_format.kind
        return to_backend(frame, kind, {}) if kind in BACKENDS else frame

    def _feature_values(self, sample: NDArray[np.int64], unit: NDArray[np.int64]) -> dict[str, Any]:
        """The column of values of features, in their own type, as far as one column holds them."""
        kind = value_kind(self.source.input_format, self.source.groups)
        if kind is None:
            return {}
        own = UnitValues(self.source).own(sample, unit)
        if self.source.input_format.kind in BACKENDS and kind == "string":
            own = [None if value is None else str(value) for value in own]
        values = np.array([*own, None], dtype=object)[:-1]
        is_plain = kind == "float64" or (kind != "string" and all(value is not None for value in own))
        return {"feature_value": values.astype(kind) if is_plain else values}

    def summary(self, n: int = 10, *, value: Any = None) -> dict[str, list[tuple[str, float]]]:
        """Return, for every target, the n features that most rows need, with the share of rows that need them.

        For texts and images all selected features count. `value` restricts the rows: value=1 counts only reasons for a
        tag (for probabilities, those above 0.5), not those against it.
        """
        result: dict[str, list[tuple[str, float]]] = {}
        chosen = self.needed_mask
        every = np.ones(len(self), dtype=bool)
        counted = every if value is None else is_value(self.value, value, self.source.outputs, self.target)
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
        """Return a `shap.Explanation` for shap's plots: bar, beeswarm, heatmap, waterfall, force and image.

        Values are the signed `effects`, and `base_values` is `base_value`; they are not Shapley values of the model.
        With selected_only, all other values are 0. A group shares its effect evenly among its features. For images,
        values are log-odds. Where effects are not available (preset="paper", baselines, some sparse tables with
        numbers), values are the unsigned scores: use bar, heatmap or image plots only.
        """
        from sointer.integrations.shap import to_shap

        return to_shap(self, selected_only=selected_only)

    def plot(self, row: int | None = None, *, kind: str | None = None, n: int | None = None, ax: Any = None) -> Any:
        """Draw one row, or many; returns the matplotlib Axes. See docs/how-to/plots-and-reports.md.

        Parameters
        ----------
        row : int, optional
            Which row; default: all of them.
        kind : {"bar", "effects", "summary", "heatmap", "words", "image"}, optional
            Default: what suits the data.
        n : int, optional
            Number of features (of images, rows) shown.
        ax : matplotlib Axes, optional
            Where to draw.
        """
        from sointer.viz.plots.kinds import draw

        return draw(self, kind, row=row, n=n, ax=ax)

    def to_html(self, path: str | PathLike[str] | None = None, *, max_rows: int = 200) -> str:
        """Return a self-contained HTML table of rows and their selections; written to `path` if given."""
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
