"""Mixtures of two images: which one they follow, and how well that was learned, beside rules that look at none."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from sointer.blackbox.mask_replies import labels_of, top_two
from sointer.blackbox.replies import Soft
from sointer.data.outputs import Outputs
from sointer.training.image_mixtures import WINDOWS, Guessed, Predictions, followed, judged, shares_around, skill_beyond

N, N_CLASSES, SHAPE = 40, 5, (4, 4)


def of_classes(probabilities: np.ndarray, outputs: Outputs | None = None) -> Predictions:
    """Predictions of (n, classes, pixels)."""
    table = top_two(probabilities)
    raw = labels_of(table)
    known = Outputs.infer(np.tile(np.arange(probabilities.shape[1]), (16, 1)).T.repeat(20, 0), shape=SHAPE)
    return Predictions.of(outputs or known, raw, Soft((), table))


def drawn(seed: int, sharpness: float) -> np.ndarray:
    scores = sharpness * np.random.default_rng(seed).normal(size=(N, N_CLASSES, 16))
    return np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)


def two_at_most(probabilities: np.ndarray) -> np.ndarray:
    """With nothing on other classes than the two most probable ones."""
    least = np.sort(probabilities, axis=1)[:, [-2]]
    kept = np.where(probabilities >= least, probabilities, 0)
    return kept / kept.sum(axis=1, keepdims=True)


def test_scalar_products_are_those_of_all_classes() -> None:
    a, b = (two_at_most(drawn(seed, 1.0)) for seed in (1, 2))
    found = of_classes(a).times(of_classes(b))
    assert found.numpy() == pytest.approx((a * b).sum(axis=1), abs=0.01)


def test_sure_classes_are_as_labels() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(N_CLASSES, size=(3, N, 16))
    sure = [of_classes(np.eye(N_CLASSES)[part].transpose(0, 2, 1)) for part in labels]
    by_labels = followed(*(Predictions(torch.as_tensor(part.astype(np.uint8))) for part in labels))
    share, tells = followed(*sure)
    assert torch.allclose(tells, by_labels[1], atol=1e-5)
    assert torch.allclose(share[tells > 0.5], by_labels[0][tells > 0.5], atol=1e-5)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_mixture_on_the_way_is_followed_by_its_share(share) -> None:
    rng = np.random.default_rng(0)
    first, second = np.zeros((2, N, N_CLASSES, 16))
    one, other = rng.permutation(N_CLASSES)[:2]
    first[:, one], second[:, one] = 0.9, 0.2
    first[:, other], second[:, other] = 0.1, 0.8
    found, tells = followed(of_classes(first), of_classes(second), of_classes(share * first + (1 - share) * second))
    assert found.numpy() == pytest.approx(np.full((N, 16), share), abs=0.01)
    assert tells.numpy() == pytest.approx(np.full((N, 16), 0.7), abs=0.01)


def test_images_that_are_alike_and_third_classes_tell_nothing() -> None:
    first, second, third = (np.eye(N_CLASSES)[np.full((N, 16), c)].transpose(0, 2, 1) for c in range(3))
    alike = 0.98 * first + 0.02 * second
    assert followed(of_classes(first), of_classes(alike), of_classes(first))[1].max() == 0
    assert followed(of_classes(first), of_classes(second), of_classes(third))[1].max() <= 1e-5


def test_a_mask_is_unusual_if_its_probabilities_are() -> None:
    usual = np.zeros((10, 3, 16))
    usual[:, 0], usual[:, 1], usual[:, 2] = 0.7, 0.2, 0.1
    usual[0, 0], usual[0, 1] = 0.6, 0.3  # less sure
    usual[1, :, 3] = [0.1, 0.2, 0.7]  # another class, at one pixel
    n = of_classes(usual).n_unusual
    assert n.tolist() == [1, 1, 1, 2, *[1] * 12]


def test_classes_that_are_nowhere_the_most_probable_are_no_labels() -> None:
    seen = Outputs.infer(np.tile([0, 3], (20, 8)), shape=SHAPE)
    probabilities = np.zeros((4, 5, 16))
    probabilities[:, 3], probabilities[:, 2] = 0.6, 0.4
    found = of_classes(probabilities, seen)
    assert (found.labels == 1).all()
    assert (found.next_label >= 2).all(), "not taken for a label"
    assert found.of_class(torch.tensor(1)).numpy() == pytest.approx(np.full((4, 16), 0.6), abs=0.01)


@pytest.mark.parametrize("n_known", [2, 5])
def test_the_loss_of_labels_is_the_cross_entropy_of_their_probabilities(n_known) -> None:
    probabilities = drawn(3, 2.0)
    probabilities[:, n_known:] = 0
    probabilities = two_at_most(probabilities)
    outputs = Outputs.infer(np.tile(np.arange(n_known), (16, 1)).T.repeat(20, 0), shape=SHAPE)
    maps = torch.as_tensor(np.random.default_rng(4).normal(size=(N, 1 if n_known == 2 else n_known, 16)))
    found = of_classes(probabilities, outputs).label_loss(maps)
    logits = torch.stack([torch.zeros_like(maps[:, 0]), maps[:, 0]], 1) if n_known == 2 else maps
    wanted = -(torch.as_tensor(probabilities[:, :n_known]) * logits.log_softmax(1)).sum(1).mean()
    assert float(found) == pytest.approx(float(wanted), rel=0.02)


def labels(*rows: list[int]) -> Predictions:
    return Predictions(torch.tensor(rows, dtype=torch.uint8), None)


def test_labels_tell_only_where_the_images_differ_and_the_mixture_has_one_of_theirs() -> None:
    follow, weight = followed(labels([0, 1, 0, 2]), labels([0, 0, 1, 1]), labels([1, 1, 1, 0]))
    assert weight.tolist() == [[0, 1, 1, 0]]
    assert follow[0, 1:3].tolist() == [1, 0]


def test_probabilities_tell_how_far_a_mixture_follows() -> None:
    def probabilities(*row: float) -> Predictions:
        p = torch.tensor([row])
        return Predictions((p > 0.5).to(torch.uint8), p.half())

    follow, weight = followed(
        probabilities(0.9, 0.2, 0.5, 1.0), probabilities(0.1, 0.6, 0.51, 0.0), probabilities(0.3, 0.0, 0.9, 1.2)
    )
    torch.testing.assert_close(follow[0, [0, 1, 3]], torch.tensor([0.25, 1.0, 1.0]), atol=5e-3, rtol=0)
    torch.testing.assert_close(weight[0], torch.tensor([0.8, 0.4, 0.0, 1.0]), atol=5e-3, rtol=0)


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
