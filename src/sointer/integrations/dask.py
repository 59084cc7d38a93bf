"""Explaining dask arrays and dataframes: lazily, one partition at a time, wherever it lies."""

from __future__ import annotations

import copy
from hashlib import sha256
from typing import Any, Literal, TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sointer._support import containers
from sointer.errors import InputError, require_extra
from sointer.explainers.base import Explainer
from sointer.explainers.estimator import refuse_for_sequences
from sointer.io.columns import as_in_fit, columns_needed
from sointer.io.writers import ExplainOptions, record_schema, record_table

AnyExplainer = TypeVar("AnyExplainer", bound=Explainer)


def without_model(explainer: AnyExplainer) -> AnyExplainer:
    """A shallow copy with everything that explaining needs and nothing of the black box."""
    alone = copy.copy(explainer)
    alone.model, alone.black_box_ = None, None
    return alone


def with_model(explainer: Explainer, cloudpickle: Any) -> bytes:
    """The explainer and its model, pickled: workers query copies of the model."""
    instead = (
        "Pass what the model predicts as predicted=, such as X.map_partitions(model.predict), or explain what is "
        "expected of it with query=False."
    )
    if explainer.black_box_ is not None and explainer.black_box_.remaining is not None:
        raise InputError(
            "the model has a query budget, which cannot be kept on dask's workers; lift it with "
            f"black_box.reset_budget(None). {instead}"
        )
    try:
        content: bytes = cloudpickle.dumps(explainer)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise InputError(
            f"the model cannot be sent to dask's workers, since it cannot be pickled ({reason:.200}). {instead}"
        ) from error
    return content


def needs_no_model(explainer: Explainer, k: object, refine: int) -> None:
    """Refuse what queries the model many times per sample."""
    costly = "k='auto'" if k == "auto" and explainer.queries_for_sizes else "refine=" if refine else ""
    if explainer.queries_to_explain:
        costly = type(explainer).__name__
    if costly:
        raise InputError(
            f"{costly} queries the model many times for every sample, which is not done on dask's workers. Leave it "
            "out, or compute the rows first and explain them here."
        )


MAX_ROWS = 2**12  # explained at a time, within a partition


def explain(
    explainer: Explainer,
    X: Any,
    target: Any = None,
    *,
    k: int | Literal["auto"] | None = None,
    predicted: Any = None,
    query: bool = True,
    refine: int = 0,
    text_column: str | None = None,
) -> Any:
    """Explain the samples of a dask array, dataframe or series of texts lazily.

    The explainer is sent to the workers once, with a copy of its model if the model is to be queried. Queries of these
    copies are not counted in `n_explain_queries_`.

    Parameters
    ----------
    explainer : Explainer
        A fitted explainer.
    X : dask array, DataFrame or Series
        The samples. Columns of a dataframe are matched by name.
    target : int, str, list or "all"
        An output's name or number, a list of them (each is explained for every sample), or "all".
    k : int or "auto", optional
        The number of features; default the explainer's own. "auto" is refused where it would query the model many
        times per sample.
    predicted : dask collection, optional
        The model's predictions for X, with the same partitions.
    query : bool, default True
        Query the model once per sample, on the workers, unless `predicted` is given; False explains what the explainer
        expects the model to predict.
    refine : int, default 0
        Refused unless 0: it queries the model many times per sample.
    text_column : str, optional
        The column of a dataframe that holds the texts, for explainers of texts.

    Returns
    -------
    dask.dataframe.DataFrame
        The columns of `Explanation.to_frame()`; `sample` counts over all samples. Each partition of X gives one
        partition, computed on `.compute()`, `.to_parquet()` and the like.

    Raises
    ------
    InputError
        If X is not a dask collection or lacks features, or if the model cannot be sent to the workers.

    Examples
    --------
    >>> from sointer.integrations.dask import explain
    >>> explain(explainer, dd.read_parquet("rows.parquet"), "rain").to_parquet("why/")  # doctest: +SKIP
    """
    dask = require_extra("dask", "dask")
    frames, cloudpickle = require_extra("dask.dataframe", "dask"), require_extra("cloudpickle", "dask")
    check_is_fitted(explainer, "outputs_")
    refuse_for_sequences(explainer, "dask")
    needs_no_model(explainer, explainer.k if k is None else k, refine)
    options = ExplainOptions.of(explainer, target, k, query=query)
    X, parts, lengths = _partitions(_with_columns_of_fit(explainer, X, text_column))
    predictions = [None] * len(parts) if predicted is None else _partitions_of(predicted, len(parts))
    queries = options.query and predicted is None and explainer.black_box_ is not None
    content = with_model(explainer, cloudpickle) if queries else cloudpickle.dumps(without_model(explainer))
    # One task makes the explainer, and all others wait for it: dask moves its result to every worker once, and makes
    # it again if the workers that had it are lost.
    name = f"sointer-explainer-{sha256(content).hexdigest()[:16]}"
    shipped = dask.delayed(cloudpickle.loads, pure=True)(content, dask_key_name=name)
    explained = dask.delayed(_explain_partition, pure=True)
    tables, first = [], 0 if lengths is not None else dask.delayed(0)
    for number, part in enumerate(parts):
        tables.append(explained(shipped, part, predictions[number], options, first, text_column))
        first = first + (lengths[number] if lengths is not None else dask.delayed(len)(part))
    return frames.from_delayed(tables, meta=_empty(explainer, options), verify_meta=True)


def _explain_partition(
    explainer: Explainer, X: Any, predicted: Any, options: ExplainOptions, first: int, text_column: str | None
) -> Any:
    """What was selected in the rows of one partition, the first of which has the number `first`."""
    pandas = require_extra("pandas", "pandas")
    if containers.n_rows(X) == 0:
        return _empty(explainer, options)
    if containers.is_frame(X):
        X = as_in_fit(explainer, X.reset_index(drop=True), text_column)
    schema = record_schema(explainer, options.targets)
    tables = [
        record_table(explanation, first + sample, schema).to_pandas()
        for explanation, sample in options.explain(explainer, X, predicted, MAX_ROWS)
    ]
    return pandas.concat(tables, ignore_index=True)


def _empty(explainer: Explainer, options: ExplainOptions) -> Any:
    return record_schema(explainer, options.targets).empty_table().to_pandas()


def _with_columns_of_fit(explainer: Explainer, X: Any, text_column: str | None) -> Any:
    """Wrong columns must come to light now, and those that are not needed should not be read."""
    if not containers.is_dask(X):
        raise InputError(f"X is {containers.describe(X)}, expected a dask array, dataframe or series of texts.")
    labels = getattr(X, "columns", None)
    if labels is None or getattr(X, "ndim", 0) != 2:
        return X
    needed = columns_needed(explainer, [str(label) for label in labels], text_column, "X")
    if needed is None:
        return X
    place = {str(label): label for label in labels}
    return X[place[needed]] if isinstance(needed, str) else X[[place[name] for name in needed]]


def _partitions(X: Any) -> tuple[Any, list[Any], list[int] | None]:
    """The parts of X, one after the other, and how many rows each has, where that is known without computing."""
    if not hasattr(X, "chunks"):
        return X, list(X.to_delayed()), None
    X = X.rechunk({axis: -1 for axis in range(1, X.ndim)})  # whole rows
    lengths = X.chunks[0]
    known = not any(np.isnan(n) for n in lengths)
    return X, list(X.to_delayed().ravel()), [int(n) for n in lengths] if known else None


def _partitions_of(predicted: Any, n: int) -> list[Any]:
    if not containers.is_dask(predicted):
        raise InputError(
            f"predicted is {containers.describe(predicted)}, expected a dask collection with the partitions of X, "
            "such as X.map_partitions(model.predict)."
        )
    _, parts, _ = _partitions(predicted)
    if len(parts) != n:
        raise InputError(f"predicted has {len(parts)} partitions, but X has {n}; expected the same ones.")
    return parts
