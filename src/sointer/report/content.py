"""What the demo found, as plain values: everything that its pictures and its page show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """One image, what the model said of it, and the pixels selected for each output."""

    title: str
    pixels: Sequence[Sequence[int]]
    """Rows of the image, 0 (blank) to 16 (full ink)."""
    lit: Sequence[bool]
    """The model's answer for every segment."""
    truth: Sequence[bool]
    selected: Sequence[Sequence[int]]
    """For every segment, the selected pixels, best first, counted along rows."""
    kept: Sequence[float]
    """For every segment, the share of draws in which the model gave the same answer on these pixels alone."""

    @property
    def is_mistake(self) -> bool:
        return list(self.lit) != list(self.truth)


@dataclass(frozen=True)
class Method:
    """One line of the comparison."""

    name: str
    fidelity: Mapping[str, float]
    """By removal: the mean share of draws, images and segments in which the answer stayed the same."""
    fit_seconds: float
    explain_ms: float
    """Milliseconds per 1000 explanations."""
    n_queries: int
    """Rows sent to the black box during fit."""


@dataclass(frozen=True)
class BlackBoxFacts:
    """How good the explained model is on images it has not seen."""

    name: str
    exact_match: float
    segment_accuracy: Sequence[float]
    valid_patterns: float
    """Share of its answers that form a digit."""

    @property
    def mean_accuracy(self) -> float:
        return sum(self.segment_accuracy) / len(self.segment_accuracy)


@dataclass(frozen=True)
class Content:
    """The whole story of one run."""

    examples: Sequence[Example]
    methods: Sequence[Method]
    findings: Sequence[str]
    black_box: BlackBoxFacts
    segment_names: Sequence[str]
    interactions: Sequence[Sequence[float]]
    n_train: int
    n_test: int
    k: int
    random_state: int
