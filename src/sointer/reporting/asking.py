"""How many questions a report may ask the black box, and about which explanations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sointer.explainers.base import Explainer

N_DRAWS = 10
"""Questions about one explanation, where removal is random."""


def can_answer(explainer: Explainer, n_rows: int) -> bool:
    """Whether there is a black box that may still be asked about every row."""
    black_box = explainer.black_box_
    return black_box is not None and (black_box.remaining is None or black_box.remaining >= n_rows)


def question_budget(explainer: Explainer, n_rows: int, verify: bool | int | None, n_wanted: int) -> int:
    """Rows that may be sent to confirm explanations, once the black box has been asked about every whole row.

    verify=None allows as many as fit needed, which the model's owner has agreed to before.
    """
    black_box = explainer.black_box_
    if black_box is None or verify is False:
        return 0
    allowed = n_wanted
    if verify is None:
        allowed = int(getattr(explainer, "n_queries_", 0))
    elif verify is not True:
        allowed = int(verify)
    return allowed if black_box.remaining is None else max(0, min(allowed, black_box.remaining - n_rows))


def samples_to_ask(codes: NDArray[Any], n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """At most n samples of one target, drawn at random: half of them, if there are as many, with an unusual value."""
    if n >= len(codes):
        return np.arange(len(codes))
    found, counts = np.unique(codes, return_counts=True)
    is_usual = codes == found[np.argmax(counts)]
    unusual, usual = (rng.permutation(np.flatnonzero(where)) for where in (~is_usual, is_usual))
    n_unusual = min(len(unusual), max(-(-n // 2), n - len(usual)))
    return np.sort(np.concatenate([unusual[:n_unusual], usual[: n - n_unusual]]))
