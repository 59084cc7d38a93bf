"""To captum: `attribute(inputs, target)` as captum's own methods have it, for its metrics and pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sointer._support.validation import is_integer
from sointer.errors import InputError
from sointer.explainers.base import Explainer
from sointer.interop.attributions import as_rows, attributions


class SOInterAttribution:
    """A fitted explainer in the form of a captum attribution method; captum itself is not needed.

    attribute = SOInterAttribution(explainer).attribute
    captum.metrics.sensitivity_max(attribute, inputs, target=2)
    """

    def __init__(self, explainer: Explainer) -> None:
        self.explainer = explainer

    def attribute(
        self,
        inputs: Tensor | tuple[Tensor, ...],
        target: Any = None,
        *,
        k: int | None = None,
        predicted: Any = None,
        query: bool = True,
        selected_only: bool = False,
    ) -> Any:
        """The effect of every entry of the inputs, as a tensor of their shape (in a tuple if they came in one).

        Effects are signed, in the unit of the output. Where they are not known (images, preset="paper"), the scores are
        returned, which have no sign.

        target : an output's number or name for all rows; a tuple (row, column) for a pixel of masks; or one of
            these per row, as a list or a tensor.
        k, predicted, query : as in `explain`.
        selected_only : 0 for what was not selected.
        """
        single = inputs[0] if isinstance(inputs, tuple) else inputs
        if not isinstance(single, Tensor) or (isinstance(inputs, tuple) and len(inputs) != 1):
            got = f"{len(inputs)} of them" if isinstance(inputs, tuple) else type(inputs).__name__
            raise InputError(f"attribute: inputs must be one tensor, or a tuple of one, got {got}.")
        rows = as_rows(single.detach(), self.explainer)
        explanation = self.explainer.explain(rows, self._target(target), k=k, predicted=predicted, query=query)
        values = attributions(explanation, selected_only=selected_only).reshape(tuple(single.shape))
        result = torch.from_numpy(values).to(dtype=_float_like(single), device=single.device)
        return (result,) if isinstance(inputs, tuple) else result

    def has_convergence_delta(self) -> bool:
        """No: effects add up to what the explainer expects of the model, not to what the model returns."""
        return False

    def _target(self, target: Any) -> Any:
        """captum writes what `explain` takes, but for tensors, lists of tuples, and tuples of one number."""
        if isinstance(target, Tensor):
            target = target.detach().cpu().numpy()
            return int(target) if target.size == 1 else target
        if isinstance(target, tuple) and len(target) == 1 and is_integer(target[0]):
            return target[0]
        if isinstance(target, list) and target and all(isinstance(one, tuple) for one in target):
            return [one[0] for one in target] if len(target[0]) == 1 else np.array(target)
        return target


def _float_like(inputs: Tensor) -> torch.dtype:
    return inputs.dtype if inputs.dtype.is_floating_point else torch.float32
