"""Deep value network for images (Gygli, Norouzi & Angelova 2017): learn how good a mask is, then improve the mask."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sointer._support.progress import History
from sointer._support.unet import ChannelScaling, StandardisingUNetwork, convolution, draw_weights
from sointer._support.validation import check_number, check_positive_int
from sointer.errors import InputError
from sointer.zoo.image_models import ImageModel, distorted, pixel_loss
from sointer.zoo.model_base import check_sizes, endless_batches

MAX_SHIFT = 5
BLOCK_CROPS = 32
KERNEL = 5
EVIDENCE_DEPTH = 3


class ValueNetwork(ChannelScaling):
    """Image and relaxed mask, both (n, channels, size, size), through three convolutions and three layers to a score.

    The image may first go through a U-Net, whose channels, as numbers in (0, 1), then stand beside the mask; the
    first of them can be trained to classify pixels. What is made of the image does not depend on the mask and
    is computed once (`seen`); the value is sigmoid(score).
    """

    def __init__(
        self,
        n_channels: int,
        size: int,
        filters: tuple[int, ...],
        strides: tuple[int, ...],
        hidden: tuple[int, ...],
        image_width: int,
    ) -> None:
        super().__init__()
        self.add_scaling(n_channels)
        self.evidence = (
            StandardisingUNetwork(n_channels, image_width, image_width, EVIDENCE_DEPTH) if image_width else None
        )
        self.look = convolution(image_width or n_channels, filters[0], KERNEL, stride=strides[0])
        self.mark = convolution(1, filters[0], KERNEL, stride=strides[0], bias=False)
        shapes = zip(pairwise(filters), strides[1:], strict=True)
        self.convolutions = nn.ModuleList(convolution(a, b, KERNEL, stride=stride) for (a, b), stride in shapes)
        for stride in strides:
            size = -(-size // stride)
        widths = [filters[-1] * size * size, *hidden, 1]
        self.layers = nn.ModuleList(nn.utils.skip_init(nn.Linear, a, b) for a, b in pairwise(widths))

    def initialise(self, generator: torch.Generator) -> ValueNetwork:
        """Draw all weights: normal, with the variance 2 / number of inputs; the last ones small."""
        draw_weights(self, generator)
        with torch.no_grad():
            self.layers[-1].weight.mul_(0.1)  # type: ignore[operator]
        return self

    def standardise(self, images: Tensor) -> None:
        """Set the shift and the scale of each channel, also those of the U-Net."""
        super().standardise(images)
        if self.evidence is not None:
            self.evidence.standardise(images)

    def seen(self, images: Tensor) -> Tensor:
        """What the first convolution makes of images in [0, 1]."""
        evidence = self.scaled(images) if self.evidence is None else 2 * self.evidence(images).sigmoid() - 1
        return self.look(evidence)  # type: ignore[no-any-return]

    def forward(self, seen: Tensor, y: Tensor) -> Tensor:
        """Scores of masks y (n, size, size): (n,)."""
        x = F.relu(seen + self.mark(2 * y[:, None] - 1))
        for layer in self.convolutions:
            x = F.relu(layer(x))
        x = x.flatten(1)
        for i, layer in enumerate(self.layers):
            x = layer(F.relu(x) if i else x)
        return x[:, 0]

    def folded(self) -> ValueNetwork:
        """The same function, for predictions only."""
        twin = copy.deepcopy(self).eval()
        if twin.evidence is not None:
            twin.evidence = twin.evidence.folded()
        return twin.requires_grad_(False)


def steepest(gradient: Tensor) -> Tensor:
    """Gradients of masks (n, size, size) scaled to a mean square of 1 for each mask."""
    return gradient / gradient.square().mean((1, 2), keepdim=True).sqrt().clamp_min(1e-12)


def climb(network: ValueNetwork, seen: Tensor, y: Tensor, n_steps: int, step_size: float) -> Tensor:
    """Gradient ascent of the score on masks kept in [0, 1]; steps shrink to nothing."""
    for step in range(n_steps):
        with torch.enable_grad():
            y = y.detach().requires_grad_()
            gradient = torch.autograd.grad(network(seen, y).sum(), y)[0]
        y = (y.detach() + step_length(step, n_steps, step_size) * steepest(gradient)).clamp_(0, 1)
    return y


def step_length(step: int, n_steps: int, step_size: float) -> float:
    """Steps get shorter, down to nothing after the last."""
    return step_size * (1 - step / n_steps)


def near_truth(truth: Tensor, generator: torch.Generator) -> Tensor:
    """Each true mask as it is, with pixels turned over, shifted, or another's; half of them blurred by noise."""
    n = len(truth)
    kind = torch.randint(4, (n, 1, 1), generator=generator)
    share, amount, blurred = torch.rand(3, n, 1, 1, generator=generator)
    turned = (torch.rand(truth.shape, generator=generator) < share**2 / 2).to(truth.dtype)
    down, right = torch.randint(-MAX_SHIFT, MAX_SHIFT + 1, (2,), generator=generator).tolist()
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
        """Start anew, from empty masks, where trajectories have ended."""
        self.images[ended], self.truth[ended] = images, truth
        self.y[ended], self.age[ended] = 0.0, 0


Draw = Callable[[int], tuple[Tensor, Tensor]]
"""So many crops of images in [0, 1], and of their masks of 0 and 1."""


@dataclass(kw_only=True, eq=False, repr=False)
class ImageDeepValueNetwork(ImageModel):
    """A segmenter: a network that predicts the IoU of a mask with the truth; masks maximise it, from an empty mask on.

    It evaluates square crops of image and mask; the prediction is the mean of the masks found for several crops.
    Half of the masks it learns from are steps of inference, a quarter are adversarial (steps that raise the loss), and
    a quarter are near the truth. Fitted attributes are those of `ImageModel`.

    The defaults suit CPUs. The published network sees the image itself next to the mask:
    filters=(64, 128, 128), strides=(1, 2, 2), hidden=(384, 192), image_width=0, n_pretraining_steps=0,
    n_inference_steps=30, n_offsets=6. Here the image first goes through a small U-Net, trained by itself
    to classify pixels, so that the network that evaluates masks can be small and learns fast. Masks under inference are
    kept from one step of training to the next and all advance by one step; in the publication each is inferred anew.
    Steps of inference have the same size whatever the size of the gradient, and shrink.

    Parameters
    ----------
    crop : int
        Height and width of the crops.
    n_offsets : int
        Crops in each direction: 3 makes 9 of an image.
    filters, strides : tuple of int
        Channels and strides of the convolutions, 5 by 5 each.
    hidden : tuple of int
        Widths of the layers after them.
    image_width : int
        Width of the U-Net (depth 3) that the image goes through first; 0 leaves it out.
    n_pretraining_steps, pretraining_rate : numbers
        Steps and learning rate of that U-Net by itself.
    n_steps, batch_size, learning_rate, weight_decay : numbers
        Training by AdamW with a one-cycle learning rate, on batches of masks.
    n_inference_steps, step_size : numbers
        Gradient ascent on masks in [0, 1]; a pixel moves by `step_size` at first.
    n_adversarial_steps : int
        Steps that raise the loss.
    augment, random_state, verbose
        As in `UNet`.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.zoo import ImageDeepValueNetwork
    >>> images = np.random.default_rng(0).random((20, 1, 10, 10))
    >>> model = ImageDeepValueNetwork(crop=8, n_pretraining_steps=2, n_steps=2, random_state=0)
    >>> model.fit(images, images[:, 0] > 0.5).predict(images).shape
    (20, 10, 10)
    """

    crop: int = 24
    n_offsets: int = 2
    filters: tuple[int, ...] = (16, 32, 64)
    strides: tuple[int, ...] = (2, 2, 1)
    hidden: tuple[int, ...] = (128, 64)
    image_width: int = 12
    n_pretraining_steps: int = 800
    pretraining_rate: float = 4e-3
    n_steps: int = 2500
    batch_size: int = 48
    learning_rate: float = 3e-3
    n_inference_steps: int = 15
    step_size: float = 0.2
    n_adversarial_steps: int = 1

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_positive_int(self.batch_size, "batch_size", minimum=4)
        for name in ("crop", "n_offsets", "n_inference_steps"):
            check_positive_int(getattr(self, name), name)
        for name in ("image_width", "n_pretraining_steps", "n_adversarial_steps"):
            check_positive_int(getattr(self, name), name, minimum=0)
        for name in ("filters", "strides", "hidden"):
            check_sizes(getattr(self, name), name, "(2, 2, 1)")
        if len(self.filters) != len(self.strides):
            raise InputError(
                f"filters and strides must have the same length, got {self.filters} and {self.strides}. "
                "Give one stride for each convolution."
            )
        if self.image_width and self.crop % 2**EVIDENCE_DEPTH:
            raise InputError(
                f"crop must be a multiple of {2**EVIDENCE_DEPTH}, got {self.crop}. Choose such a one, or image_width=0."
            )
        check_number(self.pretraining_rate, "pretraining_rate")
        check_number(self.step_size, "step_size")

    def _check_images(self) -> None:
        _, height, width = self.image_format_.shape
        for size in (height, width):
            if not self.crop <= size <= self.crop * self.n_offsets:
                raise InputError(
                    f"images are {height} by {width} pixels, expected from {self.crop} to "
                    f"{self.crop * self.n_offsets} each way: {self.n_offsets} crops of {self.crop} must cover them. "
                    "Change crop or n_offsets."
                )
        if self.n_classes_ > 2:
            raise InputError(
                f"masks have {self.n_classes_} classes, expected 0 and 1: the value is the IoU of one kind of thing. "
                "Choose a class with masks == 1, or use UNet."
            )

    def _network(self, generator: torch.Generator | None) -> ValueNetwork:
        shape = (tuple(self.filters), tuple(self.strides), tuple(self.hidden), self.image_width)
        network = ValueNetwork(self.image_format_.channels, self.crop, *shape)
        return network if generator is None else network.initialise(generator)

    # --- training ----------------------------------------------------------------------------------------

    def _train(self, network: Any, images: Tensor, masks: Tensor, generator: torch.Generator, history: History) -> None:
        network.standardise(images)
        network.train()
        draw = self._crops(images, masks, generator)
        if self.image_width and self.n_pretraining_steps:

            def loss_of_pixels() -> Tensor:
                x, truth = draw(self.batch_size)
                return pixel_loss(network.evidence(x)[:, :1], truth)

            how = (self.n_pretraining_steps, self.pretraining_rate, history)
            self._descend("pixel by pixel", network.evidence, loss_of_pixels, *how)
        n_underway = self.batch_size // 2
        underway = Trajectories(*draw(n_underway), self.n_inference_steps, self.step_size)

        def loss_of_values() -> Tensor:
            return self._loss_of_values(network, underway, draw, generator)

        self._descend("value network", network, loss_of_values, self.n_steps, self.learning_rate, history)

    def _loss_of_values(
        self, network: ValueNetwork, underway: Trajectories, draw: Draw, generator: torch.Generator
    ) -> Tensor:
        """The loss on masks of all kinds, those underway being sent a step on."""
        n_underway = len(underway.y)
        n_attacked = (self.batch_size - n_underway) // 2
        new_images, new_truth = draw(self.batch_size - n_underway)
        truth = torch.cat([underway.truth, new_truth])
        seen = network.seen(torch.cat([underway.images, new_images]))
        y = torch.cat([underway.y, near_truth(new_truth, generator)])
        attacked = slice(n_underway, n_underway + n_attacked)
        length = (self.n_adversarial_steps, self.step_size)
        y[attacked] = adversarial(network, seen[attacked].detach(), truth[attacked], y[attacked], *length)
        y.requires_grad_()
        scores = network(seen, y)
        gradient = torch.autograd.grad(scores[:n_underway].sum(), y, retain_graph=True)[0]
        loss = value_loss(scores, relaxed_iou(y.detach(), truth)).mean()
        ended = underway.advance(gradient[:n_underway])
        if len(ended):
            underway.replace(ended, *draw(len(ended)))
        return loss

    def _crops(self, images: Tensor, masks: Tensor, generator: torch.Generator) -> Draw:
        streams: dict[int, Any] = {}

        def draw(n: int) -> tuple[Tensor, Tensor]:
            chosen = next(streams.setdefault(n, endless_batches(len(images), n, generator)))
            x, truth = images[chosen], masks[chosen]
            if self.augment:
                x, truth = distorted(x, truth, 2, generator)
            limits = (self.image_format_.height - self.crop + 1, self.image_format_.width - self.crop + 1)
            top, left = (int(torch.randint(limit, (), generator=generator)) for limit in limits)
            window = (..., slice(top, top + self.crop), slice(left, left + self.crop))
            return x[window].clone(), truth[window].to(x.dtype)

        return draw

    # --- predictions ---------------------------------------------------------------------------------------

    def _block_size(self) -> int:
        return max(BLOCK_CROPS // self.n_offsets**2, 1)

    @torch.no_grad()
    def _probabilities(self, images: Tensor) -> Tensor:
        windows = list(self._windows())
        crops = torch.cat([images[window] for window in windows])
        seen = self.folded_.seen(crops)
        empty = torch.zeros(len(crops), self.crop, self.crop)
        found = climb(self.folded_, seen, empty, self.n_inference_steps, self.step_size)
        total, n_times = torch.zeros(2, len(images), self.image_format_.height, self.image_format_.width)
        for window, y in zip(windows, found.chunk(len(windows)), strict=True):
            total[window] += y
            n_times[window] += 1
        average: Tensor = total / n_times
        return average

    def _windows(self) -> Any:
        """Where the crops are: spread evenly over the image, from edge to edge."""
        height, width = self.image_format_.height - self.crop, self.image_format_.width - self.crop
        for top in torch.linspace(0, height, self.n_offsets).round().int().tolist():
            for left in torch.linspace(0, width, self.n_offsets).round().int().tolist():
                yield (..., slice(top, top + self.crop), slice(left, left + self.crop))


def relaxed_iou(y: Tensor, truth: Tensor) -> Tensor:
    """Intersection over union, sum min / sum max, of relaxed masks with 0/1 truth; 1 where both are empty."""
    in_both = (y * truth).flatten(1).sum(dim=1)  # for 0/1 truth, min is y * truth
    in_either = (y + truth - y * truth).flatten(1).sum(dim=1)
    return torch.where(in_either > 0, in_both / in_either.clamp_min(torch.finfo(y.dtype).tiny), 1.0)
