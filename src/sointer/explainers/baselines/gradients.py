"""Gradient x input and expected gradients: what the model's own derivatives say. They look inside the model."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer._support.containers import describe
from sointer._support.validation import check_positive_int
from sointer.blackbox.adapters.torch import TorchPredict
from sointer.blackbox.box import BlackBox
from sointer.errors import InputError
from sointer.explainers.baselines.base import Baseline, QueriedRows
from sointer.masking.rows import ExplainedRows, Subject
from sointer.masking.selection import Scored

N_SAMPLES = 50


class _ByGradients(Baseline):
    """Scores are the sizes of the sums over each unit's columns (all channels of a pixel)."""

    queries_to_explain = True

    def _check_settings(self) -> None:
        if isinstance(self.model, torch.nn.Module):
            return
        if not (isinstance(self.model, BlackBox) and isinstance(self.model.predict, TorchPredict)):
            raise InputError(
                f"{type(self).__name__} looks inside the model, which must be a torch.nn.Module, got "
                f"{describe(self.model)}. Use a method that does not look inside, such as Rise or ShapleySampling."
            )

    def _learn(self, subject: Subject, queried: QueriedRows) -> None:
        form = subject.rows.input_format
        if form.is_categorical.any():
            name = form.feature_names[int(np.argmax(form.is_categorical))]
            raise InputError(f"{type(self).__name__} takes numbers only, but feature {name!r} holds categories.")
        predict = subject.rows.model.predict
        assert isinstance(predict, TorchPredict)
        self.module_ = predict

    def _scored(self, source: ExplainedRows, targets: NDArray[np.int64]) -> Scored:
        columns = np.empty((len(targets), source.input_format.n_columns))
        # One sample at a time, so that its last digits do not depend on the samples around it.
        for i, (rng, target) in enumerate(zip(self._row_generators(source), targets.tolist(), strict=True)):
            columns[i] = self._of_columns(source, source.rows(np.array([i])), source.outputs_of(target), rng)
        if not np.isfinite(columns).all():
            raise InputError(f"the gradients of {self.module_!r} are not finite; check its weights and inputs.")
        values, _ = source.encoded_values(targets)
        return Scored(np.abs(source.units().sum_columns(columns)).astype(np.float32), values)

    @abstractmethod
    def _of_columns(
        self, source: ExplainedRows, row: NDArray[np.float64], outputs: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """What each column of one encoded row contributes to the mean of some outputs: (columns,)."""

    def _gradient(
        self, source: ExplainedRows, points: NDArray[np.float64], outputs: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """The gradient of the mean of some outputs at encoded points: (points, columns)."""
        image = source.input_format.image

        def part(reply: Tensor) -> Tensor:
            return reply[:, torch.from_numpy(outputs).to(reply.device)].mean(1)

        found = self.module_.gradient(points if image is None else image.unflatten(points), part)
        return found.reshape(points.shape)


class GradientTimesInput(_ByGradients):
    """Gradient x input (Shrikumar et al. 2016): the derivative at the sample, times the sample. Looks inside the model.

    The model must be a torch.nn.Module. Let it return logits: the gradient of a saturated probability is almost zero.
    Scores are sizes. Explaining queries the model once per sample, for the value to explain; passes for gradients are
    not counted.

    Parameters
    ----------
    model, k, removal, feature_names, output_names, output_kind, method, tolerance, groups : as in `SOInter`
    batch_size, random_state, verbose : as in `SOInter`

    Examples
    --------
    >>> import numpy as np, torch
    >>> from sointer.explainers.baselines import GradientTimesInput
    >>> layer = torch.nn.Linear(5, 2)
    >>> layer.load_state_dict({"weight": torch.eye(2, 5), "bias": torch.zeros(2)})
    <All keys matched successfully>
    >>> X = np.random.default_rng(0).normal(size=(50, 5))
    >>> GradientTimesInput(layer, k=1).fit(X).explain(X[:3], target=1).selected.ravel().tolist()
    [1, 1, 1]
    """

    def _of_columns(
        self, source: ExplainedRows, row: NDArray[np.float64], outputs: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.float64]:
        return np.asarray((row * self._gradient(source, row, outputs))[0])


@dataclass(kw_only=True, eq=False, repr=False)
class ExpectedGradients(_ByGradients):
    """Expected gradients (Erion et al. 2021): gradients on the way from training samples. Looks inside the model.

    The contributions sum, in expectation, to how far the output is from its mean over the training samples. The model
    must be a torch.nn.Module. Let it return logits: the gradient of a saturated probability is almost zero. Scores are
    sizes. Explaining queries the model once per sample, for the value to explain; passes for gradients are not counted.

    Parameters
    ----------
    model, k, removal, feature_names, output_names, output_kind, method, tolerance, groups : as in `SOInter`
    batch_size, random_state, verbose : as in `SOInter`
        removal="auto" is "marginal".
    n_samples : int, default 50
        Points between the sample and random training samples at which the gradient is taken.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from sointer.explainers.baselines import ExpectedGradients
    >>> layer = torch.nn.Linear(5, 2)
    >>> layer.load_state_dict({"weight": torch.eye(2, 5), "bias": torch.zeros(2)})
    <All keys matched successfully>
    >>> X = np.random.default_rng(0).normal(size=(50, 5))
    >>> ExpectedGradients(layer, k=1, random_state=0).fit(X).explain(X[:3], target=1).selected.ravel().tolist()
    [1, 1, 1]
    """

    auto_removal = "marginal"

    n_samples: int = N_SAMPLES

    def _check_settings(self) -> None:
        check_positive_int(self.n_samples, "n_samples")
        super()._check_settings()

    def _of_columns(
        self, source: ExplainedRows, row: NDArray[np.float64], outputs: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.float64]:
        away = row - self.background_.draw(self.n_samples, rng)
        points = row - away * rng.random((self.n_samples, 1))
        return np.asarray((away * self._gradient(source, points, outputs)).mean(axis=0))
