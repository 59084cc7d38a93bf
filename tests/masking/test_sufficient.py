"""The smallest sufficient selection, against all selections tried one by one."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from sointer.masking.sufficient import smallest_sufficient

RULES = {
    "nothing": lambda keep: np.ones(len(keep), dtype=bool),
    "one of two": lambda keep: keep[:, 3] | keep[:, 7],
    "both": lambda keep: keep[:, 2] & keep[:, 5],
    "one, or three others": lambda keep: keep[:, 9] | keep[:, :3].all(axis=1),
    "two, or three others": lambda keep: keep[:, 8:10].all(axis=1) | keep[:, :3].all(axis=1),
    "four of six": lambda keep: keep[:, 2:8].sum(axis=1) >= 4,
    "all": lambda keep: keep.all(axis=1),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(5))
def test_as_small_as_any(rule, seed) -> None:
    n_units = 10
    rng = np.random.default_rng(seed)
    ranking = np.stack([rng.permutation(n_units) for _ in range(4)])

    def likely(rows, keep):
        return np.log(np.where(RULES[rule](keep), 0.95, 0.05))

    found = smallest_sufficient(likely, np.arange(4), ranking, n_units)
    assert RULES[rule](found).all()
    sizes = (
        size
        for size in range(n_units + 1)
        for chosen in combinations(range(n_units), size)
        if RULES[rule](np.isin(np.arange(n_units), chosen)[None, :])[0]
    )
    smallest = next(sizes)
    assert (found.sum(axis=1) == smallest).all()


def test_where_even_everything_is_not_sure_the_value_must_stay_as_probable() -> None:
    def likely(rows, keep):
        return np.log(0.3 + 0.3 * keep[:, 1])

    found = smallest_sufficient(likely, np.array([0]), np.array([[0, 1, 2]]), 3)
    assert found.tolist() == [[False, True, False]]
