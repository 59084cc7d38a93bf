"""A U-Net (Ronneberger et al. 2015), small enough to be queried hundreds of thousands of times on a CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sointer._support.progress import History
from sointer._support.unet import UNetwork, channels_last, draw_weights
from sointer._support.validation import check_positive_int
from sointer.errors import InputError
from sointer.zoo.image_models import ImageModel, distorted, endless_batches


@dataclass(kw_only=True, eq=False, repr=False)
class UNet(ImageModel):
    """A segmenter: convolutions on images of ever smaller size and back, with shortcuts between equal sizes.

    It is trained with AdamW, a one-cycle learning rate, cross-entropy and, for two classes, the Dice loss. Fitted
    attributes are those of `ImageModel`.

    Parameters
    ----------
    width : int
        Channels at full size; every halving adds as many again.
    depth : int
        How often the images are halved; height and width must be multiples of 2 ** depth.
    n_steps, batch_size, learning_rate, weight_decay : numbers
        Training by AdamW.
    augment : bool
        Also learn from images mirrored left to right, rotated, zoomed, shifted and recoloured.
    random_state : int, Generator or None
        An int gives the same model every time.
    verbose : bool, optional
        Show progress; by default on a terminal only.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.zoo import UNet
    >>> images = np.random.default_rng(0).random((40, 1, 8, 8))
    >>> model = UNet(width=8, depth=1, n_steps=100, augment=False, random_state=0).fit(images, images[:, 0] > 0.5)
    >>> model.predict(images).shape, model.score(images, images[:, 0] > 0.5) > 0.8
    ((40, 8, 8), True)
    """

    width: int = 16
    depth: int = 3
    n_steps: int = 1500
    batch_size: int = 32
    learning_rate: float = 4e-3

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_positive_int(self.width, "width")
        check_positive_int(self.depth, "depth")

    def _check_images(self) -> None:
        multiple = 2**self.depth
        _, height, width = self.image_format_.shape
        if height % multiple or width % multiple:
            raise InputError(
                f"images are {height} by {width} pixels, expected multiples of {multiple}: with depth={self.depth} "
                "they are halved so often. Crop or pad them, or choose a smaller depth."
            )

    def _network(self, generator: torch.Generator | None) -> StandardisingUNetwork:
        n_outputs = 1 if self.n_classes_ == 2 else self.n_classes_
        network = StandardisingUNetwork(self.image_format_.channels, n_outputs, self.width, self.depth)
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

        self._descend("U-Net", network, loss_of_batch, self.n_steps, self.learning_rate, history)

    @torch.inference_mode()
    def _probabilities(self, images: Tensor) -> Tensor:
        logits: Tensor = self.folded_(images)
        return logits[:, 0].sigmoid() if logits.shape[1] == 1 else logits.softmax(1)


def pixel_loss(logits: Tensor, truth: Tensor) -> Tensor:
    """Mean cross-entropy of the pixels; for two classes, whose logits are in one channel, 1 - Dice is added."""
    if logits.shape[1] > 1:
        return F.cross_entropy(logits, truth)
    y = truth.to(logits.dtype)
    p = logits[:, 0].sigmoid()
    dice = (2 * (p * y).sum((1, 2)) + 1) / ((p + y).sum((1, 2)) + 1)
    return F.binary_cross_entropy_with_logits(logits[:, 0], y) + 1 - dice.mean()


class ChannelScaling(nn.Module):
    """A network that standardises the channels of its images."""

    shift: Tensor
    scale: Tensor

    def add_scaling(self, n_channels: int) -> None:
        """Register the shift and the scale, which change nothing until they are set."""
        self.register_buffer("shift", torch.zeros(n_channels, 1, 1))
        self.register_buffer("scale", torch.ones(n_channels, 1, 1))

    def standardise(self, images: Tensor) -> None:
        """Set the shift and the scale of each channel by these images."""
        self.shift.copy_(images.mean((0, 2, 3))[:, None, None])
        self.scale.copy_(1 / images.std((0, 2, 3), correction=0).clamp_min(1e-3)[:, None, None])

    def scaled(self, images: Tensor) -> Tensor:
        """Images with the mean and the standard deviation of every channel at 0 and 1."""
        return (images - self.shift) * self.scale


class StandardisingUNetwork(ChannelScaling, UNetwork):
    """Images in [0, 1] to logits of every pixel: (n, outputs, height, width)."""

    def __init__(self, n_channels: int, n_outputs: int, width: int, depth: int) -> None:
        super().__init__(n_channels, n_outputs, [width * (level + 1) for level in range(depth + 1)])
        self.add_scaling(n_channels)

    def initialise(self, generator: torch.Generator) -> StandardisingUNetwork:
        """Draw all weights: normal, with the variance 2 / number of inputs."""
        draw_weights(self, generator)
        return self

    def forward(self, images: Tensor) -> Tensor:
        """Logits of every pixel."""
        return super().forward(self.scaled(images))
