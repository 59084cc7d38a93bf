"""One server: a connection for each request, limits on time and size, and errors that show no secret."""

from __future__ import annotations

import base64
import email.utils
import json
import os
import re
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import SplitResult, quote, unquote, urlsplit

import numpy as np

from sointer._support import containers
from sointer._support.files import TooManyParts, check_parts
from sointer._support.validation import check_positive_int
from sointer.blackbox.adapters.secrets import Secret, hidden_in_logs, hide
from sointer.blackbox.box import BlackBox
from sointer.blackbox.call import TransientError, check_seconds
from sointer.errors import BlackBoxError, InputError, SointerError, SointerWarning, require_extra, warn_caller

T = TypeVar("T")
AnyBox = TypeVar("AnyBox", bound="ClosableBlackBox")


class PerProcess(Generic[T]):
    """Something made when it is first used, and made anew in forked processes and in unpickled copies."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: tuple[int, T] | None = None
        self._lock = threading.Lock()
        self._owner = os.getpid()

    def get(self) -> T:
        """The thing itself."""
        if self._made is not None and self._made[0] == os.getpid():
            return self._made[1]
        if self._owner != os.getpid():  # a lock held by another thread at the fork would stay locked for ever
            self.__setstate__(self.__getstate__())
        with self._lock:
            if self._made is None:
                self._made = os.getpid(), self._make()
            return self._made[1]

    def take(self) -> T | None:
        """The thing if there is one in this process, which is then forgotten, so that its taker may close it."""
        with self._lock:
            made, self._made = self._made, None
        return made[1] if made is not None and made[0] == os.getpid() else None

    def __getstate__(self) -> dict[str, Any]:
        return {"_make": self._make}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_make"])  # type: ignore[misc]


class ClosableBlackBox(BlackBox):
    """A black box whose `predict` has something open; also a context manager that closes it."""

    def close(self) -> None:
        """Close the connections, or end the program; they are opened or started again when needed."""
        self.predict.close()  # type: ignore[attr-defined]

    def __enter__(self: AnyBox) -> AnyBox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def rows_and_columns(X: Any) -> tuple[list[Any], list[str] | None]:
    """Rows as nested lists, missing numbers as None, and the names of the columns of a DataFrame."""
    X = containers.as_pandas(X)
    columns = [str(column) for column in X.columns] if containers.is_frame(X) else None
    table = containers.dense(X)
    rows: list[Any] = table.tolist()
    if table.dtype.kind == "f" and not np.isfinite(table).all():
        cells = table.astype(object)
        cells[np.isnan(table)] = None
        rows = cells.tolist()
    elif table.dtype.kind == "O" and table.ndim == 2:
        rows = [[None if containers.is_missing(cell) else cell for cell in row] for row in rows]
    return rows, columns


def to_json(content: Any) -> bytes:
    """Compact JSON without NaN or infinity, which JSON cannot say."""
    try:
        text = json.dumps(content, allow_nan=False, separators=(",", ":"), default=_plain)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"X cannot be sent as JSON: {error}. Expected finite numbers, strings, booleans and dates; fill in missing "
            "values, or convert the column."
        ) from None
    return text.encode()


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(f"a value of type {type(value).__name__}")


PARTS_PER_ROW = 32
"""How many lists, objects and different names a reply may hold for each row that it is about, such as rows of masks."""


def reply_json(content: bytes, n_rows: int) -> Any:
    """What a reply about so many rows says; ValueError if it is no JSON, or if Python would need much memory for it."""
    text = content.decode(json.detect_encoding(content), "surrogatepass")
    check_parts(text, PARTS_PER_ROW * n_rows)
    return json.loads(text)


def printable(text: str) -> str:
    """A text of somebody else in one line, without what would move a terminal's cursor or change its colours."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))


TRANSIENT = (408, 425, 429)
"""Statuses that may be gone at the next try, as are all from 500 on."""
MAX_QUOTE = 300
LOGGERS = tuple(f"httpcore.{part}" for part in ("connection", "http11", "http2", "proxy", "socks"))
SAFE = "/%!$&'()*+,;=:@~"


class Response(NamedTuple):
    """A server's reply, whole."""

    status: int
    body: bytes
    wait: float
    """Seconds after which to try again, if the server sent that."""

    def __repr__(self) -> str:  # a server's text may repeat what was sent
        return f"Response(status={self.status}, {len(self.body)} bytes)"


class Connection:
    """Sends JSON to one server and returns what it replies; may be used from many threads, and pickled."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str | Secret] | None,
        *,
        timeout: float,
        verify: bool | str | Path,
        max_reply_bytes: int,
    ) -> None:
        parts = _checked(url)
        host = (parts.hostname or "").encode("idna").decode()
        host = f"[{host}]" if ":" in host else host
        self.root = f"{parts.scheme}://{host}" + ("" if parts.port is None else f":{parts.port}")
        self.path = parts.path.rstrip("/")
        self.timeout = check_seconds(timeout, "timeout")
        self.max_reply_bytes = check_positive_int(max_reply_bytes, "max_reply_bytes")
        self._headers = _secret_headers(headers, parts)
        self._query = Secret(parts.query) if parts.query else None
        self._userinfo = [Secret(unquote(part)) for part in (parts.username, parts.password) if part]
        self._verify = _checked_verify(verify)
        self._client = PerProcess(self._make_client)

    @property
    def shown(self) -> str:
        """The address without user, password and query."""
        return self.root + self.path

    def send(self, method: str, path: str, content: Any = None) -> Response:
        """The server's reply to one request, whatever its status."""
        httpcore = require_extra("httpcore", "http")
        body = None if content is None else to_json(content)
        problem, is_transient = "", True
        # The frames of the library hold the request with its headers: none may be in the traceback of our errors.
        try:
            with hidden_in_logs(self._secrets(), LOGGERS):
                return self._exchange(method, path, body)
        except httpcore.TimeoutException:
            problem = f"it did not respond within timeout={self.timeout:g} s. Raise timeout, or lower batch_size"
        except httpcore.ConnectError as exc:
            problem = f"it cannot be reached ({hide(str(exc), self._secrets())})"
            is_transient = "CERTIFICATE" not in str(exc).upper()
            problem += (
                ". Check the address, and that the server is running"
                if is_transient
                else ". If the server has a certificate of your own authority, give verify='path/to/ca.pem'"
            )
        except SointerError:
            raise
        except Exception as exc:
            problem = f"the connection broke off ({type(exc).__name__}: {hide(str(exc), self._secrets())})"
        raise (TransientError if is_transient else BlackBoxError)(f"The server {self.root} gave no reply: {problem}.")

    def json(self, method: str, path: str, content: Any = None, *, n_rows: int = 0) -> dict[str, Any]:
        """The JSON object that the server replied about so many rows; anything else is an error."""
        response = self.send(method, path, content)
        if response.status != 200:
            raise self.refusal(response, path)
        return self.parsed(response, n_rows=n_rows)  # type: ignore[no-any-return]

    def parsed(self, response: Response, *, anything: bool = False, n_rows: int = 0) -> Any:
        """The JSON in a reply about so many rows, which must be an object unless anything will do."""
        try:
            reply = reply_json(response.body, n_rows)
        except TooManyParts as error:
            raise BlackBoxError(
                f"The server {self.root} replied with {len(response.body):,} bytes of {error.what}; expected a row of "
                f"outputs for each of {n_rows:,} rows. Check the address, and what the model returns."
            ) from None
        except (ValueError, RecursionError):
            reply = None
        if not anything and not isinstance(reply, dict):
            raise TransientError(
                f"The server {self.root} did not reply with a JSON object: {self._quote(response.body)}."
            )
        return reply

    def refusal(self, response: Response, path: str) -> BlackBoxError:
        """The error for a refused request."""
        message = f"The server {self.root} refused {path} with status {response.status}: {self._quote(response.body)}."
        if response.status in TRANSIENT or response.status >= 500:
            return TransientError(message, wait=response.wait)
        if 300 <= response.status < 400:
            message += " It redirects, and headers are not sent on: pass the final address."
        if response.status in (401, 403):
            message += " Check the token in headers=."
        return BlackBoxError(message)

    def forget(self) -> None:
        """Have new connections from now on: an interrupt may leave a lock of the old ones locked."""
        self._client.take()

    def close(self) -> None:
        """Close the connections; they are opened again when needed."""
        client = self._client.take()
        if client is not None:
            client.close()

    def _exchange(self, method: str, path: str, body: bytes | None) -> Response:
        from sointer.blackbox.adapters.bounded import deadline_in

        query = "" if self._query is None else "?" + self._query.reveal()
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}
        # A connection is never used twice: what a server sends late, or twice, would be the reply to the next request.
        headers |= {"User-Agent": "sointer", "Connection": "close"}
        headers |= {name: value.reveal() for name, value in self._headers.items()}
        target = self.root + quote(path, safe=SAFE) + quote(query, safe=SAFE + "?")
        with (
            deadline_in(self.timeout),
            self._client.get().stream(method, target, headers=list(headers.items()), content=body) as response,
        ):
            replied = {name.lower(): value.decode("latin-1") for name, value in response.headers}
            encoding = replied.get(b"content-encoding", "identity").strip().lower()
            if encoding not in ("identity", ""):  # what was not asked for may unpack to any size
                raise BlackBoxError(
                    f"The server {self.root} replied to {path} with Content-Encoding {encoding!r:.40}, expected plain "
                    "JSON, as it was asked for. Switch compression off there."
                )
            chunks: list[bytes] = []
            n_bytes = 0
            for chunk in response.iter_stream():
                n_bytes += len(chunk)
                if n_bytes > self.max_reply_bytes:
                    raise BlackBoxError(
                        f"The server {self.root} replied to {path} with more than max_reply_bytes="
                        f"{self.max_reply_bytes:,}. Lower batch_size, or raise max_reply_bytes."
                    )
                chunks.append(chunk)
            return Response(response.status, b"".join(chunks), _seconds(replied.get(b"retry-after")))

    def _make_client(self) -> Any:
        httpcore = require_extra("httpcore", "http")
        from sointer.blackbox.adapters.bounded import BoundedBackend

        return httpcore.ConnectionPool(
            ssl_context=httpcore.default_ssl_context() if self._verify is None else _context(self._verify),
            max_connections=None,
            max_keepalive_connections=0,
            network_backend=BoundedBackend(),
        )

    def _secrets(self) -> list[Secret]:
        return [*self._headers.values(), *self._userinfo, *([] if self._query is None else [self._query])]

    def _quote(self, body: bytes) -> str:
        text = printable(hide(body.decode("utf-8", "replace"), self._secrets())[: MAX_QUOTE**2])
        return "(an empty reply)" if not text else text if len(text) <= MAX_QUOTE else text[:MAX_QUOTE] + " ..."

    def __repr__(self) -> str:
        return f"Connection({self.shown})"


def _checked(url: object) -> SplitResult:
    wanted = "url must be an address such as http://host:8000/v2/models/name"
    if not isinstance(url, str):
        raise InputError(f"{wanted}, got an object of type {type(url).__name__}.")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise InputError(f"{wanted}, got something that is no address. Look at its host and port.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{wanted}, got scheme {parts.scheme!r} and host {parts.hostname!r}.")
    return parts


def _secret_headers(headers: Mapping[str, str | Secret] | None, parts: SplitResult) -> dict[str, Secret]:
    secrets: dict[str, Secret] = {}
    for name, value in (headers or {}).items():
        if not isinstance(name, str) or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise InputError(f"headers must map names to values, got the name {name!r}. Write it as 'Authorization'.")
        is_plain = isinstance(value, str) and value.isascii() and value.replace("\t", " ").isprintable()
        if not is_plain and not isinstance(value, Secret):
            raise InputError(
                f"headers[{name!r}] must be a string of printable ASCII characters in one line, or a Secret."
            )
        secrets[name] = value if isinstance(value, Secret) else Secret(value)
    if parts.username is not None and not any(name.lower() == "authorization" for name in secrets):
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        secrets["Authorization"] = Secret("Basic " + base64.b64encode(pair.encode()).decode())
    host = parts.hostname or ""
    if secrets and parts.scheme == "http" and not (host in ("localhost", "::1") or host.startswith("127.")):
        warn_caller(
            f"{', '.join(secrets)} will be sent to {host} unencrypted, where others on the way can read it, as "
            "the address begins with http://. Use https:// if the server has it.",
            SointerWarning,
        )
    return secrets


def _checked_verify(verify: object) -> str | None:
    """None for the usual authorities, or the path to one's own."""
    if verify is True:
        return None
    if isinstance(verify, (str, Path)) and Path(verify).exists():
        return str(verify)
    raise InputError(
        f"verify must be True or the path of an existing file or folder with certificates of authorities, got "
        f"{verify!r}. Tokens are sent only to servers with a verified certificate."
    )


def _context(path: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(**{"capath" if Path(path).is_dir() else "cafile": path})  # type: ignore[arg-type]
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"verify={path!r} holds no certificates ({error}). Give a file in PEM format.") from None


def _seconds(retry_after: str | None) -> float:
    """A Retry-After header, in seconds or as a date; 0 if there is none, or none that can be read."""
    if not retry_after:
        return 0.0
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (TypeError, ValueError):
        return 0.0
