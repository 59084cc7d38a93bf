"""Insert, delete and J: whether the prediction follows the selected pixels into another image.

Notation: x is explained, its target has the label y; S are its k best pixels; z is another image, not seen by the
explainer, whose target has another label.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sointer._support.containers import slices
from sointer._support.validation import check_positive_int
from sointer.errors import InputError, require_extra
from sointer.explanation import Explanation
from sointer.masking.rows import ExplainedRows
from sointer.metrics.masked_predictor import MaskedEvaluator
from sointer.metrics.pixels import (
    FILLS,
    Fill,
    Model,
    TargetModel,
    as_labels,
    as_masks,
    at_all_targets,
    at_targets,
    best_pixels,
    check_pixel_sizes,
    opposite_samples,
    pixel_scores,
    read_images,
    read_targets,
)

if TYPE_CHECKING:
    import pandas as pd


Rows: TypeAlias = NDArray[np.float64]
Labels: TypeAlias = Callable[[NDArray[Any], int], NDArray[Any]]
"""From images and a size to labels of their targets."""
OwnAndForeign: TypeAlias = Callable[[int], tuple[Rows, Rows]]
"""From a size to how often the label is there with own contents alone, and with foreign ones."""


@dataclass(frozen=True, eq=False)
class SwapScores:
    """Insert, delete and J at several sizes k; all are shares of samples for which another label was found.

    Rows are those samples, in their order; shares of one sample are means over its pairs.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.metrics import SwapScores
    >>> half, none, both = np.array([[0.5]]), np.array([[0.0]]), {"black": np.array([[1.0]])}
    >>> scores = SwapScores((5,), half, none, both, {"black": half}, np.array([True]), 0.0, 0.0, n_queries=4)
    >>> scores.rows()
    [{'k': 5, 'insert': 0.5, 'delete': 0.0, 'own_black': 1.0, 'foreign_black': 0.5, 'j_black': 0.5}]
    """

    ks: tuple[int, ...]
    """The sizes, smallest first."""
    insert_rows: Rows
    """(samples, ks) the target gets x's label when x's selected pixels are put into z."""
    delete_rows: Rows
    """(samples, ks) the target loses x's label when z's pixels are put in place of the selected ones."""
    own_rows: Mapping[str, Rows]
    """By fill, (samples, ks) the target has x's label when only x's selected pixels are kept."""
    foreign_rows: Mapping[str, Rows]
    """By fill, (samples, ks) it has x's label when only z's pixels at the same places are kept."""
    used: NDArray[np.bool_]
    """(all samples,) those that are measured."""
    without_opposite: float
    """Share of all samples for which no image of the pool has another label; they are left out."""
    other_value: float
    """Share of all samples for which this model predicts another label than the one explained; they are left out."""
    n_queries: int
    """Images sent to the model."""

    @property
    def insert(self) -> Rows:
        """0 for k = 0; 1 if the selected pixels always carry the label, shape (ks,)."""
        return np.asarray(self.insert_rows.mean(axis=0))

    @property
    def delete(self) -> Rows:
        """0 for k = 0; 1 if the label is always lost with the selected pixels, shape (ks,)."""
        return np.asarray(self.delete_rows.mean(axis=0))

    @property
    def j(self) -> dict[str, Rows]:
        """By fill, own minus foreign, from -1 to 1; 0 if the label follows from the mask's shape alone, shape (ks,)."""
        return {
            fill: np.asarray((self.own_rows[fill] - self.foreign_rows[fill]).mean(axis=0)) for fill in self.own_rows
        }

    @property
    def mean(self) -> float:
        """Insert and delete averaged over all sizes; one number from 0 to 1."""
        return float((self.insert.mean() + self.delete.mean()) / 2)

    def rows(self) -> list[dict[str, float]]:
        """Return the scores of every k as plain values.

        Returns
        -------
        list of dict
            One per k: k, insert, delete, and own, foreign and j of every fill.
        """
        table = {"k": np.array(self.ks), "insert": self.insert, "delete": self.delete}
        for fill, j in self.j.items():
            own, foreign = (side[fill].mean(axis=0) for side in (self.own_rows, self.foreign_rows))
            table |= {f"own_{fill}": own, f"foreign_{fill}": foreign, f"j_{fill}": j}
        return [{name: column[place].item() for name, column in table.items()} for place in range(len(self.ks))]

    def to_frame(self) -> pd.DataFrame:
        """Return `rows` as a table.

        Returns
        -------
        DataFrame
        """
        frame: pd.DataFrame = require_extra("pandas", "pandas").DataFrame(self.rows())
        return frame

    def __repr__(self) -> str:
        shares = zip(self.ks, self.insert, self.delete, strict=True)
        pairs = ", ".join(f"k={k}: {insert:.3f}/{delete:.3f}" for k, insert, delete in shares)
        return (
            f"SwapScores(insert/delete at {pairs}; {len(self.insert_rows)} samples, "
            f"{self.without_opposite:.0%} without an opposite, n_queries={self.n_queries})"
        )


def swap_scores(
    model: Model,
    X: Any,
    targets: ArrayLike,
    scores: ArrayLike,
    pool: Any,
    *,
    ks: Sequence[int] | None = None,
    fills: Sequence[Fill] = FILLS,
    evaluator: MaskedEvaluator | None = None,
    values: ArrayLike | None = None,
    n_pairs: int = 1,
    batch_size: int = 256,
    random_state: int = 0,
) -> SwapScores:
    """Insert and delete by swaps with images of another label, and J: own against foreign contents under one mask.

    With mix(a, b, S) = a on S and b elsewhere: insert = P(f(mix(x, z, S)) = y), delete = P(f(mix(z, x, S)) != y), and
    J = P(f(fill(x, S)) = y) - P(f(fill(z, S)) = y). Fidelity under a fill is also high for masks that leak the label by
    their shape; J, insert and delete are not. Compare them with those of `NearestPixels` and `Random`.

    Parameters
    ----------
    model : function
        From images to masks (n, height, width) or tables (n, outputs) of labels or probabilities. It may also return
        class scores (n, classes, height, width).
    X : images (n, channels, height, width) that were explained
    targets : pixel (row, column), or pixels (n, 2); of models that return tables, an output number or (n,)
    scores : (n, height, width) or (n, height * width), larger is more relevant; equal ones are ranked at random
    pool : images to draw z from, not used in fit
    ks : numbers of selected pixels; by default those of 10, 30, 100 and 300 that are less than the number of pixels
    fills : what J fills the other pixels with, of "black", "mean" (of the pool) and "inpaint"
    evaluator : fitted `MaskedEvaluator`, optional
        Adds J with the evaluator in place of the model, as the fill "evaluator".
    values : (n,) labels that were explained, optional
        By default what the model predicts. Samples for which it predicts another label are left out: see
        `transfer_scores`.
    n_pairs : images z per sample
    batch_size : images per call of the model
    random_state : seed of the pairs and of the order of equal scores. Pairs do not depend on the scores, so that all
        methods are measured on the same ones.

    Returns
    -------
    SwapScores

    Raises
    ------
    InputError
        If no sample has an image of another label in the pool.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.zoo import WindowSegmenter, random_scenes
    >>> images = random_scenes(150, size=16).images
    >>> X, pool, model = images[:50], images[50:], WindowSegmenter(images)
    >>> scores = model.relevant(X, target=(5, 9))
    >>> swap_scores(model, X, (5, 9), scores, pool, ks=[9])
    SwapScores(insert/delete at k=9: 1.000/1.000; 50 samples, 0% without an opposite, n_queries=550)
    """
    images, others = read_images(X, "X"), read_images(pool, "pool")
    if images.shape[1:] != others.shape[1:]:
        raise InputError(f"X and pool must have images of one shape, got {images.shape[1:]} and {others.shape[1:]}.")
    places = read_targets(targets, len(images))
    sizes = check_pixel_sizes(ks, images.shape)
    best = best_pixels(scores, images.shape, sizes[-1], random_state)
    queried = TargetModel(model, batch_size)
    predicted = at_targets(queried.labels(images), places)
    agrees = np.ones(len(images), dtype=bool) if values is None else as_labels(np.asarray(values)) == predicted
    pool_labels = at_all_targets(queried.labels(others), places)
    partners = opposite_samples(predicted, pool_labels, check_positive_int(n_pairs, "n_pairs"), random_state)
    has_opposite = partners[:, 0] >= 0
    used = agrees & has_opposite
    if not used.any():
        raise InputError("no sample has an image of another label in the pool; give a larger pool or other targets.")
    swaps = _Swaps(
        queried, images[used], others, places[used], best[used], predicted[used], partners[used], others.mean(axis=0)
    )
    views: dict[str, OwnAndForeign] = {fill: swaps.filled(fill) for fill in fills}
    if evaluator is not None:
        views["evaluator"] = swaps.evaluated(evaluator)
    both = [swaps.inserted_and_deleted(k) for k in sizes]
    sides = {name: [view(k) for k in sizes] for name, view in views.items()}
    return SwapScores(
        ks=sizes,
        insert_rows=np.stack([insert for insert, _ in both], axis=1),
        delete_rows=np.stack([delete for _, delete in both], axis=1),
        own_rows={name: np.stack([own for own, _ in pairs], axis=1) for name, pairs in sides.items()},
        foreign_rows={name: np.stack([foreign for _, foreign in pairs], axis=1) for name, pairs in sides.items()},
        used=used,
        without_opposite=float(np.mean(~has_opposite)),
        other_value=float(np.mean(~agrees)),
        n_queries=queried.n_queries,
    )


@dataclass(frozen=True, eq=False)
class _Swaps:
    """The samples that are measured, and what their selected pixels are swapped with."""

    model: TargetModel
    images: NDArray[Any]
    pool: NDArray[Any]
    targets: NDArray[np.int64]
    best: NDArray[np.int64]
    labels: NDArray[Any]
    partners: NDArray[np.int64]
    mean_image: NDArray[Any]

    def _masks(self, batch: slice, k: int) -> NDArray[np.bool_]:
        return as_masks(self.best[batch, :k], self.images.shape)

    def _mean_over_pairs(self, one_pair: Callable[[NDArray[np.int64]], NDArray[np.bool_]]) -> Rows:
        return np.asarray(np.mean([one_pair(z) for z in self.partners.T], axis=0))

    def inserted_and_deleted(self, k: int) -> tuple[Rows, Rows]:
        """Per sample, how often the label follows its selected pixels, and how often it is lost with them."""

        def mixed(z: NDArray[np.int64], own_inside: bool) -> NDArray[Any]:
            def images(batch: slice) -> NDArray[Any]:
                own = self._masks(batch, k) == own_inside
                return np.where(own, self.images[batch], self.pool[z[batch]])

            return self.model.at(images, self.targets)

        insert = self._mean_over_pairs(lambda z: np.asarray(mixed(z, True) == self.labels))
        return insert, self._mean_over_pairs(lambda z: np.asarray(mixed(z, False) != self.labels))

    def filled(self, fill: Fill) -> OwnAndForeign:
        """What the model predicts where all but the selected pixels are filled in."""

        def label(images: NDArray[Any], k: int) -> NDArray[Any]:
            return self.model.where_kept(images, self.best[:, :k], self.targets, fill, self.mean_image)

        return self._own_and_foreign(label)

    def evaluated(self, evaluator: MaskedEvaluator) -> OwnAndForeign:
        """The same with an evaluator, which sees the mask, in place of the model."""

        def label(images: NDArray[Any], k: int) -> NDArray[Any]:
            parts = [
                at_targets(evaluator.predict(images[batch], self._masks(batch, k)), self.targets[batch])
                for batch in slices(len(images), self.model.batch_size)
            ]
            return np.concatenate(parts)

        return self._own_and_foreign(label)

    def _own_and_foreign(self, label: Labels) -> OwnAndForeign:
        def of_size(k: int) -> tuple[Rows, Rows]:
            own = np.asarray(label(self.images, k) == self.labels, dtype=np.float64)
            return own, self._mean_over_pairs(lambda z: np.asarray(label(self.pool[z], k) == self.labels))

        return of_size


MAX_POOL = 200
POOL_FILLS: tuple[Fill, ...] = ("black", "mean")
"""What J fills the pixels with that are not selected; inpainting would take longer than everything else."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Images to swap pixels with, and how many pixels are swapped."""

    images: NDArray[Any]
    ks: tuple[int, ...]
    seed: int

    @classmethod
    def of(cls, source: ExplainedRows, ks: tuple[int, ...], rng: np.random.Generator) -> Pool:
        """A random subset of the images at hand."""
        subset = np.sort(rng.permutation(source.data.shape[0])[:MAX_POOL])
        image = source.input_format.image
        assert image is not None
        return cls(image.unflatten(source.rows(subset)), ks, int(rng.integers(2**31)))

    def measure(self, explanation: Explanation, targets: NDArray[np.int64]) -> SwapScores | None:
        """None where no image of the pool has another label at the target of any explanation."""
        source = explanation.source
        image = source.input_format.image
        assert image is not None

        def labels(images: NDArray[Any]) -> NDArray[np.int64]:
            raw = source.query_points(images.reshape(len(images), -1))
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
                fills=POOL_FILLS,
                random_state=self.seed,
            )
        except InputError as error:
            if "no sample has" not in str(error):
                raise
            return None
