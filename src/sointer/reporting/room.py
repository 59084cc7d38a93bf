"""How much fits on a page that opens at once: at most five megabytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_BYTES, FOR_THE_REST, BASE64 = 4_700_000, 150_000, 4 / 3
PER_EFFECTS = 15
PER_TARGET, PER_NUMBER, PER_VALUE, PER_COUNT, PER_NAME, PER_FACT = 6, 4, 17, 8, 20, 1_500
PER_LETTER = 1.1
LONGEST_TEXT = 4_000
FEWEST_SAMPLES = 10


def samples_that_fit(
    n_targets: int,
    k: int,
    n_units: int,
    n_own: NDArray[np.integer[Any]],
    *,
    counts: bool = False,
    numbers: bool = False,
    effects: bool = False,
    texts: Sequence[str] | None = None,
) -> int:
    """How many samples, with a selection for each target, fit in beside names and sums; at least ten.

    n_own : (samples,) how many units of each can be selected. counts : their values are few, such as 1 and 2.
    numbers : there are numbers behind the targets' values. effects : they, and what is needed, are told.
    """
    most = np.minimum(n_own, n_targets * k)
    place = 1 if most.max(initial=0) < 255 else 2
    per_target = (place + 1) * k + PER_TARGET + (PER_NUMBER if numbers else 0)
    if effects:
        per_target += 3 * k + PER_EFFECTS
    each = n_targets * per_target * BASE64 + float(most.mean()) * (PER_COUNT if counts else PER_VALUE) + 200
    if texts:
        each += PER_LETTER * sum(map(_escaped, texts)) / len(texts)
    room = MOST_BYTES - FOR_THE_REST - PER_FACT * n_targets - PER_NAME * min(n_units, 50_000)
    return max(FEWEST_SAMPLES, int(room / each))


def cut_texts(texts: Sequence[str]) -> list[str]:
    """Long documents without their ends."""
    return [text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]} …" for text in texts]


def _escaped(text: str) -> int:
    """How many bytes a text takes, letters beyond ASCII being spelt out."""
    shown = text[:LONGEST_TEXT]
    return len(shown) + 5 * sum(ord(letter) > 126 for letter in shown)
