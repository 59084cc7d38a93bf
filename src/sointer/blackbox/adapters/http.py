"""Models behind an HTTP endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from sointer.blackbox.adapters.connection import ClosableBlackBox, Connection, PerProcess
from sointer.blackbox.adapters.protocols import MODEL_PATH, Invocations, OpenInference, model_names
from sointer.blackbox.adapters.secrets import Secret
from sointer.errors import BlackBoxError, InputError

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
        "auto" finds out by the address or else by querying the server.
    headers : mapping of str to str or Secret, or None, default None
        Sent with every request and held as secrets: no message, log, file or pickle shows them. Values from
        `sointer.blackbox.adapters.secrets.Secret.from_environment(...)` can be read by workers too.
    timeout : float, default 30
        Seconds for one request.
    retries : int, default 5
        How often a batch is sent again when the connection breaks, nothing comes in time, or the server reports that
        it is busy (429) or has failed (5xx); after waits that grow from 0.2 to 30 s, or as long as the server requests.
    n_jobs : int or None, default 4
        Requests at a time, in threads.
    verify : bool, str or Path, default True
        True, or the path of your own authority's certificates; TLS is always checked.
    input_name, output_name : str or None, default None
        Which tensor to fill and which to explain, where the model has several.
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
        return self._model.get()(X)

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
