"""Ways to choose k: equations 13 to 15 by loops, their identities and limits; and the k largest."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from sointer.interpreter.elimination import hard_top_k
from sointer.interpreter.paper import gumbel_k_hot, gumbel_noise, gumbel_softmax, k_hot


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


# --- the paper's Gumbel k-hot ----------------------------------------------------------------------------


def test_noise_follows_the_gumbel_distribution() -> None:
    noise = gumbel_noise(torch.rand(20_000, generator=generator()))
    assert stats.kstest(noise.numpy(), stats.gumbel_r.cdf).pvalue > 0.01
    u = [0.1, 0.5, 0.9]
    expected = [-math.log(-math.log(v)) for v in u]
    assert gumbel_noise(torch.tensor(u, dtype=torch.float64)).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_is_finite_at_both_ends(dtype: torch.dtype) -> None:
    assert gumbel_noise(torch.tensor([0.0, 1.0], dtype=dtype)).isfinite().all()


@settings(deadline=None)
@given(st.integers(0, 1000), st.floats(0.05, 20))
def test_equation_14_equals_its_twin(seed: int, temperature: float) -> None:
    rng = np.random.default_rng(seed)
    w, g = rng.dirichlet(np.ones(5)), rng.gumbel(size=5)
    top = [math.exp((math.log(w[i]) + g[i]) / temperature) for i in range(5)]
    result = gumbel_softmax(torch.from_numpy(np.log(w)), torch.from_numpy(g), temperature)
    assert result.tolist() == pytest.approx([v / sum(top) for v in top], abs=1e-12)


def test_equation_15_is_the_elementwise_maximum() -> None:
    draws = normal(4, 3, 5)
    result = k_hot(draws)
    for row in range(3):
        for i in range(5):
            assert result[row, i] == max(draws[j, row, i] for j in range(4))


def test_k_hot_is_made_of_equations_13_to_15() -> None:
    logits = normal(2, 5)
    u = torch.rand((3, 2, 5), generator=generator(7)).tolist()
    result = gumbel_k_hot(logits, 3, 0.7, generator(7))
    for row in range(2):
        exponents = [math.exp(v) for v in logits[row].tolist()]
        w = [v / sum(exponents) for v in exponents]
        draws = []
        for j in range(3):
            top = [math.exp((math.log(w[i]) - math.log(-math.log(u[j][row][i]))) / 0.7) for i in range(5)]
            draws.append([v / sum(top) for v in top])
        expected = [max(draw[i] for draw in draws) for i in range(5)]
        assert result[row].tolist() == pytest.approx(expected, abs=1e-5)


def test_one_draw_chooses_each_feature_as_often_as_its_weight() -> None:
    w = np.array([0.4, 0.3, 0.2, 0.07, 0.03])
    n = 20_000
    logits = torch.log(torch.from_numpy(w)).expand(n, -1) + 5.0  # a shift must not matter
    chosen = gumbel_k_hot(logits, 1, 0.5, generator(3)).argmax(dim=1)
    counts = np.bincount(chosen.numpy(), minlength=5)
    assert stats.chisquare(counts, n * w).pvalue > 0.01


def test_cold_draws_are_one_hot_and_hot_draws_are_even() -> None:
    logits = normal(50, 6)
    cold = gumbel_k_hot(logits, 1, 1e-3, generator())
    assert (cold.amax(dim=1) > 0.99).float().mean() > 0.95
    assert cold.sum(dim=1).allclose(torch.ones(50, dtype=cold.dtype))
    hot = gumbel_k_hot(logits, 3, 1e4, generator())
    assert (hot - 1 / 6).abs().max() < 1e-3


def test_cold_k_draws_choose_at_most_k() -> None:
    mask = gumbel_k_hot(torch.zeros(400, 6, dtype=torch.float64), 3, 1e-3, generator())
    n_chosen = mask.round().sum(dim=1)
    assert (n_chosen <= 3).all()
    # Draws repeat: three draws of six give 6 (1 - (5/6)^3) different features on average.
    assert n_chosen.mean().item() == pytest.approx(6 * (1 - (5 / 6) ** 3), abs=0.15)


def test_draws_repeat_with_their_generator() -> None:
    logits = normal(3, 4)
    assert torch.equal(gumbel_k_hot(logits, 2, 1.0, generator(1)), gumbel_k_hot(logits, 2, 1.0, generator(1)))
    assert not torch.equal(gumbel_k_hot(logits, 2, 1.0, generator(1)), gumbel_k_hot(logits, 2, 1.0, generator(2)))


# --- the hard choice -------------------------------------------------------------------------------------


def test_k_of_all_features_keeps_all() -> None:
    for k in (4, 9):
        assert hard_top_k(normal(2, 4), k).all()


@settings(deadline=None)
@given(st.integers(1, 7), st.integers(1, 8), st.integers(0, 1000))
def test_hard_choice_equals_sorting(n: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores, allowed = rng.normal(size=(3, n)), rng.random((3, n)) < 0.6
    result = hard_top_k(torch.from_numpy(scores), k, torch.from_numpy(allowed))
    plain = hard_top_k(torch.from_numpy(scores), k)
    for row in range(3):
        order = sorted(range(n), key=lambda i: -scores[row, i])
        assert set(np.flatnonzero(plain[row]).tolist()) == set(order[:k])
        assert set(np.flatnonzero(result[row]).tolist()) == set([i for i in order if allowed[row, i]][:k])


def test_hard_choice_leaves_its_scores_alone() -> None:
    scores = normal(2, 4)
    before = scores.clone()
    hard_top_k(scores, 2, torch.zeros(2, 4, dtype=torch.bool))
    assert torch.equal(scores, before)
