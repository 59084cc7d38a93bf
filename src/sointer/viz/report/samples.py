"""Which samples of X a report shows, how they are called, and what they have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sointer._support.containers import is_sparse, n_rows, row_labels
from sointer._support.validation import check_unique_names
from sointer.masking.groups import FixedGroups
from sointer.masking.rows import Source

if TYPE_CHECKING:
    from sointer.explainers.base import Explainer


FEW_LOOKED_AT, MOST_COUNTS = 100_000, 200


def names_of_samples(X: Any, given: Sequence[str] | None) -> list[str]:
    """The caller's names, or the labels of the rows where they are all different, or their numbers."""
    n = n_rows(X)
    if given is not None:
        return check_unique_names([str(name) for name in given], n, "sample_names")
    labels = row_labels(X)
    names = range(n) if labels is None or len(set(map(str, labels))) < n else labels
    return [str(name) for name in names]


def drawn(n_given: int, n: int) -> NDArray[np.int64]:
    """All rows, or some drawn at random, in their order."""
    if n >= n_given:
        return np.arange(n_given)
    return np.sort(np.random.default_rng(0).permutation(n_given)[:n])


def n_own(source: Source) -> NDArray[np.integer[Any]]:
    """At most how many units of each sample can be selected."""
    if is_sparse(source.data) and source.removal.keeps_zeros:
        return np.asarray(np.diff(source.data.indptr))
    return np.full(source.data.shape[0], source.groups.n_units)


def holds_counts(source: Source) -> bool:
    """Whether few different numbers occur, so that each needs to be spelt out once only."""
    return is_sparse(source.data) and len(np.unique(source.data.data[:FEW_LOOKED_AT])) <= MOST_COUNTS


def present(source: Source) -> list[NDArray[np.int64]] | None:
    """The units that each sample of a mostly-zero table has; None for other tables, where each has all."""
    if not is_sparse(source.data) or not isinstance(source.groups, FixedGroups):
        return None
    unit_of_column, data = source.groups.unit_of_column, source.data
    return [np.unique(unit_of_column[data[i : i + 1].tocoo().col]) for i in range(data.shape[0])]


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
