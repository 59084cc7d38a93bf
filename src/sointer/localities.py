"""Localities: where in the input space which features decide an output."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sointer.errors import require_extra

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Locality:
    """A region of the input space and what decides the output there."""

    number: int
    """As in `explanation.locality`."""
    conditions: tuple[str, ...]
    """What holds for its samples; empty if it is the whole input space."""
    share: float
    """Of the samples that the explainer was fitted on."""
    features: tuple[str, ...]
    """Those that matter, most relevant first."""
    relevance: tuple[float, ...]
    """Of each of them: root mean square change of the output when the feature alone is redrawn.

    Of labels and probabilities in probability, of numbers in quantiles."""

    @property
    def where(self) -> str:
        """The conditions as one phrase."""
        return " and ".join(self.conditions) or "everywhere"


@dataclass(frozen=True)
class Localities:
    """All localities of one output; together they cover the input space.

    `decided` tells whether the model has confirmed that these features decide the output: with all others redrawn it
    hardly changes. Where it is False, many features contribute a little; the features listed are the strongest, and
    `explanation.effects` says more.
    """

    target: str
    decided: bool
    leaves: tuple[Locality, ...]
    feature_names: tuple[str, ...] = field(repr=False)

    def __len__(self) -> int:
        return len(self.leaves)

    def __iter__(self) -> Any:
        return iter(self.leaves)

    def __getitem__(self, place: int) -> Locality:
        return self.leaves[place]

    def to_frame(self) -> pd.DataFrame:
        """One line per locality and feature that matters there."""
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

    def plot(self, *, n: int = 12, ax: Any = None) -> Any:
        """A map: one row per locality, one column for each of the n most relevant features. Returns the Axes."""
        from sointer.plot.localities import localities

        return localities(self, n=n, ax=ax)

    def _repr_html_(self) -> str:
        from sointer.plot.cards import html_localities

        return html_localities(self)

    def __str__(self) -> str:
        lines = [f"{leaf.share:.0%} of samples, {leaf.where}: {', '.join(leaf.features) or 'nothing'}" for leaf in self]
        head = f"What decides {self.target}" if self.decided else f"Many features contribute to {self.target}"
        return "\n".join([f"{head}:", *(f"  {line}" for line in lines)])
