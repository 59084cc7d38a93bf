"""The training of INVASE: by policy gradient as in its paper, or by the `invase` package."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sointer._support.torch_state import seeded
from sointer.baselines.trained import Examples, TargetNetworks, layers, losses, to_columns
from sointer.errors import require_extra
from sointer.training.history import History

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
