"""Mixtures of two images: the masks predicted for them, which image they follow, and how well that was learned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from sointer.blackbox.replies import Soft
from sointer.data.outputs import Outputs
from sointer.training.energy import Quality

MIN_DIFFERENCE = 0.05
"""Probabilities of two images that differ by less do not tell which of them a mixture follows."""
BYTE = 255
BESIDE = 1.5
"""The squared distance from a mixture that is surely of a third class to the nearest one between its two images."""


class Predictions(NamedTuple):
    """Masks that the black box returned: (n, pixels).

    Where it returns class probabilities, of two classes that of the second is kept; of more than two, those of the
    label and of the next most probable class.
    """

    labels: Tensor
    """uint8."""
    probability: Tensor | None = None
    """Of the second of two classes (float16), or of the label (bytes)."""
    next_label: Tensor | None = None
    """uint8, of more than two classes; those that are no label of any training image have numbers above the labels'."""
    next_probability: Tensor | None = None
    """Bytes."""

    @classmethod
    def of(cls, outputs: Outputs, raw: NDArray[Any], soft: Soft | None = None) -> Predictions:
        labels = torch.as_tensor(outputs.labels(raw).astype(np.uint8))
        if outputs.kind == "probability":
            return cls(labels, torch.as_tensor(np.asarray(raw, dtype=np.float16)))
        if soft is None:
            return cls(labels)
        numbers = _codes(outputs)[soft.table["second"]]
        return cls(labels, *map(torch.as_tensor, (soft.table["p_first"], numbers, soft.table["p_second"])))

    @property
    def n_unusual(self) -> Tensor:
        """(pixels,) how many masks differ from the usual one: in the label, or enough in its probability."""
        if self.probability is None:
            return (self.labels != self.labels.mode(0).values).sum(0)
        p = self.probability.float() if self.next_label is None else self.of_class(self.labels.mode(0).values)
        return ((p - p.median(0).values).abs() >= MIN_DIFFERENCE).sum(0)

    def of_class(self, wanted: Tensor) -> Tensor:
        """Of more than two classes: how probable the wanted ones are, as far as is known: (n, pixels)."""
        return sum(((label == wanted) * p for label, p in self._top_two()), torch.zeros(()))

    def _top_two(self) -> list[tuple[Tensor, Tensor]]:
        """Of more than two classes: the two most probable ones, and how probable they are."""
        assert self.probability is not None
        assert self.next_label is not None
        assert self.next_probability is not None
        parts = (self.labels, self.probability), (self.next_label, self.next_probability)
        return [(label, p.float() / BYTE) for label, p in parts]

    def times(self, other: Predictions) -> Tensor:
        """Of more than two classes: the scalar product of the probabilities of both, as far as they are known."""
        return sum((other.of_class(label) * p for label, p in self._top_two()), torch.zeros(()))

    def take(self, rows: Tensor, pixels: Tensor | slice = slice(None)) -> Predictions:
        """Of some rows, at some pixels."""
        return Predictions(*(None if part is None else part[rows][:, pixels] for part in self))  # type: ignore[arg-type]

    def label_loss(self, logits: Tensor) -> Tensor:
        """Cross-entropy of labels, or of their probabilities, under logits (n, 1 or classes, pixels)."""
        if logits.shape[1] == 1:
            wanted = self.labels if self.probability is None else self.probability
            if self.next_label is not None:
                wanted = self.of_class(torch.ones((), dtype=torch.uint8)).clamp(0, 1)
            return F.binary_cross_entropy_with_logits(logits[:, 0], wanted.float())
        if self.next_label is None:
            return F.cross_entropy(logits, self.labels.long())
        likelihood = logits.log_softmax(1)
        losses = []
        for label in (self.labels, self.next_label):
            found = likelihood.gather(1, label.long().clamp_max(logits.shape[1] - 1).unsqueeze(1))[:, 0]
            losses.append(found * (self.of_class(label) * (label < logits.shape[1])))
        return -(losses[0] + losses[1]).mean()


def _codes(outputs: Outputs) -> NDArray[np.uint8]:
    """Of every class of the model the code of its label; those never seen as a label come after all that were."""
    known = outputs.label_sets[0]
    assert known is not None
    codes = known.encode(np.arange(BYTE + 1))
    new = codes < 0
    codes[new] = np.minimum(len(known) + np.arange(new.sum()), BYTE)
    return codes.astype(np.uint8)


def followed(first: Predictions, second: Predictions, mixture: Predictions) -> tuple[Tensor, Tensor]:
    """How far mixtures follow their first image, from 0 to 1, and how much that tells: both (mixtures, targets).

    Predictions that are alike for both images tell nothing, nor does a mixture that is of another class than both.
    """
    if first.probability is None or second.probability is None or mixture.probability is None:
        differs = first.labels != second.labels
        is_first = mixture.labels == first.labels
        return is_first.float(), (differs & (is_first | (mixture.labels == second.labels))).float()
    if first.next_label is not None:
        return _followed_classes(first, second, mixture)
    a, b, m = (part.float() for part in (first.probability, second.probability, mixture.probability))
    difference = a - b
    counts = difference.abs() >= MIN_DIFFERENCE
    share = ((m - b) / torch.where(counts, difference, 1.0)).clamp(0, 1)
    return share, torch.where(counts, difference.abs(), 0.0)


def _followed_classes(first: Predictions, second: Predictions, mixture: Predictions) -> tuple[Tensor, Tensor]:
    """Of more than two classes: where on the way from the second image's probabilities to the first's it is nearest."""
    ab, mb, bb = first.times(second), mixture.times(second), second.times(second)
    length2 = (first.times(first) - 2 * ab + bb).clamp_min(0)  # of a - b
    along = mixture.times(first) - mb - ab + bb  # (m - b) times (a - b)
    counts = length2 >= 2 * MIN_DIFFERENCE**2
    share = along / torch.where(counts, length2, 1.0)
    beside2 = mixture.times(mixture) - 2 * mb + bb - share * along  # how far it is from there
    tells = (length2 / 2).sqrt() * (1 - beside2 / BESIDE).clamp(0, 1)
    return share.clamp(0, 1), torch.where(counts, tells, 0.0)


WINDOWS = (3, 5, 9, 17)
"""Sides, in cells, of the surroundings of a target in which a rule counts who has more."""


class Guessed(NamedTuple):
    """Which image mixtures follow, as predicted and as it is: (mixtures, targets), shares are (mixtures, cells)."""

    log_odds: Tensor
    share: Tensor
    """Of the first image in each cell."""
    follow: Tensor
    weight: Tensor
    """How much a mixture tells at a target: see `followed`."""

    def counts(self, grid: tuple[int, int], cells: Tensor) -> NDArray[np.float64]:
        """How much was predicted rightly: by the energy, then by every rule, and in the end how much there was."""
        guesses = [self.log_odds > 0, *(part > 0.5 for part in shares_around(self.share, grid, cells))]
        right = [float(((guess == (self.follow > 0.5)).float() * self.weight).sum()) for guess in guesses]
        return np.array([*right, float(self.weight.sum())])


def shares_around(share: Tensor, grid: tuple[int, int], cells: Tensor) -> list[Tensor]:
    """Shares of the first image (mixtures, cells) in all of the mixture, and in windows around some cells.

    Mixtures follow whoever has more of the pixels, or of those near the target, in three of four cases, whatever
    decides the target: such rules are what prediction must beat.
    """
    maps = share.view(-1, 1, *grid)
    everywhere = share.mean(1, keepdim=True).expand(-1, len(cells))
    around = [F.avg_pool2d(maps, side, 1, side // 2, count_include_pad=False).flatten(1) for side in WINDOWS]
    return [everywhere, *(part[:, cells] for part in around)]


def judged(losses: Sequence[float], counts: Sequence[NDArray[np.float64]], *, has_targets: bool) -> Quality:
    """The quality by all held-out mixtures; skill is the share of the best rule's errors that is avoided.

    Where nothing could be held out of targets that vary, nothing is known to have been learned.
    """
    *right, total = np.sum(counts, axis=0) if len(counts) else (0.0, 0.0)
    if total <= 0:
        skill = 0.0 if has_targets else math.nan
        return Quality(_mean(losses), np.array([math.nan]), np.array([skill]), [])
    agreement, by_rules = right[0] / total, max(right[1:]) / total
    skill = skill_beyond(agreement, by_rules)
    return Quality(_mean(losses), np.array([agreement]), np.array([skill]), [], by_rules=float(by_rules))


def skill_beyond(agreement: float, by_rules: float) -> float:
    """The share of the rule's errors that is avoided, from 0 to 1; 0 beside a rule that makes none."""
    return float(np.clip((agreement - by_rules) / (1 - by_rules), 0.0, 1.0)) if by_rules < 1 else 0.0


def _mean(losses: Sequence[float]) -> float:
    return float(np.mean(losses)) if losses else math.nan
