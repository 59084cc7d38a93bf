"""The paper's W, for every target a network of its own, fully connected or convolutional, and its relaxed selection."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sointer.data.images import ImageShape
from sointer.energy.paper import convolutions, n_left
from sointer.energy.sparse import Linear
from sointer.errors import InputError

FILTERS = (64, 256, 512)
MAX_TARGETS = 8
MAX_BYTES = 8e9
BYTES_PER_WEIGHT = 4
# While a network is trained, its gradient and Adam's two averages are held beside it.
TRAINING_COPIES = 3


class PaperInterpreter(nn.Module):
    """The paper's W: for every target a network of its own, fully connected with ReLU, last layer linear."""

    def __init__(self, n_columns: int, n_units: int, n_outputs: int, hidden: tuple[int, ...] = (100, 100, 100)) -> None:
        super().__init__()
        self.networks = nn.ModuleList(multilayer(n_columns, hidden, n_units) for _ in range(n_outputs))

    def network_for(self, target: int) -> nn.Module:
        return self.networks[target]

    def scores_for(self, x: Tensor, target: int) -> Tensor:
        scores: Tensor = self.network_for(target)(x)
        return scores

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        # Each network sees all rows, so that a row's scores cannot depend on which rows share its target.
        present = targets.unique()
        of_each = torch.stack([self.scores_for(x, int(target)) for target in present])
        return of_each[torch.searchsorted(present, targets), torch.arange(len(x))]


class PaperImageInterpreter(PaperInterpreter):
    """Section 3.3: conv 5x5 with 64, 256, 512 filters, two FC of twice the number of pixels, FC of the units.

    There are networks only for the targets given, in their order.
    """

    scale: Tensor

    def __init__(self, image: ImageShape, n_units: int, targets: Sequence[int]) -> None:
        super().__init__(image.n_columns, n_units, 0)
        check_memory(image, n_units, len(targets))
        self.image, self.n_units = image, n_units
        self.place = {int(target): place for place, target in enumerate(targets)}
        self.networks.extend(network_of_one(image, n_units) for _ in targets)
        self.register_buffer("scale", torch.ones(()))

    def network_for(self, target: int) -> nn.Module:
        return self.networks[self.place[target]]

    def scores_for(self, x: Tensor, target: int) -> Tensor:
        """One score per unit: (rows, units); not a number for a target that has no network."""
        if target not in self.place:
            return torch.full((len(x), self.n_units), torch.nan)
        image = self.image
        picture = (x * self.scale).view(-1, image.channels, image.height, image.width)
        scores: Tensor = self.network_for(target)(picture)
        return scores


def network_of_one(image: ImageShape, n_units: int) -> nn.Sequential:
    """W of one target."""
    n_flat = FILTERS[-1] * n_left(image.height, len(FILTERS)) * n_left(image.width, len(FILTERS))
    width = 2 * image.n_pixels
    return nn.Sequential(
        convolutions(image.channels, FILTERS),
        nn.Linear(n_flat, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, n_units),
    )


def n_weights(image: ImageShape, n_units: int) -> int:
    """How many numbers W of one target holds, without making them."""
    with torch.device("meta"):
        return sum(p.numel() for p in network_of_one(image, n_units).parameters())


def check_memory(image: ImageShape, n_units: int, n_targets: int) -> None:
    """Refuse what cannot be meant: a network of many million weights for each of many pixels."""
    n_each = n_weights(image, n_units)
    of_weights = n_each * BYTES_PER_WEIGHT * n_targets
    in_training = of_weights + n_each * BYTES_PER_WEIGHT * TRAINING_COPIES
    if n_targets <= MAX_TARGETS and in_training <= MAX_BYTES:
        return
    raise InputError(
        f"preset='paper' trains a network of {n_each / 1e6:,.1f} million weights for each target pixel of "
        f"{image.height}x{image.width} images: {n_targets} target(s) would take {of_weights / 1e9:,.2f} GB, and "
        f"{in_training / 1e9:,.2f} GB in training; at most {MAX_TARGETS} targets and {MAX_BYTES / 1e9:.0f} GB are "
        "allowed. Name fewer pixels, as in fit(X, targets=[(2, 3)]), or smaller images; or use preset='default', "
        "whose one interpreter serves all pixels."
    )


def multilayer(n_in: int, hidden: tuple[int, ...], n_out: int) -> nn.Sequential:
    """Fully connected layers with ReLU between them."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [Linear(n_in, width), nn.ReLU()]
        n_in = width
    return nn.Sequential(*layers, Linear(n_in, n_out))


def gumbel_noise(u: Tensor) -> Tensor:
    """Eq. 13: g = -log(-log(u)) for u uniform on (0, 1)."""
    tiny = torch.finfo(u.dtype).tiny
    return -torch.log(-torch.log(u.clamp(min=tiny, max=1 - 1e-7)))


def gumbel_softmax(log_w: Tensor, noise: Tensor, temperature: float) -> Tensor:
    """Eq. 14 as it must read: softmax((log w_i + g_i) / tau), w a distribution over features."""
    return torch.softmax((log_w + noise) / temperature, dim=-1)


def k_hot(draws: Tensor) -> Tensor:
    """Eq. 15: the element-wise maximum of the draws, (draws, rows, features) -> (rows, features)."""
    return draws.amax(dim=0)


def gumbel_k_hot(logits: Tensor, k: int, temperature: float, generator: torch.Generator) -> Tensor:
    """Eqs. 13 to 15: k relaxed draws from softmax(logits), combined by maximum."""
    u = torch.rand((k, *logits.shape), generator=generator)
    return k_hot(gumbel_softmax(torch.log_softmax(logits, dim=-1), gumbel_noise(u), temperature))
