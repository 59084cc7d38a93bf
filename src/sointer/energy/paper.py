"""The paper's energy for images, and inference under an energy of any form: projected gradient descent."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
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


N_STEPS = 10
FIRST_STEP = 0.5
MIN_MOVE = 1e-6
N_CANDIDATES = 8
CHUNK_ROWS = 128


class AnyForm(Protocol):
    """All that is needed of an energy here; its outputs share their number of classes."""

    space: OutputSpace

    def __call__(self, x: Tensor, y: Tensor) -> Tensor: ...


def infer(energy: AnyForm, x: Tensor, *, n_steps: int = N_STEPS) -> Tensor:
    """argmin_y E(x, y), approximately: class codes (rows, outputs)."""
    return torch.cat([_descend(energy, part, n_steps) for part in x.split(CHUNK_ROWS)])


def best_other(energy: AnyForm, x: Tensor, codes: Tensor, *, n_steps: int = N_STEPS) -> Tensor:
    """y' = argmin_y E(x, y) subject to y != codes (paper, below eq. 10 and appendix B), approximately."""
    found = infer(energy, x, n_steps=n_steps)
    same = torch.nonzero((found == codes).all(dim=1)).squeeze(1)
    if len(same) and energy.space.n_classes[0] > 1:
        parts = zip(x[same].split(CHUNK_ROWS), codes[same].split(CHUNK_ROWS), strict=True)
        found[same] = torch.cat([_cheapest_change(energy, *part) for part in parts])
    return found


def target_log_likelihood(energy: AnyForm, x: Tensor, targets: Tensor, values: Tensor) -> Tensor:
    """log p_E(y_t = value | x, y_-t), the other outputs being those of least energy: (rows,)."""
    others, n_classes = infer(energy, x), energy.space.n_classes[0]
    of_class = []
    with torch.no_grad():
        for code in range(n_classes):
            codes = others.scatter(1, targets.unsqueeze(1), code)
            parts = zip(x.split(CHUNK_ROWS), codes.split(CHUNK_ROWS), strict=True)
            of_class.append(torch.cat([energy(rows, encode(part, n_classes)) for rows, part in parts]))
    log_p = torch.log_softmax(-torch.stack(of_class, dim=1), dim=1)
    return log_p.gather(1, values.unsqueeze(1)).squeeze(1)


def gradient_in(energy: AnyForm, x: Tensor, y: Tensor) -> Tensor:
    """dE/dy, row by row; the energy's own parameters are left alone."""
    with torch.enable_grad():
        point = y.detach().requires_grad_(True)
        (gradient,) = torch.autograd.grad(energy(x.detach(), point).sum(), point)
    return gradient


def project(y: Tensor, n_classes: int) -> Tensor:
    """The nearest relaxed outputs: numbers in [0, 1] for yes or no, else shares of the classes that add up to 1."""
    if n_classes == 2:
        return y.clamp(0.0, 1.0)
    shares = y.view(len(y), -1, n_classes)
    shares = shares - shares.amax(dim=2, keepdim=True)  # the same projection, and no digits are lost if y is large
    ordered = shares.sort(dim=2, descending=True).values
    excess = (ordered.cumsum(dim=2) - 1.0) / torch.arange(1, n_classes + 1)
    last = (ordered > excess).sum(dim=2, keepdim=True) - 1
    return (shares - excess.gather(2, last)).clamp_min(0.0).view_as(y)


def encode(codes: Tensor, n_classes: int) -> Tensor:
    """As OutputSpace.encode where all outputs have as many classes, without a matrix of labels by columns."""
    return codes.float() if n_classes == 2 else F.one_hot(codes, n_classes).flatten(1).float()


def _descend(energy: AnyForm, x: Tensor, n_steps: int) -> Tensor:
    n_classes = energy.space.n_classes[0]
    n_columns = energy.space.n_outputs * (1 if n_classes == 2 else n_classes)
    y = torch.full((len(x), n_columns), 1.0 / n_classes)
    for step in range(n_steps):
        size = FIRST_STEP * (1.0 - step / n_steps)
        y = project(y - size * _direction(gradient_in(energy, x, y), y, n_classes), n_classes)
    return (y > 0.5).long() if n_classes == 2 else y.view(len(x), -1, n_classes).argmax(dim=2)


def _direction(gradient: Tensor, y: Tensor, n_classes: int) -> Tensor:
    """The gradient in units of its largest entry among the outputs that can still move, and at most 1 each.

    Steps then depend neither on the scale of the energy nor on outputs that have long been decided, beside which
    the gradients of the others may be tiny.
    """
    if n_classes > 2:  # what all classes of an output share moves nothing
        of_class = gradient.view(len(gradient), -1, n_classes)
        gradient = (of_class - of_class.mean(dim=2, keepdim=True)).view_as(gradient)
    smallest = torch.finfo(gradient.dtype).tiny
    unit = gradient / gradient.abs().amax(dim=1, keepdim=True).clamp_min(smallest)
    moves = ((project(y - unit, n_classes) - y).abs() > MIN_MOVE).float()
    size = (unit.abs() * moves).amax(dim=1, keepdim=True)
    return torch.where(size > 0, unit / size.clamp_min(smallest), 0.0).clamp(-1.0, 1.0)


def _cheapest_change(energy: AnyForm, x: Tensor, codes: Tensor) -> Tensor:
    """Outputs that differ from `codes` in one place: the gradient names a few, the energy chooses among them."""
    n_rows, n_outputs = codes.shape
    n_classes = energy.space.n_classes[0]
    gradient = gradient_in(energy, x, encode(codes, n_classes))
    of_class = gradient.view(n_rows, n_outputs, -1)
    if n_classes == 2:
        of_class = torch.cat([torch.zeros_like(of_class), of_class], dim=2)
    own = codes.unsqueeze(2)
    cost = (of_class - of_class.gather(2, own)).scatter(2, own, torch.inf).flatten(1)
    n_candidates = min(N_CANDIDATES, n_outputs * (n_classes - 1))
    candidate = cost.topk(n_candidates, dim=1, largest=False).indices
    changed = codes.repeat_interleave(n_candidates, dim=0)
    place = (candidate // n_classes).flatten().unsqueeze(1)
    changed.scatter_(1, place, (candidate % n_classes).flatten().unsqueeze(1))
    with torch.no_grad():
        of_changed = energy(x.repeat_interleave(n_candidates, dim=0), encode(changed, n_classes))
    best = of_changed.view(n_rows, n_candidates).argmin(dim=1)
    return changed.view(n_rows, n_candidates, n_outputs)[torch.arange(n_rows), best]
