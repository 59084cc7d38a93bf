"""The base of multi-label classifiers that predict label sets by gradient steps on a score, and its networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from sointer._support import containers
from sointer._support.progress import History
from sointer._support.validation import check_number, check_positive_int, some
from sointer.data.inputs import InputFormat
from sointer.errors import InputError
from sointer.zoo.model_base import TrainedModel, check_labels, check_sizes, descend, label_names

BLOCK_ROWS = 512
PADDING = 64  # matrix products of so many rows give a row the same bits whatever stands in the others
MOMENTUM = 0.9
MAX_GRADIENT = 10.0  # rarely reached; keeps a bad batch from ruining the weights

Model = TypeVar("Model", bound="StructuredModel")
Loss = Callable[[Tensor, Tensor], Tensor]
"""Mean loss of a batch, from a_i' F(x) and the true labels, both (rows, labels)."""


class Coupling(NamedTuple):
    """B, as (labels, units), and b of eq. 17-3."""

    B: Tensor
    b: Tensor


def score_of(unary: Tensor, y: Tensor, coupling: Coupling) -> Tensor:
    """Eq. 17-3: sum_i y_i a_i' F(x) + b' softplus(B y) for every row, with `unary` = a_i' F(x)."""
    return (unary * y).sum(dim=1) + F.softplus(y @ coupling.B) @ coupling.b


class LabelNetwork(nn.Module):
    """F, a, B and b of eq. 17-3, with inputs standardised first."""

    shift: Tensor
    scale: Tensor

    def __init__(self, n_features: int, n_labels: int, hidden: tuple[int, ...], label_units: int) -> None:
        super().__init__()
        self.register_buffer("shift", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(n_features))
        widths = [n_features, *hidden, n_labels]
        self.layers = nn.ModuleList(nn.utils.skip_init(nn.Linear, a, b) for a, b in pairwise(widths))
        self.B = nn.Parameter(torch.empty(n_labels, label_units))
        self.b = nn.Parameter(torch.empty(label_units))

    def initialise(self, generator: torch.Generator) -> LabelNetwork:
        """Draw all weights: normal, with the variance 2 / number of inputs."""
        with torch.no_grad():
            for layer in self._linear:
                layer.weight.normal_(0, math.sqrt(2 / layer.in_features), generator=generator)
                layer.bias.zero_()
            self.B.normal_(0, math.sqrt(2 / self.B.shape[0]), generator=generator)
            self.b.normal_(0, math.sqrt(2 / len(self.b)), generator=generator)
        return self

    def standardise(self, mean: NDArray[Any], deviation: NDArray[Any]) -> None:
        """Set what is subtracted from each column and what it is divided by; constant columns are left out."""
        varies = deviation > 1e-6 * np.abs(mean)
        self.shift.copy_(torch.from_numpy(mean))
        self.scale.copy_(torch.from_numpy(np.where(varies, 1 / np.where(varies, deviation, 1), 0)))

    @property
    def coupling(self) -> Coupling:
        """What couples the labels: B and b."""
        return Coupling(self.B, self.b)

    @property
    def weights(self) -> list[Tensor]:
        """What weight decay acts on: all but the offsets."""
        return [*(layer.weight for layer in self._linear), self.B, self.b]

    @property
    def offsets(self) -> list[Tensor]:
        """The offsets of all layers."""
        return [layer.bias for layer in self._linear]

    def unary(self, x: Tensor) -> Tensor:
        """a_i' F(x) for every label: (rows, labels)."""
        x = (x - self.shift) * self.scale
        for layer in self._linear[:-1]:
            x = F.softplus(layer(x))
        result: Tensor = self._linear[-1](x)
        return result

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The score of every row: (rows,)."""
        return score_of(self.unary(x), y, self.coupling)

    @property
    def _linear(self) -> list[nn.Linear]:
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]


class FrozenNetwork:
    """A fitted network for predictions only: sparse rows in, standardisation folded into the first layer.

    The first product runs over the entries of each row alone, so that its output does not depend on the
    rows beside it, nor on whether zeros were stored.
    """

    def __init__(self, network: LabelNetwork) -> None:
        first, *rest = network._linear
        weight = first.weight.detach().double() * network.scale.double()
        self.first: NDArray[Any] = weight.T.float().contiguous().numpy()
        self.offset = (first.bias.detach().double() - weight @ network.shift.double()).float()
        self.rest = [(layer.weight.detach().T.contiguous(), layer.bias.detach()) for layer in rest]
        self.coupling = Coupling(network.B.detach().contiguous(), network.b.detach())
        self.n_labels = len(self.coupling.B)

    def unary(self, X: Any, n_padded: int) -> Tensor:
        """a_i' F(x) for a float32 CSR matrix, with rows of zeros added up to `n_padded`."""
        hidden = torch.zeros(n_padded, self.first.shape[1])
        hidden[: X.shape[0]] = torch.from_numpy(X @ self.first)
        hidden += self.offset
        for weight, offset in self.rest:
            hidden = torch.addmm(offset, F.softplus(hidden), weight)
        return hidden


def relaxed_f1(y: Tensor, truth: Tensor) -> Tensor:
    """Example-F1 of relaxed labels against 0/1 truth, 2 sum min / (sum min + sum max); 1 where both are empty."""
    size = y.sum(dim=1) + truth.sum(dim=1)  # for 0/1 truth, min is y * truth and min + max is y + truth
    f1 = 2 * (y * truth).sum(dim=1) / size.clamp_min(torch.finfo(y.dtype).tiny)
    return torch.where(size > 0, f1, 1.0)


@dataclass(kw_only=True, eq=False, repr=False)
class StructuredModel(ClassifierMixin, TrainedModel):
    """A multi-label classifier that scores label sets by eq. 17-3 and finds the best by gradient steps.

    Subclasses define how to train (`_train`), how to infer (`_infer`), and the sign that makes the score an energy.

    Attributes
    ----------
    threshold_ : float
        The relaxed label from which on a label is predicted.
    n_features_in_, n_outputs_ : int
    feature_names_in_ : array of str
        If X has column names.
    label_names_ : list of str
    classes_ : array of int
    history_ : list of dict
        Loss and time of each stage of training.
    """

    energy_sign: ClassVar[float]
    hidden: tuple[int, ...]
    label_units: int = 16
    n_steps: int
    batch_size: int = 50
    learning_rate: float
    weight_decay: float
    n_inference_steps: int = 20
    step_size: float
    random_state: Any = None
    verbose: bool | None = None

    def fit(self: Model, X: Any, Y: Any) -> Model:
        """Learn from inputs and labels.

        Parameters
        ----------
        X : array (rows, features)
        Y : array (rows, labels)
            0 and 1.

        Returns
        -------
        The fitted model.
        """
        return self._fit(X, Y)

    def _prepare(self, X: Any, Y: Any) -> tuple[Any, NDArray[np.float32]]:
        self.input_format_ = sparse_format(X)
        rows = self._rows(X, "fit")
        labels = check_labels(Y, rows.shape[0], "fit")
        self.label_names_ = label_names(Y, labels.shape[1])
        self.threshold_ = 0.5
        return rows, labels

    def _network(self, generator: torch.Generator | None) -> LabelNetwork:
        n_columns = self.input_format_.n_columns
        network = LabelNetwork(n_columns, len(self.label_names_), tuple(self.hidden), self.label_units)
        return network if generator is None else network.initialise(generator)

    def _train_stage(
        self,
        stage: str,
        network: LabelNetwork,
        batches: Iterator[tuple[Tensor, Tensor]],
        loss: Loss,
        n_steps: int,
        learning_rate: float,
        history: History,
        held_out_f1: Callable[[], float] | None = None,
    ) -> None:
        """Gradient descent with momentum and a cosine learning rate."""

        def loss_of_batch() -> Tensor:
            x, truth = next(batches)
            return loss(network.unary(x), truth)

        def cosine(step: int) -> float:
            return (1 + math.cos(math.pi * step / n_steps)) / 2

        groups: list[dict[str, Any]] = [{"params": network.weights}, {"params": network.offsets, "weight_decay": 0.0}]
        sgd = torch.optim.SGD(groups, lr=learning_rate, momentum=MOMENTUM, weight_decay=self.weight_decay)
        limits: dict[str, Any] = {"max_gradient": MAX_GRADIENT, "held_out_f1": held_out_f1}
        descend(stage, network, sgd, cosine, loss_of_batch, n_steps, history, **limits)

    def _infer(self, unary: Tensor, network: FrozenNetwork) -> Tensor:
        raise NotImplementedError

    def _check_parameters(self) -> None:
        check_sizes(self.hidden, "hidden", "(150,)")
        for name in ("label_units", "n_steps", "batch_size", "n_inference_steps"):
            check_positive_int(getattr(self, name), name)
        for name in ("learning_rate", "step_size"):
            check_number(getattr(self, name), name)
        check_number(self.weight_decay, "weight_decay", zero=True)

    def _adopt(self, network: LabelNetwork) -> None:
        self.network_ = network.requires_grad_(False)
        self.frozen_ = FrozenNetwork(network)
        self.n_features_in_ = self.input_format_.n_features
        if self.input_format_.columns:
            self.feature_names_in_ = np.array(self.input_format_.feature_names, dtype=object)
        self.n_outputs_ = len(self.label_names_)
        self.classes_ = np.arange(self.n_outputs_)

    # --- predictions ---------------------------------------------------------------------------------------

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Predict labels.

        Parameters
        ----------
        X : array (rows, features)

        Returns
        -------
        array of int (rows, labels)
            0 and 1.
        """
        return (self.predict_proba(X) >= self.threshold_).astype(np.int64)

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """Predict relaxed labels, those after inference.

        Parameters
        ----------
        X : array (rows, features)

        Returns
        -------
        array (rows, labels)
            In [0, 1].
        """
        check_is_fitted(self)
        return self._relaxed_labels(self.frozen_, self._rows(X, "predict"))

    def energy(self, X: Any, Y: Any) -> NDArray[np.float32]:
        """Measure how badly each row of labels fits its input, the lower the better.

        Parameters
        ----------
        X : array (rows, features)
        Y : array (rows, labels)
            0 and 1, or relaxed.

        Returns
        -------
        array (rows,)
        """
        check_is_fitted(self)
        rows = self._rows(X, "energy")
        labels = check_labels(Y, rows.shape[0], "energy", n_labels=self.n_outputs_, relaxed=True)
        predictions = np.empty(rows.shape[0], dtype=np.float32)
        with torch.inference_mode():
            for block, unary in _unary_blocks(self.frozen_, rows):
                y = torch.zeros_like(unary)
                n_real = len(predictions[block])
                y[:n_real] = torch.from_numpy(labels[block])
                predictions[block] = self.energy_sign * score_of(unary, y, self.frozen_.coupling)[:n_real].numpy()
        return predictions

    def score(self, X: Any, Y: Any, sample_weight: Any = None) -> float:
        """Mean example-F1 of the predictions (1 for a row without labels, rightly predicted so).

        Parameters
        ----------
        X : array (rows, features)
        Y : array (rows, labels)
            0 and 1.
        sample_weight : array (rows,), optional
            Weights of the rows.

        Returns
        -------
        float
        """
        predicted = torch.from_numpy(self.predict(X)).double()
        truth = check_labels(Y, len(predicted), "score", n_labels=self.n_outputs_)
        each = relaxed_f1(predicted, torch.from_numpy(truth).double()).numpy()
        return float(np.average(each, weights=sample_weight))

    def _relaxed_labels(self, network: FrozenNetwork, rows: Any) -> NDArray[np.float32]:
        predictions = np.empty((rows.shape[0], network.n_labels), dtype=np.float32)
        with torch.inference_mode():
            for block, unary in _unary_blocks(network, rows):
                predictions[block] = self._infer(unary, network)[: len(predictions[block])].numpy()
        return predictions

    def _rows(self, X: Any, caller: str) -> Any:
        """X as a float32 CSR matrix, whatever it came in."""
        rows = self.input_format_.encode(X, caller)
        with np.errstate(over="ignore"):
            entries = rows.data.astype(np.float32)
        if not np.isfinite(entries).all():
            raise InputError(
                f"{caller}: X holds {rows.data[~np.isfinite(entries)][0]}, expected numbers below 3e38 in size. "
                "Rescale that column, or remove the value."
            )
        return containers.csr_array((entries, rows.indices, rows.indptr), shape=rows.shape)

    # --- saving ------------------------------------------------------------------------------------------

    def _metadata(self) -> dict[str, Any]:
        return {
            "input_format": self.input_format_.to_json(),
            "labels": self.label_names_,
            "threshold": self.threshold_,
        }

    def _restore(self, metadata: dict[str, Any]) -> None:
        self.input_format_ = InputFormat.from_json(metadata["input_format"])
        self.label_names_ = [str(name) for name in metadata["labels"]]
        self.threshold_ = float(metadata["threshold"])

    def _fingerprint(self, X: Any, Y: Any) -> tuple[list[Any], list[NDArray[Any]]]:
        input_format = sparse_format(X)
        rows = input_format.encode(X, "fit_or_load")
        labels = check_labels(Y, rows.shape[0], "fit_or_load")
        values = [input_format.to_json(), label_names(Y, labels.shape[1]), rows.shape, labels.shape]
        return values, [rows.indptr, rows.indices, rows.data, np.packbits(labels > 0)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.single_output = False
        tags.target_tags.multi_output = True
        tags.classifier_tags.multi_label = True
        return tags


def _unary_blocks(network: FrozenNetwork, rows: Any) -> Iterator[tuple[slice, Tensor]]:
    """a_i' F(x) a block of rows at a time, padded with rows to be dropped."""
    for start in range(0, rows.shape[0], BLOCK_ROWS):
        block = slice(start, min(start + BLOCK_ROWS, rows.shape[0]))
        n_padded = -(-(block.stop - start) // PADDING) * PADDING
        yield block, network.unary(rows[block], n_padded)


def sparse_format(X: Any) -> InputFormat:
    """The format of X, changed to give sparse rows whatever X comes in."""
    form = InputFormat.infer(X)
    if len(form.missing_columns):
        features = np.unique(form.column_feature[form.missing_columns])
        names = some([form.feature_names[feature] for feature in features])
        raise InputError(f"fit: X has NaN or missing values in {names}, which this model cannot take; impute them.")
    return replace(form, kind="csr")
