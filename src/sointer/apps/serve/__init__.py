"""Explaining over HTTP: JSON, the Open Inference Protocol v2, and a page to try it."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

from sointer.apps.serve.limits import Limits
from sointer.errors import require_extra

if TYPE_CHECKING:
    from fastapi import FastAPI

    from sointer.explainers.base import Explainer

__all__ = ["Limits", "create_app", "run"]


def create_app(
    explainer: Explainer,
    *,
    limits: Limits | None = None,
    name: str = "explainer",
    examples: Any = None,
    hosts: tuple[str, ...] | None = None,
) -> FastAPI:
    """The web application that serves a fitted explainer; run it with any ASGI server, in one process.

    Parameters
    ----------
    limits : how much one request, and all at once, may take; see `Limits`.
    name : what the model is called in the paths of the Open Inference Protocol.
    examples : rows to choose from on the page, as for explain; whoever sees the page sees them.
    hosts : the names by which it may be addressed, against pages elsewhere that pretend to be it; None for any.
    """
    require_extra("fastapi", "serve")
    from sointer.apps.serve.app import build_app

    return build_app(explainer, limits or Limits(), name, examples, hosts)


def run(
    explainer: str | PathLike[str] | Explainer,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    model: Any = None,
    name: str | None = None,
    examples: Any = None,
    limits: Limits | None = None,
    quiet: bool = False,
) -> None:
    """Serve until the process is stopped (Ctrl-C or SIGTERM); requests accepted by then are answered first.

    `explainer` is one, or the folder of a saved one; then `model` is what was explained. With it, every row that comes
    in is also sent to the model, so that what it predicts is what is explained; verifying and raw texts need
    it too. Without it, what is expected of the model is explained. `name` is the folder's by default.
    """
    for module in ("fastapi", "uvicorn", "jinja2"):
        require_extra(module, "serve")
    from sointer.apps.serve.server import serve_explainer

    serve_explainer(explainer, host, port, model, name, examples, limits or Limits(), quiet)
