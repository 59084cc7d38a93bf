"""Paths: how much of a feature's effect on the target is direct, and how much goes through other outputs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sointer._support.validation import whole_percents
from sointer.data.targets import ValueSource
from sointer.errors import InputError, require_extra

if TYPE_CHECKING:
    import pandas as pd


N_SHOWN = 10
MIN_THROUGH = 0.005
"""Less than this is shown as 0.00: no output carries the effect."""


class Route(NamedTuple):
    """What one feature does to one target, averaged over the rows that selected it."""

    feature: str
    n_rows: int
    total: float
    direct: float
    output: str | None
    """The other output that carries most of the effect; None where there is no other output."""
    through: float
    """How much that output carries."""

    @property
    def is_mediated(self) -> bool:
        """Whether that output carries anything that is not shown as 0.00, and a twentieth of the whole."""
        return self.output is not None and self.through >= max(MIN_THROUGH, 0.05 * abs(self.total))


class Trace(Protocol):
    """Computes the paths of an explanation; handed to it by the explainer that made it."""

    def __call__(
        self,
        selected: NDArray[np.int64],
        targets: NDArray[np.int64],
        value: NDArray[Any],
        *,
        n_draws: int,
        n_outputs: int,
        seed: int,
    ) -> Paths:
        """The paths of what was selected for these targets, whose values are explained."""


@dataclass(frozen=True)
class NoPaths:
    """Stands in for a `Trace` where the outputs' relations are not known; says so when it is called."""

    why: str
    instead: str = "explain with SOInter(model, structured=True), whose energy relates the outputs to each other"

    def __call__(self, *_: Any, **__: Any) -> Paths:
        """Refuse, and say why."""
        raise InputError(f"paths: {self.why}, so it cannot say what goes through which output; {self.instead}.")


NO_PATHS_OF_IMAGES = NoPaths(
    "paths between the pixels of a mask are not distinguished", "paths are not available for images"
)


@dataclass(frozen=True, eq=False)
class Paths:
    """The effect of every selected feature on its row's target, and the paths it takes.

    An effect is how much less likely the explained label becomes when the feature is removed as well; how far a
    probability moves towards the other side of 0.5; or how far a number moves towards the other side of the median, as
    a share of the range of all numbers (see `unit`). It is NaN where a row selected fewer features.

    Attributes
    ----------
    selected
        (rows, k) feature (or group) numbers, as in the explanation.
    total
        (rows, k) the effect while all other outputs are free to change.
    direct
        (rows, k) the effect while all other outputs are held at what they are with all selected units.
    outputs
        (rows, m) the other outputs considered, those that matter most to the row's target; -1 for none.
    through
        (rows, k, m) the part of the total that is lost while only that output is held. Consecutive outputs on one path
        each carry the whole effect, so the parts need not add up to the total.
    indistinguishable
        groups of outputs that were one-to-one (never differed, or were always opposite) in all predictions for unmasked
        rows in fit, so that it is unknown which of them an effect goes through. They are held together and carry the
        same number each; those that equal the target are left out of `outputs`.
    """

    selected: NDArray[np.int64]
    total: NDArray[np.float64]
    direct: NDArray[np.float64]
    through: NDArray[np.float64]
    outputs: NDArray[np.int64]
    target: NDArray[np.int64]
    """(rows,) index of the output, as in the explanation."""
    value: NDArray[Any]
    """(rows,) the value explained."""
    feature_names: list[str]
    """Of groups, if features were grouped."""
    output_names: list[str]
    """Of all outputs."""
    indistinguishable: list[list[str]]
    n_answers: int
    """How many predictions for unmasked rows `indistinguishable` was judged by."""
    unit: str
    """Unit of the effects: "probability"; for numbers "shares of the range", or "quantiles" for sparse rows."""
    value_source: ValueSource = "model"
    """Where `value` comes from, as in the explanation."""

    def __len__(self) -> int:
        return len(self.selected)

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one line per row, feature and path.

        Returns
        -------
        DataFrame
            The path is "direct" or the name of an output.
        """
        pandas = require_extra("pandas", "pandas")
        effects = np.concatenate([self.direct[:, :, None], self.through], axis=2)
        sample, place, path = np.nonzero(~np.isnan(effects))
        output = self.outputs[sample, np.maximum(path - 1, 0)] if self.outputs.shape[1] else np.zeros(len(path), int)
        frame: pd.DataFrame = pandas.DataFrame(
            {
                "sample": sample,
                "target": _names(self.output_names)[self.target[sample]],
                "value": self.value[sample],
                "value_source": np.full(len(sample), self.value_source, dtype=object),
                "feature": _names(self.feature_names)[self.selected[sample, place]],
                "total": self.total[sample, place],
                "path": np.where(path == 0, "direct", _names(self.output_names)[output]),
                "effect": effects[sample, place, path],
            }
        )
        return frame

    def summary(self, n: int = N_SHOWN) -> dict[str, list[Route]]:
        """Find, for every target, the features that matter most, averaged over the rows that selected them.

        Parameters
        ----------
        n : int, default 10

        Returns
        -------
        dict of str to list of Route
            By the target's name.
        """
        result: dict[str, list[Route]] = {}
        for target in np.unique(self.target).tolist():
            routes = []
            for unit in self.ranked(target)[:n]:
                total, direct, through = self.average(target, unit)
                output = max(through, key=lambda i: through[i], default=None)
                name = None if output is None else self.output_names[output]
                carried = 0.0 if output is None else through[output]
                routes.append(Route(self.feature_names[unit], self._n_rows(target, unit), total, direct, name, carried))
            result[self.output_names[target]] = routes
        return result

    def ranked(self, target: int) -> list[int]:
        """Return the units selected for a target, those with the largest sum of total effects over its rows first.

        Parameters
        ----------
        target : int
            Index of the output.

        Returns
        -------
        list of int
        """
        units = [unit for unit in np.unique(self.selected[self.target == target]).tolist() if unit >= 0]
        return sorted(units, key=lambda unit: -abs(self.average(target, unit)[0]) * self._n_rows(target, unit))

    def _n_rows(self, target: int, unit: int) -> int:
        return int((self.selected[self.target == target] == unit).any(axis=1).sum())

    def average(self, target: int, unit: int) -> tuple[float, float, dict[int, float]]:
        """Average the effects of one unit over the target's rows that selected it.

        Parameters
        ----------
        target, unit : int
            Indices of the output and of the feature or group.

        Returns
        -------
        total, direct : float
        through : dict of int to float
            By the index of the other output.
        """
        rows, place = np.nonzero((self.selected == unit) & (self.target == target)[:, None])
        outputs = self.outputs[rows[0]].tolist()  # the same for all rows of a target
        means = self.through[rows, place].mean(axis=0).tolist()
        through = {i: mean for i, mean in zip(outputs, means, strict=True) if i >= 0}
        return float(self.total[rows, place].mean()), float(self.direct[rows, place].mean()), through

    def plot(self, row: int | None = None, *, n: int = 6, ax: Any = None) -> Any:
        """Draw features at the left, the target at the right, other outputs between them; lines as wide as the effects.

        Parameters
        ----------
        row : int, optional
            Index of the row; by default, averages over all rows (of one target).
        n : int, default 6
            Maximum number of features.
        ax : Axes, optional

        Returns
        -------
        Axes
        """
        from sointer.viz.plots.maps import flow

        return flow(self, row=row, n=n, ax=ax)

    def pick(self, row: int) -> Paths:
        """Return the paths of one row.

        Parameters
        ----------
        row : int

        Returns
        -------
        Paths

        Raises
        ------
        InputError
            If there is no such row.
        """
        if not -len(self) <= row < len(self):
            raise InputError(f"row is {row}, expected 0 to {len(self) - 1}: there are {len(self)} rows.")
        one = slice(row % len(self), row % len(self) + 1)
        names = ("selected", "total", "direct", "through", "outputs", "target", "value")
        return replace(self, **{name: getattr(self, name)[one] for name in names})

    @property
    def warning(self) -> str:
        """Which outputs cannot be distinguished by the outputs for unmasked samples, in words; empty if all can."""
        if not self.indistinguishable:
            return ""
        groups = "; ".join(", ".join(group) for group in self.indistinguishable)
        return f"cannot be distinguished (one-to-one in all {self.n_answers} predictions for unmasked rows): {groups}"

    def _repr_html_(self) -> str:
        from sointer.viz.plots.notebook import html_paths

        return html_paths(self)

    def __repr__(self) -> str:
        lines = [f"Paths({len(self)} row{'s' * (len(self) != 1)}, effects in {self.unit})"]
        for target, routes in self.summary().items():
            width = max([len(route.feature) for route in routes] + [7])
            lines.append(f"{target}:")
            lines.append(f"  {'feature':{width}}  total  direct  mostly through")
            for route in routes:
                mostly = f"{route.output} ({route.through:.2f})" if route.is_mediated else "-"
                lines.append(f"  {route.feature:{width}}  {route.total:5.2f}  {route.direct:6.2f}  {mostly}")
        return "\n".join([*lines, *([self.warning] if self.warning else [])])


def _names(names: list[str]) -> NDArray[Any]:
    return np.array(names, dtype=object)


@dataclass(frozen=True)
class Locality:
    """A region of the input space and what decides the output there."""

    number: int
    """As in `explanation.locality`."""
    conditions: tuple[str, ...]
    """What holds for its samples; empty if it is the whole input space."""
    share: float
    """Share of the samples that the explainer was fitted on."""
    features: tuple[str, ...]
    """Those that matter, most relevant first."""
    relevance: tuple[float, ...]
    """For each of them, the root mean square change of the output when the feature alone is redrawn.

    In probability for labels and probabilities, in quantiles for numbers."""

    @property
    def where(self) -> str:
        """The conditions as one phrase."""
        return " and ".join(self.conditions) or "everywhere"


@dataclass(frozen=True)
class Localities:
    """All localities of one output; together they cover the input space.

    Attributes
    ----------
    decided : bool
        Whether the model has confirmed that these features decide the output: when all others are redrawn, it hardly
        changes. Where it is False, many features contribute a little; the features listed are the strongest, and
        `explanation.effects` says more.
    """

    target: str
    """Name of the output."""
    decided: bool
    leaves: tuple[Locality, ...]
    """The localities, in the order of their numbers."""
    feature_names: tuple[str, ...] = field(repr=False)
    """Of groups, if features were grouped."""

    def __len__(self) -> int:
        return len(self.leaves)

    def __iter__(self) -> Any:
        return iter(self.leaves)

    def __getitem__(self, place: int) -> Locality:
        return self.leaves[place]

    @property
    def percents(self) -> list[int]:
        """The share of each locality in whole per cent, rounded so that all add up to 100."""
        return whole_percents([leaf.share for leaf in self.leaves])

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one line per locality and feature that matters there.

        Returns
        -------
        DataFrame
        """
        pandas = require_extra("pandas", "pandas")
        lines = [
            (leaf.number, leaf.where, leaf.share, rank + 1, feature, relevance)
            for leaf in self.leaves
            for rank, (feature, relevance) in enumerate(zip(leaf.features, leaf.relevance, strict=True))
        ]
        frame: pd.DataFrame = pandas.DataFrame(
            lines, columns=["locality", "where", "share", "rank", "feature", "relevance"]
        )
        return frame

    def to_json(self) -> dict[str, Any]:
        """Return all localities as plain values.

        Returns
        -------
        dict
        """
        leaves = [
            {"number": leaf.number, "where": leaf.where, "share": leaf.share, "features": list(leaf.features)}
            for leaf in self
        ]
        return {"output": self.target, "decided": self.decided, "localities": leaves}

    def plot(self, *, n: int = 12, ax: Any = None) -> Any:
        """Draw a map: one row per locality, one column for each of the most relevant features.

        Parameters
        ----------
        n : int, default 12
            Maximum number of features.
        ax : Axes, optional

        Returns
        -------
        Axes
        """
        from sointer.viz.plots.maps import localities

        return localities(self, n=n, ax=ax)

    def _repr_html_(self) -> str:
        from sointer.viz.plots.notebook import html_localities

        return html_localities(self)

    def __str__(self) -> str:
        lines = [
            f"{percent}% of samples, {leaf.where}: {', '.join(leaf.features) or 'nothing'}"
            for percent, leaf in zip(self.percents, self, strict=True)
        ]
        head = f"What decides {self.target}" if self.decided else f"Many features contribute to {self.target}"
        return "\n".join([f"{head}:", *(f"  {line}" for line in lines)])
