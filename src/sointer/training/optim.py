"""AdamW (Kingma and Ba 2015; Loshchilov and Hutter 2019) without the overhead of torch.optim; learning rates.

torch.optim takes twice as long for networks whose steps last a millisecond, and its first use imports torch's compiler,
which takes a second. The update is one fused call where torch has it, and six public operations otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
fused_adamw = getattr(torch, "_fused_adamw_", None)
WARM_UP, LAST_RATE = 0.1, 0.02


def cosine(progress: float) -> float:
    """The share of the full learning rate after a share of the steps: down from 1 to 0, along a cosine."""
    return 0.5 * (1.0 + math.cos(math.pi * progress))


def warm_cosine(n_done: int, n_steps: int) -> float:
    """Up in a few steps, then down along a cosine: the share of the full learning rate."""
    warm = max(1.0, WARM_UP * n_steps)
    if n_done < warm:
        return (n_done + 1) / (warm + 1)
    rest = (n_done - warm) / max(1.0, n_steps - warm)
    return LAST_RATE + (1 - LAST_RATE) * cosine(min(rest, 1.0))


@dataclass(frozen=True)
class Group:
    """Parameters that learn at the same rate."""

    parameters: Sequence[Tensor]
    rate: float
    decays: bool = True


class Adam:
    """Steps down a loss; `max_norm` shortens the gradient of all parameters together, if it is longer."""

    def __init__(
        self,
        groups: Sequence[Group],
        *,
        max_norm: float | None = None,
        weight_decay: float = 0.0,
        beta2: float = BETA2,
    ) -> None:
        self.groups, self.max_norm, self.weight_decay, self.beta2 = groups, max_norm, weight_decay, beta2
        self._parameters = [p for group in groups for p in group.parameters]
        self._means = [torch.zeros_like(p) for p in self._parameters]
        self._squares = [torch.zeros_like(p) for p in self._parameters]
        self._n_steps = torch.zeros(())

    def state(self) -> dict[str, Tensor]:
        """What steps change besides the parameters, by name; in place."""
        moments = {"mean": self._means, "square": self._squares}
        named = {f"{kind}.{i}": tensor for kind, all_of in moments.items() for i, tensor in enumerate(all_of)}
        return named | {"n_steps": self._n_steps}

    def step(self, loss: Tensor, lr_scale: float = 1.0) -> float:
        """One step at `lr_scale` times the groups' rates; returns the loss."""
        gradients = torch.autograd.grad(loss, self._parameters)
        with torch.no_grad():
            aligned = [laid_out_like(p, g) for p, g in zip(self._parameters, gradients, strict=True)]
            if self.max_norm is not None:
                _clip(aligned, self.max_norm)
            self._n_steps += 1
            start = 0
            for group in self.groups:
                own = slice(start, start + len(group.parameters))
                state = list(group.parameters), aligned[own], self._means[own], self._squares[own]
                self._update(*state, group.rate * lr_scale, self.weight_decay if group.decays else 0.0)
                start = own.stop
        return float(loss.detach())

    def _update(
        self,
        parameters: list[Tensor],
        gradients: list[Tensor],
        means: list[Tensor],
        squares: list[Tensor],
        rate: float,
        weight_decay: float,
    ) -> None:
        if fused_adamw is None:
            for state in zip(parameters, gradients, means, squares, strict=True):
                _adamw(*state, rate, weight_decay, self.beta2, float(self._n_steps))
            return
        fused_adamw(
            parameters,
            gradients,
            means,
            squares,
            [],
            [self._n_steps] * len(parameters),
            lr=rate,
            beta1=BETA1,
            beta2=self.beta2,
            weight_decay=weight_decay,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )


def state_of(network: nn.Module, optimiser: Adam) -> dict[str, Tensor]:
    """All that steps change, by name."""
    return {f"network.{name}": tensor for name, tensor in network.state_dict().items()} | optimiser.state()


def torch_state_of(network: nn.Module, optimiser: torch.optim.Adam) -> dict[str, Tensor]:
    """All that steps of torch's own Adam or AdamW change, by name; its moments are made now, not at its first step."""
    found = {f"network.{name}": tensor for name, tensor in network.state_dict().items()}
    for number, p in enumerate(p for group in optimiser.param_groups for p in group["params"]):
        own = optimiser.state[p]
        if not own:
            own["step"] = torch.zeros((), dtype=torch.get_default_dtype(), device="cpu")
            own["exp_avg"], own["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        found |= {f"{name}.{number}": tensor for name, tensor in own.items()}
    return found


def laid_out_like(parameter: Tensor, gradient: Tensor) -> Tensor:
    """The gradient with the strides of its parameter.

    autograd returns transposed views, and the fused update walks through memory without looking at strides: it would
    move each weight by another weight's gradient.
    """
    return gradient if gradient.stride() == parameter.stride() else torch.empty_like(parameter).copy_(gradient)


def _adamw(
    p: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, rate: float, decay: float, beta2: float, n_steps: float
) -> None:
    mean.lerp_(gradient, 1 - BETA1)
    square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    deviation = (square / (1 - beta2**n_steps)).sqrt_().add_(EPSILON)
    p.mul_(1 - rate * decay).addcdiv_(mean, deviation, value=-rate / (1 - BETA1**n_steps))


def _clip(gradients: list[Tensor], max_norm: float) -> None:
    norm = float(torch.stack([torch.linalg.vector_norm(g) for g in gradients]).norm())
    if not norm <= max_norm:  # also where it is not a number, which must not pass unseen
        for gradient in gradients:
            gradient.mul_(max_norm / (norm + 1e-6))
