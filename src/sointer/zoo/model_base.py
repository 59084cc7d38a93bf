"""What every model of this package shares: fitting, batches, the training loop, saving, a cache of trained models."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from sointer._support import containers
from sointer._support.progress import History
from sointer._support.validation import check_number, check_positive_int, check_random_state, is_integer
from sointer.errors import InputError, LoadError
from sointer.io.storage import DAMAGE, Storage, check_shapes

STORAGE = Storage("model", "model.json", 2, oldest=1)
RECIPE = 1
"""Increased whenever training changes, so that models of an older recipe are not taken from a cache."""
N_REPORTS = 25  # rows of history for each stage

Model = TypeVar("Model", bound="TrainedModel")


class TrainedModel(BaseEstimator):
    """A torch network behind scikit-learn's interface, which can be saved and loaded.

    Subclasses check and convert the data (`_prepare`), build the network (`_network`), train it (`_train`), make a
    trained one ready for predictions (`_adopt`), and list what else a saved model needs (`_metadata`, `_restore`).
    """

    network_: Any
    history_: list[dict[str, Any]]
    learning_rate: float
    random_state: Any
    verbose: bool | None

    def _fit(self: Model, X: Any, Y: Any) -> Model:
        self._check_parameters()
        generator = torch.Generator().manual_seed(int(check_random_state(self.random_state).integers(2**63)))
        inputs, truth = self._prepare(X, Y)
        network = self._network(generator)
        history = History(self.verbose)
        try:
            self._train(network, inputs, truth, generator, history)
        finally:
            history.close()
        if not all(bool(weights.isfinite().all()) for weights in network.parameters()):
            raise InputError(f"Training diverged with learning_rate={self.learning_rate}. Choose a smaller one.")
        self.history_ = history.rows
        self._adopt(network)
        return self

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write the fitted model to a directory (JSON and safetensors), completely or not at all.

        Parameters
        ----------
        directory : path
        """
        check_is_fitted(self)
        metadata = {
            "model": type(self).__name__,
            "parameters": self._plain_parameters(),
            **self._metadata(),
            "history": self.history_,
        }
        STORAGE.write(directory, metadata, dict(self.network_.state_dict()))

    @classmethod
    def load(cls: type[Model], directory: str | os.PathLike[str]) -> Model:
        """Read a model that `save` wrote.

        Parameters
        ----------
        directory : path

        Returns
        -------
        The fitted model.

        Raises
        ------
        LoadError
            If files are missing or damaged, or hold a model of another class.
        """
        metadata, tensors = STORAGE.read(directory)
        if metadata.get("model") != cls.__name__:
            found = f"{directory} holds a {metadata.get('model')}, expected a {cls.__name__}"
            raise LoadError(f"{found}. Use `load` of the class that it holds.")
        try:
            parameters = metadata["parameters"]  # JSON has lists for tuples
            model = cls(**{name: tuple(it) if isinstance(it, list) else it for name, it in parameters.items()})
            model._check_parameters()
            model.history_ = metadata["history"]
            model._restore(metadata)
            with torch.device("meta"):  # no memory is used until the shapes are known to be those of the weights
                check_shapes(model._network(None), tensors)
            network = model._network(None)
            network.load_state_dict(tensors)
        except DAMAGE as error:
            raise LoadError(
                f"{directory} does not hold a whole {cls.__name__} ({type(error).__name__}: {error}). Save it again."
            ) from error
        model._adopt(network)
        return model

    def _plain_parameters(self) -> dict[str, Any]:
        """The constructor's parameters as JSON types; a generator given as random_state becomes None."""
        plain = {}
        for name, value in self.get_params(deep=False).items():
            value = value.item() if isinstance(value, np.generic) else value
            plain[name] = value if isinstance(value, (bool, int, float, str, tuple, list)) else None
        return plain

    def _check_parameters(self) -> None:
        raise NotImplementedError

    def _prepare(self, X: Any, Y: Any) -> tuple[Any, Any]:
        """Inputs and true outputs as `_train` takes them; their formats become attributes."""
        raise NotImplementedError

    def _network(self, generator: torch.Generator | None) -> nn.Module:
        """A network for these formats, with weights drawn by the generator, or still to be loaded without one."""
        raise NotImplementedError

    def _train(self, network: Any, X: Any, Y: Any, generator: torch.Generator, history: History) -> None:
        raise NotImplementedError

    def _adopt(self, network: Any) -> None:
        raise NotImplementedError

    def _metadata(self) -> dict[str, Any]:
        raise NotImplementedError

    def _restore(self, metadata: dict[str, Any]) -> None:
        raise NotImplementedError

    def _fingerprint(self, X: Any, Y: Any) -> tuple[list[Any], list[NDArray[Any]]]:
        """What training depends on besides the parameters: values for JSON, and arrays."""
        raise NotImplementedError


def descend(
    stage: str,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    lr_scale: Callable[[int], float],
    loss_of_batch: Callable[[], Tensor],
    n_steps: int,
    history: History,
    *,
    max_gradient: float | None = None,
    held_out_f1: Callable[[], float] | None = None,
) -> None:
    """Minimise the loss, of a new batch at each step; with `held_out_f1`, the best weights are kept, not the last."""
    if n_steps == 0:
        return
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_scale)
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    report_every, losses = math.ceil(n_steps / N_REPORTS), []
    best, best_state = -math.inf, copy.deepcopy(network.state_dict())
    history.stage(stage, n_steps)
    for step in range(1, n_steps + 1):
        loss = loss_of_batch()
        optimizer.zero_grad()
        loss.backward()
        if max_gradient is not None:
            nn.utils.clip_grad_norm_(weights, max_gradient)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
        history.step(loss=losses[-1])
        if step % report_every == 0 or step == n_steps:
            row: dict[str, Any] = {"stage": stage, "step": step, "loss": sum(losses) / len(losses)}
            losses = []
            if held_out_f1 is not None:
                row["held_out_f1"] = quality = held_out_f1()
                if quality > best:
                    best, best_state = quality, copy.deepcopy(network.state_dict())
            history.record(**row)
    if held_out_f1 is not None:
        network.load_state_dict(best_state)


def fit_or_load(model: Model, X: Any, Y: Any, directory: str | os.PathLike[str]) -> Model:
    """Load a model trained earlier with the same parameters and data, or train it now and save it.

    Models are identified by their class, parameters, data and the version of the training recipe. Each is written
    atomically to a directory of its own; a damaged one is trained again.

    Parameters
    ----------
    model : UNet, ImageDeepValueNetwork, DeepValueNetwork or SPEN
        `random_state` must be an int.
    X, Y : array-like
        As for `model.fit`.
    directory : path
        Where trained models are kept.

    Returns
    -------
    The fitted model: `model` itself if it was trained now, else another object.

    Raises
    ------
    InputError
        If `random_state` is not an int, or the data do not fit.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from sointer.zoo import DeepValueNetwork, fit_or_load
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> model = DeepValueNetwork(n_steps=20, random_state=0)
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     first = fit_or_load(model, X, X > 0, directory)
    ...     again = fit_or_load(model, X, X > 0, directory)
    >>> first is model, again is model
    (True, False)
    """
    if not is_integer(model.random_state):
        raise InputError(
            f"random_state must be an int for a model to be kept, got {model.random_state!r}: otherwise each "
            "training gives another model. Set random_state=0."
        )
    values, arrays = model._fingerprint(X, Y)
    parameters = {name: value for name, value in model._plain_parameters().items() if name != "verbose"}
    key = hashlib.sha256(json.dumps([RECIPE, type(model).__name__, parameters, *values], sort_keys=True).encode())
    for array in arrays:
        key.update(np.ascontiguousarray(array).tobytes())
    path = Path(directory) / f"{type(model).__name__}-{key.hexdigest()[:20]}"
    try:
        return type(model).load(path)
    except LoadError:
        model.fit(X, Y)
        model.save(path)
        return model


def check_share(value: object, what: str) -> None:
    """Raise unless `value` is a number from 0 to less than 1."""
    check_number(value, what, zero=True)
    if not value < 1:  # type: ignore[operator]
        raise InputError(f"{what} must be a share of at least 0 and below 1, got {value!r}.")


def check_sizes(sizes: object, what: str, example: str) -> None:
    """Raise unless `sizes` is a tuple or list of positive ints."""
    if not isinstance(sizes, (tuple, list)) or not sizes:
        raise InputError(f"{what} must be a tuple of ints such as {example}, got {sizes!r}.")
    for size in sizes:
        check_positive_int(size, what)


def endless_batches(n_images: int, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Indices of a batch of images, every image once before any comes again."""
    waiting = torch.empty(0, dtype=torch.int64)
    while True:
        while len(waiting) < batch_size:
            waiting = torch.cat([waiting, torch.randperm(n_images, generator=generator)])
        yield waiting[:batch_size]
        waiting = waiting[batch_size:]


FIRST_SHARE = 0.04
RISING_SHARE = 0.3


def one_cycle(step: int, n_steps: int) -> float:
    """Share of the learning rate at a step: up by a cosine, then down by another to nothing."""
    top = RISING_SHARE * n_steps
    if step < top:
        return FIRST_SHARE + (1 - FIRST_SHARE) * (1 - math.cos(math.pi * step / top)) / 2
    return (1 + math.cos(math.pi * (step - top) / (n_steps - top))) / 2


def check_labels(
    Y: Any, n_rows: int, caller: str, *, n_labels: int | None = None, relaxed: bool = False
) -> NDArray[np.float32]:
    """Y as float32 (rows, labels), of 0 and 1 or, relaxed, of numbers between."""
    given = containers.describe(Y)
    if containers.is_sparse(Y):
        Y = Y.toarray()
    elif containers.is_tensor(Y):
        Y = containers.tensor_to_numpy(Y)
    try:
        table = np.asarray(Y).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{caller}: Y is {given} that cannot be read as numbers ({error}), expected a table of 0 and 1. "
            "Encode labels with sklearn.preprocessing.MultiLabelBinarizer."
        ) from error
    if table.ndim != 2 or table.shape[0] != n_rows or not table.shape[1] or n_labels not in (None, table.shape[1]):
        raise InputError(
            f"{caller}: Y has shape {table.shape}, expected ({n_rows}, {n_labels or 'one or more'}). "
            "Give one row of labels for each row of X."
        )
    fits = (table >= 0) & (table <= 1) if relaxed else (table == 0) | (table == 1)
    if not fits.all():
        wanted = "numbers from 0 to 1" if relaxed else "only 0 and 1"
        raise InputError(
            f"{caller}: Y holds {float(table[~fits][0])!r}, expected {wanted}. "
            "Encode labels with sklearn.preprocessing.MultiLabelBinarizer."
        )
    return table.astype(np.float32)


def label_names(Y: Any, n_labels: int) -> list[str]:
    """The column names of a DataFrame; y0, y1, ... otherwise."""
    return [str(name) for name in Y.columns] if containers.is_frame(Y) else [f"y{i}" for i in range(n_labels)]
