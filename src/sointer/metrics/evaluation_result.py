"""What an evaluation found: means with their intervals, as a table for people and as JSON for machines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from sointer._support.files import as_finite

MAX_TARGETS_SHOWN = 10
FIT = "fit         rows sent to the model and seconds, before the first explanation"


class MeanInterval(NamedTuple):
    """A mean and the bounds of its confidence interval.

    Examples
    --------
    >>> from sointer.metrics import MeanInterval, mean_interval
    >>> isinstance(mean_interval([0.9, 1.0, 0.8]), MeanInterval)
    True
    """

    mean: float
    low: float
    """The lower bound."""
    high: float
    """The upper bound."""


def mean_interval(values: npt.ArrayLike, confidence: float = 0.95) -> MeanInterval:
    """Mean and t-interval of one value per seed.

    Parameters
    ----------
    values : array (seeds,)
    confidence : float, default 0.95

    Returns
    -------
    MeanInterval
        From a single value the bounds are NaN.

    Raises
    ------
    ValueError
        If there is no value, or confidence is not between 0 and 1.

    Examples
    --------
    >>> mean_interval([0.9, 1.0, 0.8]).mean
    0.9
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or sample.size == 0:
        raise ValueError(f"give one value per seed, got shape {sample.shape}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}")
    mean = float(sample.mean())
    if sample.size == 1:
        return MeanInterval(mean, float("nan"), float("nan"))
    standard_error = sample.std(ddof=1) / np.sqrt(sample.size)
    half_width = float(stdtrit(sample.size - 1, (1 + confidence) / 2) * standard_error)
    return MeanInterval(mean, mean - half_width, mean + half_width)


@dataclass(frozen=True)
class MethodScore:
    """How one method did on all cases (a case is a row and an output).

    Examples
    --------
    >>> from sointer.metrics import MethodScore, mean_interval
    >>> score = MethodScore("Random", mean_interval([0.5, 1.0]), 0.5, 0.7, 0.2, 3.0, queries_per_row=0, ms_per_row=1)
    >>> score.fidelity.mean
    0.75
    """

    name: str
    """Name of the method."""
    fidelity: MeanInterval
    """Mean share of draws in which the model predicts the same on the selected features alone, over rows."""
    sufficient: float
    """Share of cases in which it predicts the same in every draw."""
    fidelity_otherwise: float
    """Fidelity under another removal than in fit."""
    stability: float
    """Overlap of the selections when a tenth of a row's features is removed and the model's output stays; NaN where
    features cannot be compared, such as superpixels."""
    size: float
    """The smallest number of its best features that the model confirms, on average."""
    queries_per_row: float
    """Queries that explaining a row takes."""
    ms_per_row: float
    """Milliseconds that explaining a row takes."""
    n_fit_queries: int = 0
    """Queries of fit."""
    fit_seconds: float = 0.0
    """NaN for the explainer itself, which was fitted before."""
    keep: list[float] = field(default_factory=list)
    """For each of `Evaluation.ks`, share of predictions that stay when all but the best k features are removed."""
    delete: list[float] = field(default_factory=list)
    """For each of `Evaluation.ks`, share of predictions that flip when the best k features are removed; of images, when
    the best k pixels are swapped with those of an image of another label."""
    insert: list[float] = field(default_factory=list)
    """Of images, for each of `Evaluation.ks`, share of predictions that follow the best k pixels into such an image."""
    j: dict[str, list[float]] = field(default_factory=dict)
    """Images, by what fills the other pixels; for each of `Evaluation.ks`, how much more often the prediction is there
    with the best k pixels than with those of an image of another label at the same places."""


@dataclass(frozen=True)
class TargetScore:
    """How the explainer did on one output.

    Examples
    --------
    >>> from sointer.metrics import TargetScore
    >>> TargetScore("rain", n_questions=20, fidelity=0.95).fidelity
    0.95
    """

    target: str
    """Name of the output."""
    n_questions: int
    """Number of rows explained."""
    fidelity: float
    """Mean over these rows."""


@dataclass(frozen=True)
class Evaluation:
    """A comparison of methods, as `evaluate` returns it.

    Examples
    --------
    >>> from sointer.metrics import Evaluation, MethodScore, TargetScore, mean_interval
    >>> score = MethodScore("Random", mean_interval([0.5, 1.0]), 0.5, 0.7, 0.2, 3.0, queries_per_row=0, ms_per_row=1)
    >>> targets = [TargetScore("rain", n_questions=2, fidelity=0.75)]
    >>> found = Evaluation([score], targets, 2, 2, 3, 3.0, [3], "marginal", "zero", 40)
    >>> found.fidelity, found.to_json()["targets"]
    (0.75, [{'target': 'rain', 'n_questions': 2, 'fidelity': 0.75}])
    """

    methods: list[MethodScore]
    """The explainer first."""
    targets: list[TargetScore]
    """Worst first."""
    n_rows: int
    """Rows explained."""
    n_questions: int
    """Cases: pairs of a row and an output."""
    k: int | Literal["auto"]
    """Number of features selected."""
    n_kept: float
    """How many features are kept in a case, on average; k, or, for "auto", as many as the explainer selects."""
    ks: list[int]
    """The sizes of keep and delete; of images, of insert, delete and J, in pixels."""
    removal: str
    """The removal used, as in fit."""
    other_removal: str
    """The removal of `fidelity_otherwise`."""
    n_queries: int
    """Rows sent to the model by the whole comparison."""

    @property
    def fidelity(self) -> float:
        """Fidelity of the explainer."""
        return self.methods[0].fidelity.mean

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values.

        Returns
        -------
        dict
            None where something could not be measured.
        """
        content = asdict(self)
        content["methods"] = [{**asdict(method), "fidelity": method.fidelity._asdict()} for method in self.methods]
        return as_finite(content)  # type: ignore[no-any-return]

    def table(self) -> str:
        """Return the comparison as text, with a line of explanation for every column.

        Returns
        -------
        str
        """
        header = ["", "fidelity", "±", "sufficient", f"if {self.other_removal}", "stability", "size", "queries", "ms"]
        rows = [_cells(method) for method in self.methods]
        own = f"as many features kept as {self.methods[0].name} selects ({self.n_kept:.1f} on average)"
        kept = own if self.k == "auto" else f"{self.k} features kept"
        lines = [
            f"{self.n_rows} rows, {self.n_questions} explanations, {kept}, the others removed: {self.removal}",
            "",
            *aligned([header, *rows]),
            "",
            "fidelity    the model predicts the same from the selected features alone (share of draws, 95 % interval)",
            "sufficient  explanations for which it does so in every draw",
            f"if {self.other_removal:<9}fidelity when the others are removed in that way instead",
            "stability   overlap of the selections when other features of the row change and the output does not",
            "size        how few of the best features are enough for the model to predict the same",
            "queries, ms rows sent to the model and time, to explain one row",
        ]
        if self.methods[0].insert:
            lines += ["", *self._swaps()]
        elif self.methods[0].keep:
            lines += ["", *self._keep_and_delete()]
        if len(self.targets) > 1:
            shown = self.targets[:MAX_TARGETS_SHOWN]
            more = f" (the worst {len(shown)} of {len(self.targets)})" if len(shown) < len(self.targets) else ""
            per_target = [[t.target, f"{t.fidelity:.3f}", str(t.n_questions)] for t in shown]
            lines += ["", *aligned([[f"output{more}", "fidelity", "explanations"], *per_target])]
        return "\n".join(lines)

    def _keep_and_delete(self) -> list[str]:
        """Keep and delete side by side at every size, and what fitting took."""
        return [
            *self._at_all_sizes("keep/delete", lambda method: [method.keep, method.delete]),
            "",
            "keep        predictions that stay when all but the best k features are removed",
            "delete      predictions that flip when the best k features are removed; read both together",
            FIT,
        ]

    def _swaps(self) -> list[str]:
        """Insert and delete by swaps at every size, and J, without which fidelity proves nothing."""
        fills = list(self.methods[0].j)
        return [
            *self._at_all_sizes("insert/delete", lambda method: [method.insert, method.delete]),
            "",
            *self._at_all_sizes(f"J {'/'.join(fills)}", lambda method: [method.j[fill] for fill in fills]),
            "",
            "insert      predictions that follow the best k pixels into an image of another label",
            "delete      predictions that are lost when these pixels come from such an image",
            "J           how much more often the prediction is there with the best k pixels alone than with those of",
            "            such an image at the same places: near 0, it is the mask that speaks, whatever the fidelity",
            FIT,
        ]

    def _at_all_sizes(self, title: str, measures: Callable[[MethodScore], list[list[float]]]) -> list[str]:
        header = [title, *(f"k={k}" for k in self.ks), "fit queries", "fit s"]
        rows = [
            [
                method.name,
                *("/".join(f"{value:.2f}" for value in at) for at in zip(*measures(method), strict=True)),
                f"{method.n_fit_queries:,}",
                "-" if math.isnan(method.fit_seconds) else f"{method.fit_seconds:.1f}",
            ]
            for method in self.methods
        ]
        return aligned([header, *rows])


@dataclass(frozen=True)
class TokenScore:
    """How one method did on all labels.

    Examples
    --------
    >>> from sointer.metrics import TokenScore
    >>> TokenScore("NearestTokens", keep=0.9, delete=0.4).keep
    0.9
    """

    name: str
    """Name of the method."""
    keep: float
    """Share of draws in which the label stays when all but the selected tokens are replaced."""
    delete: float
    """Share of draws in which it changes when the selected tokens are replaced, and all others stay."""


@dataclass(frozen=True)
class SequenceEvaluation:
    """A comparison on some sequences; the explainer itself comes first, and the others select as many tokens.

    Examples
    --------
    >>> from sointer.metrics import SequenceEvaluation, TokenScore
    >>> scores = [TokenScore("SequenceExplainer", 0.9, 0.8), TokenScore("Random", 0.5, 0.2)]
    >>> found = SequenceEvaluation(scores, n_sequences=10, n_labels=80, n_selected=2.5, n_queries=4800)
    >>> found.fidelity
    0.9
    """

    methods: list[TokenScore]
    """The explainer first."""
    n_sequences: int
    """Sequences explained."""
    n_labels: int
    """Their labels."""
    n_selected: float
    """Tokens selected for a label, on average."""
    n_queries: int
    """Sequences sent to the model by the whole comparison."""

    @property
    def fidelity(self) -> float:
        """What the explainer's own tokens keep."""
        return self.methods[0].keep

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values.

        Returns
        -------
        dict
        """
        return {**asdict(self), "fidelity": self.fidelity}

    def table(self) -> str:
        """Return the comparison as text, with a line of explanation for every column.

        Returns
        -------
        str
        """
        rows = [[one.name, f"{one.keep:.3f}", f"{one.delete:.3f}"] for one in self.methods]
        lines = [
            f"{self.n_sequences} sequences, {self.n_labels} labels, {self.n_selected:.1f} tokens selected on average",
            "",
            *aligned([["", "keep", "delete"], *rows]),
            "",
            "keep    the model predicts the same when all but these tokens are replaced (share of draws)",
            "delete  it predicts something else when these are replaced and all others stay; read both together",
        ]
        return "\n".join(lines)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns side by side: the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _cells(method: MethodScore) -> list[str]:
    half = (method.fidelity.high - method.fidelity.low) / 2
    shares = [method.sufficient, method.fidelity_otherwise, method.stability]
    return [
        method.name,
        f"{method.fidelity.mean:.3f}",
        "-" if math.isnan(half) else f"{half:.3f}",
        *("-" if math.isnan(share) else f"{share:.3f}" for share in shares),
        f"{method.size:.1f}",
        f"{method.queries_per_row:,.0f}",
        f"{method.ms_per_row:.1f}",
    ]
