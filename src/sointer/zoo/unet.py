"""A U-Net (Ronneberger et al. 2015), small enough to be asked hundreds of thousands of times on a CPU."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sointer._support.progress import History
from sointer._support.unet import UNetwork, channels_last, convolution, draw_weights
from sointer._support.validation import check_positive_int
from sointer.errors import InputError
from sointer.zoo.image_models import ImageModel, descend, distorted, endless_batches


class UNet(ImageModel):
    """A segmenter: convolutions on images of ever smaller size and back, with shortcuts between equal sizes.

    It is trained with AdamW, a one-cycle learning rate, cross-entropy and, for two classes, the Dice loss.

    Parameters
    ----------
    width : channels at full size; with every halving there are so many more.
    depth : how often the images are halved; height and width must be multiples of 2 ** depth.
    n_steps, batch_size, learning_rate, weight_decay : of the training.
    augment : also learn from images mirrored left to right, turned, zoomed, shifted and coloured anew.
    random_state : a number gives the same model every time.
    verbose : show progress; None shows it on a terminal only.

    Fitted: `pictures_` (the format of the images), `n_classes_`, `history_`.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.zoo import UNet
    >>> images = np.random.default_rng(0).random((40, 1, 8, 8))
    >>> model = UNet(width=8, depth=1, n_steps=100, augment=False, random_state=0).fit(images, images[:, 0] > 0.5)
    >>> model.predict(images).shape, model.score(images, images[:, 0] > 0.5) > 0.8
    ((40, 8, 8), True)
    """

    def __init__(
        self,
        *,
        width: int = 16,
        depth: int = 3,
        n_steps: int = 1500,
        batch_size: int = 32,
        learning_rate: float = 4e-3,
        weight_decay: float = 1e-2,
        augment: bool = True,
        random_state: Any = None,
        verbose: bool | None = None,
    ) -> None:
        self.width = width
        self.depth = depth
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.augment = augment
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_positive_int(self.width, "width")
        check_positive_int(self.depth, "depth")

    def _check_images(self) -> None:
        multiple = 2**self.depth
        _, height, width = self.pictures_.shape
        if height % multiple or width % multiple:
            raise InputError(
                f"images are {height} by {width} pixels, expected multiples of {multiple}: with depth={self.depth} "
                "they are halved so often. Crop or pad them, or choose a smaller depth."
            )

    def _network(self, generator: torch.Generator | None) -> StandardisingUNetwork:
        n_outputs = 1 if self.n_classes_ == 2 else self.n_classes_
        network = StandardisingUNetwork(self.pictures_.channels, n_outputs, self.width, self.depth)
        return network if generator is None else network.initialise(generator)

    def _train(self, network: Any, images: Tensor, masks: Tensor, generator: torch.Generator, history: History) -> None:
        network.standardise(images)
        channels_last(network.train())
        batches = endless_batches(len(images), self.batch_size, generator)

        def loss_of_batch() -> Tensor:
            batch = next(batches)
            x, truth = images[batch], masks[batch]
            if self.augment:
                x, truth = distorted(x, truth, self.n_classes_, generator)
            return pixel_loss(network(x.contiguous(memory_format=torch.channels_last)), truth)

        descend("U-Net", network, loss_of_batch, self.n_steps, self.learning_rate, self.weight_decay, history)

    def _adopt(self, network: Any) -> None:
        super()._adopt(network)
        self.folded_ = network.folded()

    @torch.inference_mode()
    def _answer(self, images: Tensor) -> Tensor:
        logits: Tensor = self.folded_(images)
        return logits[:, 0].sigmoid() if logits.shape[1] == 1 else logits.softmax(1)


def pixel_loss(logits: Tensor, truth: Tensor) -> Tensor:
    """Mean cross-entropy of the pixels; for two classes, so many logits in one channel, with 1 - Dice added."""
    if logits.shape[1] > 1:
        return F.cross_entropy(logits, truth)
    y = truth.to(logits.dtype)
    p = logits[:, 0].sigmoid()
    dice = (2 * (p * y).sum((1, 2)) + 1) / ((p + y).sum((1, 2)) + 1)
    return F.binary_cross_entropy_with_logits(logits[:, 0], y) + 1 - dice.mean()


class StandardisingUNetwork(UNetwork):
    """Images in [0, 1] to logits of every pixel: (n, outputs, height, width)."""

    shift: Tensor
    scale: Tensor

    def __init__(self, n_channels: int, n_outputs: int, width: int, depth: int) -> None:
        super().__init__(n_channels, n_outputs, [width * (level + 1) for level in range(depth + 1)])
        self.register_buffer("shift", torch.zeros(n_channels, 1, 1))
        self.register_buffer("scale", torch.ones(n_channels, 1, 1))

    def initialise(self, generator: torch.Generator) -> StandardisingUNetwork:
        """Draw all weights: normal, with the variance 2 / number of inputs."""
        draw_weights(self, generator)
        return self

    def standardise(self, images: Tensor) -> None:
        """Set what is subtracted from each channel and what it is multiplied by."""
        self.shift.copy_(images.mean((0, 2, 3))[:, None, None])
        self.scale.copy_(1 / images.std((0, 2, 3), correction=0).clamp_min(1e-3)[:, None, None])

    def forward(self, images: Tensor) -> Tensor:
        return super().forward((images - self.shift) * self.scale)


KERNEL = 5
EVIDENCE_DEPTH = 3


class ValueNetwork(nn.Module):
    """Image and relaxed mask, both (n, channels, size, size), through three convolutions and three layers to a score.

    The image may first go through a U-Net, whose channels, as numbers in (0, 1), then stand beside the mask; the
    first of them can be taught to find single pixels. What is made of the image does not depend on the mask and
    is had once (`seen`); the value is sigmoid(score).
    """

    shift: Tensor
    scale: Tensor

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
        self.register_buffer("shift", torch.zeros(n_channels, 1, 1))
        self.register_buffer("scale", torch.ones(n_channels, 1, 1))
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
        """Set what is subtracted from each channel and what it is multiplied by."""
        if self.evidence is not None:
            self.evidence.standardise(images)
        self.shift.copy_(images.mean((0, 2, 3))[:, None, None])
        self.scale.copy_(1 / images.std((0, 2, 3), correction=0).clamp_min(1e-3)[:, None, None])

    def seen(self, images: Tensor) -> Tensor:
        """What the first convolution makes of images in [0, 1]."""
        if self.evidence is not None:
            found: Tensor = self.look(2 * self.evidence(images).sigmoid() - 1)
        else:
            found = self.look((images - self.shift) * self.scale)
        return found

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
        """The same function, for answering alone."""
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
    return step_size * (1 - step / n_steps)
