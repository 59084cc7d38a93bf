"""The paper's energy for images: image and mask as channels of one picture, convolutions, then one number."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sointer.config import EnergyConfig
from sointer.data.images import ImageShape
from sointer.energy.space import OutputSpace
from sointer.errors import InputError

FILTERS = (64, 128, 128)
WIDTHS = (400, 200)
DROPOUT = 0.25
KERNEL, STRIDE = 5, 2


class PaperImageEnergy(nn.Module):
    """Section 3.3: conv 5x5 with 64, 128, 128 filters, FC 400, dropout 0.25, FC 200, 1, with ReLU between them.

    The mask enters as one channel if its pixels are yes or no, else as one channel per class. The paper states
    neither strides nor padding: each convolution halves the picture here, and its border is padded with zeros.
    `pixel` is for an energy that sees one output alone: that pixel of the mask, the others being zero.
    """

    scale: Tensor

    def __init__(self, image: ImageShape, space: OutputSpace, pixel: int | None = None) -> None:
        super().__init__()
        check_mask(image, space, pixel)
        self.image, self.space, self.pixel = image, space, pixel
        self.n_channels = 1 if space.is_binary else space.n_classes[0]
        self.convolutions = convolutions(image.channels + self.n_channels, FILTERS)
        n_flat = FILTERS[-1] * n_left(image.height, len(FILTERS)) * n_left(image.width, len(FILTERS))
        self.first = nn.Linear(n_flat, WIDTHS[0])
        self.second = nn.Linear(*WIDTHS)
        self.last = nn.Linear(WIDTHS[1], 1)
        # Bytes are divided by 255; saved with the weights.
        self.register_buffer("scale", torch.ones(()))

    @property
    def coupling(self) -> None:
        """Outputs are coupled by the convolutions; there are no B and b of eq. 17-3 to read it off."""
        return None

    def forward(self, x: Tensor, y: Tensor, dropout: torch.Generator | None = None) -> Tensor:
        """E(x, y) of flat images (rows, C*H*W) and encoded masks (rows, columns): (rows,).

        Units are dropped only if a generator is given that says which: in the energy's own training steps.
        """
        image = self.image
        picture = (x * self.scale).view(-1, image.channels, image.height, image.width)
        hidden = torch.relu(self.first(self.convolutions(torch.cat([picture, self.as_channels(y)], dim=1))))
        if dropout is not None:
            kept = torch.rand(hidden.shape, generator=dropout) >= DROPOUT
            hidden = hidden * kept / (1.0 - DROPOUT)
        result: Tensor = self.last(torch.relu(self.second(hidden))).squeeze(1)
        return result

    def as_channels(self, y: Tensor) -> Tensor:
        """Encoded outputs as (rows, channels, height, width)."""
        pixels = y.view(len(y), -1, self.n_channels)
        if self.pixel is not None:
            whole = torch.zeros(len(y), self.image.n_pixels, self.n_channels)
            pixels = whole.index_copy(1, torch.tensor([self.pixel]), pixels)
        return pixels.transpose(1, 2).reshape(len(y), self.n_channels, self.image.height, self.image.width)


def paper_image_energy(
    image: ImageShape, space: OutputSpace, config: EnergyConfig, pixel: int | None = None
) -> PaperImageEnergy:
    """A fresh energy; settings that shape the energy of vectors would have no effect and are refused."""
    for name in ("hidden", "coupling_units", "exact_limit", "mean_field_steps"):
        if getattr(config, name) != EnergyConfig.presets["paper"][name]:
            raise InputError(
                f"EnergyConfig.{name}={getattr(config, name)!r} has no effect on images with preset='paper', whose "
                "convolutional energy is that of the paper's section 3.3. Remove the setting."
            )
    return PaperImageEnergy(image, space, pixel)


def check_mask(image: ImageShape, space: OutputSpace, pixel: int | None) -> None:
    """One output for each pixel (or one alone), all with the same classes."""
    n_wanted = image.n_pixels if pixel is None else 1
    if len(set(space.n_classes)) != 1 or space.n_outputs != n_wanted:
        kind = f"with {sorted(set(space.n_classes))} classes"
        raise InputError(
            f"the paper's energy for images of {image.height}x{image.width} pixels needs {n_wanted} discrete "
            f"output(s) that share their classes, got {space.n_outputs} {kind}; use preset='default'."
        )


def convolutions(n_channels: int, filters: tuple[int, ...]) -> nn.Sequential:
    """Convolutions 5x5 with ReLU, each halving height and width; flattened at the end."""
    layers: list[nn.Module] = []
    for n_filters in filters:
        layers += [nn.Conv2d(n_channels, n_filters, KERNEL, stride=STRIDE, padding=KERNEL // 2), nn.ReLU()]
        n_channels = n_filters
    return nn.Sequential(*layers, nn.Flatten())


def n_left(size: int, n_layers: int) -> int:
    """What is left of a height or width after so many convolutions."""
    for _ in range(n_layers):
        size = -(-size // STRIDE)
    return size
