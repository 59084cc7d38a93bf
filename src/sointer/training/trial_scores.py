"""Scores of many rows at once that are only averaged, compared or asked about, and need not be as exact as those told.

Where outputs are very many, what is said of one of them costs so much that paths have fewer points here.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from sointer.interpreter.networks import SaliencyInterpreter
from sointer.interpreter.saliency import Saliency

MANY_OUTPUTS = 64
N_PATH_STEPS_OF_MANY = 4


def has_many_outputs(interpreter: SaliencyInterpreter) -> bool:
    return interpreter.energy.coupling is not None and interpreter.energy.space.n_outputs > MANY_OUTPUTS


def priors_in_chunks(interpreter: SaliencyInterpreter, x: Tensor, targets: Tensor, values: Tensor) -> Tensor:
    n_steps = n_steps_of_trials(interpreter)
    return torch.cat([interpreter.prior(*part, n_steps=n_steps) for part in in_chunks(x, targets, values)]).detach()


def saliency_in_chunks(
    interpreter: SaliencyInterpreter,
    x: Tensor,
    targets: Tensor,
    values: Tensor,
    n_steps: int,
    *,
    rolling: bool = False,
) -> Saliency:
    """Saliency of many rows; `rolling` starts every few rows from other references, for averages over short paths."""
    parts = [
        interpreter.saliency(*part, n_steps=n_steps, first_reference=number * n_steps if rolling else 0)
        for number, part in enumerate(in_chunks(x, targets, values, 32 if rolling else 256))
    ]
    return Saliency(torch.cat([part.signed for part in parts]), torch.cat([part.size for part in parts]))


def n_steps_of_trials(interpreter: SaliencyInterpreter) -> int:
    """Points on the paths of scores that are only asked about or compared, not told to anyone."""
    n_steps = interpreter.n_path_steps
    return min(n_steps, 2 * N_PATH_STEPS_OF_MANY) if has_many_outputs(interpreter) else n_steps


def in_chunks(x: Tensor, targets: Tensor, values: Tensor, size: int = 256) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    yield from zip(x.split(size), targets.split(size), values.split(size), strict=True)
