"""torch modules as functions X -> Y."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sointer import containers
from sointer.errors import InputError


class TorchPredict:
    """Runs a module in evaluation mode without gradients, and leaves it as it was.

    The module gets tensors on its own device in its own float dtype (float32 unless it was changed); tensors
    of integers, such as token ids, are passed on as they are, unless they are images (four axes). Its raw outputs
    are returned, without sigmoid. Outputs that all lie in [0, 1] are later taken for probabilities: wrap logits in
    a sigmoid to have that.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module

    def __call__(self, X: Any) -> Any:
        """The module's outputs for X, as numpy if they are one tensor."""
        with _evaluating(self.module), torch.inference_mode():
            reply = self.module(self._to_tensor(X))
        return reply.cpu() if isinstance(reply, torch.Tensor) else reply

    def gradient(self, X: Any, part: Callable[[torch.Tensor], torch.Tensor]) -> NDArray[np.float64]:
        """The gradient of the sum over `part` of the module's outputs (n, outputs), in the shape of X."""
        with _evaluating(self.module), torch.inference_mode(False), torch.enable_grad():
            points = self._to_tensor(X).detach().clone().requires_grad_(True)
            reply = self.module(points)
            if not isinstance(reply, torch.Tensor) or not reply.requires_grad:
                raise InputError(
                    f"the outputs of {self!r} have no gradient; give a module that returns one tensor of logits or "
                    "probabilities rather than labels."
                )
            (found,) = torch.autograd.grad(part(reply.reshape(len(points), -1)).sum(), points)
        return np.asarray(found.detach().cpu().numpy(), dtype=np.float64)

    def _to_tensor(self, X: Any) -> torch.Tensor:
        weights = [*self.module.parameters(), *self.module.buffers()]
        device = weights[0].device if weights else torch.device("cpu")
        dtype = next((w.dtype for w in weights if w.is_floating_point()), torch.float32)
        if isinstance(X, torch.Tensor):
            is_number = X.is_floating_point() or X.ndim == 4
            return X.to(device=device, dtype=dtype if is_number else X.dtype)
        if containers.is_frame(X):
            dense = X.to_numpy(np.float64)
        else:
            dense = X.toarray() if containers.is_sparse(X) else np.asarray(X)
        return torch.tensor(dense, dtype=dtype, device=device)

    def __sklearn_clone__(self) -> TorchPredict:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> TorchPredict:
        return self

    def __repr__(self) -> str:
        return type(self.module).__name__


@contextmanager
def _evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode inside; afterwards every submodule's own flag again, as some may be frozen in eval."""
    flags = {part: part.training for part in module.modules()}
    if not any(flags.values()):
        yield
        return
    module.eval()
    try:
        yield
    finally:
        module.train(flags[module])
        for part, flag in flags.items():
            part.training = flag
