"""The chain's inference is exact: compared with sums over all labellings."""

import itertools

import numpy as np
import pytest
import torch

from sointer.energy.chain import ChainEnergy, log_marginals, sample_labels


@pytest.fixture(params=[3, 9], ids=["full transitions", "low-rank transitions"])
def energy(request: pytest.FixtureRequest) -> ChainEnergy:
    torch.manual_seed(0)
    energy = ChainEnergy(30, request.param, window=2)
    for parameter in energy.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return energy.double()


def all_scores(unary: torch.Tensor, pairs: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    n, k = unary.shape
    labellings = np.array(list(itertools.product(range(k), repeat=n)))
    scores = [
        sum(float(unary[t, y[t]]) for t in range(n)) + sum(float(pairs[t, y[t - 1], y[t]]) for t in range(1, n))
        for y in labellings
    ]
    return labellings, np.array(scores)


def test_marginals_and_loss_equal_sums_over_all_labellings(energy: ChainEnergy) -> None:
    n, k = 4, energy.n_labels
    vectors = energy.tokens(torch.randint(2, 30, (6, 11)))
    ids, lengths = torch.tensor([[2, 3, 1, 5]]), torch.tensor([n])
    with torch.no_grad():
        unary, pairs = energy.potentials(energy.states(ids, vectors, lengths))
        labellings, scores = all_scores(unary[0], pairs[0])
        p = np.exp(scores - scores.max())
        p /= p.sum()
        wanted = np.array([[p[labellings[:, t] == c].sum() for c in range(k)] for t in range(n)])
        np.testing.assert_allclose(log_marginals(unary, pairs)[0].exp().numpy(), wanted, atol=1e-6)
        y = torch.tensor([[0, 2, 1, 1]])
        one_hot = torch.nn.functional.one_hot(y, k).double()
        row = int(np.flatnonzero((labellings == y.numpy()[0]).all(axis=1))[0])
        loss = float(energy.loss(ids, vectors, lengths, one_hot))
        assert loss == pytest.approx(-np.log(p[row]) / n, abs=1e-6)


def test_padding_changes_nothing(energy: ChainEnergy) -> None:
    vectors = energy.tokens(torch.randint(2, 30, (6, 11)))
    short, y = (
        torch.tensor([[2, 3, 4]]),
        torch.nn.functional.one_hot(torch.tensor([[0, 1, 2]]), energy.n_labels).double(),
    )
    with torch.no_grad():
        alone = energy.loss(short, vectors, torch.tensor([3]), y)
        padded = torch.nn.functional.pad(y, (0, 0, 0, 2))
        beside = energy.loss(torch.tensor([[2, 3, 4, 0, 0]]), vectors, torch.tensor([3]), padded)
    assert float(alone) == pytest.approx(float(beside), abs=1e-9)


def test_labels_are_drawn_as_often_as_the_chain_says() -> None:
    torch.manual_seed(0)
    unary, pairs = torch.randn(1, 3, 2), 2 * torch.randn(1, 3, 2, 2)
    drawn = sample_labels(unary.expand(20_000, -1, -1), pairs.expand(20_000, -1, -1, -1), torch.Generator())
    labellings, scores = all_scores(unary[0], pairs[0])
    found = [(drawn.numpy() == y).all(axis=1).mean() for y in labellings]
    np.testing.assert_allclose(found, np.exp(scores) / np.exp(scores).sum(), atol=0.015)
