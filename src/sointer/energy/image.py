"""An energy for images and masks that is convolutional throughout, so that one serves all pixels of any image."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from sointer.convolution import UNetwork, channels_last, convolution, draw_weights
from sointer.inputs.image import ImageShape

COUPLED_WITHIN = 2
"""Rows and columns to each side whose outputs are coupled with a pixel's own."""
LARGEST_WITHOUT_STRIDE = 48


class ImageEnergy(nn.Module):
    """E(x, y) = - sum_i u_i(x, y_i) + sum_p b' softplus(B * y + o)_p.

    u is a U-Net, B a convolution of the mask with a small kernel, p runs over all pixels: eq. 17-3 of the paper, made
    the same at every place. Marginals are found by a few mean-field steps, which are learned through.
    """

    shift: Tensor
    scale: Tensor

    def __init__(
        self,
        image: ImageShape,
        n_classes: int,
        widths: tuple[int, ...],
        *,
        coupling_units: int,
        n_steps: int,
        structured: bool = True,
    ) -> None:
        super().__init__()
        self.image, self.n_classes, self.n_steps = image, n_classes, n_steps
        self.n_maps = 1 if n_classes == 2 else n_classes
        self.register_buffer("shift", torch.zeros(image.channels, 1, 1))
        self.register_buffer("scale", torch.ones(image.channels, 1, 1))
        self.unary = UNetwork(image.channels, self.n_maps, widths, stride=stride_for(image))
        self.B = convolution(self.n_maps, coupling_units, 2 * COUPLED_WITHIN + 1) if structured else None
        self.b = nn.Parameter(torch.zeros(coupling_units)) if structured else None

    def initialise(self, generator: torch.Generator) -> ImageEnergy:
        """Draw all weights; outputs are not coupled yet."""
        draw_weights(self, generator)
        return channels_last(self)

    def scale_to(self, rows: NDArray[np.float64]) -> None:
        """Channels of the data at hand get the mean 0 and the deviation 1."""
        images = torch.from_numpy(self.image.unflatten(rows).astype(np.float32))
        self.shift.copy_(images.mean((0, 2, 3))[:, None, None])
        self.scale.copy_(1 / images.std((0, 2, 3), correction=0).clamp_min(1e-6)[:, None, None])

    def as_maps(self, x: Tensor) -> Tensor:
        """Encoded rows (n, columns) as scaled images (n, channels, height, width)."""
        return (x.view(-1, self.image.channels, self.image.height, self.image.width) - self.shift) * self.scale

    def log_odds(self, x: Tensor) -> Tensor:
        """How likely every pixel is of class 1, or of each class, up to a constant: (n, maps, height, width)."""
        unary: Tensor = self.unary(self.as_maps(x))
        logits = unary
        if self.B is not None and self.b is not None:
            weight = self.b[:, None, None]
            for _ in range(self.n_steps):
                y = logits.sigmoid() if self.n_maps == 1 else logits.softmax(1)
                pull = weight * self.B(y).sigmoid()
                logits = unary - F.conv_transpose2d(pull, self.B.weight, padding=COUPLED_WITHIN)
        return logits

    def log_marginals(self, x: Tensor) -> Tensor:
        """log p_E(y_i = c | x): (n, classes, height, width)."""
        logits = self.log_odds(x)
        if self.n_maps == 1:
            return F.logsigmoid(torch.cat([-logits, logits], 1))
        return torch.log_softmax(logits, 1)

    def loss(self, x: Tensor, codes: Tensor) -> Tensor:
        """Mean over pixels of -log p_E(y_i | x), for codes (n, pixels): (n,)."""
        return -self._of_codes(x, codes).mean(1)

    def predict(self, x: Tensor) -> Tensor:
        """The most likely class of every pixel: (n, pixels)."""
        logits = self.log_odds(x).flatten(2)
        return (logits[:, 0] > 0).long() if self.n_maps == 1 else logits.argmax(1)

    def region_log_likelihood(self, x: Tensor, region: Tensor, codes: Tensor) -> Tensor:
        """Mean over a region's pixels of log p_E(y_i = code | x), for weights `region` (n, pixels): (n,)."""
        return (self._of_codes(x, codes) * region).sum(1) / region.sum(1)

    def _of_codes(self, x: Tensor, codes: Tensor) -> Tensor:
        return self.log_marginals(x).flatten(2).gather(1, codes.unsqueeze(1)).squeeze(1)

    def neighbours(self) -> NDArray[np.float32]:
        """How strongly a pixel's output is coupled with those around it, itself in the middle: a small square map.

        It is the mean size of the change in the coupling's pull on a pixel when the output at that distance flips,
        over masks drawn by lot.
        """
        side = 2 * COUPLED_WITHIN + 1
        if self.B is None or self.b is None:
            return np.zeros((side, side), dtype=np.float32)
        generator = torch.Generator().manual_seed(0)
        reach = 4 * COUPLED_WITHIN + 1
        codes = torch.randint(self.n_classes, (64, reach, reach), generator=generator)
        other = (codes + 1) % self.n_classes
        middle = reach // 2
        strength = np.zeros((side, side), dtype=np.float32)
        with torch.no_grad():
            before = self._pull(codes)[:, :, middle, middle]
            for row in range(side):
                for column in range(side):
                    changed = codes.clone()
                    at = (slice(None), middle + row - COUPLED_WITHIN, middle + column - COUPLED_WITHIN)
                    changed[at] = other[at]
                    moved = self._pull(changed)[:, :, middle, middle] - before
                    strength[row, column] = float(moved.abs().mean())
        strength[COUPLED_WITHIN, COUPLED_WITHIN] = 0.0
        return strength

    def _pull(self, codes: Tensor) -> Tensor:
        assert self.B is not None
        assert self.b is not None
        y = codes.unsqueeze(1).float() if self.n_maps == 1 else F.one_hot(codes, self.n_classes).movedim(3, 1).float()
        pull = self.b[:, None, None] * self.B(y).sigmoid()
        return F.conv_transpose2d(pull, self.B.weight, padding=COUPLED_WITHIN)


def stride_for(image: ImageShape) -> int:
    """Large images are worked on in blocks of pixels."""
    stride = 1
    while max(image.size) > LARGEST_WITHOUT_STRIDE * stride:
        stride *= 2
    return stride
