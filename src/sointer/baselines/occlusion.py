"""Occlusion by swaps: does the prediction change when a window is taken from another image?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sointer.baselines.by_swaps import BySwaps
from sointer.baselines.random import target_number
from sointer.baselines.row_by_row import N_SAMPLES, Row

SHARE_OF_SIDE = 8
MIN_DRAWS = 4
MAX_DRAWS = 20


class Occlusion(BySwaps):
    """Occlusion (Zeiler & Fergus 2014) with windows of training images in place of grey ones.

    A window slides over the image and shows what training images of another prediction have there. A pixel's score is
    how often the prediction changed (or how far the probability or number moved) over the windows that cover it. The
    window's side is an eighth of the image's shorter one, its step the smallest for which n_samples is enough for four
    training images per window. With groups, such as `Patches` or `Superpixels`, every group is one window.

    Parameters
    ----------
    n_samples : int, optional
        Queries per explained sample and target, 1000 by default.
    signed : bool, optional
        Whether changes towards the prediction count as less than nothing (default, but for numbers) or by their size.
    Other parameters are those of SOInter, with n_jobs as in `RowByRow`; removal="auto" is "marginal".

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.baselines import Occlusion
    >>> images = np.random.default_rng(0).random((80, 1, 6, 6))
    >>> model = lambda images: images[:, 0] > 0.5
    >>> explainer = Occlusion(model, k=1, random_state=0, n_samples=300).fit(images)
    >>> explainer.explain(images[:2], target=(2, 3)).pixels.tolist(), explainer.n_explain_queries_
    ([[[2, 3]], [[2, 3]]], 578)
    """

    def _weights(self, rows: Iterator[Row]) -> Iterator[NDArray[np.float64]]:
        image = self.input_format_.image
        assert image is not None
        n_samples = self.n_samples or N_SAMPLES
        for row in rows:
            seed = int(row.rng.integers(2**63))
            if row.groups.spec is None:
                hidden = windows(image.size, n_samples)
            else:
                units = row.rng.permutation(row.units)[:n_samples]
                hidden = np.zeros((len(units), row.groups.n_units), dtype=np.bool_)
                hidden[np.arange(len(units)), units] = True
            yield self._changes(row, hidden, n_samples, seed)

    def _changes(self, row: Row, hidden: NDArray[np.bool_], n_samples: int, seed: int) -> NDArray[np.float64]:
        """What hiding each unit changes, over the windows (n, units) that cover it: (targets, units)."""
        differs, own = self._differs(row), row.value
        weights = np.zeros((len(row.targets), hidden.shape[1]))
        if len(hidden) == 0:
            return weights
        n_draws = int(np.clip(n_samples // len(hidden), 1, MAX_DRAWS))
        covered = np.maximum(hidden.sum(axis=0), 1)
        for place, target in enumerate(row.targets.tolist()):
            rng = np.random.default_rng([target_number(target, row.source), seed])
            usable = np.flatnonzero(differs[:, place] > 0)
            usable = usable if len(usable) else np.arange(len(differs))
            drawn = rng.permutation(usable)[:n_draws]
            keep, references = np.tile(~hidden, (len(drawn), 1)), np.repeat(drawn, len(hidden))
            values = [row.values(points)[:, place] for points in self._mixed(row, keep, references)]
            change = own[place] - np.concatenate(values)
            change = (change if self._is_signed else np.abs(change)).reshape(len(drawn), -1).mean(axis=0)
            weights[place] = change @ hidden / covered
        return weights


def windows(size: tuple[int, int], n_samples: int) -> NDArray[np.bool_]:
    """Square windows that cover the image, few enough for n_samples: (windows, pixels)."""
    side, step = max(1, round(min(size) / SHARE_OF_SIDE)), 1
    while True:
        corners = [np.unique([*range(0, length - side + 1, step), length - side]) for length in size]
        if len(corners[0]) * len(corners[1]) * MIN_DRAWS <= n_samples or step >= min(size):
            break
        step += 1
        side = max(side, step)  # no pixel is left out
    down, right = (_spans(start, side, length) for start, length in zip(corners, size, strict=True))
    return np.asarray((down[:, None, :, None] & right[None, :, None, :]).reshape(-1, size[0] * size[1]))


def _spans(starts: NDArray[np.int64], side: int, length: int) -> NDArray[np.bool_]:
    """Places from each start on, `side` of them: (starts, length)."""
    places = np.arange(length)
    return np.asarray((places >= starts[:, None]) & (places < starts[:, None] + side))
