"""NearestPixels: what lies around the target, the least that an explainer of images must beat."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt

from sointer.base import Subject
from sointer.baselines.baseline import Answers
from sointer.baselines.usual import UsualValue
from sointer.errors import InputError
from sointer.masking.groups import Groups
from sointer.masking.rows import Source


class NearestPixels(UsualValue):
    """Chooses the pixels nearest to the target pixel or region, the target itself first; queries only for values.

    A group of pixels is as near as its nearest pixel; pixels equally near are chosen at random. With query=False
    the value is the usual one of the target. Parameters are those of SOInter.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.baselines import NearestPixels
    >>> images = np.random.default_rng(0).random((50, 1, 6, 6))
    >>> model = lambda images: images[:, 0] > 0.5
    >>> explainer = NearestPixels(model, k=1, random_state=0).fit(images)
    >>> explainer.explain(images[:2], target=(2, 3), query=False).pixels.tolist(), explainer.n_explain_queries_
    ([[[2, 3]], [[2, 3]]], 0)
    """

    def _learn(self, subject: Subject, answers: Answers) -> None:
        if subject.input_format.image is None or answers.outputs.shape is None:
            raise InputError(
                "NearestPixels is for images (n, channels, height, width) and a model that returns masks (n, height, "
                "width), got a table; use Random instead."
            )
        super()._learn(subject, answers)

    def _scores(self, source: Source, targets: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[Any]]:
        assert source.outputs.shape is not None
        scores = np.empty((len(targets), source.groups.n_units), dtype=np.float32)
        for target in np.unique(targets).tolist():
            rows = np.flatnonzero(targets == target)
            distance = distance_from(target, source).ravel()
            scores[rows] = -nearest(distance, source.groups.take(rows), len(rows))
        return scores, self._usual(source, targets)


def distance_from(target: int, source: Source) -> NDArray[np.float64]:
    """How far every pixel lies from a target, in pixels: (height, width)."""
    outside = np.ones(source.outputs.n_outputs, dtype=bool)
    if target < len(outside):
        outside[target] = False
    else:
        outside &= ~source.regions[target - len(outside)]
    return np.asarray(distance_transform_edt(outside.reshape(source.outputs.shape)))


def nearest(distance: NDArray[np.float64], groups: Groups, n_rows: int) -> NDArray[np.float64]:
    """The distance of every unit's nearest pixel, larger than any other where a unit has none: (rows, units)."""
    if groups.spec is None:
        return np.tile(distance, (n_rows, 1))
    found = np.full((n_rows, groups.n_units), distance.max() + 1.0)
    for row, units in enumerate(groups.unit_of_features(n_rows)):
        np.minimum.at(found[row], units, distance)
    return found
