"""How well it was learned which of two images mixtures follow: beside rules that look at no image."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from sointer.training.image_quality import WINDOWS, Guessed, judged, shares_around, skill_beyond


def share_around(share: np.ndarray, row: int, column: int, side: int) -> float:
    """Of one mixture (height, width): a slow twin."""
    top, left = max(0, row - side // 2), max(0, column - side // 2)
    return float(share[top : row + side // 2 + 1, left : column + side // 2 + 1].mean())


def test_shares_around_targets_are_those_of_a_slow_twin() -> None:
    grid, rng = (4, 6), np.random.default_rng(0)
    share = rng.random((5, 24)).astype(np.float32)
    cells = np.array([0, 9, 23])
    everywhere, *around = shares_around(torch.as_tensor(share), grid, torch.as_tensor(cells))
    assert everywhere.numpy() == pytest.approx(np.repeat(share.mean(1)[:, None], 3, axis=1))
    for side, found in zip(WINDOWS, around, strict=True):
        wanted = [[share_around(one.reshape(grid), *divmod(int(cell), 6), side) for cell in cells] for one in share]
        assert found.numpy() == pytest.approx(np.array(wanted), rel=1e-5)


def test_what_was_guessed_is_counted_by_its_weight() -> None:
    share = torch.tensor([[1.0, 1.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0]])
    log_odds = torch.tensor([[1.0, -1.0], [-1.0, -1.0]])
    guessed = Guessed(log_odds, share, torch.tensor([[1.0, 1.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.5], [0.25, 0.0]]))
    counts = guessed.counts((2, 2), torch.tensor([0, 3]))
    assert counts[0] == 1.25
    assert counts[1] == 1.75, "whoever has more cells is followed"
    assert counts[-1] == 1.75


def test_skill_begins_where_simple_rules_end() -> None:
    quality = judged([0.4, 0.6], [np.array([4.0, 3.0, 2.0, 5.0]), np.array([5.0, 3.0, 5.0, 5.0])], has_targets=True)
    assert quality.loss == 0.5
    assert quality.agreement.tolist() == [0.9]
    assert quality.by_rules == pytest.approx(0.7)
    assert quality.skill == pytest.approx([2 / 3])
    assert skill_beyond(0.6, 0.7) == 0.0, "worse than a rule"
    assert skill_beyond(1.0, 1.0) == 0.0, "no better than a rule"


@pytest.mark.parametrize(("has_targets", "skill"), [(True, 0.0), (False, 1.0)])
def test_without_anything_held_out_nothing_is_known_to_be_learned(has_targets, skill) -> None:
    quality = judged([], [], has_targets=has_targets)
    assert math.isnan(quality.agreement[0])
    assert quality.mean_skill() == skill, "where no target varies there is nothing to learn"
