"""A minimal sufficient region: grow around the target until the prediction holds, then cut away what is not needed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sointer.base import Subject
from sointer.baselines.baseline import Answers
from sointer.baselines.by_swaps import BySwaps
from sointer.baselines.nearest_pixels import distance_from, nearest
from sointer.baselines.random import target_number
from sointer.baselines.row_by_row import N_SAMPLES, Row
from sointer.errors import InputError
from sointer.masking.rows import Source

N_REFERENCES = 6
LEVEL = 0.9


class MinimalRegion(BySwaps):
    """A region that suffices for the prediction, after MiSuRe (Hasany et al. 2023), by swaps in place of gradients.

    Pixels are kept in the order of their distance to the target until the prediction stays in 90 % of mixtures with
    training images of another prediction. Then ever smaller strips of the region, in random directions, are cut away
    as long as it still does. What is left ranks first, then what was cut away, the last first, then the rest by
    distance.

    Parameters
    ----------
    n_samples : int, optional
        Queries per explained sample and target, 1000 by default.
    Other parameters are those of SOInter, with n_jobs as in `RowByRow`; removal="auto" is "marginal". `signed` is not
    used.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.baselines import MinimalRegion
    >>> images = np.random.default_rng(0).random((80, 1, 6, 6))
    >>> model = lambda images: np.roll(images[:, 0], 2, axis=2) > 0.5
    >>> explainer = MinimalRegion(model, k=1, random_state=0).fit(images)
    >>> explainer.explain(images[:2], target=(2, 3)).pixels.tolist()
    [[[2, 1]], [[2, 1]]]
    """

    def _learn(self, subject: Subject, answers: Answers) -> None:
        super()._learn(subject, answers)
        if answers.outputs.shape is None:
            raise InputError(
                "MinimalRegion grows around a pixel, so the model must return masks (n, height, width), got a table of "
                "outputs; use Rise instead."
            )

    @property
    def _is_signed(self) -> bool:
        return True

    def _effects(self, source: Source, targets: NDArray[np.int64]) -> None:
        return None

    def _weights(self, rows: Iterator[Row]) -> Iterator[NDArray[np.float64]]:
        for row in rows:
            seed = int(row.rng.integers(2**63))
            differs = self._differs(row)
            found = np.zeros((len(row.targets), row.groups.n_units))
            for place, target in enumerate(row.targets.tolist()):
                rng = np.random.default_rng([target_number(target, row.source), seed])
                usable = np.flatnonzero(differs[:, place] > 0)
                drawn = rng.permutation(usable if len(usable) else len(differs))[:N_REFERENCES]
                found[place] = self._region(row, place, target, drawn, rng)
            yield found

    def _region(
        self, row: Row, place: int, target: int, references: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.float64]:
        n_trials = (self.n_samples or N_SAMPLES) // len(references)
        distance = nearest(distance_from(target, row.source).ravel(), row.groups, 1)[0]
        order = np.argsort(distance, kind="stable")
        spent = 0

        def holds(keep: NDArray[np.bool_]) -> bool:
            nonlocal spent
            spent += 1
            mixed = self._mixed(row, np.tile(keep, (len(references), 1)), references)
            return bool(np.mean(np.concatenate([row.stays(points)[:, place] for points in mixed])) >= LEVEL)

        kept = np.zeros(len(order), dtype=np.bool_)
        low, high = 0, len(order)  # the nearest `high` suffice
        while high - low > 1 and spent < n_trials:
            middle = (low + high) // 2
            kept[:] = False
            kept[order[:middle]] = True
            low, high = (low, middle) if holds(kept) else (middle, high)
        kept[:] = False
        kept[order[:high]] = True
        scores = -distance / (1 + distance.max())  # from -1 to 0, what was never in the region
        size, n_cut, n_kept_before = high // 2, 0, -1
        # The last passes try every unit by itself, until none can go.
        while spent < n_trials and size and kept.sum() not in (0, n_kept_before):
            n_kept_before = int(kept.sum()) if size == 1 else -1
            for piece in self._pieces(row, kept, size, rng):
                if spent < n_trials and holds(kept & ~piece):
                    n_cut += 1
                    scores[piece] = 1 - 1 / (1 + n_cut)
                    kept &= ~piece
            size = max(1, min(size // 2, int(kept.sum()) // 2))
        scores[kept] = 2 - distance[kept] / (1 + distance.max())
        return np.asarray(scores)

    def _pieces(
        self, row: Row, kept: NDArray[np.bool_], size: int, rng: np.random.Generator
    ) -> Iterator[NDArray[np.bool_]]:
        """The kept units in pieces of about this size, cut across a random direction."""
        units = np.flatnonzero(kept)
        image = self.input_format_.image
        assert image is not None
        angle = rng.uniform(0, 2 * np.pi)
        down, right = np.divmod(np.arange(image.n_pixels), image.width)
        along = down * np.cos(angle) + right * np.sin(angle)
        if row.groups.spec is not None:
            of_pixel = row.groups.unit_of_features(1)[0]
            n = np.maximum(np.bincount(of_pixel, minlength=len(kept)), 1)
            along = np.bincount(of_pixel, weights=along, minlength=len(kept)) / n
        for part in np.array_split(units[np.argsort(along[units], kind="stable")], -(-len(units) // size)):
            piece = np.zeros(len(kept), dtype=np.bool_)
            piece[part] = True
            yield piece
