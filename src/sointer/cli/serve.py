"""`sointer serve`."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

from sointer.cli.console import running
from sointer.cli.options import ExplainerPath, Headers, Method, OptionalModelSpec, Quiet, Verbose


def serve(
    explainer: ExplainerPath,
    host: Annotated[str, typer.Option("--host", help="Where to listen; 0.0.0.0 is everywhere.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535)] = 8000,
    model: OptionalModelSpec = None,
    method: Method = None,
    header: Headers = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Explain over HTTP, with a page to try it.

    \b
    Examples:
      sointer serve why/                       then open http://127.0.0.1:8000
      sointer serve why/ --port 9000
    """
    with running(quiet=quiet, verbose=verbose):
        from sointer.cli.models import load_model
        from sointer.errors import require_extra

        require_extra("fastapi", "serve")
        require_extra("uvicorn", "serve")
        import_module("sointer.serve").run(
            explainer,
            host=host,
            port=port,
            model=None if model is None else load_model(model, headers=header, method=method),
        )
