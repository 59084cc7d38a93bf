"""Images with a target each, drawn so that what is unusual is seen often: what an interpreter of images learns on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer.inputs.image import ImageShape
from sointer.interpreter.pixels import PixelUnits, distance_to
from sointer.selection import allowed_units
from sointer.training.image_steps import Batch
from sointer.training.task import Task

SHARE_OF_UNUSUAL = 0.5
SHARE_OF_REGIONS = 0.2
LARGEST_REGION = 0.5
FEWEST_UNITS, MOST_UNITS = 0.005, 0.4
SHARE_OF_ANY_SIZE = 0.3


@dataclass
class Examples:
    """Images with known masks, from which targets are drawn to learn on."""

    task: Task
    image: ImageShape
    index: NDArray[np.int64]
    codes: Tensor
    targets: Tensor
    unusual: Tensor
    """(row, target) pairs whose class is not the usual one."""

    @classmethod
    def of(cls, task: Task, image: ImageShape, index: NDArray[np.int64], codes: Tensor, targets: list[int]) -> Examples:
        chosen = torch.tensor(targets)
        seen = codes[:, chosen]
        row, place = torch.nonzero(seen != seen.flatten().mode().values, as_tuple=True)
        return cls(task, image, index, codes, chosen, torch.stack([row, chosen[place]], 1))

    def draw(self, n: int) -> Batch:
        """n images with a target each: most of them of an unusual class, some of them regions."""
        generator = self.task.generator
        rows = torch.randint(len(self.index), (n,), generator=generator)
        targets = self.targets[torch.randint(len(self.targets), (n,), generator=generator)]
        n_unusual = round(SHARE_OF_UNUSUAL * n) if len(self.unusual) else 0
        if n_unusual:
            picked = self.unusual[torch.randint(len(self.unusual), (n_unusual,), generator=generator)]
            rows[:n_unusual], targets[:n_unusual] = picked.T
        region = np.zeros((n, self.image.n_pixels), dtype=bool)
        region[np.arange(n), targets.numpy()] = True
        self._grow(region, targets.numpy())
        return self._batch(rows, region)

    def _grow(self, region: NDArray[np.bool_], targets: NDArray[np.int64]) -> None:
        """Make some of the targets boxes around their pixel, of the pixels that may be asked about."""
        rng, (height, width) = self.task.rng, self.image.size
        may = np.zeros(self.image.n_pixels, dtype=bool)
        may[self.targets.numpy()] = True
        for i in np.flatnonzero(rng.random(len(region)) < SHARE_OF_REGIONS):
            row, column = divmod(int(targets[i]), width)
            high, wide = (max(1, int(side * LARGEST_REGION * rng.random())) for side in (height, width))
            top, left = max(0, row - int(rng.integers(high))), max(0, column - int(rng.integers(wide)))
            box = np.zeros((height, width), dtype=bool)
            box[top : top + high, left : left + wide] = True
            region[i] |= box.ravel() & may

    def _batch(self, rows: Tensor, region: NDArray[np.bool_]) -> Batch:
        task, n = self.task, len(rows)
        index = self.index[rows.numpy()]
        raw = task.rows(index)
        absent = task.removal.apply(raw, np.zeros(raw.shape, dtype=bool), task.rng)
        groups = task.groups.take(index)
        n_units = groups.n_units
        fewest, most = max(1.0, FEWEST_UNITS * n_units), max(2.0, MOST_UNITS * n_units)
        fewest, most = min(fewest, task.k), min(max(most, 2 * task.k), n_units)
        sizes = draw_sizes(fewest, most, n, task.rng)
        return Batch(
            index,
            task.as_tensor(raw),
            task.as_tensor(absent),
            torch.from_numpy(region.astype(np.float32)),
            self.codes[rows],
            torch.from_numpy(distance_to(region, self.image.size)),
            PixelUnits.of(groups, n),
            torch.from_numpy(allowed_units(task.removal, groups, raw)),
            torch.from_numpy(sizes).unsqueeze(1),
        )


def draw_sizes(fewest: float, most: float, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """How many units to choose: most often few, now and then any number up to `most`."""
    few = fewest * (most / fewest) ** rng.random(n)
    any_number = fewest + (most - fewest) * rng.random(n)
    return np.rint(np.where(rng.random(n) < SHARE_OF_ANY_SIZE, any_number, few)).astype(np.int64)
