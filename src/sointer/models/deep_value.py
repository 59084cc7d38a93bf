"""Deep value network (Gygli, Norouzi & Angelova 2017): learn how good an answer is, then improve the answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer.errors import InputError
from sointer.models.base import StructuredModel
from sointer.models.checks import check_number, check_share
from sointer.models.fitting import Fitting
from sointer.models.networks import Coupling, FrozenNetwork, LabelNetwork
from sointer.models.relaxed import climb_loss, climb_value, value_loss


class DeepValueNetwork(StructuredModel):
    """A multi-label classifier: a network that predicts the example-F1 of a label set, and climbs it.

    The value is sigmoid(sum_i y_i a_i' F(x) + b' softplus(B y)), trained by cross-entropy; the energy is minus
    its logit. It learns from label sets of four kinds: where inference ends, where its first step leads from
    nothing or from the truth, adversarial ones (steps that raise the loss), and the truth.

    Parameters
    ----------
    hidden : widths of the hidden layers of F.
    label_units : rows of B, which couple the labels.
    n_steps, batch_size, learning_rate, weight_decay : gradient descent with momentum, cosine learning rate.
    n_inference_steps, step_size : gradient ascent of the value on labels in [0, 1], from zeros.
    adversarial_share, truth_share : shares of the training label sets; half of the rest are where inference
        ends, half where its first step leads.
    adversarial_step_size : length of the steps that raise the loss.
    random_state : a number gives the same model every time.
    verbose : show progress; None shows it on a terminal only.

    Fitted: `threshold_`, `n_features_in_`, `feature_names_in_` (if X has names), `n_outputs_`, `label_names_`,
    `classes_`, `history_`.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.models import DeepValueNetwork
    >>> X = np.random.default_rng(0).normal(size=(300, 4))
    >>> Y = (X[:, :2] > 0).astype(int)
    >>> DeepValueNetwork(n_steps=500, random_state=0).fit(X, Y).predict([[2.0, -2.0, 0.0, 0.0]])
    array([[1, 0]])
    """

    energy_sign = -1.0

    def __init__(
        self,
        *,
        hidden: tuple[int, ...] = (150,),
        label_units: int = 16,
        n_steps: int = 10_000,
        batch_size: int = 50,
        learning_rate: float = 0.05,
        weight_decay: float = 1e-3,
        n_inference_steps: int = 20,
        step_size: float = 0.5,
        adversarial_share: float = 0.1,
        truth_share: float = 0.1,
        adversarial_step_size: float = 0.05,
        random_state: Any = None,
        verbose: bool | None = None,
    ) -> None:
        self.hidden = hidden
        self.label_units = label_units
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.n_inference_steps = n_inference_steps
        self.step_size = step_size
        self.adversarial_share = adversarial_share
        self.truth_share = truth_share
        self.adversarial_step_size = adversarial_step_size
        self.random_state = random_state
        self.verbose = verbose

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

    def _train(self, network: LabelNetwork, X: Any, Y: NDArray[np.float32], fitting: Fitting) -> None:
        def loss_of(unary: Tensor, truth: Tensor) -> Tensor:
            y = self._proposals(unary.detach(), network.coupling, truth, fitting.generator)
            return value_loss(unary, network.coupling, y, truth).mean()

        fitting.run("value network", network, X, Y, loss_of, self.n_steps, self.learning_rate)

    @torch.no_grad()
    def _proposals(self, unary: Tensor, coupling: Coupling, truth: Tensor, generator: torch.Generator) -> Tensor:
        """Label sets to learn the value of, each row's of a kind drawn by chance."""
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
