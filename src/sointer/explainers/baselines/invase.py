"""INVASE: a selector taught by how much the error of a predictor grows without what it leaves out."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sointer._support.progress import History
from sointer._support.torch_state import seeded
from sointer._support.validation import check_number, check_positive_int
from sointer.errors import InputError, require_extra
from sointer.explainers.baselines.trained import Examples, TargetNetworks, TrainedBaseline, layers, losses, to_columns

SELECTOR_HIDDEN = (100, 100)
PREDICTOR_HIDDEN = (200, 200)
ROWS_PER_STEP = 1000
STEPS_PER_REPORT = 100
WEIGHT_DECAY = 1e-3
ESTIMATOR_STEPS, ESTIMATOR_ROWS, ESTIMATOR_RATE = 2000, 128, 1e-3
TINY = 1e-8


# --- as in the paper ----------------------------------------------------------------------------------------


def train_as_in_the_paper(
    examples: Examples, *, seed: int, history: History, n_steps: int, learning_rate: float, penalty: float
) -> TargetNetworks:
    """Selector, predictor and baseline, one step of each per batch."""
    n_rows, n_columns = examples.x.shape
    n_classes = examples.truth.shape[1]
    with seeded(seed):
        selector = nn.Sequential(layers(n_columns, SELECTOR_HIDDEN, examples.n_units, nn.SELU), nn.Sigmoid())
        predictor = layers(n_columns, PREDICTOR_HIDDEN, n_classes, nn.SELU, norm=True)
        baseline = layers(n_columns, PREDICTOR_HIDDEN, n_classes, nn.SELU, norm=True)
    generator = torch.Generator().manual_seed(seed)
    adam = [
        torch.optim.Adam(network.parameters(), lr=learning_rate, weight_decay=WEIGHT_DECAY)
        for network in (predictor, baseline, selector)
    ]
    history.stage("training INVASE", n_steps)
    for step in range(1, n_steps + 1):
        batch = torch.randint(n_rows, (min(ROWS_PER_STEP, n_rows),), generator=generator)
        x, truth = examples.x[batch], examples.truth[batch]
        probability = selector(x)
        drawn = torch.bernoulli(probability.detach(), generator=generator)
        of_predictor = losses(predictor(x * to_columns(drawn, examples.unit_of_column)), truth)
        of_baseline = losses(baseline(x), truth)
        gain = (of_baseline - of_predictor).detach()
        of_selector = selector_loss(probability, drawn, gain, penalty)
        for optimiser, loss in zip(adam, (of_predictor.mean(), of_baseline.mean(), of_selector), strict=True):
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        history.step(loss=of_predictor.mean().item())
        if step % STEPS_PER_REPORT == 0:
            size = float(probability.detach().sum(dim=1).mean())
            history.record(stage="training", step=step, loss=of_predictor.mean().item(), size=size)
    history.close()
    return TargetNetworks(selector, baseline)


def selector_loss(probability: Tensor, drawn: Tensor, gain: Tensor, penalty: float) -> Tensor:
    """- gain log pi(drawn) + penalty |pi|_1 / d, averaged over rows; gain is the baseline's error - the predictor's."""
    log = drawn * (probability + TINY).log() + (1 - drawn) * (1 - probability + TINY).log()
    return (-gain * log.sum(dim=1)).mean() + penalty * probability.mean()


# --- with the package ---------------------------------------------------------------------------------------


class Estimator:
    """A network that has learned the model's outputs, as the package wants estimators: probabilities of classes."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network

    def predict_proba(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Probabilities of the classes: (rows, classes)."""
        with torch.no_grad():
            logits: Tensor = self.network(torch.from_numpy(np.asarray(X, dtype=np.float32)))
        return np.asarray(logits.softmax(dim=1).double().numpy())


class PackageSelector(nn.Module):
    """The mean of the package's networks, from columns to units: that of its largest column."""

    def __init__(self, networks: Sequence[nn.Module], unit_of_column: Tensor, n_units: int) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.unit_of_column = unit_of_column
        self.n_units = n_units

    def forward(self, x: Tensor) -> Tensor:
        """The largest score among the columns of each unit: (rows, units)."""
        of_columns = torch.stack([network(x) for network in self.networks]).mean(dim=0)
        of_units = torch.zeros(len(x), self.n_units)
        return of_units.scatter_reduce(1, self.unit_of_column.expand(len(x), -1), of_columns, "amax")


def invase_package() -> ModuleType:
    """The package. Importing it takes seconds, and removes the handlers that a program has given to loguru."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pydantic's, about functions that it will drop
        return require_extra("invase", "baselines")


def train_with_the_package(
    examples: Examples, *, seed: int, history: History, n_steps: int, n_folds: int
) -> TargetNetworks:
    """The package's selector for an estimator that has learned the model's outputs."""
    predictor = learn_outputs(examples, seed, history)
    pandas = require_extra("pandas", "baselines")
    X = examples.x.double().numpy()
    history.stage("training the invase package", 1)
    with warnings.catch_warnings(), global_generators_kept():
        warnings.simplefilter("ignore")
        fitted = invase_package().INVASE(
            Estimator(predictor),
            pandas.DataFrame(X),
            pandas.Series(np.zeros(len(X))),
            n_epoch=n_steps,
            n_folds=n_folds,
            prefit=True,
            random_state=seed,
        )
    history.close()
    folds = getattr(fitted.explainer, "fold_models", [fitted.explainer])
    selector = PackageSelector([fold.critic.cpu() for fold in folds], examples.unit_of_column, examples.n_units)
    return TargetNetworks(selector, predictor)


def learn_outputs(examples: Examples, seed: int, history: History) -> nn.Module:
    """A network from rows to the model's outputs."""
    with seeded(seed):
        network = layers(examples.x.shape[1], PREDICTOR_HIDDEN, examples.truth.shape[1], nn.ReLU)
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(network.parameters(), lr=ESTIMATOR_RATE)
    history.stage("learning the outputs", ESTIMATOR_STEPS)
    for _ in range(ESTIMATOR_STEPS):
        batch = torch.randint(len(examples.x), (ESTIMATOR_ROWS,), generator=generator)
        loss = losses(network(examples.x[batch]), examples.truth[batch]).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        history.step(loss=loss.item())
    history.close()
    return network.eval()


@contextmanager
def global_generators_kept() -> Iterator[None]:
    """The package seeds Python's, numpy's and torch's global generators; they are put back afterwards."""
    before, numpy_before = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(before)
        np.random.set_state(numpy_before)  # noqa: NPY002


Protocol = Literal["package", "paper"]
PROTOCOLS: tuple[Protocol, ...] = ("package", "paper")
DEFAULTS: dict[str, dict[str, Any]] = {
    "package": {"n_steps": 10_000, "n_folds": 1},
    "paper": {"n_steps": 10_000, "learning_rate": 1e-4, "penalty": 0.1},
}


@dataclass(kw_only=True, eq=False, repr=False)
class Invase(TrainedBaseline):
    """INVASE (Yoon, Jordon & van der Schaar 2019), with the `invase` package or as in its paper.

    The package does not implement the method of the paper. It learns to predict how much the error of an estimator
    grows when one feature is redrawn, and queries the estimator in every step: millions of rows for a few hundred
    epochs. To respect `query_budget`, its estimator is here a network (two hidden layers of 200) that has learned the
    model's outputs. It lists all triples of features in every step: minutes for 20 features, hours for 100. It leaves
    dropout on while it explains; here it is off, so that a row always has the same explanation. Importing it removes
    loguru handlers that the program has set.

    protocol="paper" is our own implementation of the paper: a selector (two hidden layers of 100) draws a mask, a
    predictor (two of 200, batch normalisation) sees only what was drawn, a baseline of the same shape sees everything,
    and the difference of their errors, with a penalty on the share of units selected, trains the selector by policy
    gradient. It needs no package.

    Parameters
    ----------
    model, k, removal, feature_names, output_names, output_kind, method, tolerance, groups : as in `SOInter`
    batch_size, random_state, verbose : as in `SOInter`
        With k="auto" all units with 0.5 or more are selected, at least one.
    query_budget : int, optional
        Maximum number of rows that fit queries; by default all rows of X.
    protocol : {"package", "paper"}, default "package"
        "package" needs the extra `baselines`.
    n_steps : int, optional
        Maximum number of epochs of the package, which stops early, or of batches of 1,000 as in the paper; 10,000 by
        default.
    n_folds : int, optional
        Selectors to average (package only), 1 by default; the package itself uses 5, which takes five times as long.
    learning_rate, penalty : float, optional
        Only for the paper's training, 1e-4 and 0.1 by default.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.explainers.baselines import Invase
    >>> X = np.random.default_rng(0).normal(size=(300, 5))
    >>> model = lambda X: np.column_stack([X[:, 0] > 0, X[:, 3] > 0])
    >>> explainer = Invase(model, k=1, protocol="paper", n_steps=300, learning_rate=1e-3, random_state=0)
    >>> explainer.fit(X).explain(X[:3], target=1).selected.ravel().tolist(), explainer.n_explain_queries_
    ([3, 3, 3], 3)
    """

    protocol: Protocol = "package"
    n_steps: int | None = None
    n_folds: int | None = None
    learning_rate: float | None = None
    penalty: float | None = None

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.protocol not in PROTOCOLS:
            raise InputError(f"protocol must be one of {', '.join(map(repr, PROTOCOLS))}, got {self.protocol!r}.")
        for name in ("n_steps", "n_folds", "learning_rate", "penalty"):
            value = getattr(self, name)
            if value is None:
                continue
            if name not in DEFAULTS[self.protocol]:
                raise InputError(f"{name}={value!r} was given with protocol={self.protocol!r}, which has none.")
            if name in ("n_steps", "n_folds"):
                check_positive_int(value, name)
            else:
                check_number(value, name)
        if self.protocol == "package":
            invase_package()

    def _settings(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in DEFAULTS[self.protocol]}
        return DEFAULTS[self.protocol] | {name: value for name, value in given.items() if value is not None}

    def _train(self, examples: Examples, seed: int, history: History) -> TargetNetworks:
        train = train_with_the_package if self.protocol == "package" else train_as_in_the_paper
        return train(examples, seed=seed, history=history, **self._settings())
