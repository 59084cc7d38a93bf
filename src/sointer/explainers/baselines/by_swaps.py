"""What baselines by swaps share: removed pixels come from training images, whose predictions are known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer.data.targets import target_columns
from sointer.errors import InputError
from sointer.explainers.baselines.base import QueriedRows, distance_from, nearest, target_number
from sointer.explainers.baselines.row_by_row import N_SAMPLES, Row, RowByRow
from sointer.interpreter.image import PixelUnits
from sointer.masking.rows import Subject
from sointer.training.image_swaps import several_scales

MAX_NUMBERS = 2**24
"""Of the training images that are kept, and of the images in one call of the model."""


class BySwaps(RowByRow):
    """Explains images by mixing them with training images; where predictions differ, it shows which pixels decide.

    Fit queries up to 1,000 training images, whole. removal="auto" is "marginal"; `removal` decides which pixels can be
    selected and how `verify()` masks, but not how this method does.
    """

    auto_removal = "marginal"

    def _learn(self, subject: Subject, queried: QueriedRows) -> None:
        form = subject.rows.input_format
        if form.image is None:
            raise InputError(
                f"{type(self).__name__} is for images (n, channels, height, width), got a table; use ShapleySampling "
                "instead."
            )
        kept = slice(max(1, MAX_NUMBERS // form.n_columns))
        self.reference_rows_: NDArray[np.float64] = subject.rows.samples(queried.index[kept])
        self.reference_outputs_: NDArray[Any] = queried.raw[kept]

    @property
    def _is_signed(self) -> bool:
        return "continuous" not in self.outputs_.kinds if self.signed is None else self.signed

    def _differs(self, row: Row) -> NDArray[np.float64]:
        """Whether each reference has another value than the row: (references, targets); of regions, the share."""
        source = row.source
        same = source.outputs.agree(
            np.repeat(row.prediction, len(self.reference_rows_), axis=0), self.reference_outputs_
        )
        return 1.0 - target_columns(same.astype(np.float64), row.targets, source.regions)

    def _mixed(
        self, row: Row, keep_units: NDArray[np.bool_], references: NDArray[np.int64]
    ) -> Iterator[NDArray[np.float64]]:
        """Mixtures, which keep some units of the row and have the others from references, in parts."""
        step = max(1, MAX_NUMBERS // row.columns.shape[1])
        for start in range(0, len(keep_units), step):
            keep = keep_units[start : start + step]
            columns = row.groups.take(np.zeros(len(keep), dtype=np.int64)).to_columns(keep)
            yield np.where(columns, row.columns, self.reference_rows_[references[start : start + step]])


MIN_VARIANCE = 0.02


class Rise(BySwaps):
    """RISE (Petsiuk et al. 2018) with pixels of training images in place of black ones.

    Every sample is mixed with n_samples training images under random masks of several scales. A pixel's score is how
    much more often the prediction stays where that pixel was kept, over the mixtures with images of another prediction:
    its regression coefficient. One set of mixtures serves all targets of a sample.

    Parameters
    ----------
    model, k, removal, feature_names, output_names, output_kind, method, tolerance, groups : as in `SOInter`
    batch_size, random_state, verbose : as in `SOInter`
        removal="auto" is "marginal".
    n_samples : int, optional
        Queries per explained sample, 1000 by default.
    signed : bool, optional
        Whether pixels that speak against the prediction rank last (default, but for numbers) or by the size of their
        weight.
    n_jobs : int, optional
        Processes that explain rows side by side, as joblib counts them; each works with a copy of the model.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.explainers.baselines import Rise
    >>> images = np.random.default_rng(0).random((80, 1, 6, 6))
    >>> model = lambda images: images[:, 0] > 0.5
    >>> explainer = Rise(model, k=1, random_state=0, n_samples=300).fit(images)
    >>> explainer.explain(images[:2], target=(2, 3)).pixels.tolist(), explainer.n_explain_queries_
    ([[[2, 3]], [[2, 3]]], 602)
    """

    def _weights(self, rows: Iterator[Row]) -> Iterator[NDArray[np.float64]]:
        image = self.input_format_.image
        assert image is not None
        n = self.n_samples or N_SAMPLES
        for row in rows:
            references = row.rng.integers(len(self.reference_rows_), size=n)
            units = PixelUnits.of(row.groups.take(np.zeros(n, dtype=np.int64)), n)
            keep = several_scales(units, image.size, n, row.rng)
            differs = self._differs(row)
            differs[:, ~differs.any(axis=0)] = 1.0  # no counterexample: all mixtures count
            values = np.concatenate([row.values(points) for points in self._mixed(row, keep, references)])
            yield coefficients(keep, values, differs[references])


def coefficients(
    keep: NDArray[np.bool_], values: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How values (n, targets) depend on each unit's presence (n, units), by weighted regression: (targets, units)."""
    present = keep.astype(np.float64)
    total = np.maximum(weights.sum(axis=0), 1e-12)
    mean_value = (weights * values).sum(axis=0) / total
    mean_present = weights.T @ present / total[:, None]
    covariance = (weights * (values - mean_value)).T @ present / total[:, None]
    return np.asarray(covariance / np.maximum(mean_present * (1 - mean_present), MIN_VARIANCE))


SHARE_OF_SIDE = 8
MIN_DRAWS = 4
MAX_DRAWS = 20


class Occlusion(BySwaps):
    """Occlusion (Zeiler & Fergus 2014) with windows of training images in place of grey ones.

    A window slides over the image and shows the pixels of training images with another prediction. A pixel's score is
    how often the prediction changed (or how far the probability or number moved) over the windows that cover it. The
    window's side is an eighth of the image's shorter side; its step is the smallest for which n_samples allows four
    training images per window. With groups, such as `Patches` or `Superpixels`, every group is one window.

    Parameters
    ----------
    model, k, removal, feature_names, output_names, output_kind, method, tolerance, groups : as in `SOInter`
    batch_size, random_state, verbose : as in `SOInter`
        removal="auto" is "marginal".
    n_samples : int, optional
        Queries per explained sample and target, 1000 by default.
    signed : bool, optional
        Whether changes towards the prediction count as less than nothing (default, but for numbers) or by their size.
    n_jobs : int, optional
        Processes that explain rows side by side, as joblib counts them; each works with a copy of the model.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.explainers.baselines import Occlusion
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


N_REFERENCES = 6
LEVEL = 0.9


class MinimalRegion(BySwaps):
    """A region that suffices for the prediction, after MiSuRe (Hasany et al. 2023), by swaps in place of gradients.

    Pixels are kept in the order of their distance to the target until the prediction stays in 90 % of mixtures with
    training images of another prediction. Then ever smaller strips of the region, in random directions, are removed as
    long as it still stays. What is left ranks first, then what was removed, the last first, then the rest by distance.

    Parameters
    ----------
    model, k, removal, feature_names, output_names, output_kind, method, tolerance, groups : as in `SOInter`
    batch_size, random_state, verbose : as in `SOInter`
        removal="auto" is "marginal".
    n_samples : int, optional
        Queries per explained sample and target, 1000 by default.
    signed : bool, optional
        Not used.
    n_jobs : int, optional
        Processes that explain rows side by side, as joblib counts them; each works with a copy of the model.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.explainers.baselines import MinimalRegion
    >>> images = np.random.default_rng(0).random((80, 1, 6, 6))
    >>> model = lambda images: np.roll(images[:, 0], 2, axis=2) > 0.5
    >>> explainer = MinimalRegion(model, k=1, random_state=0).fit(images)
    >>> explainer.explain(images[:2], target=(2, 3)).pixels.tolist()
    [[[2, 1]], [[2, 1]]]
    """

    def _learn(self, subject: Subject, queried: QueriedRows) -> None:
        super()._learn(subject, queried)
        if queried.outputs.shape is None:
            raise InputError(
                "MinimalRegion grows around a pixel, so the model must return masks (n, height, width), got a table of "
                "outputs; use Rise instead."
            )

    @property
    def _is_signed(self) -> bool:
        return True

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
