"""How well it was learned which of two images mixtures follow, beside rules that look at no image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from sointer.training.energy import Quality

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
