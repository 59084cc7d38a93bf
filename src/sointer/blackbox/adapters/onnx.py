"""Models in ONNX files, run by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from sointer._support import containers
from sointer.blackbox.adapters.connection import PerProcess
from sointer.blackbox.adapters.torch import LABELS, Array, TensorSpec, input_tensors, one_table
from sointer.blackbox.box import BlackBox
from sointer.errors import BlackBoxError, InputError, require_extra

DTYPES = {
    "tensor(bool)": np.dtype(bool),
    "tensor(float16)": np.dtype(np.float16),
    "tensor(float)": np.dtype(np.float32),
    "tensor(double)": np.dtype(np.float64),
    "tensor(string)": np.dtype(object),
    **{f"tensor({sign}int{bits})": np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


class ONNXBlackBox(BlackBox):
    """A model in an ONNX file, as written by skl2onnx or torch.

    Parameters
    ----------
    path : str or path-like
        The file.
    input_name : str or None, default None
        Which input to fill, if there are several; a DataFrame may have one column for each instead.
    output_name : str or None, default None
        Which output to explain; for exported classifiers, by default the label. With probabilities, that of the
        positive class is explained.
    providers : sequence of str or None, default None
        ONNX Runtime's execution providers; None for all that it has.
    **options
        Other parameters of `BlackBox`. Copies in other processes read the file again.

    Raises
    ------
    InputError
        If the file cannot be opened, or does not have such inputs and outputs.

    Examples
    --------
    >>> ONNXBlackBox("model.onnx", output_name="label")  # doctest: +SKIP
    ONNXBlackBox(model.onnx, n_outputs=unknown, n_queries=0)
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        input_name: str | None = None,
        output_name: str | None = None,
        providers: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        options.setdefault("name", Path(path).name)
        super().__init__(ONNXPredict(path, input_name, output_name, providers), **options)


class ONNXPredict:
    """Runs the file's model; what it takes and gives is read from the file at once, so that mistakes show early."""

    def __init__(
        self,
        path: str | PathLike[str],
        input_name: str | None,
        output_name: str | None,
        providers: Sequence[str] | None,
    ) -> None:
        self.path = Path(path).absolute()
        self.input_name = input_name
        self.providers = None if providers is None else list(providers)
        self.who = f"the model in {self.path.name}"
        self._session = PerProcess(self._open)
        session = self._session.get()
        self._inputs = [TensorSpec(one.name, DTYPES.get(one.type), _sides(one.shape)) for one in session.get_inputs()]
        self.output_names = self._wanted(session.get_outputs(), output_name)
        by_name = {output.name: output for output in session.get_outputs()}
        self._has_outputs_first = [_has_outputs_first(by_name[name]) for name in self.output_names]
        if len(self._inputs) == 1 or input_name is not None:
            input_tensors(np.empty((0, 0)), [TensorSpec(one.name) for one in self._inputs], input_name, self.who)

    def __call__(self, X: Any) -> Any:
        """The model's outputs for the rows of X."""
        free = [TensorSpec(one.name, one.dtype, one.shape and (None, *one.shape[1:])) for one in self._inputs]
        tensors = input_tensors(X, free, self.input_name, self.who)
        n_rows = containers.n_rows(X)
        n_fixed = next((spec.shape[0] for spec in self._inputs if spec.shape), None)
        parts = [self._run(tensors, index) for index in _portions(n_rows, n_fixed)]
        outputs = {name: _joined([part[i] for part in parts], n_rows) for i, name in enumerate(self.output_names)}
        return one_table(outputs, None, n_rows, self.who)

    def _run(self, tensors: dict[str, Array], index: Array) -> list[Array]:
        outputs = self._session.get().run(self.output_names, {name: array[index] for name, array in tensors.items()})
        return [
            self._positive_class(output) if outputs_first else np.asarray(output)
            for output, outputs_first in zip(outputs, self._has_outputs_first, strict=True)
        ]

    def _positive_class(self, output: Any) -> Array:
        """Probabilities (n, 2), one table for each output, as (n, outputs)."""
        wrong = [part.shape for part in output if part.ndim != 2 or part.shape[1] != 2]
        if wrong:
            raise InputError(
                f"Output {self.output_names[0]!r} of {self.who} has probabilities of shape {wrong[0]}, expected two "
                "classes. Explain its labels instead: leave out output_name."
            )
        return np.column_stack([part[:, 1] for part in output])

    def _wanted(self, outputs: Sequence[Any], output_name: str | None) -> list[str]:
        types = {output.name: output.type for output in outputs}
        listed = ", ".join(f"{output.name!r} ({output.type} {output.shape})" for output in outputs)
        if output_name is not None and output_name not in types:
            raise InputError(f"output_name={output_name!r} is none of the outputs of {self.who}: {listed}.")
        names = [output_name] if output_name is not None else list(types)
        if len(names) > 1:
            first = names[0]
            sizes = {tuple(output.shape[1:]) for output in outputs if output.type.startswith("tensor")}
            alike = len(sizes) == 1 and all(kind.startswith("tensor") for kind in types.values())
            if first not in LABELS and not (alike and sizes <= {(), (1,)}):
                raise InputError(f"{self.who} has several outputs: {listed}. Choose one with output_name=.")
            names = [first] if first in LABELS else names
        if any("map(" in types[name] for name in names):
            raise InputError(
                f"Output {names[0]!r} of {self.who} is {types[names[0]]}, one dictionary for each row, expected a "
                "tensor. Export it again with options={'zipmap': False}."
            )
        return names

    def _open(self) -> Any:
        runtime = require_extra("onnxruntime", "onnx")
        if not self.path.is_file():
            raise InputError(f"there is no file {self.path}; expected a model in ONNX format. Look at the path.")
        try:
            return runtime.InferenceSession(
                str(self.path), providers=self.providers or runtime.get_available_providers()
            )
        except Exception as error:
            raise InputError(
                f"{self.path} cannot be opened as an ONNX model: {' '.join(str(error).split())[:300]}. Export it "
                "again, or look whether your onnxruntime is new enough for it."
            ) from None

    def __repr__(self) -> str:
        return f"ONNXPredict({self.path.name})"


def _sides(shape: Sequence[Any]) -> tuple[int | None, ...] | None:
    """A shape with names for free sizes, as onnxruntime gives it."""
    return tuple(side if isinstance(side, int) else None for side in shape) or None


def _portions(n_rows: int, n_fixed: int | None) -> list[Array]:
    """Rows to run together: all, unless the model was exported for a fixed number; then the last one fills up."""
    if n_fixed is None or n_fixed < 0:
        return [np.arange(n_rows)]
    starts = range(0, n_rows, n_fixed)
    return [np.minimum(np.arange(start, start + n_fixed), n_rows - 1) for start in starts]


def _has_outputs_first(output: Any) -> bool:
    """Whether these are scikit-learn's probabilities of several outputs: one table (rows, classes) for each."""
    if output.type.startswith("seq(tensor("):
        return True
    sides = output.shape
    return len(sides) == 3 and isinstance(sides[0], int) and not isinstance(sides[1], int) and isinstance(sides[2], int)


def _joined(parts: list[Array], n_rows: int) -> Array:
    if any(part.ndim == 0 for part in parts):
        raise BlackBoxError("The model gave a single number, expected one row of outputs for each row of input.")
    return parts[0] if len(parts) == 1 and len(parts[0]) == n_rows else np.concatenate(parts)[:n_rows]
