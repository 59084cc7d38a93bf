"""INVASE: a selector taught by how much the error of a predictor grows without what it leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from sointer._support.validation import check_positive_int
from sointer.baselines.hide_and_seek import check_number
from sointer.baselines.invase_networks import invase_package, train_as_in_the_paper, train_with_the_package
from sointer.baselines.trained import Examples, TargetNetworks, Trained
from sointer.errors import InputError
from sointer.training.history import History

Setting = Literal["package", "paper"]
SETTINGS: tuple[Setting, ...] = ("package", "paper")
DEFAULTS: dict[str, dict[str, Any]] = {
    "package": {"n_steps": 10_000, "n_folds": 1},
    "paper": {"n_steps": 10_000, "learning_rate": 1e-4, "penalty": 0.1},
}


class Invase(Trained):
    """INVASE (Yoon, Jordon & van der Schaar 2019), with the `invase` package or as its paper has it.

    The package is not the method of the paper. It learns to predict how much the error of an estimator grows when one
    feature is redrawn, and queries the estimator in every step: millions of rows for a few hundred epochs. So that it
    keeps to `query_budget`, its estimator is a network here (two hidden layers of 200) that has learned the model's
    outputs. It lists all triples of features in every step: minutes for 20 features, hours for 100. It leaves dropout
    on while it explains; here it is off, so that a row always has the same explanation. Importing it removes the
    handlers that a program has given to loguru.

    setting="paper" is our own implementation of the paper: a selector (two hidden layers of 100) draws a mask, a
    predictor (two of 200, batch normalisation) sees only what was drawn, a baseline of the same shape sees everything,
    and the difference of their errors, with a penalty on the share of units selected, trains the selector by policy
    gradient. It needs no package.

    Parameters
    ----------
    setting : "package" (default, extra `baselines`) or "paper".
    query_budget : rows that fit queries the model about; all rows of X by default.
    n_steps : at most so many epochs of the package, which stops early, or batches of 1,000 as in the paper; 10,000 by
        default.
    n_folds : selectors to average (package only), 1 by default; the package itself takes 5, for five times as long.
    learning_rate, penalty : of the paper's training only, 1e-4 and 0.1 by default.
    Other parameters are those of SOInter. With k="auto" all units with 0.5 or more are selected, at least one.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.baselines import Invase
    >>> X = np.random.default_rng(0).normal(size=(300, 5))
    >>> model = lambda X: np.column_stack([X[:, 0] > 0, X[:, 3] > 0])
    >>> explainer = Invase(model, k=1, setting="paper", n_steps=300, learning_rate=1e-3, random_state=0)
    >>> explainer.fit(X).explain(X[:3], target=1).selected.ravel().tolist(), explainer.n_explain_queries_
    ([3, 3, 3], 3)
    """

    def __init__(
        self,
        model: Any,
        *,
        k: int | Literal["auto"] = 10,
        removal: Any = "auto",
        setting: Setting = "package",
        query_budget: int | None = None,
        n_steps: int | None = None,
        n_folds: int | None = None,
        learning_rate: float | None = None,
        penalty: float | None = None,
        feature_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        output_kind: str | None = None,
        method: str | None = None,
        tolerance: float | None = None,
        groups: Any = None,
        batch_size: int | None = None,
        random_state: Any = None,
        verbose: bool | None = None,
    ) -> None:
        super().__init__(
            model,
            k=k,
            removal=removal,
            feature_names=feature_names,
            output_names=output_names,
            output_kind=output_kind,
            method=method,
            tolerance=tolerance,
            groups=groups,
            batch_size=batch_size,
            random_state=random_state,
            verbose=verbose,
        )
        self.query_budget = query_budget
        self.setting = setting
        self.n_steps = n_steps
        self.n_folds = n_folds
        self.learning_rate = learning_rate
        self.penalty = penalty

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.setting not in SETTINGS:
            raise InputError(f"setting must be one of {', '.join(map(repr, SETTINGS))}, got {self.setting!r}.")
        for name in ("n_steps", "n_folds", "learning_rate", "penalty"):
            value = getattr(self, name)
            if value is None:
                continue
            if name not in DEFAULTS[self.setting]:
                raise InputError(f"{name}={value!r} was given with setting={self.setting!r}, which has none.")
            if name in ("n_steps", "n_folds"):
                check_positive_int(value, name)
            else:
                check_number(value, name)
        if self.setting == "package":
            invase_package()

    def _settings(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in DEFAULTS[self.setting]}
        return DEFAULTS[self.setting] | {name: value for name, value in given.items() if value is not None}

    def _train(self, examples: Examples, seed: int, history: History) -> TargetNetworks:
        train = train_with_the_package if self.setting == "package" else train_as_in_the_paper
        return train(examples, seed=seed, history=history, **self._settings())
