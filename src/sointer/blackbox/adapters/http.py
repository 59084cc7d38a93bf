"""Models behind an HTTP endpoint, and what servers speak: MLflow's `/invocations`, the Open Inference Protocol."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sointer._support import containers
from sointer.blackbox.adapters.connection import ClosableBlackBox, Connection, PerProcess, rows_and_columns
from sointer.blackbox.adapters.secrets import Secret, without_frames
from sointer.blackbox.adapters.torch import Array, TensorSpec, input_tensors, one_table
from sointer.blackbox.call import TransientError
from sointer.blackbox.replies import NamedTable, holds_text, to_array
from sointer.errors import BlackBoxError, InputError


class Invocations:
    """A model behind `/invocations`: DataFrames go with their columns, all else as plain rows."""

    def __init__(self, connection: Connection, path: str, output_name: str | None) -> None:
        self.connection = connection
        self.path = path
        self.output_name = output_name
        self.who = f"the model at {connection.root}{path}"

    def __call__(self, X: Any) -> Any:
        """The model's outputs for the rows of X."""
        rows, columns = rows_and_columns(X)
        request = {"inputs": rows} if columns is None else {"dataframe_split": {"columns": columns, "data": rows}}
        reply = self.connection.json("POST", self.path, request, n_rows=len(rows))
        if "predictions" not in reply:
            raise TransientError(
                f"The reply of {self.who} has no predictions, but the keys {sorted(reply)[:10]!s:.300}."
            )
        return self._table(reply["predictions"], containers.n_rows(X))

    def _table(self, predictions: Any, n_rows: int) -> Any:
        if isinstance(predictions, list) and predictions and all(isinstance(row, dict) for row in predictions):
            names = list(predictions[0])
            if any(list(row) != names for row in predictions):
                raise TransientError(f"The predictions of {self.who} do not have the same columns in every row.")
            if self.output_name is None:
                return NamedTable([list(row.values()) for row in predictions], [str(name) for name in names])
            predictions = {name: [row[name] for row in predictions] for name in names}
        if not isinstance(predictions, dict):
            return predictions
        try:
            outputs = {str(name): to_array(values) for name, values in predictions.items()}
        except BlackBoxError:
            raise TransientError(f"The predictions of {self.who} have parts of different lengths.") from None
        return one_table(outputs, self.output_name, n_rows, self.who)


MODEL_PATH = re.compile(r"(?P<model>.*/v2/models/[^/]+(/versions/[^/]+)?)(/infer)?")
DTYPES = {
    "BOOL": np.dtype(bool),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BYTES": np.dtype(object),
    **{f"{sign}INT{bits}": np.dtype(f"{sign.lower()}int{bits}") for sign in ("", "U") for bits in (8, 16, 32, 64)},
}
DEFAULT_INPUT = "input-0"


class OpenInference:
    """A model behind `/v2/models/{name}`: reads its metadata, then its outputs."""

    def __init__(self, connection: Connection, path: str, input_name: str | None, output_name: str | None) -> None:
        self.connection = connection
        self.path = path
        self.input_name = input_name
        self.output_name = output_name
        self.who = f"the model at {connection.root}{path}"
        self._inputs = PerProcess(self._metadata)

    def __call__(self, X: Any) -> Any:
        """The model's outputs for the rows of X."""
        tensors, is_frame = self._tensors(X)
        request: dict[str, Any] = {"inputs": [_written(name, array) for name, array in tensors.items()]}
        if is_frame:
            request["parameters"] = {"content_type": "pd"}  # how MLServer knows a DataFrame
        if self.output_name is not None:
            request["outputs"] = [{"name": self.output_name}]
        request["id"] = secrets.token_hex(8)
        reply = self.connection.json("POST", self.path + "/infer", request, n_rows=containers.n_rows(X))
        if reply.get("id") not in (None, "", request["id"]):
            raise TransientError(f"The reply of {self.who} is for another request, by its id.")
        outputs = reply.get("outputs")
        if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
            raise TransientError(
                f"The reply of {self.who} has no list of outputs, but the keys {sorted(reply)[:10]!s:.300}."
            )
        read = dict(self._read(output) for output in outputs)
        return one_table(read, self.output_name, containers.n_rows(X), self.who)

    def _tensors(self, X: Any) -> tuple[dict[str, Array], bool]:
        inputs, X = self._inputs.get(), containers.as_pandas(X)
        if inputs or self.input_name is not None:
            return input_tensors(X, inputs, self.input_name, self.who), False
        if containers.is_frame(X):
            columns = [str(column) for column in X.columns]
            return {name: containers.dense(X.iloc[:, [j]]) for j, name in enumerate(columns)}, True
        return {DEFAULT_INPUT: containers.dense(X)}, False

    def _metadata(self) -> list[TensorSpec]:
        """What the model takes; nothing if the server does not describe it."""
        response = self.connection.send("GET", self.path)
        if response.status == 404:
            names = model_names(self.connection, self.path.split("/v2/")[0])
            known = f" It has the models {', '.join(map(repr, names))}." if names else ""
            raise BlackBoxError(f"{self.connection.refusal(response, self.path)}{known}")
        if response.status in (400, 405, 501):
            return []
        if response.status != 200:
            raise self.connection.refusal(response, self.path)
        metadata = self.connection.parsed(response)
        try:
            return [_spec(tensor) for tensor in metadata.get("inputs") or []]
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise BlackBoxError(
                f"The description of {self.who} cannot be read: {type(error).__name__}: {error}."
            ) from None

    def _read(self, output: dict[str, Any]) -> tuple[str, Array]:
        name, data, shape = str(output.get("name")), output.get("data"), output.get("shape")
        try:
            sides, dtype = [int(side) for side in shape], DTYPES[str(output["datatype"])]  # type: ignore[union-attr]
            if dtype.kind != "O" and holds_text([data]):
                raise TypeError("text among numbers")
            array = np.array(data, dtype=dtype)
            fits = min(sides, default=0) >= 0 and array.size == np.prod(sides, dtype=object)
            array = array.reshape(sides) if fits else array  # sides may be too many, or too large beside a 0
        except (KeyError, TypeError, ValueError, OverflowError):
            raise TransientError(
                f"Output {name!r:.80} of {self.who} cannot be read: expected a shape, a datatype among "
                f"{', '.join(DTYPES)}, and data in JSON; got shape {shape!r:.80} and datatype "
                f"{output.get('datatype')!r:.40}."
            ) from None
        if not fits:
            raise TransientError(
                f"Output {name!r:.80} of {self.who} holds {array.size} values, but its shape is {sides!s:.80}."
            )
        return name, array


def model_names(connection: Connection, base: str) -> list[str]:
    """The models of a server, if it lists them in one of the common ways."""
    for method, path, content in (("POST", "/v2/repository/index", {}), ("GET", "/v2/models", None)):
        try:
            response = connection.send(method, base + path, content)
            found = connection.parsed(response, anything=True) if response.status == 200 else None
        except BlackBoxError:
            continue
        if isinstance(found, dict):
            found = found.get("models")
        if isinstance(found, list):
            names = [model.get("name") if isinstance(model, dict) else model for model in found]
            return sorted({str(name) for name in names if name})[:20]
    return []


def _spec(tensor: dict[str, Any]) -> TensorSpec:
    shape = tensor.get("shape")
    sides = None if shape is None else tuple(int(side) for side in shape)
    return TensorSpec(str(tensor["name"]), DTYPES.get(str(tensor.get("datatype"))), sides or None)


def _written(name: str, array: Array) -> dict[str, Any]:
    datatype = next((key for key, dtype in DTYPES.items() if dtype == array.dtype), None)
    if array.dtype.kind == "O" and not all(isinstance(cell, str) for cell in array.ravel().tolist()):
        array, datatype = array.astype(np.float64), "FP64"
    return {"name": name, "shape": list(array.shape), "datatype": datatype, "data": array.ravel().tolist()}


PROTOCOLS = ("auto", "v2", "mlflow")


class HTTPBlackBox(ClosableBlackBox):
    """A model behind HTTP: the Open Inference Protocol v2 (Triton, KServe, MLServer), or MLflow's `/invocations`.

    Nothing is sent before the first query.

    Parameters
    ----------
    url : str
        Address of the model (`http://host:8000/v2/models/name`, `http://host:5000/invocations`) or of a server with
        one model. User, password and query in it are sent, and never shown.
    protocol : {"auto", "v2", "mlflow"}, default "auto"
        "auto" decides by the address, or otherwise by asking the server.
    headers : mapping of str to str or Secret, or None, default None
        Sent with every request and held as secrets: no message, log, file or pickle shows them. Values from
        `sointer.blackbox.adapters.secrets.Secret.from_environment(...)` can be read by workers too.
    timeout : float, default 30
        Seconds for one request.
    retries : int, default 5
        How often a batch is sent again when the connection breaks, no reply arrives in time, or the server reports
        that it is busy (429) or has failed (5xx). Waits grow from 0.2 to 30 s; the server may request longer ones, up
        to 30 s.
    n_jobs : int or None, default 4
        Number of parallel requests, in threads.
    verify : bool, str or Path, default True
        True, or the path of your own authority's certificates; TLS is always checked.
    input_name, output_name : str or None, default None
        Which tensor to fill and which to explain, if the model has several.
    max_reply_bytes : int, default 256 MiB
        Larger replies are refused.
    **options
        `batch_size`, `query_budget`, `cache`, `output_names`, `name` and `client` of `BlackBox`.

    Raises
    ------
    InputError
        If a parameter is wrong.

    Examples
    --------
    >>> box = HTTPBlackBox("http://host:8000/v2/models/name", timeout=10)
    >>> box
    HTTPBlackBox(http://host:8000/v2/models/name, n_outputs=unknown, n_queries=0)
    """

    _first_wait, _max_wait = 0.2, 30.0
    _retries_at_first = None  # a server may still be starting
    _joblib_backend = "threading"

    def __init__(
        self,
        url: str,
        *,
        protocol: Literal["auto", "v2", "mlflow"] = "auto",
        headers: Mapping[str, str | Secret] | None = None,
        timeout: float = 30.0,
        retries: int = 5,
        n_jobs: int | None = 4,
        verify: bool | str | Path = True,
        input_name: str | None = None,
        output_name: str | None = None,
        max_reply_bytes: int = 256 * 2**20,
        **options: Any,
    ) -> None:
        connection = Connection(url, headers, timeout=timeout, verify=verify, max_reply_bytes=max_reply_bytes)
        predict = HTTPPredict(connection, protocol, input_name, output_name)
        options.setdefault("name", connection.shown)
        workers = {"client": options.pop("client")} if options.get("client") is not None else {"n_jobs": n_jobs}
        super().__init__(predict, retries=retries, **workers, **options)


class HTTPPredict:
    """One request for each call; finds out which protocol the server speaks at the first one."""

    def __init__(self, connection: Connection, protocol: str, input_name: str | None, output_name: str | None) -> None:
        if protocol not in PROTOCOLS:
            raise InputError(f"protocol must be one of {', '.join(map(repr, PROTOCOLS))}, got {protocol!r}.")
        self.connection = connection
        self.protocol = protocol
        self.input_name = input_name
        self.output_name = output_name
        self.close = connection.close
        self._model = PerProcess(self._find)

    def __call__(self, X: Any) -> Any:
        """The model's outputs for the rows of X."""
        try:
            return self._model.get()(X)
        except Exception:
            raise
        except BaseException as error:
            interrupt = error
        self.connection.forget()
        raise without_frames(interrupt)

    def _find(self) -> OpenInference | Invocations:
        path, protocol = self.connection.path, self.protocol
        named = MODEL_PATH.fullmatch(path)
        if protocol == "auto" and named:
            protocol = "v2"
        if protocol == "auto":
            protocol = "mlflow" if path.endswith("/invocations") else self._spoken()
        if protocol == "v2":
            path = named["model"] if named else self._only_model()
            return OpenInference(self.connection, path, self.input_name, self.output_name)
        if self.input_name is not None:
            raise InputError(
                f"input_name={self.input_name!r} was given, but MLflow's rows have no names. Leave it out."
            )
        return Invocations(self.connection, path.removesuffix("/invocations") + "/invocations", self.output_name)

    def _spoken(self) -> str:
        """The protocol that the server speaks, judging by its own description."""
        base = self.connection.path.removesuffix("/v2")
        for path, protocol in ((base + "/v2", "v2"), (base + "/ping", "mlflow")):
            response = self.connection.send("GET", path)
            if response.status == 200:
                return protocol
            if response.status in (401, 403, 429) or response.status >= 500:
                raise self.connection.refusal(response, path)
        raise BlackBoxError(
            f"The server {self.connection.shown} speaks neither the Open Inference Protocol (no {base}/v2) nor "
            f"MLflow's (no {base}/ping). Give the address of the model itself, such as "
            f"{self.connection.root}/v2/models/name or {self.connection.root}/invocations."
        )

    def _only_model(self) -> str:
        base = self.connection.path.removesuffix("/v2")
        names = model_names(self.connection, base)
        if len(names) != 1:
            has = f"has the models {', '.join(map(repr, names))}" if names else "does not say which models it has"
            raise BlackBoxError(
                f"The server {self.connection.shown} {has}. Say which to explain in the address: "
                f"{self.connection.root}{base}/v2/models/{names[0] if names else 'name'}."
            )
        return f"{base}/v2/models/{names[0]}"

    def __repr__(self) -> str:
        return f"HTTPPredict({self.connection.shown})"
