"""Scores of the pixels, or groups of pixels, of images; targets of one image share its pass through the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer._support.devices import device_of
from sointer._support.torch_state import one_thread
from sointer.data.targets import majority
from sointer.energy.image import ImageEnergy, Maps
from sointer.interpreter.image import MAX_PIXELS_OF_REGION, ImageInterpreter, PixelUnits, sufficient
from sointer.interpreter.scoring import Targets, by_sample
from sointer.masking.rows import ExplainedRows
from sointer.masking.selection import Likely, Scored

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
