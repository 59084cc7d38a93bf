"""The training loop that the models share: shuffled batches, momentum, a cosine learning rate."""

from __future__ import annotations

import copy
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from sointer.models.networks import LabelNetwork

MOMENTUM = 0.9
REPORTS = 25  # rows of history for each stage
LARGEST_GRADIENT = 10.0  # rarely reached; keeps a bad batch from throwing the weights away

Loss = Callable[[Tensor, Tensor], Tensor]
"""Mean loss of a batch, from a_i' F(x) and the true labels, both (rows, labels)."""


@dataclass
class Fitting:
    """How networks are trained, and what happened: rows of `history`."""

    generator: torch.Generator
    batch_size: int
    weight_decay: float
    verbose: bool | None
    history: list[dict[str, Any]] = field(default_factory=list)

    def run(
        self,
        stage: str,
        network: LabelNetwork,
        X: Any,
        Y: NDArray[np.float32],
        loss_of: Loss,
        n_steps: int,
        learning_rate: float,
        judge: Callable[[], float] | None = None,
    ) -> None:
        """Lower the loss on CSR inputs and their labels, a batch a step.

        With a `judge`, which says how good the network is now, its best weights are kept instead of its last.
        """
        if n_steps == 0:
            return
        parameters = [*network.weights, *network.offsets]
        groups: list[dict[str, Any]] = [{"params": network.weights}, {"params": network.offsets, "weight_decay": 0.0}]
        descent = torch.optim.SGD(groups, lr=learning_rate, momentum=MOMENTUM, weight_decay=self.weight_decay)
        cosine = torch.optim.lr_scheduler.LambdaLR(descent, lambda i: (1 + math.cos(math.pi * i / n_steps)) / 2)
        batches = self._batches(X, Y)
        quiet = not (sys.stderr.isatty() if self.verbose is None else self.verbose)
        report_every = math.ceil(n_steps / REPORTS)
        started, losses = time.perf_counter(), []
        best, kept = -math.inf, copy.deepcopy(network.state_dict())
        for step in tqdm(range(1, n_steps + 1), desc=stage, leave=False, dynamic_ncols=True, disable=quiet):
            x, truth = next(batches)
            loss = loss_of(network.unary(x), truth)
            descent.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, LARGEST_GRADIENT)
            descent.step()
            cosine.step()
            losses.append(float(loss.detach()))
            if step % report_every == 0 or step == n_steps:
                row = {"stage": stage, "step": step, "loss": float(np.mean(losses))}
                losses = []
                if judge is not None:
                    row["held_out_f1"] = quality = judge()
                    if quality > best:
                        best, kept = quality, copy.deepcopy(network.state_dict())
                self.history.append({**row, "seconds": round(time.perf_counter() - started, 3)})
        if judge is not None:
            network.load_state_dict(kept)

    def _batches(self, X: Any, Y: NDArray[np.float32]) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches without end, every row once before any comes again; dense, but only a batch at a time."""
        while True:
            order = torch.randperm(len(Y), generator=self.generator).numpy()
            shuffled, labels = X[order], torch.from_numpy(Y[order])
            for start in range(0, len(Y), self.batch_size):
                batch = slice(start, start + self.batch_size)
                yield torch.from_numpy(shuffled[batch].toarray()), labels[batch]


def column_moments(X: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of every column of a CSR matrix."""
    n_rows, n_columns = X.shape
    mean = np.bincount(X.indices, X.data, minlength=n_columns) / n_rows
    squares = np.bincount(X.indices, (X.data - mean[X.indices]) ** 2, minlength=n_columns)
    n_zeros = n_rows - np.bincount(X.indices, minlength=n_columns)
    return mean, np.sqrt((squares + n_zeros * mean**2) / n_rows)
