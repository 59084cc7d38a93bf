"""Does the model predict the same from the selected features alone? Measures on predictions already computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from sointer._support.validation import check_positive_int
from sointer.errors import InputError, require_extra
from sointer.explanation import Explanation
from sointer.masking.build import make_removal
from sointer.masking.selection import first_units

if TYPE_CHECKING:
    import pandas as pd


Average: TypeAlias = Literal["macro", "micro", "example"]


class PostHocF1(NamedTuple):
    """Three comparisons of the truth, the predictions, and the predictions on selected features alone.

    Examples
    --------
    >>> from sointer.metrics import PostHocF1
    >>> PostHocF1(plain=0.9, post_hoc=0.8, relative_post_hoc=0.85).post_hoc
    0.8
    """

    plain: float
    """The truth against the predictions; how good the model is."""
    post_hoc: float
    """The truth against the predictions on selected features."""
    relative_post_hoc: float
    """The predictions against the predictions on selected features; how good the explanations are."""


def f1(truth: npt.ArrayLike, prediction: npt.ArrayLike, average: Average = "macro") -> float:
    """F1 of 0/1 labels.

    Parameters
    ----------
    truth, prediction : arrays (samples, tags) of 0 and 1
    average : "macro", "micro" or "example"
        "macro" averages over the tags, "example" over the samples, in both cases those with at least one positive on
        either side; "micro" counts all labels together.

    Returns
    -------
    float
        From 0 to 1; NaN if there is no positive.

    Raises
    ------
    ValueError
        If the shapes differ, or labels are not 0 or 1.

    Examples
    --------
    >>> f1([[1, 0], [1, 1]], [[1, 0], [1, 0]], average="example")
    0.8333333333333333
    """
    expected, given = _as_labels(truth), _as_labels(prediction)
    if expected.shape != given.shape:
        raise ValueError(f"the two sides differ in shape: {expected.shape} and {given.shape}")
    if average == "macro":
        axis: int | None = 0
    elif average == "example":
        axis = 1
    elif average == "micro":
        axis = None
    else:
        raise ValueError(f'average must be "macro", "micro" or "example", got {average!r}')
    in_both = np.atleast_1d((expected & given).sum(axis=axis))
    positives = np.atleast_1d(expected.sum(axis=axis) + given.sum(axis=axis))
    counted = positives > 0
    if not counted.any():
        return float("nan")
    return float(np.mean(2 * in_both[counted] / positives[counted]))


def post_hoc_f1(
    truth: npt.ArrayLike, original: npt.ArrayLike, explained: npt.ArrayLike, average: Average = "macro"
) -> PostHocF1:
    """Plain, post-hoc and relative post-hoc F1 of 0/1 labels.

    Parameters
    ----------
    truth : array (samples, tags)
    original : array (samples, tags)
        The model's labels on unmasked inputs.
    explained : array (samples, tags)
        In column t, the model's label for tag t when only the features selected for tag t are left; see
        `target_columns`.
    average : as for `f1`

    Returns
    -------
    PostHocF1

    Raises
    ------
    ValueError
        As `f1`.

    Examples
    --------
    >>> post_hoc_f1([[1, 0]], [[1, 1]], [[1, 1]], average="micro").relative_post_hoc
    1.0
    """
    return PostHocF1(
        plain=f1(truth, original, average),
        post_hoc=f1(truth, explained, average),
        relative_post_hoc=f1(original, explained, average),
    )


def target_columns(outputs_by_target: npt.ArrayLike, targets: npt.ArrayLike | None = None) -> npt.NDArray[Any]:
    """From all outputs under each target's selection, keep that target's own output.

    Parameters
    ----------
    outputs_by_target : array (targets, samples, outputs)
    targets : array (targets,) of output numbers, optional
        Default one for each output, in order.

    Returns
    -------
    array (samples, targets)

    Raises
    ------
    ValueError
        If the shapes do not fit together.

    Examples
    --------
    >>> target_columns([[[1, 0]], [[0, 1]]]).tolist()
    [[1, 1]]
    """
    outputs = np.asarray(outputs_by_target)
    if outputs.ndim != 3:
        raise ValueError(f"outputs_by_target needs the axes (target, sample, output), got shape {outputs.shape}")
    chosen = np.arange(outputs.shape[2]) if targets is None else np.asarray(targets, dtype=np.int64)
    if chosen.shape != (outputs.shape[0],):
        raise ValueError(f"{outputs.shape[0]} selections need as many targets, got {chosen.size}")
    columns: npt.NDArray[Any] = outputs[np.arange(len(chosen)), :, chosen].T
    return columns


def agreement(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Share of equal entries; on the labels of a target, this is its fidelity.

    Parameters
    ----------
    a, b : arrays of one shape

    Returns
    -------
    float
        From 0 to 1.

    Raises
    ------
    ValueError
        If the shapes differ or the arrays are empty.

    Examples
    --------
    >>> agreement([1, 0, 1, 1], [1, 1, 1, 1])
    0.75
    """
    left, right = np.asarray(a), np.asarray(b)
    if left.shape != right.shape:
        raise ValueError(f"the two sides differ in shape: {left.shape} and {right.shape}")
    if left.size == 0:
        raise ValueError("agreement is undefined on empty arrays")
    return float(np.mean(left == right))


def _as_labels(values: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    labels = np.asarray(values)
    if labels.ndim != 2:
        raise ValueError(f"labels need one row per sample and one column per tag, got shape {labels.shape}")
    if not np.isin(labels, (0, 1)).all():
        raise ValueError("labels must be 0 or 1")
    return labels.astype(np.bool_)


KS = (1, 3, 8, 15, 30)
"""Default sizes, as far as there are more units than that."""


@dataclass(frozen=True, eq=False)
class KeepAndDelete:
    """Both measures at several sizes k; neither means much without the other.

    A ranking that keeps predictions may miss what would flip them, and vice versa. The shares of single samples are
    means over draws. The same draws are used for both measures, all sizes and, with the same random_state, all
    explanations of the same samples.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.metrics import KeepAndDelete
    >>> keep, delete = np.array([[0.5, 1.0], [1.0, 1.0]]), np.array([[0.0, 0.5], [0.5, 1.0]])
    >>> found = KeepAndDelete((1, 2), keep, delete, n_draws=2, n_queries=16)
    >>> found.keep.tolist(), found.delete.tolist()
    ([0.75, 1.0], [0.25, 0.75])
    """

    ks: tuple[int, ...]
    """The sizes, smallest first."""
    keep_rows: NDArray[np.float64]
    """(samples, ks) share of draws in which the prediction stayed when all but the best k units were removed."""
    delete_rows: NDArray[np.float64]
    """(samples, ks) share of draws in which the prediction flipped when the best k units were removed."""
    n_draws: int | None
    """Draws per sample, k and measure; None where removal is not random."""
    n_queries: int
    """Samples sent to the model."""

    @property
    def keep(self) -> NDArray[np.float64]:
        """Share of predictions that stay when all but the best k units are removed, shape (ks,)."""
        return np.asarray(self.keep_rows.mean(axis=0))

    @property
    def delete(self) -> NDArray[np.float64]:
        """Share of predictions that flip when the best k units are removed, shape (ks,)."""
        return np.asarray(self.delete_rows.mean(axis=0))

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one line per k.

        Returns
        -------
        DataFrame
            Columns k, keep, delete.
        """
        pandas = require_extra("pandas", "pandas")
        frame: pd.DataFrame = pandas.DataFrame({"k": list(self.ks), "keep": self.keep, "delete": self.delete})
        return frame

    def __repr__(self) -> str:
        shares = zip(self.ks, self.keep, self.delete, strict=True)
        pairs = ", ".join(f"k={k}: {keep:.3f}/{delete:.3f}" for k, keep, delete in shares)
        return f"KeepAndDelete(keep/delete at {pairs}; {len(self.keep_rows)} samples, n_queries={self.n_queries})"


def keep_and_delete(
    explanation: Explanation,
    *,
    ks: Sequence[int] | None = None,
    ranking: Any = None,
    removal: Any = None,
    n_draws: int = 10,
    random_state: int = 0,
) -> KeepAndDelete:
    """Share of predictions that stay on the best k units alone, and share that flip without them. Queries the model.

    A label stays if it is the same, a probability if it stays on its side of 0.5, a number if it moves by no more than
    the explainer's tolerance. Tables only.

    Parameters
    ----------
    explanation : Explanation
        Selected units come first, in their order, then the others by score, with ties broken at random.
    ks : sequence of int, optional
        Sizes, each from 1 to the number of units; default: those of 1, 3, 8, 15 and 30 that are less than the number of
        units.
    ranking : array (samples, n) of int, optional
        Units, best first, to measure instead of the explanation's own; -1 where there is none.
    removal : optional
        What replaces removed units; default: the explainer's own.
    n_draws : int, default 10
        Draws per sample and size, if removal is random.
    random_state : int, default 0
        Seed of the draws and of the order of equal scores.

    Returns
    -------
    KeepAndDelete

    Raises
    ------
    InputError
        If the explanation is of images, or an argument does not fit it.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.explainers.baselines import ShapleySampling
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> model = lambda X: (X[:, [0, 3]] > 0).astype(int)
    >>> explanation = ShapleySampling(model, k=1, random_state=0).fit(X).explain(X[:50], target=1)
    >>> keep_and_delete(explanation, ks=[1])
    KeepAndDelete(keep/delete at k=1: 1.000/0.488; 50 samples, n_queries=1000)
    """
    source = explanation.source
    if source.input_format.image is not None:
        raise InputError("keep_and_delete is for tables and texts, but the explanation is of images; use verify().")
    check_positive_int(n_draws, "n_draws")
    seed = check_positive_int(random_state, "random_state", minimum=0)
    sizes = check_sizes(ks, source.groups.n_units)
    order = full_ranking(explanation, seed) if ranking is None else check_ranking(ranking, explanation, max(sizes))
    how = source.removal
    if removal is not None:
        how = make_removal(removal, source.background.known_rows(), source.input_format, np.random.default_rng(seed))
    before, rows = source.sent.n, np.arange(len(explanation))
    predicted, n_times = source.predictions[source.sample_of_row], n_draws if how.is_random else 1
    stays = np.zeros((2, len(rows), len(sizes)))
    for place, k in enumerate(sizes):
        best = first_units(order, np.full(len(rows), k), source.groups.n_units)
        for draw in range(n_times):
            for side, kept in enumerate((best, ~best)):
                # The same generator anew: draws are paired between both measures, all sizes and all explanations.
                masked = source.query_reduced(how, kept, rows, np.random.default_rng([seed, draw]))
                same = source.outputs.agree(predicted, masked)
                stays[side, :, place] += source.at_targets(same, explanation.target)
    keep, kept_without = stays / n_times
    return KeepAndDelete(
        sizes, keep, 1.0 - kept_without, n_draws if how.is_random else None, n_queries=source.sent.n - before
    )


def check_sizes(
    ks: Sequence[int] | None, n_units: int, *, default: tuple[int, ...] = KS, units: str = "units"
) -> tuple[int, ...]:
    """Sizes in rising order, each once."""
    if ks is None:
        return tuple(k for k in default if k < n_units) or (1,)
    if isinstance(ks, str | int) or len(list(ks)) == 0:
        raise InputError(f"ks must be a list of sizes from 1 to {n_units}, got {ks!r}; write ks=[1, 3].")
    sizes = sorted({check_positive_int(k, "each of ks") for k in ks})
    if sizes[-1] > n_units:
        raise InputError(f"ks must be from 1 to {n_units}, the number of {units}, got {sizes[-1]}. Leave it out.")
    return tuple(sizes)


def full_ranking(explanation: Explanation, seed: int) -> NDArray[np.int64]:
    """All units of every sample, best first: those selected, in their order, then the others by score."""
    n_rows, n_units = explanation.scores.shape
    place = np.full((n_rows, n_units + 1), np.inf)
    for position in reversed(range(explanation.selected.shape[1])):
        place[np.arange(n_rows), explanation.selected[:, position]] = position
    uniforms = np.random.default_rng(seed).random((n_rows, n_units))
    return np.lexsort((uniforms, -explanation.scores, place[:, :n_units]), axis=1)


def check_ranking(ranking: Any, explanation: Explanation, n: int) -> NDArray[np.int64]:
    """The ranking as integers, if it has enough units of this explanation for every sample."""
    order, n_units = np.asarray(ranking), explanation.source.groups.n_units
    fits = order.ndim == 2 and len(order) == len(explanation) and order.shape[1] >= n and order.dtype.kind in "iu"
    if not fits or order.min(initial=0) < -1 or order.max(initial=0) >= n_units:
        raise InputError(
            f"ranking must be whole numbers of shape ({len(explanation)}, {n} or more), from 0 to {n_units - 1} or -1, "
            f"got {order.dtype} of shape {order.shape}. Give the units of each sample, best first."
        )
    return order.astype(np.int64)
