"""Do explanations of one model hold for others that the explainer never queried?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import ArrayLike

from sointer.metrics.fills import FILLS, Fill
from sointer.metrics.swaps import SwapScores, swap_scores
from sointer.metrics.targets import Model


def transfer_scores(
    models: Mapping[str, Model],
    X: Any,
    targets: ArrayLike,
    scores: ArrayLike,
    pool: Any,
    values: ArrayLike,
    *,
    ks: Sequence[int] | None = None,
    fills: Sequence[Fill] = FILLS,
    n_pairs: int = 1,
    batch_size: int = 256,
    random_state: int = 0,
) -> dict[str, SwapScores]:
    """Insert, delete and J of the same selections on other models, trained for the same task.

    What a selection owes to quirks of the explained model, such as pixels on which it errs, does not transfer.

    Parameters
    ----------
    models : other models by name
    values : (n,) labels that the explained model predicts for the targets
        Samples for which another model predicts another label are left out of its scores; `other_value` is their share.
    X, targets, scores, pool, ks, fills, n_pairs, batch_size, random_state : see `swap_scores`

    Returns
    -------
    dict of SwapScores
        By the models' names; ranges as in `swap_scores`.

    Examples
    --------
    >>> from sointer.datasets import MajoritySegmenter, WindowSegmenter, random_scenes
    >>> images = random_scenes(150, size=16).images
    >>> X, pool, model = images[:50], images[50:], WindowSegmenter(images)
    >>> scores, values = model.relevant(X, target=(5, 9)), model(X)[:, 5, 9]
    >>> found = transfer_scores({"majority": MajoritySegmenter(images)}, X, (5, 9), scores, pool, values, ks=[9])
    >>> 0 < found["majority"].other_value < 1, found["majority"].mean < 1
    (True, True)
    """
    return {
        name: swap_scores(
            model,
            X,
            targets,
            scores,
            pool,
            ks=ks,
            fills=fills,
            values=values,
            n_pairs=n_pairs,
            batch_size=batch_size,
            random_state=random_state,
        )
        for name, model in models.items()
    }
