"""Masks from which a value network learns: near the truth, adversarial, and those that inference passes through."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sointer.models.image_value_network import ValueNetwork, steepest, step_length
from sointer.models.relaxed_masks import relaxed_iou

LARGEST_SHIFT = 5


def near_truth(truth: Tensor, generator: torch.Generator) -> Tensor:
    """Each true mask as it is, with pixels turned over, shifted, or another's; half of them blurred by noise."""
    n = len(truth)
    kind = torch.randint(4, (n, 1, 1), generator=generator)
    share, amount, blurred = torch.rand(3, n, 1, 1, generator=generator)
    turned = (torch.rand(truth.shape, generator=generator) < share**2 / 2).to(truth.dtype)
    down, right = torch.randint(-LARGEST_SHIFT, LARGEST_SHIFT + 1, (2,), generator=generator).tolist()
    y = torch.where(kind == 1, (truth - turned).abs(), truth)
    y = torch.where(kind == 2, truth.roll((down, right), (1, 2)), y)
    y = torch.where(kind == 3, truth.roll(1, 0), y)
    noise = torch.rand(truth.shape, generator=generator)
    return torch.where(blurred < 0.5, torch.lerp(y, noise, amount / 2), y)


def adversarial(
    network: ValueNetwork, seen: Tensor, truth: Tensor, y: Tensor, n_steps: int, step_size: float
) -> Tensor:
    """Masks changed so that the loss rises: gradient ascent on masks kept in [0, 1]."""
    for _ in range(n_steps):
        y = y.detach().requires_grad_()
        loss = value_loss(network(seen, y), relaxed_iou(y, truth)).sum()
        y = (y.detach() + step_size * steepest(torch.autograd.grad(loss, y)[0])).clamp_(0, 1)
    return y


def value_loss(score: Tensor, value: Tensor) -> Tensor:
    """Cross-entropy between the value a score stands for and the one it should be."""
    return F.binary_cross_entropy_with_logits(score, value, reduction="none")


class Trajectories:
    """Masks on their way by inference from nothing: all go a step on with every step of training.

    A mask at the end of its way is replaced by an empty one, of a new image.
    """

    def __init__(self, images: Tensor, truth: Tensor, n_steps: int, step_size: float) -> None:
        self.images, self.truth = images, truth
        self.y = torch.zeros_like(truth)
        self.age = torch.arange(len(truth)) % n_steps
        lengths = [step_length(step, n_steps, step_size) for step in range(n_steps)]
        self._lengths = torch.tensor(lengths)

    def advance(self, gradient: Tensor) -> Tensor:
        """Take the next step along the gradient of the scores; returns which masks have come to their end."""
        self.y = (self.y + self._lengths[self.age][:, None, None] * steepest(gradient)).clamp_(0, 1)
        self.age = self.age + 1
        return (self.age == len(self._lengths)).nonzero()[:, 0]

    def replace(self, ended: Tensor, images: Tensor, truth: Tensor) -> None:
        self.images[ended], self.truth[ended] = images, truth
        self.y[ended], self.age[ended] = 0.0, 0
