"""Ways to choose k: equations 13 to 15 by loops, and the identities and limits of both relaxations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from sointer.interpreter.relaxation import (
    gumbel_k_hot,
    gumbel_noise,
    gumbel_softmax,
    hard_top_k,
    k_hot,
    soft_top_k,
)


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


# --- the relaxation whose cost is free of k --------------------------------------------------------------


def slow_soft_top_k(logits: list[float], k: int, temperature: float) -> list[float]:
    """sigmoid((logit - threshold) / tau) with the threshold at which the shares sum to k."""

    def shares(threshold: float) -> list[float]:
        return [1 / (1 + math.exp(-(v - threshold) / temperature)) for v in logits]

    low, high = min(logits) - 40 * temperature, max(logits) + 40 * temperature
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(shares(middle)) > k else (low, middle)
    return shares(low)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 30), st.data(), st.floats(0.05, 5), st.integers(0, 1000))
def test_shares_equal_their_twin(n: int, data: st.DataObject, temperature: float, seed: int) -> None:
    k = data.draw(st.integers(1, n - 1))
    logits = normal(1, n, seed=seed)
    expected = slow_soft_top_k(logits[0].tolist(), k, temperature)
    assert soft_top_k(logits, k, temperature)[0].tolist() == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [1e-3, 0.1, 1.0, 50.0])
@pytest.mark.parametrize(("n", "k"), [(2, 1), (10, 3), (10, 9), (300, 1), (300, 150), (300, 299)])
def test_shares_sum_to_k(n: int, k: int, temperature: float, dtype: torch.dtype) -> None:
    shares = soft_top_k(normal(20, n).to(dtype), k, temperature)
    assert ((shares >= 0) & (shares <= 1)).all()
    assert (shares.sum(dim=1) - k).abs().max() < (1e-9 if dtype == torch.float64 else 2e-3)


def test_shares_become_the_indicator_of_the_k_largest() -> None:
    logits = normal(30, 8)
    for k in (1, 3, 7):
        torch.testing.assert_close(soft_top_k(logits, k, 1e-5), hard_top_k(logits, k).double())


def test_hot_shares_are_even() -> None:
    torch.testing.assert_close(soft_top_k(normal(5, 8), 3, 1e6), torch.full((5, 8), 3 / 8).double(), atol=1e-5, rtol=0)


def test_equal_logits_share_equally() -> None:
    shares = soft_top_k(torch.tensor([[1.0, 1.0, 1.0, -9.0]], dtype=torch.float64), 2, 1e-2)
    assert shares[0].tolist() == pytest.approx([2 / 3, 2 / 3, 2 / 3, 0.0])


@pytest.mark.parametrize("temperature", [0.3, 1.0])
@pytest.mark.parametrize("k", [1, 3, 5])
def test_gradient_of_shares_equals_finite_differences(k: int, temperature: float) -> None:
    logits = normal(2, 6).requires_grad_(True)
    assert torch.autograd.gradcheck(lambda v: soft_top_k(v, k, temperature), logits, eps=1e-5, atol=1e-6)


def test_shares_ignore_a_common_shift_and_their_gradient_sums_to_zero() -> None:
    logits = normal(3, 6).requires_grad_(True)
    torch.testing.assert_close(soft_top_k(logits + 7.5, 2, 0.5), soft_top_k(logits, 2, 0.5))
    (gradient,) = torch.autograd.grad(soft_top_k(logits, 2, 0.5)[:, 0].sum(), logits)
    assert gradient.sum(dim=1).abs().max() < 1e-9
    assert (gradient[:, 0] > 0).all()
    assert (gradient[:, 1:] < 0).all()


def test_larger_logits_have_larger_shares() -> None:
    logits = normal(10, 7)
    order = logits.argsort(dim=1)
    ranked = soft_top_k(logits, 3, 0.5).gather(1, order)
    assert (ranked.diff(dim=1) > 0).all()
    more = soft_top_k(logits, 4, 0.5)
    assert (more > soft_top_k(logits, 3, 0.5)).all()


def graph_size(value: Tensor) -> int:
    seen, waiting = set(), [value.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [parent for parent, _ in node.next_functions]
    return len(seen)


def test_cost_does_not_grow_with_k() -> None:
    logits = normal(2, 50).requires_grad_(True)
    sizes = {graph_size(soft_top_k(logits, k, 0.5)) for k in (1, 10, 49)}
    assert len(sizes) == 1
    assert sizes.pop() < 20


def test_k_of_all_features_keeps_all() -> None:
    for k in (4, 9):
        assert torch.equal(soft_top_k(normal(2, 4), k, 0.5), torch.ones(2, 4).double())
        assert hard_top_k(normal(2, 4), k).all()


# --- the hard choice -------------------------------------------------------------------------------------


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
