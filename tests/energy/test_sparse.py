"""Products of rows and matrices: what they are, and that equal rows give equal results wherever they stand."""

from __future__ import annotations

import pytest
import torch

from sointer.energy.sparse import Linear, dense_linear, product, product_and

SIZES = [1, 3, 5, 10, 11, 16, 150]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("n_inner", SIZES)
@pytest.mark.parametrize("n_columns", SIZES)
def test_products(n_inner, n_columns):
    a = torch.randn(40, n_inner, generator=generator()).requires_grad_(True)
    b = torch.randn(n_inner, n_columns, generator=generator(1))
    base = torch.randn(n_columns, generator=generator(2))
    weight = torch.randn(40, n_columns, generator=generator(3))
    for found, expected in (
        (product(a, b), a @ b),
        (product_and(base, a, b), base + a @ b),
        (dense_linear(a, b.T, base), base + a @ b),
        (dense_linear(a, b.T, None), a @ b),
    ):
        torch.testing.assert_close(found, expected)
        (slope,) = torch.autograd.grad((found * weight).sum(), a)
        torch.testing.assert_close(slope, weight @ b.T)


@pytest.mark.parametrize("n_rows", [8, 256, 2048])
@pytest.mark.parametrize("n_inner", SIZES)
@pytest.mark.parametrize("n_columns", SIZES)
def test_equal_rows_are_rounded_alike(n_rows, n_inner, n_columns):
    a = torch.randn(1, n_inner, generator=generator()).repeat(n_rows, 1).requires_grad_(True)
    b = torch.randn(n_inner, n_columns, generator=generator(1))
    for matrix in (b, b.T.contiguous().T):
        found = product(a, matrix)
        assert (found == found[0]).all()
        (slope,) = torch.autograd.grad((found * torch.arange(1.0, n_columns + 1)).sum(), a)
        assert (slope == slope[0]).all()


def test_layers_are_those_of_torch():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        ours = Linear(5, 3)
        torch.manual_seed(0)
        torchs = torch.nn.Linear(5, 3)
    x = torch.randn(7, 5, generator=generator())
    assert list(ours.state_dict()) == list(torchs.state_dict())
    torch.testing.assert_close(ours(x), torchs(x))
