"""A U-Net (Ronneberger et al. 2015), small enough to be asked hundreds of thousands of times on a CPU."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sointer._support.unet import UNetwork, channels_last, draw_weights
from sointer._support.validation import check_positive_int
from sointer.errors import InputError
from sointer.models.image_base import ImageModel
from sointer.models.image_batches import distorted, endless_batches
from sointer.models.image_fitting import descend
from sointer.training.history import History


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
    >>> from sointer.models import UNet
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
