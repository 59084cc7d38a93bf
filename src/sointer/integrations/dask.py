"""Explaining dask arrays and dataframes: lazily, one partition at a time, wherever it lies."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from sointer._support import containers
from sointer._support.containers import rows
from sointer._support.validation import check_random_state, resolve_targets
from sointer.blackbox.adapters import as_black_box
from sointer.blackbox.adapters.text import TextPipeline, is_text
from sointer.blackbox.box import BlackBox
from sointer.errors import InputError, require_extra
from sointer.explainers.base import Explainer
from sointer.io.columns import as_in_fit, columns_needed
from sointer.io.writers import Question, record_schema, record_table

AnyExplainer = TypeVar("AnyExplainer", bound=Explainer)


def without_model(explainer: AnyExplainer) -> AnyExplainer:
    """A shallow copy with everything that explaining needs and nothing of the black box."""
    alone = copy.copy(explainer)
    alone.model, alone.black_box_ = None, None
    if alone.text_ is not None:
        alone.text_ = replace(alone.text_, rest=None)
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
    """Refuse what only the black box can answer."""
    asks = "k='auto'" if k == "auto" and explainer.asks_for_sizes else "refine=" if refine else ""
    if explainer.asks_to_explain:
        asks = type(explainer).__name__
    if asks:
        raise InputError(
            f"{asks} queries the model many times for every sample, which is not done on dask's workers. Leave it out, "
            "or compute the rows first and explain them here."
        )


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


Group: TypeAlias = "Sequence[int | str]"
Told: TypeAlias = "list[tuple[str, type[Warning]]]"


def fit_groups(
    explainer: Explainer, X: Any, groups: Sequence[Group], *, alone: bool = False, n_jobs: int | None = None
) -> list[Any]:
    """A fitted copy of `explainer` for each group of outputs, in the order of the groups.

    Each copy asks the model on its own and is fitted as `fit(X, targets=group)`, so that a fit that would take too long
    is cut into pieces that run side by side: in processes of this machine (`n_jobs`), or wherever joblib is told to,
    for example `with joblib.parallel_config(backend="dask"): fit_groups(...)`. The seeds come from the explainer's
    `random_state`, one for each group: what comes out does not depend on where and in which order they were fitted.

    With alone=True a copy sees the outputs of its group only, by their names. That keeps the fits small where there are
    too many outputs for one, but what a feature does through outputs of another group is then not told apart.
    """
    chosen = [list(group) for group in groups if not isinstance(group, str | int)]
    if not chosen or len(chosen) < len(groups) or not all(chosen):
        raise InputError(
            f"groups must be lists of outputs, at least one in each, got {list(groups)!r:.80}; write for example "
            '[["news", "sport"], ["games"]].'
        )
    model = explainer.model
    if isinstance(model, BlackBox) and model.remaining is not None:
        raise InputError(
            "fit_groups was given a black box with a query budget, which cannot be kept across processes; set "
            "query_budget= of the explainer (it holds for each group), and lift the budget with reset_budget(None)."
        )
    copies: list[Any] = [
        clone(explainer).set_params(random_state=seed) for seed in _seeds(explainer.random_state, len(chosen))
    ]
    if alone:
        _limit(copies, X, chosen)
    models = [copy.model for copy in copies]
    before = model.n_queries if isinstance(model, BlackBox) else 0
    results = Parallel(n_jobs=n_jobs)(
        delayed(_fit)(copy, X, None if alone else group) for copy, group in zip(copies, chosen, strict=True)
    )
    for number, (_, told) in enumerate(results):
        for message, category in told:
            warnings.warn(f"group {number}: {message}", category, stacklevel=2)
    fitted = [one for one, _ in results]
    if isinstance(model, BlackBox):  # other processes ask through copies of it
        model.n_queries = before + sum(one.n_queries_ for one in fitted)
    for one, its_model in zip(fitted, models, strict=True):
        _give_model(one, its_model)
    return fitted


@dataclass(frozen=True)
class SomeOutputs:
    """The model, of which only some outputs are looked at."""

    black_box: BlackBox
    outputs: NDArray[Any]

    @property
    def declared_kind(self) -> str | None:
        return self.black_box.declared_kind

    def __call__(self, X: Any) -> NDArray[Any]:
        answers: NDArray[Any] = self.black_box(X)[:, self.outputs]
        return answers


def _limit(copies: list[Any], X: Any, groups: list[list[Any]]) -> None:
    """Give each copy a model with the outputs of its group only."""
    if is_text(X):
        raise InputError("alone=True does not work on raw texts; count the words, and give the model behind that step.")
    black_box = as_black_box(copies[0].model, method=copies[0].method, batch_size=copies[0].batch_size)
    black_box.prepare(X, stacklevel=4)
    answers = black_box(rows(X, [0]))  # one row, to learn how many outputs there are, and their names
    given = copies[0].output_names if copies[0].output_names is not None else black_box.output_names
    names = [f"y{i}" for i in range(answers.shape[1])] if given is None else list(given)
    for one, group in zip(copies, groups, strict=True):
        outputs = resolve_targets(group, names, len(group))
        some = [names[i] for i in outputs]
        one.set_params(model=BlackBox(SomeOutputs(black_box, outputs), batch_size=black_box.batch_size))
        one.set_params(output_names=some, method=None, batch_size=None)


def _fit(explainer: Any, X: Any, group: list[int | str] | None) -> tuple[Explainer, Told]:
    """The fitted explainer, and the warnings of fit, which would otherwise be lost in another process."""
    with warnings.catch_warnings(record=True) as told:
        fitted: Explainer = explainer.fit(X, targets=group)
    return without_model(fitted), [(str(one.message), one.category) for one in told]


def _give_model(explainer: Explainer, model: Any) -> None:
    explainer.model = model
    if explainer.text_ is not None:
        explainer.text_ = TextPipeline.of(model)
    explainer.black_box_ = explainer._black_box_again()


def _seeds(random_state: Any, n: int) -> list[int | None]:
    if random_state is None:
        return [None] * n
    return [int(seed) for seed in check_random_state(random_state).integers(2**31, size=n)]
