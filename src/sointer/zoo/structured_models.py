"""Two multi-label classifiers: a deep value network, and a structured prediction energy network (SPEN)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from sointer._support.progress import History
from sointer._support.validation import check_number, check_positive_int
from sointer.errors import InputError
from sointer.zoo.model_base import check_share
from sointer.zoo.structured_base import Coupling, FrozenNetwork, LabelNetwork, StructuredModel, relaxed_f1, score_of

THRESHOLDS = np.arange(0.02, 0.99, 0.02)


@dataclass(kw_only=True, eq=False, repr=False)
class DeepValueNetwork(StructuredModel):
    """A multi-label classifier: a network that predicts the example-F1 of a label set, which inference maximises.

    The value is sigmoid(sum_i y_i a_i' F(x) + b' softplus(B y)), trained by cross-entropy; the energy is minus
    its logit. It learns from label sets of four kinds: where inference ends, where its first step leads from
    nothing or from the truth, adversarial ones (steps that raise the loss), and the truth. Fitted attributes are those
    of `StructuredModel`.

    Parameters
    ----------
    hidden : tuple of int
        Widths of the hidden layers of F.
    label_units : int
        Rows of B, which couple the labels.
    n_steps, batch_size, learning_rate, weight_decay : numbers
        Gradient descent with momentum and a cosine learning rate.
    n_inference_steps, step_size : numbers
        Gradient ascent of the value on labels in [0, 1], from zeros.
    adversarial_share, truth_share : float
        Shares of the training label sets; half of the others are the results of inference, half those of its first
        step.
    adversarial_step_size : float
        Length of the steps that raise the loss.
    random_state : int, Generator or None
        An int gives the same model every time.
    verbose : bool, optional
        Show progress; by default on a terminal only.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.zoo import DeepValueNetwork
    >>> X = np.random.default_rng(0).normal(size=(300, 4))
    >>> Y = (X[:, :2] > 0).astype(int)
    >>> DeepValueNetwork(n_steps=500, random_state=0).fit(X, Y).predict([[2.0, -2.0, 0.0, 0.0]])
    array([[1, 0]])
    """

    energy_sign = -1.0

    hidden: tuple[int, ...] = (150,)
    n_steps: int = 10_000
    learning_rate: float = 0.05
    weight_decay: float = 1e-3
    step_size: float = 0.5
    adversarial_share: float = 0.1
    truth_share: float = 0.1
    adversarial_step_size: float = 0.05

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_share(self.adversarial_share, "adversarial_share")
        check_share(self.truth_share, "truth_share")
        check_number(self.adversarial_step_size, "adversarial_step_size")
        if self.adversarial_share + self.truth_share >= 1:
            raise InputError(
                f"adversarial_share + truth_share must be below 1, got {self.adversarial_share} + {self.truth_share}; "
                "what is left is learned from inference. Lower one of them."
            )

    def _train(
        self, network: LabelNetwork, X: Any, Y: NDArray[np.float32], generator: torch.Generator, history: History
    ) -> None:
        network.standardise(*column_moments(X))

        def loss(unary: Tensor, truth: Tensor) -> Tensor:
            y = self._proposals(unary.detach(), network.coupling, truth, generator)
            return value_loss(unary, network.coupling, y, truth).mean()

        batches = row_batches(X, Y, self.batch_size, generator)
        self._train_stage("value network", network, batches, loss, self.n_steps, self.learning_rate, history)

    @torch.no_grad()
    def _proposals(self, unary: Tensor, coupling: Coupling, truth: Tensor, generator: torch.Generator) -> Tensor:
        """Label sets to learn the value of, of a kind drawn at random for each row."""
        draw, side = torch.rand(2, len(truth), generator=generator)
        n_adversarial, n_true = self.adversarial_share, self.adversarial_share + self.truth_share
        adversarial, true = draw < n_adversarial, (draw >= n_adversarial) & (draw < n_true)
        ended = draw >= (1 + n_true) / 2
        begun = ~(adversarial | true | ended)
        y: Tensor = truth * (true | (side < 0.5))[:, None]
        y[ended] = climb_value(unary[ended], coupling, self.n_inference_steps, self.step_size)
        y[begun] = climb_value(unary[begun], coupling, 1, self.step_size, start=y[begun])
        y[adversarial] = climb_loss(
            unary[adversarial], coupling, truth[adversarial], y[adversarial], 1, self.adversarial_step_size
        )
        return y

    def _infer(self, unary: Tensor, network: FrozenNetwork) -> Tensor:
        return climb_value(unary, network.coupling, self.n_inference_steps, self.step_size)


@dataclass(kw_only=True, eq=False, repr=False)
class SPEN(StructuredModel):
    """A multi-label classifier: labels of least energy sum_i y_i a_i' F(x) + b' softplus(B y), by gradient steps.

    F and a are first trained label by label with the logistic loss; then all is trained with the structured
    hinge, whose margin grows with 1 - example-F1, against labels found by loss-augmented inference. Rows held
    out of training decide which weights are kept, and from which threshold on a relaxed label is predicted. Fitted
    attributes are those of `StructuredModel`.

    Parameters
    ----------
    hidden : tuple of int
        Widths of the layers of F.
    label_units : int
        Rows of B, which couple the labels.
    n_pretraining_steps, pretraining_rate : numbers
        Steps and learning rate with the logistic loss.
    n_steps, learning_rate : numbers
        Steps and learning rate with the structured hinge.
    batch_size, weight_decay : numbers
        For both.
    margin : float
        By how much the energy of labels without any hit must exceed that of the truth.
    n_inference_steps, step_size : numbers
        Mirror descent on the labels, from one half.
    validation_share : float
        Share of the rows held out; 0 keeps the last weights and a threshold of one half.
    random_state, verbose
        As in `DeepValueNetwork`.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.zoo import SPEN
    >>> X = np.random.default_rng(0).normal(size=(300, 4))
    >>> Y = (X[:, :2] > 0).astype(int)
    >>> SPEN(n_pretraining_steps=200, n_steps=200, random_state=0).fit(X, Y).predict([[2.0, -2.0, 0.0, 0.0]])
    array([[1, 0]])
    """

    energy_sign = 1.0

    hidden: tuple[int, ...] = (150, 150)
    n_pretraining_steps: int = 3000
    pretraining_rate: float = 0.01
    n_steps: int = 2000
    learning_rate: float = 0.02
    weight_decay: float = 2e-2
    margin: float = 20.0
    step_size: float = 0.1
    validation_share: float = 0.1

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_positive_int(self.n_pretraining_steps, "n_pretraining_steps", minimum=0)
        check_number(self.pretraining_rate, "pretraining_rate")
        check_number(self.margin, "margin")
        check_share(self.validation_share, "validation_share")

    def _train(
        self, network: LabelNetwork, X: Any, Y: NDArray[np.float32], generator: torch.Generator, history: History
    ) -> None:
        network.standardise(*column_moments(X))

        n_held_out = int(self.validation_share * len(Y))
        order = torch.randperm(len(Y), generator=generator).numpy()
        held_out, used = order[:n_held_out], order[n_held_out:]
        with torch.no_grad():
            network.b.mul_(0.1)  # what couples labels starts weak: pre-training does not know of it

        def hinge(unary: Tensor, truth: Tensor) -> Tensor:
            y = self._most_violating(unary.detach(), network.coupling, truth)
            return structured_hinge(unary, network.coupling, y, truth, self.margin).mean()

        def held_out_f1() -> float:
            return self._best_threshold(network, X[held_out], Y[held_out])[1]

        X_used, Y_used = X[used], Y[used]
        for stage, loss, n_steps, learning_rate in (
            ("label by label", _logistic_loss, self.n_pretraining_steps, self.pretraining_rate),
            ("all labels", hinge, self.n_steps, self.learning_rate),
        ):
            batches = row_batches(X_used, Y_used, self.batch_size, generator)
            judge = held_out_f1 if n_held_out else None
            self._train_stage(stage, network, batches, loss, n_steps, learning_rate, history, judge)
        if n_held_out:
            self.threshold_ = self._best_threshold(network, X[held_out], Y[held_out])[0]

    @torch.no_grad()
    def _most_violating(self, unary: Tensor, coupling: Coupling, truth: Tensor) -> Tensor:
        return descend_energy(unary, coupling, self.n_inference_steps, self.step_size, truth=truth, margin=self.margin)

    def _best_threshold(self, network: LabelNetwork, X: Any, Y: NDArray[np.float32]) -> tuple[float, float]:
        """The threshold of best example-F1 (of equal ones, the middle), and that F1."""
        relaxed, truth = torch.from_numpy(self._relaxed_labels(FrozenNetwork(network), X)), torch.from_numpy(Y)
        scores = np.array([float(relaxed_f1((relaxed >= t).float(), truth).mean()) for t in THRESHOLDS])
        return float(np.median(THRESHOLDS[scores >= scores.max() - 1e-9])), float(scores.max())

    def _infer(self, unary: Tensor, network: FrozenNetwork) -> Tensor:
        return descend_energy(unary, network.coupling, self.n_inference_steps, self.step_size)


def _logistic_loss(unary: Tensor, truth: Tensor) -> Tensor:
    """Each label on its own, with probability sigmoid(-a_i' F(x)): low energy is likely."""
    return F.binary_cross_entropy_with_logits(-unary, truth, reduction="none").sum(dim=1).mean()


def score_gradient(unary: Tensor, y: Tensor, coupling: Coupling) -> Tensor:
    """The gradient of `score_of` in y: (rows, labels)."""
    return unary + (torch.sigmoid(y @ coupling.B) * coupling.b) @ coupling.B.T


def row_batches(
    X: Any, Y: NDArray[np.float32], batch_size: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless dense batches of CSR inputs and their labels, every row once before any comes again."""
    while True:
        order = torch.randperm(len(Y), generator=generator).numpy()
        shuffled, labels = X[order], torch.from_numpy(Y[order])
        for start in range(0, len(Y), batch_size):
            batch = slice(start, start + batch_size)
            yield torch.from_numpy(shuffled[batch].toarray()), labels[batch]


def column_moments(X: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of every column of a CSR matrix."""
    n_rows, n_columns = X.shape
    mean = np.bincount(X.indices, X.data, minlength=n_columns) / n_rows
    squares = np.bincount(X.indices, (X.data - mean[X.indices]) ** 2, minlength=n_columns)
    n_zeros = n_rows - np.bincount(X.indices, minlength=n_columns)
    return mean, np.sqrt((squares + n_zeros * mean**2) / n_rows)


def relaxed_f1_gradient(y: Tensor, truth: Tensor) -> Tensor:
    """The gradient of `relaxed_f1` in y; 0 where both are empty, at which F1 jumps."""
    size = (y.sum(dim=1) + truth.sum(dim=1))[:, None]
    gradient = (2 * truth - relaxed_f1(y, truth)[:, None]) / size.clamp_min(torch.finfo(y.dtype).tiny)
    return torch.where(size > 0, gradient, 0.0)


def climb_value(
    unary: Tensor, coupling: Coupling, n_steps: int, step_size: float, start: Tensor | None = None
) -> Tensor:
    """Gradient ascent of sigmoid(score) on labels kept in [0, 1], from zeros or from `start`."""
    B, b = coupling
    back = (B * b).T.contiguous()
    y = torch.zeros_like(unary) if start is None else start.clone()
    work = torch.empty_like(unary)
    for _ in range(n_steps):
        projected = y @ B
        score = torch.mul(unary, y, out=work).sum(dim=1).add_(F.softplus(projected) @ b)
        value = score.sigmoid_()
        slope = value.mul_(1 - value).mul_(step_size)
        gradient = torch.addmm(unary, projected.sigmoid_(), back, out=work)
        y.addcmul_(gradient, slope[:, None]).clamp_(0, 1)
    return y


def value_loss(unary: Tensor, coupling: Coupling, y: Tensor, truth: Tensor) -> Tensor:
    """Cross-entropy between the value and the example-F1 it should predict, for every row."""
    return F.binary_cross_entropy_with_logits(score_of(unary, y, coupling), relaxed_f1(y, truth), reduction="none")


def climb_loss(
    unary: Tensor, coupling: Coupling, truth: Tensor, start: Tensor, n_steps: int, step_size: float
) -> Tensor:
    """Adversarial labels: gradient ascent of `value_loss` on labels kept in [0, 1], from `start`."""
    y = start
    for _ in range(n_steps):
        score = score_of(unary, y, coupling)[:, None]
        f1 = relaxed_f1(y, truth)[:, None]
        through_value = (torch.sigmoid(score) - f1) * score_gradient(unary, y, coupling)
        through_f1 = score * relaxed_f1_gradient(y, truth)
        y = (y + step_size * (through_value - through_f1)).clamp(0, 1)
    return y


def descend_energy(
    unary: Tensor, coupling: Coupling, n_steps: int, step_size: float, *, truth: Tensor | None = None, margin: float = 0
) -> Tensor:
    """Mirror descent of the score taken as an energy, on labels in (0, 1), from one half.

    Steps are taken on the labels' logits, so that labels never leave (0, 1). With `truth` and `margin`, inference
    is loss-augmented: it lowers E(x, y) - margin * (1 - F1(y, truth)).
    """
    B, b = coupling
    back = (B * b).T.contiguous()
    logits = torch.zeros_like(unary)
    y = torch.full_like(unary, 0.5)
    gradient = torch.empty_like(unary)
    for _ in range(n_steps):
        torch.addmm(unary, (y @ B).sigmoid_(), back, out=gradient)
        if truth is not None:
            gradient.add_(relaxed_f1_gradient(y, truth), alpha=margin)
        logits.sub_(gradient, alpha=step_size)
        torch.sigmoid(logits, out=y)
    return y


def structured_hinge(unary: Tensor, coupling: Coupling, y: Tensor, truth: Tensor, margin: float) -> Tensor:
    """max(0, E(x, truth) - E(x, y) + margin * (1 - F1(y, truth))) for every row."""
    gap = score_of(unary, truth, coupling) - score_of(unary, y, coupling)
    return F.relu(gap + margin * (1 - relaxed_f1(y, truth)))
