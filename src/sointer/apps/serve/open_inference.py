"""The Open Inference Protocol v2: requests and responses as named tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer._support import containers
from sointer._support.validation import brief, some
from sointer.apps.serve.request import ExplainRequest, Options, make_request, validate
from sointer.apps.serve.response import ExplainResponse, ResponseWriter, to_bytes
from sointer.apps.serve.rows import as_frame, numbers
from sointer.apps.serve.security import Limits
from sointer.blackbox.adapters.http import DTYPES
from sointer.blackbox.adapters.torch import cast
from sointer.errors import InputError
from sointer.explainers.base import Explainer
from sointer.io.columns import names_in_fit

WORDS, REAL = "BYTES", "FP64"
MAX_AXES = 4
"""Of images: sample, channel, row, column."""
# The datatype, the number of axes, and the column of the explainer's tables that the tensor needs, if any.
OUTPUTS = {
    "selected": ("INT64", 2, None),
    "features": (WORDS, 2, None),
    "scores": ("FP32", 2, None),
    "value": (REAL, 1, None),
    "value_source": (WORDS, 1, None),
    "target": (WORDS, 1, None),
    "far": ("BOOL", 1, None),
    "agreement": (REAL, 1, "agreement"),
    "needed": ("BOOL", 2, "needed"),
    "effects": ("FP32", 2, "effect"),
    "base_value": ("FP32", 1, "effect"),
    "locality": ("INT64", 1, "locality"),
}
INFER_SCHEMA = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "id": {"type": "string"},
        "inputs": {"type": "array", "items": {"type": "object", "required": ["name", "shape", "datatype", "data"]}},
        "outputs": {"type": "array", "items": {"type": "object", "required": ["name"]}},
        "parameters": Options.model_json_schema(),
    },
}


def model_metadata(explainer: Explainer, name: str) -> dict[str, Any]:
    """What a model says of itself."""
    outputs = [
        _described(output, WORDS if output == "value" and _has_words(explainer) else datatype, [-1] * n_axes)
        for output, (datatype, n_axes, column) in OUTPUTS.items()
        if column is None or column in explainer.known_columns
    ]
    return {"name": name, "platform": "sointer", "inputs": input_tensors(explainer), "outputs": outputs}


def input_tensors(explainer: Explainer) -> list[dict[str, Any]]:
    """One tensor for all features, or one for each column where some are categories."""
    input_format = explainer.input_format_
    if explainer.reads_text:
        return [_described("rows", WORDS, [-1])]
    if input_format.image is not None:
        image = input_format.image
        return [_described("rows", REAL, [-1, image.channels, image.height, image.width])]
    if input_format.is_categorical.any() or input_format.has_words:
        return [
            _described(str(column.label), WORDS if column.is_categorical or column.is_text else REAL, [-1])
            for column in input_format.columns
        ]
    return [_described("rows", REAL, [-1, input_format.n_features])]


def read_infer(explainer: Explainer, content: dict[str, Any], limits: Limits) -> ExplainRequest:
    """Read an inference request: tensors of rows, perhaps of predictions; the rest as parameters."""
    parameters = content.get("parameters") or {}
    inputs = content.get("inputs")
    if not isinstance(parameters, dict):
        raise InputError(f"parameters must be an object, got {brief(parameters)}.")
    if not isinstance(inputs, list) or not inputs or not all(isinstance(tensor, dict) for tensor in inputs):
        raise InputError('inputs must be a list of tensors {"name": ..., "shape": ..., "datatype": ..., "data": ...}.')
    tensors = dict(_read(tensor) for tensor in inputs)
    if len(tensors) < len(inputs):
        raise InputError("inputs holds two tensors of the same name.")
    names = names_in_fit(explainer.input_format_)
    if parameters.get("target") is None and "target" in tensors and "target" not in names:
        array = tensors.pop("target").ravel()
        if len(array) > limits.max_rows:
            raise InputError(f"input 'target' holds {len(array):,} outputs, expected at most {limits.max_rows:,}.")
        target = array.tolist() if len(array) > 1 else array.tolist()[0] if len(array) else None
        parameters = {**parameters, "target": target}
    options = validate(Options, parameters)
    predicted = None
    if "predicted" in tensors and "predicted" not in names:
        predicted = tensors.pop("predicted")
        predicted = predicted.tolist() if predicted.dtype.kind == "O" else predicted
    X = _rows(explainer, tensors)
    if not 1 <= (n_rows := containers.n_rows(X)) <= limits.max_rows:
        raise InputError(f"inputs hold {n_rows:,} rows, expected 1 to {limits.max_rows:,}.")
    return make_request(explainer, X, options, predicted)


def write_infer(
    explainer: Explainer,
    writer: ResponseWriter,
    outputs: list[str],
    reply: dict[str, Any],
    request: ExplainRequest,
    response: ExplainResponse,
) -> bytes:
    """The reply with the named output tensors, or with all."""
    words = _has_words(explainer) or any(isinstance(value, str) for value in response.value)
    data = vars(response) | {
        "features": [writer.unit_names[unit] if unit >= 0 else "" for unit in response.selected.ravel()],
        "value": [str(value) if words else float(value) for value in response.value],
        "value_source": [response.value_source] * request.n_rows,
        "target": response.targets,
    }
    tensors = []
    for name, (datatype, n_axes, _) in OUTPUTS.items():
        if data[name] is not None and (not outputs or name in outputs):
            datatype, shape = WORDS if name == "value" and words else datatype, list(response.selected.shape[:n_axes])
            cells = data[name] if isinstance(data[name], list) else data[name].ravel().tolist()
            tensors.append({**_described(name, datatype, shape), "data": cells})
    return to_bytes({**reply, "outputs": tensors})


def wanted_outputs(content: dict[str, Any]) -> list[str]:
    """The outputs that a request names; none for all."""
    outputs = content.get("outputs") or []
    if not isinstance(outputs, list) or not all(isinstance(one, dict) for one in outputs):
        raise InputError('outputs must be a list of {"name": ...}.')
    names = [one.get("name") for one in outputs]
    unknown = [name for name in names if name not in list(OUTPUTS)]  # a name may be of any type
    if unknown:
        raise InputError(f"outputs: {brief(unknown[0])} is not known; there are {', '.join(OUTPUTS)}.")
    if content.get("id") is not None and not isinstance(content["id"], str):
        raise InputError("id must be a string.")
    return [str(name) for name in names]


def _rows(explainer: Explainer, tensors: dict[str, NDArray[Any]]) -> Any:
    input_format = explainer.input_format_
    names = names_in_fit(input_format)
    if set(tensors) == set(names) and not (len(names) == 1 and next(iter(tensors.values())).ndim == 2):
        columns = [tensors[name].ravel() for name in names]
        if len({len(column) for column in columns}) != 1:
            raise InputError("inputs: the tensors have different numbers of rows.")
        if input_format.columns:
            return as_frame(input_format, columns)
        for name, column in zip(names, columns, strict=True):
            if column.dtype.kind == "O":
                raise InputError(f"input {brief(name)} holds strings, expected numbers.")
        return np.column_stack(columns)
    if len(tensors) != 1:
        raise InputError(
            f"inputs holds the tensors {some(sorted(tensors))}, expected one with all features, or one for each of "
            f"{some(names)}."
        )
    array = next(iter(tensors.values()))
    if explainer.reads_text and array.dtype.kind == "O":
        return array.ravel().tolist()
    if array.dtype.kind == "O":
        raise InputError("inputs: the tensor holds strings, expected numbers.")
    return array[None, :] if array.ndim == 1 else array


def _read(tensor: dict[str, Any]) -> tuple[str, NDArray[Any]]:
    name, shape, datatype = (tensor.get(key) for key in ("name", "shape", "datatype"))
    data = tensor.pop("data", None)
    what = f"input {brief(name)}"
    if not isinstance(name, str) or not isinstance(data, list) or not isinstance(datatype, str):
        raise InputError(f"{what} needs a name, a shape, a datatype and data as a list; binary data is not understood.")
    if datatype not in DTYPES:
        raise InputError(f"{what} has the datatype {brief(datatype)}, expected one of {', '.join(DTYPES)}.")
    if not isinstance(shape, list) or not all(type(side) is int and 0 <= side < 2**31 for side in shape):
        raise InputError(f"{what} has the shape {brief(shape)}, expected a list of whole numbers.")
    if not 1 <= len(shape) <= MAX_AXES:
        raise InputError(f"{what} has a shape of {len(shape)} sides, expected 1 to {MAX_AXES}.")
    if datatype == WORDS:
        flat = [cell for one in data for cell in (one if isinstance(one, list) else [one])]
        array = np.empty(len(flat), dtype=object)
        array[:] = flat
        if not all(isinstance(cell, str) for cell in flat):
            raise InputError(f"{what} must hold strings.")
    else:
        array = numbers(data, what)
        del data  # what follows takes memory too
        array = array if array.dtype == DTYPES[datatype] else cast(array, DTYPES[datatype], what)
    if array.size != math.prod(shape):
        raise InputError(f"{what} holds {array.size} values, but its shape is {shape}.")
    return name, array.reshape(shape) if array.size else np.zeros(0, array.dtype)


def _has_words(explainer: Explainer) -> bool:
    """Whether values of outputs are words rather than numbers."""
    return any(isinstance(label, str) for label in explainer.outputs_.all_labels)


def _described(name: str, datatype: str, shape: list[int]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape}
