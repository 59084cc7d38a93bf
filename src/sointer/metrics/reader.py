"""A small network that reads a target's value off masked rows, and masks that know nothing of the row."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from sointer._support.containers import is_sparse
from sointer._support.torch_state import seeded
from sointer.masking.groups import Groups

Index: TypeAlias = NDArray[np.int64]
Masks: TypeAlias = Callable[[Index, np.random.Generator], NDArray[np.bool_]]
"""For the rows at an index, which units may be seen: (rows, units)."""

HIDDEN = 100
ROWS_PER_STEP = 128
ROWS_PER_READ = 256
LEARNING_RATE = 2e-3
WEIGHT_DECAY = 1e-2
WHOLE_SHARE = 0.2


def mask_of_another(masks: NDArray[np.bool_]) -> Masks:
    """The explainer's mask of a row drawn by lot."""
    return lambda index, rng: masks[rng.integers(len(masks), size=len(index))]


def any_mask(masks: NDArray[np.bool_]) -> Masks:
    """Half the time that of a row drawn by lot, else of a size drawn by lot or, now and then, all."""
    of_another = mask_of_another(masks)

    def draw(index: Index, rng: np.random.Generator) -> NDArray[np.bool_]:
        n = len(index)
        size = np.where(rng.random(n) < WHOLE_SHARE, 1.0, rng.random(n))[:, None]
        at_random = rng.random((n, masks.shape[1])) < size
        return np.where(rng.random(n)[:, None] < 0.5, at_random, of_another(index, rng))

    return draw


class Views(Protocol):
    """What a network is shown of rows under masks."""

    width: int

    def inputs(self, index: Index, keep_units: NDArray[np.bool_]) -> Tensor: ...


class MasksAlone:
    """No values, only which units are visible."""

    def __init__(self, n_units: int) -> None:
        self.width = n_units

    def inputs(self, index: Index, keep_units: NDArray[np.bool_]) -> Tensor:
        """The masks (rows, units) as numbers."""
        return torch.from_numpy(keep_units.astype(np.float32))


class MaskedRows:
    """The visible values of encoded rows, dense or CSR, and which units are visible."""

    def __init__(self, data: Any, groups: Groups) -> None:
        self.width = int(data.shape[1]) + groups.n_units
        self._groups = groups
        if is_sparse(data):  # only scaled, so that zero stays zero
            spread = np.sqrt(np.asarray(data.multiply(data).mean(axis=0)).ravel())
            self._values = (data @ sparse.diags_array(1 / np.where(spread > 0, spread, 1.0))).tocsr()
        else:
            spread = data.std(axis=0)
            self._values = ((data - data.mean(axis=0)) / np.where(spread > 0, spread, 1.0)).astype(np.float32)

    def inputs(self, index: Index, keep_units: NDArray[np.bool_]) -> Tensor:
        """Rows of which only `keep_units` are visible; only these are made dense."""
        rows = self._values[index]
        values = rows.toarray() if is_sparse(rows) else rows
        seen = np.concatenate([values * self._groups.to_columns(keep_units), keep_units], axis=1, dtype=np.float32)
        return torch.from_numpy(seen)


class Reader:
    """Tells the target's value; every value counts the same, however rare."""

    def __init__(self, views: Views, truth: Index, n_values: int, seed: int) -> None:
        self._views = views
        self._truth = truth
        self._n_values = n_values
        with seeded(seed):
            self._network = nn.Sequential(
                nn.Linear(views.width, HIDDEN),
                nn.ReLU(),
                nn.Linear(HIDDEN, HIDDEN),
                nn.ReLU(),
                nn.Linear(HIDDEN, n_values),
            )

    def copy(self) -> Reader:
        """One that knows as much and can be taught something else."""
        twin = copy.copy(self)
        twin._network = copy.deepcopy(self._network)
        return twin

    def train(self, index: Index, masks: Masks, n_steps: int, seed: int) -> Reader:
        """Learn from the rows at `index`, each step with fresh masks; rows do not depend on how masks are drawn."""
        row_rng, mask_rng = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
        by_value = [index[self._truth[index] == value] for value in range(self._n_values)]
        by_value = [rows for rows in by_value if len(rows)]
        n_each = -(-ROWS_PER_STEP // len(by_value))
        optimiser = torch.optim.AdamW(
            self._network.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True
        )
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, n_steps)
        for _ in range(n_steps):
            rows = np.concatenate([some[row_rng.integers(len(some), size=n_each)] for some in by_value])
            logits = self._network(self._views.inputs(rows, masks(rows, mask_rng)))
            loss = nn.functional.cross_entropy(logits, torch.from_numpy(self._truth[rows]))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        return self

    def read(self, index: Index, keep_units: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Log-probabilities (base 2) of each value for rows of which only `keep_units` are visible."""
        parts = [slice(start, start + ROWS_PER_READ) for start in range(0, len(index), ROWS_PER_READ)]
        with torch.no_grad():
            logits = torch.cat([self._network(self._views.inputs(index[some], keep_units[some])) for some in parts])
        return np.asarray(torch.log_softmax(logits.double(), dim=1).numpy() / np.log(2))
