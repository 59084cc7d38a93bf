"""The interpreter for images: from the energy's evidence to scores of pixels, or groups of pixels."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from sointer._support.torch_state import device_of, one_thread
from sointer.config import EnergyConfig
from sointer.data.images import ImageShape
from sointer.data.targets import majority
from sointer.energy.image import Evidence, ImageEnergy, Maps
from sointer.interpreter.scoring import Targets, by_sample
from sointer.masking.groups import Groups
from sointer.masking.rows import ExplainedRows
from sointer.masking.selection import Likely, Scored

MAX_POOLED = 7
"""Cells along each side of the surroundings that a cell shares its sign with; fewer where there are few cells."""
SMOOTH = {0.0: 0.3, 1.0: 1.0, 2.0: 2.0, 4.0: 4.0}
"""Weights of relevance smoothed over so many cells, where neighbouring pixels only count together."""
MAX_PIXELS_OF_REGION = 64
"""Of larger regions so many pixels are looked at, evenly spread."""
N_KEYS, N_VALUES = 16, 8


class Found(NamedTuple):
    """What decides the target of each row, cell by cell: (rows, cells)."""

    relevance: Tensor
    """Share of the decision that lies in each cell: at least 0, the sum is 1."""
    signed: Tensor
    """How much each cell speaks for the output of its image, in log-odds; below 0, against it."""


class ImageInterpreter(nn.Module):
    """Relevance is where a target looks, as far as its surroundings there speak for the output.

    A cell that speaks against the output amid others that speak for it matters as much as these: with other contents
    the output would be surer, or less sure. A whole place that speaks against it did not decide it.
    """

    is_smooth: Tensor
    """Whether neighbouring pixels only count together, as found by queries in fit."""
    evidence_share: Tensor
    """Share of the decision that units must hold to suffice, as found by queries in fit."""
    n_seen: Tensor
    """(classes, pixels) how many images in fit had each label."""
    n_unusual: Tensor
    """(pixels,) how many of them had another probability than usual; 0 for labels."""

    def __init__(self, energy: ImageEnergy) -> None:
        super().__init__()
        self.energy = energy
        self.register_buffer("is_smooth", torch.zeros((), dtype=torch.bool))
        self.register_buffer("evidence_share", torch.ones(()))
        self.register_buffer("n_seen", torch.zeros(energy.n_classes, energy.image.n_pixels, dtype=torch.long))
        self.register_buffer("n_unusual", torch.zeros(energy.image.n_pixels, dtype=torch.long))

    def folded(self) -> ImageInterpreter:
        """The same function for explaining alone, which is quicker."""
        twin = copy.copy(self)
        twin._modules = {"energy": self.energy.folded()}
        return twin

    def forward(self, maps: Maps, targets: Tensor, smooth: bool | None = None) -> Found:
        """Of images, one target each: a pixel, or several of a region (rows, pixels)."""
        evidence = self.energy.evidence(maps, targets)
        of_pixels = self.relevance(evidence)
        relevance = (of_pixels / of_pixels.sum(2, keepdim=True).clamp_min(1e-12)).mean(1)
        if bool(self.is_smooth) if smooth is None else smooth:
            relevance = self._smoothed(relevance)
        return Found(relevance / relevance.sum(1, keepdim=True).clamp_min(1e-12), evidence.signed.mean(1))

    def relevance(self, evidence: Evidence) -> Tensor:
        """(rows, targets, cells), not yet scaled."""
        looked, value = (self._pooled(part) for part in (evidence.attention, evidence.attention * evidence.value))
        found = evidence.attention * (value / looked.clamp_min(1e-12)).clamp_min(0.0)
        # Where nothing speaks for the output, all that is known is where it looks.
        return torch.where(found.sum(2, keepdim=True) > 0, found, evidence.attention)

    def _pooled(self, cells: Tensor) -> Tensor:
        maps = cells.reshape(-1, 1, *self.energy.grid)
        size = min(MAX_POOLED, 2 * (min(self.energy.grid) // 8) + 1)
        return F.avg_pool2d(maps, size, 1, size // 2).view_as(cells)

    def _smoothed(self, relevance: Tensor) -> Tensor:
        maps = relevance.view(-1, 1, *self.energy.grid)
        total = torch.zeros_like(maps)
        for width, weight in SMOOTH.items():
            total += weight * (blurred(maps, width) if width else maps)
        return total.view_as(relevance)

    def of_pixels(self, cells: Tensor) -> Tensor:
        """Amounts in cells (rows, cells) spread over their pixels: (rows, pixels)."""
        energy = self.energy
        if energy.cell == 1:
            return cells
        maps = cells.view(-1, 1, *energy.grid)
        height, width = (side * energy.cell for side in energy.grid)
        fine = F.interpolate(maps, size=(height, width), mode="bilinear", align_corners=False)
        fine = fine[..., : energy.image.height, : energy.image.width].flatten(1)
        scale = cells.sum(1, keepdim=True) / fine.sum(1, keepdim=True)
        return torch.where(fine.sum(1, keepdim=True).abs() > 1e-9, fine * scale, fine / energy.cell**2)


def blurred(maps: Tensor, width: float) -> Tensor:
    """Maps (n, 1, height, width) smoothed by a Gaussian of so many cells; nothing lies beyond the edges."""
    reach = math.ceil(3 * width)
    weights = torch.exp(-torch.arange(-reach, reach + 1).float().square() / (2 * width**2))
    weights = (weights / weights.sum()).view(1, 1, 1, -1)
    along = F.conv2d(maps, weights, padding=(0, reach))
    return F.conv2d(along, weights.transpose(2, 3), padding=(reach, 0))


def sufficient(of_units: Tensor, share: float) -> Tensor:
    """The fewest units that hold this share of the decision: (rows, units) bool."""
    ranked, order = of_units.sort(dim=1, descending=True, stable=True)
    before = ranked.cumsum(1) - ranked
    kept = (before < share * ranked.sum(1, keepdim=True)) & (ranked > 0)
    return torch.zeros_like(of_units, dtype=torch.bool).scatter_(1, order, kept)


@dataclass(frozen=True)
class PixelUnits:
    """What is chosen whole in some images: single pixels, or groups of them."""

    of_pixel: Tensor | None
    """The unit of every pixel (n, pixels); None if each stands alone."""
    n_units: int

    @classmethod
    def of(cls, groups: Groups, n_rows: int) -> PixelUnits:
        """Groups of pixels that are bound to so many rows."""
        if groups.spec is None:
            return cls(None, groups.n_units)
        return cls(torch.as_tensor(groups.unit_of_features(n_rows).astype(np.int64)), groups.n_units)

    def means(self, scores: Tensor) -> Tensor:
        """Of pixels' scores (n, pixels) in every unit: (n, units); -inf for units that an image does not have."""
        if self.of_pixel is None:
            return scores
        total = torch.zeros(len(scores), self.n_units).scatter_add_(1, self.of_pixel, scores)
        count = torch.zeros(len(scores), self.n_units).scatter_add_(1, self.of_pixel, torch.ones_like(scores))
        return torch.where(count > 0, total / count.clamp_min(1.0), -math.inf)

    def sums(self, amounts: Tensor) -> Tensor:
        """Of pixels' amounts (n, pixels) in every unit: (n, units); -inf for units that an image does not have."""
        if self.of_pixel is None:
            return amounts
        total = torch.zeros(len(amounts), self.n_units).scatter_add_(1, self.of_pixel, amounts)
        count = torch.zeros(len(amounts), self.n_units).scatter_add_(1, self.of_pixel, torch.ones_like(amounts))
        return torch.where(count > 0, total, -math.inf)

    def spread(self, of_units: Tensor) -> Tensor:
        """Values of units (n, units) on their pixels: (n, pixels)."""
        return of_units if self.of_pixel is None else of_units.gather(1, self.of_pixel)


def build_networks(
    image: ImageShape, n_classes: int, config: EnergyConfig, *, generator: torch.Generator | None = None
) -> ImageInterpreter:
    """An interpreter and, in it, its energy; with weights if there is a generator to draw them."""
    energy = ImageEnergy(image, n_classes, config.hidden, n_keys=N_KEYS, n_values=N_VALUES)
    if generator is not None:
        energy.initialise(generator)
    return ImageInterpreter(energy)


CHUNK_PIXELS, MIN_IMAGES = 2**14, 4
CHUNK_CELLS, MIN_ROWS = 2**16, 8


@dataclass(frozen=True)
class ImageScorer:
    """Scores of the pixels, or groups of pixels, of images."""

    interpreter: ImageInterpreter

    @property
    def energy(self) -> ImageEnergy:
        return self.interpreter.energy

    def scores(self, source: ExplainedRows, targets: Targets) -> Scored:
        n_rows = len(targets)
        shape = n_rows, source.groups.n_units
        scores, effects = np.empty(shape, dtype=np.float32), np.empty(shape, dtype=np.float32)
        needed, labels = np.empty(shape, dtype=bool), np.empty(n_rows, dtype=np.int64)
        at_once, n_images = max(MIN_ROWS, CHUNK_CELLS // self.energy.n_cells), self._images_at_once
        with one_thread(device_of(self.energy)), torch.no_grad():
            for images, of_images, place in by_sample(source, n_images):
                x = torch.zeros(n_images, self.energy.image.n_columns)
                x[: images.stop - images.start] = torch.as_tensor(source.samples(images).astype(np.float32))
                maps = self.energy.maps(x)
                masks = self._labels(source, images, maps)
                for start in range(0, len(of_images), at_once):
                    rows, own_place = of_images[start : start + at_once], place[start : start + at_once]
                    labels[rows] = majority(masks[own_place], targets[rows], source.regions)
                    own = maps.take(_padded(own_place, at_once))
                    relevance, signed = self._of_rows(own, targets[rows], source, at_once)
                    units = PixelUnits.of(source.units(rows), len(rows))
                    of_units = units.sums(relevance[: len(rows)])
                    needed[rows] = sufficient(of_units.clamp_min(0.0), float(self.interpreter.evidence_share)).numpy()
                    scores[rows] = np.nan_to_num(of_units.numpy(), neginf=0.0)
                    effects[rows] = np.nan_to_num(units.sums(signed[: len(rows)]).numpy(), neginf=0.0)
        return Scored(
            scores,
            labels,
            effects=effects,
            base=np.zeros(n_rows, dtype=np.float32),
            needed=needed,
            n_opposite=self._n_opposite(source, targets, labels),
        )

    def _n_opposite(self, source: ExplainedRows, targets: Targets, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many images in fit had another label at the target; of a region, at the pixel where most had.

        Of probabilities, another one than usual counts too.
        """
        n_seen, n_unusual = (part.cpu().numpy() for part in (self.interpreter.n_seen, self.interpreter.n_unusual))
        n_pixels = self.energy.image.n_pixels
        n_opposite = np.maximum(n_seen.sum(axis=0) - n_seen, n_unusual)  # (labels, pixels)
        found = np.empty(len(targets), dtype=np.int64)
        single = targets < n_pixels
        found[single] = n_opposite[labels[single], targets[single]]
        for row in np.flatnonzero(~single):
            found[row] = n_opposite[labels[row], source.regions[targets[row] - n_pixels]].max()
        return found

    def _of_rows(self, maps: Maps, targets: Targets, source: ExplainedRows, at_once: int) -> tuple[Tensor, Tensor]:
        """Relevance and signed evidence of pixels: (rows, pixels).

        Always of as many rows, so that none of them depends on the others.
        """
        n_pixels = self.energy.image.n_pixels
        single = targets < n_pixels
        chosen = np.zeros((at_once, 1), dtype=np.int64)
        chosen[: len(targets)][single, 0] = targets[single]
        found = self.interpreter(maps, torch.as_tensor(chosen))
        relevance, signed = (self.interpreter.of_pixels(part) for part in found)
        for row in np.flatnonzero(~single):
            pixels = np.flatnonzero(source.regions[targets[row] - n_pixels])
            subset = pixels[np.unique(np.linspace(0, len(pixels) - 1, MAX_PIXELS_OF_REGION).round().astype(np.int64))]
            of_region = self.interpreter(maps.take(torch.tensor([row])), torch.as_tensor(subset[None]))
            relevance[row], signed[row] = (self.interpreter.of_pixels(part)[0] for part in of_region)
        return relevance, signed

    def likely(self, source: ExplainedRows, targets: Targets, values: NDArray[Any]) -> Likely:
        """Contents from elsewhere are held to speak against the output as strongly as the image's own speak for it."""
        effects = self.scores(source, targets).effects
        assert effects is not None

        def likely(rows: Targets, keep_units: NDArray[np.bool_]) -> NDArray[np.float64]:
            own = effects[rows].astype(np.float64)
            log_odds = np.where(keep_units, own, -own).sum(axis=1)
            return np.asarray(-np.logaddexp(0.0, -log_odds))

        return likely

    @property
    def _images_at_once(self) -> int:
        return max(MIN_IMAGES, CHUNK_PIXELS // self.energy.image.n_pixels)

    def _labels(self, source: ExplainedRows, images: slice, maps: Maps) -> NDArray[np.int64]:
        """The labels of images (images, pixels): what the model predicts, where that is known, else what is expected.

        A mask with a label that was never seen in fit cannot be encoded, so it counts as not known.
        """
        labels = self.energy.predict(maps).numpy()
        if source.predicted is not None:
            predicted = source.predicted[images]
            known = np.flatnonzero(source.outputs.knows(predicted))
            labels[known] = source.outputs.labels(predicted[known])
        return labels


def _padded(place: NDArray[np.int64], n: int) -> Tensor:
    return torch.as_tensor(np.concatenate([place, np.zeros(n - len(place), dtype=np.int64)]))
