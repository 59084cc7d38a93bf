"""torch modules as functions X -> Y; and named tensors, as ONNX files and model servers take them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numpy.typing import NDArray

from sointer._support import containers
from sointer.blackbox.call import CopiedAsItself
from sointer.blackbox.replies import NamedTable
from sointer.errors import BlackBoxError, InputError


class TorchPredict(CopiedAsItself):
    """Runs a module in evaluation mode without gradients, and leaves it as it was.

    The module gets tensors on its own device in its own float dtype (default float32); tensors
    of integers, such as token ids, are passed on as they are, unless they are images (four axes). Its raw outputs
    are returned, without sigmoid. Outputs that all lie in [0, 1] are later taken for probabilities: wrap logits in
    a sigmoid to have that.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module

    def __call__(self, X: Any) -> Any:
        """The module's outputs for X, as numpy if they are one tensor."""
        with _evaluating(self.module), torch.inference_mode():
            outputs = self.module(self._to_tensor(X))
        if isinstance(outputs, Mapping) and outputs:
            return _heads(outputs, containers.n_rows(X))
        return outputs.cpu() if isinstance(outputs, torch.Tensor) else outputs

    def gradient(self, X: Any, part: Callable[[torch.Tensor], torch.Tensor]) -> NDArray[np.float64]:
        """The gradient of the sum over `part` of the module's outputs (n, outputs), in the shape of X."""
        with _evaluating(self.module), torch.inference_mode(False), torch.enable_grad():
            points = self._to_tensor(X).detach().clone().requires_grad_(True)
            outputs = self.module(points)
            if not isinstance(outputs, torch.Tensor) or not outputs.requires_grad:
                raise InputError(
                    f"the outputs of {self!r} have no gradient; give a module that returns one tensor of logits or "
                    "probabilities rather than labels."
                )
            (found,) = torch.autograd.grad(part(outputs.reshape(len(points), -1)).sum(), points)
        return np.asarray(found.detach().cpu().numpy(), dtype=np.float64)

    def _to_tensor(self, X: Any) -> torch.Tensor:
        weights = [*self.module.parameters(), *self.module.buffers()]
        device = weights[0].device if weights else torch.device("cpu")
        dtype = next((w.dtype for w in weights if w.is_floating_point()), torch.float32)
        if isinstance(X, torch.Tensor):
            is_number = X.is_floating_point() or X.ndim == 4
            return X.to(device=device, dtype=dtype if is_number else X.dtype)
        X = containers.as_pandas(X)
        if containers.is_frame(X):
            dense = X.to_numpy(np.float64, na_value=np.nan)
        else:
            dense = X.toarray() if containers.is_sparse(X) else np.asarray(X)
        return torch.tensor(dense, dtype=dtype, device=device)

    def __repr__(self) -> str:
        return type(self.module).__name__


def _heads(outputs: Mapping[Any, Any], n_rows: int) -> Any:
    """Heads with one number per row each, side by side under their names; others as they are, to be refused."""
    if not all(isinstance(part, torch.Tensor) and part.numel() == n_rows == len(part) for part in outputs.values()):
        return outputs
    columns = torch.stack([part.cpu().reshape(n_rows) for part in outputs.values()], dim=1)
    return NamedTable(columns.numpy(), [str(name) for name in outputs])


@contextmanager
def _evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode inside; afterwards every submodule's own flag again, as some may be frozen in eval."""
    flags = {part: part.training for part in module.modules()}
    if not any(flags.values()):
        yield
        return
    try:
        module.eval()
    except NotImplementedError:  # of torch.export, which fixed its mode
        yield
        return
    try:
        yield
    finally:
        module.train(flags[module])
        for part, flag in flags.items():
            part.training = flag


Array = npt.NDArray[Any]
LABELS = ("label", "output_label")
"""What exported scikit-learn classifiers call their predictions; beside them come probabilities."""


@dataclass(frozen=True)
class TensorSpec:
    """A tensor that a model takes or gives; None where the model does not say."""

    name: str
    dtype: np.dtype[Any] | None = None
    """An object dtype stands for strings."""
    shape: tuple[int | None, ...] | None = None
    """The number of rows first; None, or below 0, for sizes that are free."""

    def __str__(self) -> str:
        kind = "" if self.dtype is None else " of strings" if self.dtype.kind == "O" else f" of {self.dtype}"
        return f"{self.name!r} {self.sides()}{kind}".strip()

    def sides(self) -> str:
        """The shape in words."""
        return "" if self.shape is None else f"[{', '.join('any' if is_free(s) else str(s) for s in self.shape)}]"


def is_free(side: int | None) -> bool:
    """Whether a side of a tensor may have any length."""
    return side is None or side < 0


def input_tensors(X: Any, specs: Sequence[TensorSpec], input_name: str | None, who: str) -> dict[str, Array]:
    """The tensors for X: one for all columns, or one for each column of a DataFrame."""
    X = containers.as_pandas(X)
    if input_name is not None:
        chosen = [spec for spec in specs if spec.name == input_name]
        if specs and not chosen:
            raise InputError(f"input_name={input_name!r} is none of the inputs of {who}: {_listed(specs)}.")
        specs = chosen or [TensorSpec(input_name)]
    if len(specs) == 1:
        return {specs[0].name: _fitted(containers.dense(X), specs[0], who)}
    if not containers.is_frame(X):
        raise InputError(
            f"{who} has {len(specs)} inputs, {_listed(specs)}, but X is {containers.describe(X)}. Give a DataFrame "
            "with one column for each, or input_name= if the others may be left out."
        )
    columns = [str(column) for column in X.columns]
    missing = [spec.name for spec in specs if spec.name not in columns]
    unknown = [column for column in columns if column not in {spec.name for spec in specs}]
    if missing or unknown:
        raise InputError(
            f"The columns of X must be the inputs of {who}, {_listed(specs)}; missing are {missing}, not known are "
            f"{unknown}. Rename the columns, or drop those that are not known."
        )
    return {spec.name: _fitted(containers.dense(X.iloc[:, [columns.index(spec.name)]]), spec, who) for spec in specs}


def cast(array: Array, dtype: np.dtype[Any], what: str) -> Array:
    """The array in another dtype, if that does not change its values (floats may be rounded)."""
    if dtype.kind == "O":
        wrong = [cell for cell in array.ravel().tolist() if not isinstance(cell, str)]
        if wrong:
            raise InputError(f"{what} takes strings, but X holds {wrong[0]!r} of type {type(wrong[0]).__name__}.")
        return array.astype(object)
    try:
        if dtype.kind == "f":
            return array.astype(dtype)
        with np.errstate(invalid="ignore"):
            whole = array.astype(dtype)
            same = whole.astype(np.float64) == array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} takes {dtype}, but X holds something else: {error}.") from None
    if not same.all():
        raise InputError(
            f"{what} takes {dtype}, but X holds {array[~same].tolist()[0]!r}. Removing features may make such values: "
            "use a removal that draws or keeps whole ones, such as removal='marginal'."
        )
    return whole


def one_table(outputs: Mapping[str, Array], output_name: str | None, n_rows: int, who: str) -> Any:
    """The output called `output_name`, or the only one, or all of them where each is one number for a row."""
    shapes = ", ".join(f"{name!r} {list(np.shape(array))}" for name, array in outputs.items())
    if output_name is not None:
        if output_name not in outputs:
            raise InputError(
                f"output_name={output_name!r} is none of the outputs of {who}: {shapes or 'it gave none'}."
            )
        return outputs[output_name]
    if not outputs:
        raise BlackBoxError(f"{who} gave no outputs, expected at least one.")
    first = next(iter(outputs))
    if len(outputs) == 1 or first in LABELS:
        return outputs[first]
    if all(np.size(array) == n_rows == len(array) for array in outputs.values()):
        columns = [np.ravel(array) for array in outputs.values()]
        textual = any(column.dtype.kind not in "biuf" for column in columns)
        return NamedTable(np.column_stack([c.astype(object) if textual else c for c in columns]), list(outputs))
    raise InputError(f"{who} has several outputs, {shapes}: say which to explain with output_name=, such as {first!r}.")


def _fitted(array: Array, spec: TensorSpec, who: str) -> Array:
    what = f"input {spec.name!r} of {who}"
    if spec.shape is not None:
        if len(spec.shape) == 1 and array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        elif len(spec.shape) == 2 and array.ndim == 1:
            array = array[:, None]
        if len(spec.shape) != array.ndim or not all(
            is_free(side) or side == got for side, got in zip(spec.shape[1:], array.shape[1:], strict=True)
        ):
            given = TensorSpec("", None, (None, *array.shape[1:])).sides()
            raise InputError(
                f"{what[0].upper()}{what[1:]} takes a tensor {spec}, but X would give {given}. Give X the "
                "way the model was trained."
            )
    return array if spec.dtype is None else cast(array, spec.dtype, what[0].upper() + what[1:])


def _listed(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(str(spec) for spec in specs)
