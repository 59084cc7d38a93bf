"""Which samples of X a report shows, how they are called, and what they have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sointer._support.containers import is_sparse, n_rows, row_labels
from sointer._support.validation import check_unique_names
from sointer.masking.groups import FixedGroups
from sointer.masking.rows import ExplainedRows
from sointer.viz.report.partial import MAX_UNITS, points_per_effect

if TYPE_CHECKING:
    from sointer.explainers.base import Explainer
    from sointer.explainers.sequences import SequenceExplainer


N_VALUES_CHECKED, MAX_COUNTS = 100_000, 200


def sample_names_of(X: Any, given: Sequence[str] | None) -> list[str]:
    """The caller's names, or the labels of the rows where they are all different, or their numbers."""
    n = n_rows(X)
    if given is not None:
        return check_unique_names([str(name) for name in given], n, "sample_names")
    labels = row_labels(X)
    names = range(n) if labels is None or len(set(map(str, labels))) < n else labels
    return [str(name) for name in names]


def sample_indices(n_given: int, n: int) -> NDArray[np.int64]:
    """All rows, or some drawn at random, in their order."""
    if n >= n_given:
        return np.arange(n_given)
    return np.sort(np.random.default_rng(0).permutation(n_given)[:n])


def n_selectable(source: ExplainedRows) -> NDArray[np.integer[Any]]:
    """At most how many units of each sample can be selected."""
    if is_sparse(source.data) and source.removal.keeps_zeros:
        return np.asarray(np.diff(source.data.indptr))
    return np.full(source.data.shape[0], source.groups.n_units)


def holds_counts(source: ExplainedRows) -> bool:
    """Whether few different numbers occur, so that each needs to be spelt out once only."""
    return is_sparse(source.data) and len(np.unique(source.data.data[:N_VALUES_CHECKED])) <= MAX_COUNTS


def present(source: ExplainedRows) -> list[NDArray[np.int64]] | None:
    """The units that each sample of a mostly-zero table has; None for other tables, where each has all."""
    if not is_sparse(source.data) or not isinstance(source.groups, FixedGroups):
        return None
    unit_of_column, data = source.groups.unit_of_column, source.data
    return [np.unique(unit_of_column[data[i : i + 1].tocoo().col]) for i in range(data.shape[0])]


N_DRAWS = 10
"""Queries per explanation, where removal is random."""


def can_query(explainer: Explainer | SequenceExplainer, n_rows: int) -> bool:
    """Whether there is a black box that may still be queried with every row."""
    black_box = explainer.black_box_
    return black_box is not None and (black_box.remaining is None or black_box.remaining >= n_rows)


def lacks_rows(holder: Any) -> bool:
    """Whether what holds training rows, an explainer or its removal, was saved with rows="none"."""
    background = getattr(holder, "background_", getattr(holder, "background", None))
    return bool(background is not None and background.rows.shape[0] == 0)


def verification_budget(
    explainer: Explainer | SequenceExplainer, n_rows: int, verify: bool | int | None, n_wanted: int
) -> int:
    """Rows that may be sent to confirm explanations, once the black box has been queried with every unmasked row.

    verify=None allows as many as fit needed, which the model's owner has agreed to before; none if the explainer was
    saved without the rows that its removal needs.
    """
    black_box = explainer.black_box_
    if black_box is None or verify is False or (verify is None and lacks_rows(getattr(explainer, "removal_", None))):
        return 0
    allowed = n_wanted
    if verify is None:
        allowed = int(getattr(explainer, "n_queries_", 0))
    elif verify is not True:
        allowed = int(verify)
    return allowed if black_box.remaining is None else max(0, min(allowed, black_box.remaining - n_rows))


def samples_to_verify(codes: NDArray[Any], n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """At most n samples of one target, drawn at random: half of them, if there are as many, with an unusual value."""
    if n >= len(codes):
        return np.arange(len(codes))
    found, counts = np.unique(codes, return_counts=True)
    is_usual = codes == found[np.argmax(counts)]
    unusual, usual = (rng.permutation(np.flatnonzero(where)) for where in (~is_usual, is_usual))
    n_unusual = min(len(unusual), max(-(-n // 2), n - len(usual)))
    return np.sort(np.concatenate([unusual[:n_unusual], usual[: n - n_unusual]]))


MAX_BYTES, OVERHEAD_BYTES, BASE64 = 4_700_000, 150_000, 4 / 3
BYTES_PER_EFFECTS, BYTES_PER_POINT = 15, 16
BYTES_PER_TARGET, BYTES_PER_NUMBER, BYTES_PER_VALUE, BYTES_PER_COUNT, BYTES_PER_NAME, BYTES_PER_SUMMARY = (
    6,
    8,
    17,
    8,
    20,
    1_500,
)
BYTES_PER_LETTER, BYTES_PER_SPAN = 1.1, 24
MAX_TEXT_LENGTH = 4_000
MIN_SAMPLES = 10


def samples_that_fit(
    n_targets: int,
    k: int,
    n_units: int,
    n_selectable: NDArray[np.integer[Any]],
    *,
    counts: bool = False,
    numbers: bool = False,
    effects: bool = False,
    texts: Sequence[str] | None = None,
) -> int:
    """How many samples, with a selection for each target, fit in beside names and sums; at least ten.

    n_selectable : (samples,) how many units of each can be selected. counts : their values are few, such as 1 and 2.
    numbers : there are numbers behind the targets' values. effects : they, and what is needed, are included.
    """
    n_shown_units = np.minimum(n_selectable, n_targets * k)
    position_bytes = 1 if n_shown_units.max(initial=0) < 255 else 2
    per_target = (position_bytes + 1) * k + BYTES_PER_TARGET + (BYTES_PER_NUMBER if numbers else 0)
    if effects:
        per_target += 3 * k + BYTES_PER_EFFECTS
    each = (
        n_targets * per_target * BASE64
        + float(n_shown_units.mean()) * (BYTES_PER_COUNT if counts else BYTES_PER_VALUE)
        + 200
    )
    if texts:
        each += float(n_shown_units.mean()) * BYTES_PER_SPAN
        each += BYTES_PER_LETTER * sum(map(_escaped, texts)) / len(texts)
    page_budget = MAX_BYTES - OVERHEAD_BYTES - BYTES_PER_SUMMARY * n_targets - BYTES_PER_NAME * min(n_units, 50_000)
    if effects:
        page_budget -= BYTES_PER_POINT * MAX_UNITS * points_per_effect(n_targets) * n_targets
    return max(MIN_SAMPLES, int(page_budget / each))


def cut_texts(texts: Sequence[str]) -> list[str]:
    """Long documents without their ends."""
    return [text if len(text) <= MAX_TEXT_LENGTH else f"{text[:MAX_TEXT_LENGTH]} …" for text in texts]


def spans_of(source: ExplainedRows, sample: int, units: NDArray[np.int64]) -> dict[int, list[tuple[int, int]]]:
    """Where some units of a text stand, in characters."""
    found: dict[int, list[tuple[int, int]]] = {}
    wanted = set(units.tolist())
    for start, end, unit in source.spans(sample):
        if unit in wanted and end <= MAX_TEXT_LENGTH:
            found.setdefault(unit, []).append((start, end))
    return found


def _escaped(text: str) -> int:
    """How many bytes a text takes, letters beyond ASCII being spelt out."""
    shown = text[:MAX_TEXT_LENGTH]
    return len(shown) + 5 * sum(ord(letter) > 126 for letter in shown)
