"""The Open Inference Protocol v2: requests and responses as named tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer._support import containers
from sointer._support.validation import _some as some
from sointer.apps.serve.limits import Limits
from sointer.apps.serve.request import ExplainRequest, Options, make_request, validate
from sointer.apps.serve.response import ExplainResponse, Writer, to_bytes
from sointer.apps.serve.rows import as_frame, names_in_fit, numbers
from sointer.blackbox.adapters.protocols import DTYPES
from sointer.blackbox.adapters.torch import cast
from sointer.errors import InputError
from sointer.explainers.base import Explainer

OUTPUTS = (
    "selected",
    "features",
    "scores",
    "value",
    "value_source",
    "target",
    "far",
    "agreement",
    "needed",
    "effects",
    "base_value",
    "locality",
)
WORDS, REAL = "BYTES", "FP64"
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
        _described("selected", "INT64", [-1, -1]),
        _described("features", WORDS, [-1, -1]),
        _described("scores", "FP32", [-1, -1]),
        _described("value", WORDS if _has_words(explainer) else REAL, [-1]),
        _described("value_source", WORDS, [-1]),
        _described("target", WORDS, [-1]),
        _described("far", "BOOL", [-1]),
    ]
    if "needed" in explainer.known_columns:
        outputs.append(_described("needed", "BOOL", [-1, -1]))
    if "effect" in explainer.known_columns:
        outputs += [_described("effects", "FP32", [-1, -1]), _described("base_value", "FP32", [-1])]
    if "locality" in explainer.known_columns:
        outputs.append(_described("locality", "INT64", [-1]))
    return {"name": name, "platform": "sointer", "inputs": input_tensors(explainer), "outputs": outputs}


def input_tensors(explainer: Explainer) -> list[dict[str, Any]]:
    """One tensor for all features, or one for each column where some are categories."""
    input_format = explainer.input_format_
    if explainer.text_ is not None:
        return [_described("rows", WORDS, [-1])]
    if input_format.image is not None:
        image = input_format.image
        return [_described("rows", REAL, [-1, image.channels, image.height, image.width])]
    if input_format.is_categorical.any():
        return [
            _described(str(column.label), WORDS if column.is_categorical else REAL, [-1])
            for column in input_format.columns
        ]
    return [_described("rows", REAL, [-1, input_format.n_features])]


def read_infer(explainer: Explainer, content: dict[str, Any], limits: Limits) -> ExplainRequest:
    """Read an inference request: tensors of rows, perhaps of predictions; the rest as parameters."""
    parameters = content.get("parameters") or {}
    inputs = content.get("inputs")
    if not isinstance(parameters, dict):
        raise InputError(f"parameters must be an object, got {parameters!r:.60}.")
    if not isinstance(inputs, list) or not inputs or not all(isinstance(tensor, dict) for tensor in inputs):
        raise InputError('inputs must be a list of tensors {"name": ..., "shape": ..., "datatype": ..., "data": ...}.')
    tensors = dict(_read(tensor) for tensor in inputs)
    if len(tensors) < len(inputs):
        raise InputError("inputs holds two tensors of the same name.")
    if (
        parameters.get("target") is None
        and "target" in tensors
        and "target" not in names_in_fit(explainer.input_format_)
    ):
        array = tensors.pop("target").ravel()
        target = array.tolist() if len(array) > 1 else array.tolist()[0] if len(array) else None
        parameters = {**parameters, "target": target}
    options = validate(Options, parameters)
    predicted = None
    if "predicted" in tensors and "predicted" not in names_in_fit(explainer.input_format_):
        predicted = tensors.pop("predicted")
        predicted = predicted.tolist() if predicted.dtype.kind == "O" else predicted
    X = _rows(explainer, tensors)
    if containers.n_rows(X) > limits.max_rows:
        raise InputError(f"inputs hold {containers.n_rows(X):,} rows, expected at most {limits.max_rows:,}.")
    return make_request(explainer, X, options, predicted)


def write_infer(
    explainer: Explainer,
    writer: Writer,
    name: str,
    content: dict[str, Any],
    request: ExplainRequest,
    response: ExplainResponse,
) -> bytes:
    """The reply: the tensors that the request names, or all."""
    n_rows = request.n_rows
    names = [[writer.unit_names[unit] if unit >= 0 else "" for unit in row] for row in response.selected]
    width = response.selected.shape[1]
    words = _has_words(explainer) or any(isinstance(value, str) for value in response.value)
    values = [str(value) if words else float(value) for value in response.value]
    tensors = [
        _tensor("selected", "INT64", [n_rows, width], response.selected.ravel().tolist()),
        _tensor("features", WORDS, [n_rows, width], [name for row in names for name in row]),
        _tensor("scores", "FP32", [n_rows, width], response.scores.ravel().tolist()),
        _tensor("value", WORDS if words else REAL, [n_rows], values),
        _tensor("value_source", WORDS, [n_rows], [response.value_source] * n_rows),
        _tensor("target", WORDS, [n_rows], response.targets),
        _tensor("far", "BOOL", [n_rows], response.far.tolist()),
    ]
    if response.agreement is not None:
        tensors.append(_tensor("agreement", REAL, [n_rows], response.agreement.tolist()))
    if response.needed is not None:
        tensors.append(_tensor("needed", "BOOL", [n_rows, width], response.needed.ravel().tolist()))
    if response.effects is not None and response.base is not None:
        tensors.append(_tensor("effects", "FP32", [n_rows, width], response.effects.ravel().tolist()))
        tensors.append(_tensor("base_value", "FP32", [n_rows], response.base.tolist()))
    if response.locality is not None:
        tensors.append(_tensor("locality", "INT64", [n_rows], response.locality.tolist()))
    wanted = wanted_outputs(content)
    reply: dict[str, Any] = {"model_name": name}
    if content.get("id") is not None:
        reply["id"] = content["id"]
    reply["outputs"] = [tensor for tensor in tensors if not wanted or tensor["name"] in wanted]
    return to_bytes(reply)


def wanted_outputs(content: dict[str, Any]) -> list[str]:
    """The outputs that a request names; none for all."""
    outputs = content.get("outputs") or []
    if not isinstance(outputs, list) or not all(isinstance(one, dict) for one in outputs):
        raise InputError('outputs must be a list of {"name": ...}.')
    names = [one.get("name") for one in outputs]
    unknown = [name for name in names if name not in OUTPUTS]
    if unknown:
        raise InputError(f"outputs: {unknown[0]!r:.60} is not known; there are {', '.join(OUTPUTS)}.")
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
            return as_frame(input_format, [column.tolist() for column in columns])
        return numbers([list(row) for row in zip(*[column.tolist() for column in columns], strict=True)], "inputs")
    if len(tensors) != 1:
        raise InputError(
            f"inputs holds the tensors {some(sorted(tensors))}, expected one with all features, or one for each of "
            f"{some(names)}."
        )
    array = next(iter(tensors.values()))
    if explainer.text_ is not None and array.dtype.kind == "O":
        return array.ravel().tolist()
    if array.dtype.kind == "O":
        raise InputError("inputs: the tensor holds strings, expected numbers.")
    if array.ndim == 1:
        array = array[None, :]
    return array


def _read(tensor: dict[str, Any]) -> tuple[str, NDArray[Any]]:
    name, shape, datatype, data = (tensor.get(key) for key in ("name", "shape", "datatype", "data"))
    what = f"input {name!r:.60}"
    if not isinstance(name, str) or not isinstance(data, list) or not isinstance(datatype, str):
        raise InputError(f"{what} needs a name, a shape, a datatype and data as a list; binary data is not understood.")
    if datatype not in DTYPES:
        raise InputError(f"{what} has the datatype {datatype!r:.40}, expected one of {', '.join(DTYPES)}.")
    if not isinstance(shape, list) or not all(type(side) is int and 0 <= side < 2**31 for side in shape):
        raise InputError(f"{what} has the shape {shape!r:.60}, expected a list of whole numbers.")
    if datatype == WORDS:
        flat = _flat(data)
        array = np.empty(len(flat), dtype=object)
        array[:] = flat
        if not all(isinstance(cell, str) for cell in flat):
            raise InputError(f"{what} must hold strings.")
    else:
        array = cast(numbers(data, what), DTYPES[datatype], what)
    if array.size != np.prod(shape, dtype=object):
        raise InputError(f"{what} holds {array.size} values, but its shape is {shape}.")
    return name, array.reshape(shape)


def _flat(data: list[Any]) -> list[Any]:
    return [cell for one in data for cell in (one if isinstance(one, list) else [one])]


def _has_words(explainer: Explainer) -> bool:
    """Whether values of outputs are words rather than numbers."""
    return any(isinstance(label, str) for label in explainer.outputs_.all_labels)


def _described(name: str, datatype: str, shape: list[int]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape}


def _tensor(name: str, datatype: str, shape: list[int], data: list[Any]) -> dict[str, Any]:
    return {**_described(name, datatype, shape), "data": data}
