"""What the black box says on selected pixels alone, and what follows from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from setting import Questions

from sointer.explanation import Explanation
from sointer.removal import make_removal
from sointer.selection import first_units

KS = (10, 30, 50, 100, 200, 300)
PART = 500
"""Questions explained at a time."""
N_RESAMPLED = 1000
Tell = Literal["said", "nothing", "the opposite"]
"""What the explainer is told that the black box says."""


@dataclass(frozen=True)
class Measured:
    """What was found for many questions."""

    questions: Questions
    selected: NDArray[np.int64]
    """(questions, k) best first; -1 where there are no more."""
    expected: NDArray[Any]
    """What the explainer took the black box to say."""
    replies: dict[str, dict[int, NDArray[np.uint8]]]
    """By how the rest was removed, and by how many were kept: what the black box then says of the pixel."""

    def f1(self, removal: str) -> dict[int, float]:
        """Relative post-hoc F1 over all questions: what was said on the whole image against what is said on these."""
        return {k: round(f1(self.questions.said, said), 4) for k, said in self.replies[removal].items()}

    def f1_intervals(self, removal: str) -> dict[int, list[float]]:
        return {k: interval(self.questions, said) for k, said in self.replies[removal].items()}

    def fidelity(self, removal: str) -> dict[int, float]:
        """How often the black box says the same."""
        return {k: _share(self.questions.said == said) for k, said in self.replies[removal].items()}

    def misled(self, removal: str) -> dict[str, dict[int, float]]:
        """How often the black box says the opposite of what it says of the whole image, by what that is."""
        said = self.questions.said
        return {
            name: {k: _share(reply[said == label] != label) for k, reply in self.replies[removal].items()}
            for name, label in (("background", 0), ("horse", 1))
        }

    def distance(self, ks: Sequence[int]) -> dict[int, float]:
        """How far the first k selected pixels lie from the target, in pixels, on average."""
        down, right = np.divmod(self.selected, self.questions.images.shape[3])
        away = np.hypot(down - self.questions.pixel[:, :1], right - self.questions.pixel[:, 1:])
        away = np.where(self.selected >= 0, away, np.nan)
        return {k: round(float(np.nanmean(away[:, :k])), 3) for k in ks if k <= self.selected.shape[1]}


def measure(
    explainer: Any,
    questions: Questions,
    ks: Sequence[int] = KS,
    *,
    tell: Tell = "said",
    removals: Sequence[str] = ("as fitted",),
    part: int = PART,
) -> Measured:
    """Explain all questions, and ask the black box about the k best units alone, for every k there can be."""
    ks = [k for k in ks if k <= explainer.groups_.n_units]
    replies: dict[str, dict[int, list[NDArray[np.uint8]]]] = {removal: defaultdict(list) for removal in removals}
    selected, expected = [], []
    for some in questions.parts(part):
        explanation = explain(explainer, some, max(ks), tell)
        selected.append(explanation.selected)
        expected.append(explanation.value)
        for removal in removals:
            for k in ks:
                replies[removal][k].append(reply(explanation, k, removal))
    joined = {r: {k: np.concatenate(parts) for k, parts in by_k.items()} for r, by_k in replies.items()}
    return Measured(questions, np.concatenate(selected), np.concatenate(expected), joined)


def explain(explainer: Any, questions: Questions, k: int, tell: Tell = "said") -> Explanation:
    images, masks = questions.images[questions.image], questions.masks[questions.image]
    if tell == "the opposite":
        at = (np.arange(len(questions)), *questions.pixel.T)
        masks[at] = 1 - masks[at]
    predicted = None if tell == "nothing" else masks
    explanation: Explanation = explainer.explain(
        images, target=questions.pixel, k=k, predicted=predicted, query=tell != "nothing"
    )
    return explanation


def reply(explanation: Explanation, k: int, removal: str = "as fitted") -> NDArray[np.uint8]:
    """What the black box says of each target when only the k best units of its image are kept."""
    source, rows = explanation.source, np.arange(len(explanation))
    how = source.removal
    if removal != "as fitted":
        how = make_removal(removal, source.background.rows, source.input_format, np.random.default_rng(0))
    keep = first_units(explanation.selected[:, :k], np.full(len(rows), k), source.groups.n_units)
    table = source.ask_reduced(how, keep, rows, np.random.default_rng(0))
    return np.asarray(table[rows, explanation.target], dtype=np.uint8)


def f1(said: NDArray[np.uint8], again: NDArray[np.uint8]) -> float:
    """Micro F1 of "horse" over all questions; not a number if nobody ever says so."""
    positives = int(said.sum()) + int(again.sum())
    return float(2 * (said & again).sum() / positives) if positives else float("nan")


def interval(questions: Questions, again: NDArray[np.uint8]) -> list[float]:
    """95 % interval of the F1, by drawing the images anew with replacement."""
    n_images = len(questions.images)
    both = np.bincount(questions.image, questions.said & again, n_images)
    either = np.bincount(questions.image, questions.said.astype(np.int64) + again, n_images)
    drawn = np.random.default_rng(0).integers(n_images, size=(N_RESAMPLED, n_images))
    found = 2 * both[drawn].sum(axis=1) / np.maximum(either[drawn].sum(axis=1), 1)
    return [round(float(bound), 4) for bound in np.quantile(found, [0.025, 0.975])]


def _share(which: NDArray[np.bool_]) -> float:
    return round(float(which.mean()), 4) if len(which) else float("nan")
