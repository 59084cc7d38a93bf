"""What a report on a table or on texts shows, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sointer.errors import InputError

Thing = Literal["feature", "word", "group"]


@dataclass(frozen=True)
class Way:
    """What a feature does to a target, averaged over the samples that were followed."""

    unit: int
    n_samples: int
    total: float
    direct: float
    through: Sequence[tuple[int, float]]
    """Other outputs and how much of the effect is lost while each is held, largest first."""


@dataclass(frozen=True)
class TargetWays:
    """The ways of the features that matter most to one target."""

    ways: Sequence[Way]
    n_samples: int
    measure: str
    warning: str


@dataclass(frozen=True)
class Place:
    """A locality of one target: where it is, how many samples lie there, and what matters there."""

    where: str
    share: float
    """Of the samples that the explainer was fitted on."""
    features: Sequence[tuple[int, float]]
    """Units and their relevance, most relevant first."""


@dataclass(frozen=True)
class TargetPlaces:
    """The localities of one target, the largest first."""

    decided: bool
    """Whether the model has confirmed that these features decide; else they are the strongest of many."""
    places: Sequence[Place]


@dataclass(frozen=True, eq=False)
class Pushes:
    """Signed effects in the unit of each output."""

    effects: npt.NDArray[np.floating[Any]]
    """(targets, samples, k) of the selected units."""
    base: npt.NDArray[np.floating[Any]]
    """(targets, samples) what the output is with everything removed."""
    total: npt.NDArray[np.floating[Any]]
    """(targets, samples) where the effects of all units lead, shown or not."""
    start: str = "on average"
    """Where effects begin, in words."""


@dataclass(frozen=True)
class Card:
    """One number of the overview, what it means, and the longer story."""

    label: str
    value: str
    note: str
    meaning: str


@dataclass(frozen=True, eq=False)
class ReportContent:
    """Samples, what the model says of them, and which features made it so, for every target.

    Units are what can be selected: features, words, or groups of features.
    """

    title: str
    lead: str
    cards: Sequence[Card]
    says: Sequence[str]
    """What explanations say and do not say, a sentence each."""
    warnings: Sequence[str]
    samples: Sequence[str]
    targets: Sequence[str]
    units: Sequence[str]
    thing: Thing
    kind: str
    """binary, categorical, probability or continuous."""
    values: Sequence[str]
    """What can be said of a target, in words; of numbers, whether they are above or below the usual."""
    codes: npt.NDArray[np.integer[Any]]
    """(targets, samples) which of `values` is explained."""
    numbers: npt.NDArray[np.floating[Any]] | None
    """(targets, samples) the numbers behind the values: probabilities, or continuous outputs."""
    selected: npt.NDArray[np.integer[Any]]
    """(targets, samples, k) units, best first; -1 for none."""
    scores: npt.NDArray[np.floating[Any]]
    """(targets, samples, k) relevance of the selected units, which has no sign."""
    agreement: npt.NDArray[np.floating[Any]]
    """(targets, samples) how often the model said the same on the selection alone; NaN where it was not asked."""
    unit_values: Sequence[Mapping[int, str]]
    """For each sample, the values of its selected units, in words."""
    present: Sequence[npt.NDArray[np.integer[Any]]] | None = None
    """For each sample of a mostly-zero table, the units that it has."""
    texts: Sequence[str] | None = None
    outputs: Sequence[str] = ()
    """All outputs, also those that are no target here."""
    interactions: npt.NDArray[np.floating[Any]] | None = None
    """(outputs, outputs) how strongly each pair is coupled."""
    ways: Mapping[int, TargetWays] = field(default_factory=dict)
    """By target, for those whose ways through other outputs were followed."""
    far: Sequence[int] = ()
    """Samples that lie far from the training data, by number."""
    is_expected: bool = False
    """Whether values are only expected, since the model was not queried."""
    kinds: Sequence[str] = ()
    """The kind of each target, where they are not all of `kind`."""
    needed: npt.NDArray[np.bool_] | None = None
    """(targets, samples, k) False where a unit is shown only because k asked for as many."""
    pushes: Pushes | None = None
    n_more: npt.NDArray[np.integer[Any]] | None = None
    """(targets, samples) how many selected units are not shown."""
    places: Sequence[TargetPlaces] | None = None
    """For each target, its localities."""
    place: npt.NDArray[np.integer[Any]] | None = None
    """(targets, samples) the locality of each sample, counted as in `places`."""
    quality: Sequence[tuple[float, float]] | None = None
    """For each target, agreement and skill on held-out outputs; NaN where unknown."""

    def __post_init__(self) -> None:
        shape = (len(self.targets), len(self.samples))
        for name in ("codes", "agreement", "selected", "scores", "numbers", "needed", "n_more", "place"):
            array = getattr(self, name)
            if array is not None and array.shape[:2] != shape:
                raise InputError(
                    f"{name} has shape {array.shape}, expected {shape} first: one entry for each target and sample."
                )
        if self.selected.shape != self.scores.shape:
            raise InputError(f"selected has shape {self.selected.shape}, but scores {self.scores.shape}.")
        if self.needed is not None and self.needed.shape != self.selected.shape:
            raise InputError(f"selected has shape {self.selected.shape}, but needed {self.needed.shape}.")
        if self.pushes is not None and self.pushes.effects.shape != self.selected.shape:
            raise InputError(f"selected has shape {self.selected.shape}, but effects {self.pushes.effects.shape}.")

    @property
    def k(self) -> int:
        return int(self.selected.shape[2])

    @property
    def counted(self) -> npt.NDArray[np.integer[Any]]:
        """(targets, samples, k) units that are selected and needed, which sums count; -1 for none."""
        return self.selected if self.needed is None else np.where(self.needed, self.selected, -1)

    @property
    def asked(self) -> npt.NDArray[np.bool_]:
        """(targets, samples) where the model was asked to confirm."""
        return np.asarray(~np.isnan(self.agreement))

    @property
    def confirmed(self) -> npt.NDArray[np.bool_]:
        """(targets, samples) where every answer on the selection alone was the same."""
        return np.asarray(self.agreement == 1.0)
