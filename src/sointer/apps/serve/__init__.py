"""Explaining over HTTP: JSON, the Open Inference Protocol v2, and a page to try it."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

from sointer.errors import require_extra

if TYPE_CHECKING:
    from fastapi import FastAPI

    from sointer.apps.serve.security import Limits
    from sointer.explainers.base import Explainer
    from sointer.explainers.sequences import SequenceExplainer

__all__ = ["Limits", "create_app", "run"]


def __getattr__(name: str) -> Any:
    """`Limits`, where FastAPI is installed; without it this package can be imported, and says what is missing."""
    if name != "Limits":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_extra("fastapi", "serve")
    from sointer.apps.serve.security import Limits

    return Limits


def create_app(
    explainer: Explainer | SequenceExplainer,
    *,
    limits: Limits | None = None,
    name: str = "explainer",
    examples: Any = None,
    hosts: tuple[str, ...] | None = ("localhost", "127.0.0.1", "::1"),
    token: str | None = None,
    records: str | PathLike[str] | None = None,
) -> FastAPI:
    """Create the web application that serves a fitted explainer; run it with any ASGI server, in one process.

    Parameters
    ----------
    explainer : Explainer
        A fitted explainer.
    limits : Limits, optional
        How much the server accepts at once.
    name : str, default "explainer"
        The name of the model in the paths of the Open Inference Protocol.
    examples : table, array, list of texts or of token lists, optional
        Rows to choose from on the page, as for `explain`. Everyone who sees the page sees them.
    hosts : tuple of str or None, default ("localhost", "127.0.0.1", "::1")
        The host names by which the server may be addressed, against DNS rebinding; None for any. Behind a proxy, give
        the name that clients use.
    token : str, optional
        A secret of at least 16 characters that every request must bring, as ``Authorization: Bearer <token>``, or from
        browsers as the password. Default: none is needed.
    records : path, optional
        A file to which the record of every explanation is appended, as JSON lines (docs/how-to/records.md).

    Returns
    -------
    fastapi.FastAPI

    Raises
    ------
    InputError
        If the token is too short.

    Examples
    --------
    With ``app = create_app(sointer.load("why/", model))`` in ``main.py``: ``uvicorn main:app``.
    """
    require_extra("fastapi", "serve")
    from sointer.apps.serve.app import build_app
    from sointer.apps.serve.security import Limits
    from sointer.explainers.sequence_base import as_explainer

    return build_app(as_explainer(explainer), limits or Limits(), name, examples, hosts, token, records)


def run(
    explainer: str | PathLike[str] | Explainer | SequenceExplainer,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    model: Any = None,
    name: str | None = None,
    examples: Any = None,
    limits: Limits | None = None,
    token: str | None = None,
    records: str | PathLike[str] | None = None,
    quiet: bool = False,
) -> None:
    """Serve until the process is stopped (Ctrl-C or SIGTERM); requests accepted by then are answered first.

    Parameters
    ----------
    explainer : Explainer, str or path
        A fitted explainer, or the folder of a saved one.
    host : str, default "127.0.0.1"
        The address to listen on.
    port : int, default 8000
        The port to listen on; 0 takes any that is free.
    model : callable or BlackBox, optional
        The model that a saved explainer explains. With it, every row is also sent to the model, and what it predicts is
        explained; `verify` and raw texts need it too. Without it, the values that the explainer expects are explained.
    name : str, optional
        The name of the model in the paths of the Open Inference Protocol. Default: that of the folder.
    examples, limits, token, records
        As in `create_app`.
    quiet : bool, default False
        Whether to print nothing.

    Raises
    ------
    InputError
        If nothing can listen on the port, or `model` is given together with an explainer that has its own.

    Examples
    --------
    ``run("why/", model=predict, port=9000)`` serves until Ctrl-C.
    """
    for module in ("fastapi", "uvicorn", "jinja2"):
        require_extra(module, "serve")
    from sointer.apps.serve.security import Limits
    from sointer.apps.serve.server import serve_explainer

    serve_explainer(explainer, host, port, model, name, examples, limits or Limits(), token, quiet, records)
