"""What the model says of selected pixels of images: insert, delete and J, by swaps with other images of the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer.errors import InputError
from sointer.explanation import Explanation
from sointer.masking.rows import Source
from sointer.metrics.fills import Fill
from sointer.metrics.pixels import pixel_scores
from sointer.metrics.swaps import SwapScores, swap_scores

MAX_POOL = 200
FILLS: tuple[Fill, ...] = ("black", "mean")
"""What J fills the pixels with that are not selected; inpainting would take longer than everything else."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Images to swap pixels with, and how many pixels are swapped."""

    images: NDArray[Any]
    ks: tuple[int, ...]
    seed: int

    @classmethod
    def of(cls, source: Source, ks: tuple[int, ...], rng: np.random.Generator) -> Pool:
        """Some of the images at hand."""
        some = np.sort(rng.permutation(source.data.shape[0])[:MAX_POOL])
        image = source.input_format.image
        assert image is not None
        return cls(image.unflatten(source.rows(some)), ks, int(rng.integers(2**31)))

    def measure(self, explanation: Explanation, targets: NDArray[np.int64]) -> SwapScores | None:
        """None where no image of the pool has another label at the target of any explanation."""
        source = explanation.source
        image = source.input_format.image
        assert image is not None

        def labels(images: NDArray[Any]) -> NDArray[np.int64]:
            raw = source.ask(images.reshape(len(images), -1))
            known = source.outputs.knows(raw)
            found = np.full(raw.shape, -1, dtype=np.int64)
            found[known] = source.outputs.labels(raw[known])
            return found

        images = image.unflatten(source.rows(np.arange(len(explanation))))
        try:
            return swap_scores(
                labels,
                images,
                targets,
                pixel_scores(explanation),
                self.images,
                ks=self.ks,
                fills=FILLS,
                random_state=self.seed,
            )
        except InputError as error:
            if "no sample has" not in str(error):
                raise
            return None
