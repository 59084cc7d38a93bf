"""How well selected features match a truth that is known.

A selection is either indices, one row of chosen features per sample, or a boolean mask over all features, one
row per sample. The truth is either one set of indices for all samples or a boolean mask over all features,
for all samples or one row for each.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

BoolArray: TypeAlias = npt.NDArray[np.bool_]
FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]


def exact_match(selected: npt.ArrayLike, relevant: npt.ArrayLike) -> float:
    """Share of samples whose selected set equals the relevant set, in any order.

    Parameters
    ----------
    selected : array (samples, k) of indices, or boolean mask (samples, features)
    relevant : array of indices, or boolean mask (features,) or (samples, features)

    Returns
    -------
    float
        From 0 to 1.

    Raises
    ------
    ValueError
        If the two do not fit together.

    Examples
    --------
    >>> exact_match([[2, 0], [0, 1]], [0, 2])
    0.5
    """
    chosen, truth = _paired_masks(selected, relevant)
    return float(np.mean(np.all(chosen == truth, axis=1)))


def recall_at_k(selected: npt.ArrayLike, relevant: npt.ArrayLike, k: int | None = None) -> float:
    """Mean over samples of the share of relevant features among the first k selected.

    Parameters
    ----------
    selected, relevant : as for `exact_match`
    k : int, optional
        Default all. It needs indices, best first: a mask has no order.

    Returns
    -------
    float
        From 0 to 1.

    Raises
    ------
    ValueError
        If a sample has no relevant feature, or k does not fit the selection.

    Examples
    --------
    >>> recall_at_k([[2, 0], [0, 1]], [0, 2])
    0.75
    """
    if k is not None:
        ordered = np.asarray(selected)
        if ordered.dtype == np.bool_:
            raise ValueError("k needs selected indices, best first; a mask has no order")
        if ordered.ndim != 2 or not 1 <= k <= ordered.shape[1]:
            raise ValueError(f"k must be between 1 and the number of selected features, got {k}")
        selected = ordered[:, :k]
    return float(np.mean(true_positive_rates(selected, relevant)))


def median_rank(selected: npt.ArrayLike) -> float:
    """Mean over samples of the median 1-based index of the selected features.

    Parameters
    ----------
    selected : array (samples, k) of indices, or boolean mask (samples, features)

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If a mask selects nothing in a sample.

    Examples
    --------
    >>> median_rank([[0, 1, 2], [2, 3, 4]])
    3.0
    """
    selection = _as_rows(selected)
    if selection.dtype != np.bool_:
        return float(np.mean(np.median(selection + 1, axis=1)))
    if not np.all(selection.any(axis=1)):
        raise ValueError("the median rank is undefined where no feature is selected")
    return float(np.mean([np.median(np.flatnonzero(row) + 1) for row in selection]))


def top_k(scores: npt.ArrayLike, k: int, rng: int | np.random.Generator | None) -> IntArray:
    """Indices of the k largest scores of each row, best first, with ties broken at random.

    An explainer that scores many features exactly 0 would otherwise be rewarded for the order of the columns.

    Parameters
    ----------
    scores : array (samples, features)
    k : int
    rng : int, Generator or None
        Seed of the order of equal scores.

    Returns
    -------
    array (samples, k) of int

    Raises
    ------
    ValueError
        If scores contain NaN, or there are fewer than k features.

    Examples
    --------
    >>> top_k([[0.1, 0.9, 0.5]], 2, rng=0).tolist()
    [[1, 2]]
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 2:
        raise ValueError(f"scores must have one row per sample and one column per feature, got {values.shape}")
    if not 0 <= k <= values.shape[1]:
        raise ValueError(f"k must be between 0 and {values.shape[1]}, got {k}")
    if np.isnan(values).any():
        raise ValueError("scores contain NaN, which has no rank")
    uniforms = np.random.default_rng(rng).random(values.shape)
    return np.lexsort((uniforms, -values), axis=1)[:, :k].astype(np.int64)


def top_of_sizes(scores: npt.ArrayLike, sizes: npt.ArrayLike, rng: int | np.random.Generator | None) -> BoolArray:
    """Mask of the best features of each sample, as many as its size says, with ties broken at random.

    With the true sizes, `exact_match(top_of_sizes(scores, truth.sum(axis=1), 0), truth)` judges the ranking alone.

    Parameters
    ----------
    scores : array (samples, features)
    sizes : array (samples,) of int
    rng : int, Generator or None
        Seed of the order of equal scores.

    Returns
    -------
    boolean array (samples, features)

    Raises
    ------
    ValueError
        If there is not one size for each sample, from 0 to the number of features.

    Examples
    --------
    >>> top_of_sizes([[0.1, 0.9, 0.5]], [2], rng=0).tolist()
    [[False, True, True]]
    """
    values = np.asarray(scores, dtype=np.float64)
    counts = np.asarray(sizes)
    if values.ndim != 2 or counts.shape != (len(values),):
        raise ValueError(f"give one size for each row of scores, got shapes {values.shape} and {counts.shape}")
    if not np.issubdtype(counts.dtype, np.integer) or np.any(counts < 0) or np.any(counts > values.shape[1]):
        raise ValueError(f"sizes must be whole numbers between 0 and {values.shape[1]}")
    ranking = top_k(values, values.shape[1], rng)
    mask = np.zeros(values.shape, dtype=np.bool_)
    np.put_along_axis(mask, ranking, np.arange(values.shape[1]) < counts[:, None], axis=1)
    return mask


def r_precision(scores: npt.ArrayLike, relevant: npt.ArrayLike, *, random_state: int = 0) -> float:
    """Mean over samples of the share of relevant features among the best k, where k is their true number.

    Both precision and recall at that size: 1 if all relevant features are ranked first; at random, the share of
    features that are relevant. Equal scores are ranked at random.

    Parameters
    ----------
    scores : array (n, features) or (n, height, width)
        Larger is more relevant.
    relevant : boolean array of the same shape
        Samples without a relevant feature, whose truth is ambiguous, are left out.
    random_state : int
        Seed of the order of equal scores.

    Returns
    -------
    float
        From 0 to 1.

    Raises
    ------
    ValueError
        If the shapes differ or no sample has a relevant feature.

    Examples
    --------
    >>> r_precision([[0.9, 0.1, 0.8], [0.1, 0.5, 0.2]], [[True, True, False], [False, True, False]])
    0.75
    """
    values, truth = np.asarray(scores, dtype=np.float64), np.asarray(relevant)
    if values.ndim < 2 or values.shape != truth.shape or truth.dtype != np.bool_:
        raise ValueError(f"scores and boolean truth must have the same shape, got {values.shape} and {truth.shape}")
    flat, known = values.reshape(len(values), -1), truth.reshape(len(truth), -1)
    has_truth = known.any(axis=1)
    if not has_truth.any():
        raise ValueError("R-precision is undefined where no feature of any sample is relevant")
    chosen = top_of_sizes(flat, known.sum(axis=1), random_state)
    return float(np.mean(true_positive_rates(chosen[has_truth], known[has_truth])))


def true_positive_rates(selected: npt.ArrayLike, relevant: npt.ArrayLike) -> FloatArray:
    """For each sample, the share of its relevant features that were selected.

    Parameters
    ----------
    selected, relevant : as for `exact_match`

    Returns
    -------
    array (samples,)

    Raises
    ------
    ValueError
        If a sample has no relevant feature.

    Examples
    --------
    >>> true_positive_rates([[2, 0], [0, 1]], [0, 2]).tolist()
    [1.0, 0.5]
    """
    chosen, truth = _paired_masks(selected, relevant)
    n_relevant = truth.sum(axis=1)
    if np.any(n_relevant == 0):
        raise ValueError("recall is undefined where no feature is relevant")
    rates: FloatArray = (chosen & truth).sum(axis=1) / n_relevant
    return rates


def false_discovery_rates(selected: npt.ArrayLike, relevant: npt.ArrayLike) -> FloatArray:
    """For each sample, the share of its selected features that are not relevant; 0 where none was selected.

    Parameters
    ----------
    selected, relevant : as for `exact_match`

    Returns
    -------
    array (samples,)

    Examples
    --------
    >>> false_discovery_rates([[2, 0], [0, 1]], [0, 2]).tolist()
    [0.0, 0.5]
    """
    chosen, truth = _paired_masks(selected, relevant)
    rates: FloatArray = (chosen & ~truth).sum(axis=1) / np.maximum(chosen.sum(axis=1), 1)
    return rates


def switch_accuracy(selected: npt.ArrayLike, relevant: npt.ArrayLike, switch: npt.ArrayLike) -> float:
    """Share of samples in which every relevant feature of the switch was selected.

    Parameters
    ----------
    selected, relevant : as for `exact_match`
    switch : array of indices
        The features that decide which others are relevant. Where one of them does not matter in a sample (the inner one
        of nested switches), it need not be selected there.

    Returns
    -------
    float
        From 0 to 1.

    Raises
    ------
    ValueError
        If switch is empty or names a feature that does not exist.

    Examples
    --------
    >>> switch_accuracy([[2, 0], [1, 2]], [0, 2], switch=[0])
    0.5
    """
    chosen, truth = _paired_masks(selected, relevant)
    features = np.asarray(switch)
    if features.ndim != 1 or features.size == 0:
        raise ValueError(f"switch must be the indices of at least one feature, got {switch!r}")
    _require_indices(features)
    if features.max() >= truth.shape[1]:
        raise ValueError(f"switch has feature {features.max()}, but there are only {truth.shape[1]}")
    return float(np.mean(np.all(chosen[:, features] | ~truth[:, features], axis=1)))


def sign_accuracy(effects: npt.ArrayLike, contributions: npt.ArrayLike, quantile: float = 0.5) -> float:
    """Share of strong contributions whose effect has the right sign; an effect of 0 is wrong.

    Parameters
    ----------
    effects : array (samples, features)
        Positive for what pushes the output up.
    contributions : array (samples, features)
        The true ones, with the same sign convention.
    quantile : float, default 0.5
        Strong are contributions whose size is at or above this quantile of the sizes of all that are not 0.

    Returns
    -------
    float
        From 0 to 1.

    Raises
    ------
    ValueError
        If the shapes differ or all contributions are 0.

    Examples
    --------
    >>> sign_accuracy([[0.5, -0.1]], [[2.0, 1.0]], quantile=0)
    0.5
    """
    given = np.asarray(effects, dtype=np.float64)
    true = np.asarray(contributions, dtype=np.float64)
    if given.shape != true.shape or true.ndim != 2:
        raise ValueError(f"effects and contributions must have the same two axes, got {given.shape} and {true.shape}")
    if not 0 <= quantile < 1:
        raise ValueError(f"quantile must be at least 0 and below 1, got {quantile}")
    sizes = np.abs(true)
    if not np.any(sizes > 0):
        raise ValueError("there must be contributions other than 0 to compare with")
    strong = (sizes > 0) & (sizes >= np.quantile(sizes[sizes > 0], quantile))
    return float(np.mean(np.sign(given[strong]) == np.sign(true[strong])))


def _as_rows(selected: npt.ArrayLike) -> npt.NDArray[Any]:
    selection = np.asarray(selected)
    if selection.ndim != 2 or selection.shape[0] == 0 or selection.shape[1] == 0:
        raise ValueError(f"a selection needs one row per sample, not shape {selection.shape}")
    if selection.dtype != np.bool_:
        _require_indices(selection)
    return selection


def _paired_masks(selected: npt.ArrayLike, relevant: npt.ArrayLike) -> tuple[BoolArray, BoolArray]:
    """Both sides as masks of the same shape, one row per sample."""
    selection = _as_rows(selected)
    truth = np.asarray(relevant)
    if truth.size == 0:
        raise ValueError("there must be relevant features to compare with")
    if truth.dtype != np.bool_:
        if truth.ndim != 1:
            raise ValueError("relevant features that differ by sample must be given as a boolean mask")
        _require_indices(truth)
    n_features = max(_width(selection), _width(truth))
    chosen = _as_mask(selection, n_features)
    known = _as_mask(np.atleast_2d(truth), n_features)
    if known.shape[0] not in (1, chosen.shape[0]):
        raise ValueError(f"relevant has {known.shape[0]} rows, the selection {chosen.shape[0]}")
    return chosen, np.broadcast_to(known, chosen.shape)


def _require_indices(values: npt.NDArray[Any]) -> None:
    if not np.issubdtype(values.dtype, np.integer):
        raise ValueError(f"features must be integer indices or a boolean mask, not {values.dtype}")
    if np.any(values < 0):
        raise ValueError("feature indices must not be negative")


def _width(values: npt.NDArray[Any]) -> int:
    """The number of features that an array of indices or a mask reaches to."""
    if values.dtype == np.bool_:
        return int(values.shape[-1])
    return int(values.max()) + 1 if values.size else 0


def _as_mask(values: npt.NDArray[Any], n_features: int) -> BoolArray:
    mask = np.zeros((values.shape[0], n_features), dtype=np.bool_)
    if values.dtype == np.bool_:
        if values.shape[1] != n_features:
            raise ValueError(f"a mask over {values.shape[1]} features cannot hold feature {n_features - 1}")
        mask[:] = values
    else:
        np.put_along_axis(mask, values, True, axis=1)
    return mask
