"""Fitting one explainer for each group of outputs, side by side."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone

from sointer._support.containers import rows
from sointer._support.validation import check_random_state, resolve_targets
from sointer.blackbox.adapters import as_black_box
from sointer.blackbox.adapters.text import TextPipeline, is_text
from sointer.blackbox.box import BlackBox
from sointer.distributed.shipping import without_model
from sointer.errors import InputError
from sointer.explainers.base import Explainer

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
    for copy, group in zip(copies, groups, strict=True):
        outputs = resolve_targets(group, names, len(group))
        some = [names[i] for i in outputs]
        copy.set_params(model=BlackBox(SomeOutputs(black_box, outputs), batch_size=black_box.batch_size))
        copy.set_params(output_names=some, method=None, batch_size=None)


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
