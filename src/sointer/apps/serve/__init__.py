"""Explaining over HTTP: JSON, the Open Inference Protocol v2, and a page to try it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sointer.errors import require_extra

if TYPE_CHECKING:
    from sointer.apps.serve.app import create_app
    from sointer.apps.serve.security import Limits
    from sointer.apps.serve.server import run

__all__ = ["Limits", "create_app", "run"]
MODULES = {"Limits": "security", "create_app": "app", "run": "server"}


def __getattr__(name: str) -> Any:
    """What needs FastAPI, on first use; without it this package can be imported, and says what is missing."""
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for package in ("fastapi", "uvicorn", "jinja2")[: 3 if name == "run" else 1]:
        require_extra(package, "serve")
    return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
