"""What explaining returns: what was selected, and for which target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer._support.containers import BACKENDS, to_backend
from sointer._support.validation import check_positive_int
from sointer.data.targets import ValueSource, is_value, target_values, tolerance_of
from sointer.errors import InputError, require_extra
from sointer.masking.build import make_removal
from sointer.masking.rows import ExplainedRows
from sointer.masking.selection import Scored, first_units, most_needed
from sointer.masking.unit_values import feature_values, output_values
from sointer.paths import Paths, Trace
from sointer.verification import LEVEL, Verification


@dataclass(frozen=True, eq=False)
class Explanation:
    """The selected features of every row, best first.

    Attributes
    ----------
    selected
        (rows, k) indices of features (or groups), best first; -1 where a row has fewer. Use `mask` or `to_frame()` to
        look features up.
    scores
        (rows, features or groups) relevance: how much the target depends on each here. Never negative; the direction
        is in `effects`.
    target
        (rows,) index of the output explained, in `output_names`; for masks, a pixel or a region.
    value
        (rows,) the value explained: the model's prediction (a label, a probability or a number; for a region, the
        label of most pixels, or their mean), or the value expected by the explainer.
    source : object
        The rows explained, and their model.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.explainers.baselines import Random
    >>> X = np.random.default_rng(0).normal(size=(50, 4))
    >>> explanation = Random(lambda X: X[:, :2] > 0, k=2, random_state=0).fit(X).explain(X[:3], target=1)
    >>> explanation.selected.shape, explanation.scores.shape, explanation.n_selected.tolist()
    ((3, 2), (3, 4), [2, 2, 2])
    """

    selected: NDArray[np.int64]
    scores: NDArray[np.float32]
    target: NDArray[np.int64]
    value: NDArray[Any]
    feature_names: list[str]
    """Of groups, if features were grouped."""
    output_names: list[str]
    """Of all outputs."""
    source: ExplainedRows
    trace: Trace | None = field(default=None, repr=False)
    """Computes `paths`, given by the explainer."""
    distance: NDArray[np.float64] | None = field(default=None, repr=False)
    """(rows,) distance from the training data; above 1 a row is far. See docs/concepts/trust.md."""
    effects: NDArray[np.float32] | None = field(default=None, repr=False)
    """(rows, features or groups) how far each pushes the output, and in which direction, in the unit of the output; for
    labels, in the probability of the label explained. For images: evidence for the prediction (positive) or against it,
    in log-odds that a mixture of two images follows this one; negative signs are often wrong, see
    docs/how-to/images.md. None where effects are not available."""
    base_value: NDArray[np.float32] | None = field(default=None, repr=False)
    """(rows,) the output with everything removed (averaged over draws); effects lead from it to the prediction."""
    needed: NDArray[np.bool_] | None = field(default=None, repr=False)
    """(rows, features or groups) True for those that matter for this row; others only fill up a fixed k."""
    locality: NDArray[np.int64] | None = field(default=None, repr=False)
    """(rows,) the number of each row's locality, as in `explainer.localities(target)`."""
    n_opposite: NDArray[np.int64] | None = field(default=None, repr=False)
    """(rows,) images only: how many training images, and mirror images that fit adds, have another label at the target.
    If there are none, nothing could be learned about it, and its explanation is extrapolated from other targets."""
    provenance: Any = field(default=None, repr=False)
    """The explainer and its settings; makes records."""

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
        """(rows,) index in X of the sample that each row explains; with target="all", a sample has several rows."""
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
        """Check that the model still predicts `value` with everything removed except the selected features.

        Parameters
        ----------
        rows : indices or slice, default all
        removal : optional
            As in `SOInter`; default: as in fit.
        n_draws : int, default 10
            Draws per row, if removal is random.
        level : float, default 0.7
            A row is confirmed if, with 95 % confidence, its target keeps its value in at least this share of all
            possible draws: with 10 draws, if it does in each of them. Fewer than 9 draws confirm nothing; level=0.9
            takes 30.
        random_state : int, default 0

        Returns
        -------
        Verification
            For a region, agreement is the share of its pixels that keep their value.

        Raises
        ------
        InputError
            If an argument is wrong, or there is no model.
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
        return Verification(agreement, moved, n_queries, *judged, may_differ, source.input_format.image is not None)

    def paths(self, *, n_draws: int = 16, n_outputs: int = 8, random_state: int = 0) -> Paths:
        """Split the effect of each selected feature into a direct part and parts through other outputs.

        Queries nothing. The first call trains a network per target, a few seconds each. See docs/concepts/paths.md.

        Parameters
        ----------
        n_draws : int, default 16
            Draws over which random removal is averaged.
        n_outputs : int, default 8
            Number of other outputs considered, those that matter most.
        random_state : int, default 0

        Returns
        -------
        Paths

        Raises
        ------
        InputError
            If paths are not available: for regions, images and texts, and from other explainers.
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

        Fields: docs/how-to/records.md; check: `verify_record`.

        Parameters
        ----------
        verification : Verification, optional
            What `verify()` returned; adds verdicts.
        created : datetime or str, optional
            A time with a time zone; default: now.
        ids : sequence, optional
            One per sample; default: the labels of a DataFrame.

        Returns
        -------
        list of dict

        Raises
        ------
        InputError
            If an argument does not fit, or no explainer made the explanation.
        """
        if self.provenance is None:
            raise InputError("record: this explanation was not made by an explainer, so it cannot be reproduced.")
        records: list[dict[str, Any]] = self.provenance.records(self, verification, created=created, ids=ids)
        return records

    def to_frame(self) -> Any:
        """Return a table with one line per sample and selected feature; none for samples in which nothing is needed.

        Columns are sample, target, value, value_source, rank, feature, feature_value (except for pixels) and score;
        where available also needed, effect and locality.

        Returns
        -------
        DataFrame or table
            pandas, or polars or pyarrow as in fit. Labels of a DataFrame become the index, so that
            `explanation.to_frame().join(X)` works.
        """
        pandas = require_extra("pandas", "pandas")
        row, position = np.nonzero(self.selected >= 0)
        unit, sample = self.selected[row, position], self.sample[row]
        frame = pandas.DataFrame(
            {
                "sample": sample,
                "target": np.array(self.output_names, dtype=object)[self.target[row]],
                "value": output_values(self.source, self.value[row]),
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
        """Return, for every target, the n features that most rows need; for texts and images, those selected.

        Parameters
        ----------
        n : int, default 10
        value : optional
            Counts only rows with this value: value=1 gives reasons for a tag, not those against it.

        Returns
        -------
        dict of str to list of (str, float)
            By the target's name: features, and the share of rows that need them.
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
        """Return a `shap.Explanation` for shap's plots: bar, beeswarm, heatmap, waterfall, force and image.

        Values are the signed `effects`, in log-odds for images, and `base_values` is `base_value`; they are not Shapley
        values of the model. A group shares its effect evenly among its features. Where effects are not available
        (preset="paper", baselines, some sparse tables), values are the unsigned scores: use bar, heatmap or image only.

        Parameters
        ----------
        selected_only : bool, default False
            Whether all other values are 0.

        Returns
        -------
        shap.Explanation
        """
        from sointer.integrations.attributions import to_shap

        return to_shap(self, selected_only=selected_only)

    def plot(self, row: int | None = None, *, kind: str | None = None, n: int | None = None, ax: Any = None) -> Any:
        """Draw one row, or all. See docs/how-to/plots-and-reports.md.

        Parameters
        ----------
        row : int, default all
        kind : {"bar", "effects", "summary", "heatmap", "words", "image"}, optional
            By default, what suits the data.
        n : int, optional
            Maximum number of features (of images, rows) shown.
        ax : Axes, optional

        Returns
        -------
        Axes, or an array of them
        """
        from sointer.viz.plots import draw

        return draw(self, kind, row=row, n=n, ax=ax)

    def to_html(self, path: str | PathLike[str] | None = None, *, max_rows: int = 200) -> str:
        """Return a self-contained HTML table of rows and their selections.

        Parameters
        ----------
        path : path, optional
            A file to write it to.
        max_rows : int, default 200

        Returns
        -------
        str
        """
        from sointer.viz.plots.notebook import html_table, page_of

        return page_of(html_table(self, max_rows), path)

    def _repr_html_(self) -> str:
        from sointer.viz.plots.notebook import html_table

        return html_table(self, max_rows=20)

    def __repr__(self) -> str:
        targets = [self.output_names[t] for t in np.unique(self.target)[:3]]
        more = " ..." if len(np.unique(self.target)) > 3 else ""
        expected = ", of expected values" if self.value_source == "expected" else ""
        return f"Explanation({len(self)} rows, target {', '.join(targets)}{more}, k={self.selected.shape[1]}{expected})"
