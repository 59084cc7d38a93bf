"""Explaining dask arrays and dataframes: lazily, one partition at a time, wherever it lies."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sointer._support import containers
from sointer.distributed.shipping import needs_no_model, with_model, without_model
from sointer.errors import InputError, require_extra
from sointer.explainers.base import Explainer
from sointer.streaming.columns import as_in_fit, columns_needed
from sointer.streaming.records import Question, record_schema, record_table

MOST_ROWS = 2**12  # explained at a time, within a partition


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
    """Explanations of the rows of a dask array, dataframe or series of texts, as a lazy dask DataFrame.

    Its columns are those of `Explanation.to_frame()`, and `sample` counts over all rows. Nothing is computed until you
    say so (`.compute()`, `.to_parquet()`); each partition of X gives one partition of explanations. The explainer goes
    to the workers once, with a copy of its model if that is to be queried, else without. What the copies are sent is
    not counted in `n_explain_queries_`.

    Parameters
    ----------
    target : an output's name or number, a list of them (each is explained for every row), or "all".
    k : how many features, or "auto" where that costs no query (of SOInter, and of baselines with a size of their own).
        What would query the model many times, as `refine` does, is refused.
    predicted : what the model predicts for X: a dask collection with the same partitions.
    query : query the model once per sample, on the workers, unless `predicted` is given; False explains what is
        expected of it.
    text_column : which column of a dataframe holds the texts, for explainers of texts.
    """
    dask = require_extra("dask", "dask")
    frames, cloudpickle = require_extra("dask.dataframe", "dask"), require_extra("cloudpickle", "dask")
    check_is_fitted(explainer, "outputs_")
    needs_no_model(explainer, explainer.k if k is None else k, refine)
    question = Question.of(explainer, target, k, query=query)
    X, parts, lengths = _partitions(_with_columns_of_fit(explainer, X, text_column))
    said = [None] * len(parts) if predicted is None else _partitions_of(predicted, len(parts))
    queries = question.query and predicted is None and explainer.black_box_ is not None
    content = with_model(explainer, cloudpickle) if queries else cloudpickle.dumps(without_model(explainer))
    # One task makes the explainer, and all others wait for it: dask moves its result to every worker once, and makes
    # it again if the workers that had it are lost.
    name = f"sointer-explainer-{sha256(content).hexdigest()[:16]}"
    shipped = dask.delayed(cloudpickle.loads, pure=True)(content, dask_key_name=name)
    explained = dask.delayed(_explain_partition, pure=True)
    tables, first = [], 0 if lengths is not None else dask.delayed(0)
    for number, part in enumerate(parts):
        tables.append(explained(shipped, part, said[number], question, first, text_column))
        first = first + (lengths[number] if lengths is not None else dask.delayed(len)(part))
    return frames.from_delayed(tables, meta=_empty(explainer), verify_meta=True)


def _explain_partition(
    explainer: Explainer, X: Any, predicted: Any, question: Question, first: int, text_column: str | None
) -> Any:
    """What was selected in the rows of one partition, the first of which has the number `first`."""
    pandas = require_extra("pandas", "pandas")
    if containers.n_rows(X) == 0:
        return _empty(explainer)
    if containers.is_frame(X):
        X = as_in_fit(explainer, X.reset_index(drop=True), text_column)
    schema = record_schema(explainer)
    tables = [
        record_table(explanation, first + sample, schema).to_pandas()
        for explanation, sample in question.explain(explainer, X, predicted, MOST_ROWS)
    ]
    return pandas.concat(tables, ignore_index=True)


def _empty(explainer: Explainer) -> Any:
    return record_schema(explainer).empty_table().to_pandas()


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
