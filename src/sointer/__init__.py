"""Explain one output of a model that predicts many: which few features decided it, also through other outputs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sointer import errors
from sointer._version import __version__

if TYPE_CHECKING:
    from sointer.adapters.command import CommandBlackBox
    from sointer.adapters.http import HTTPBlackBox
    from sointer.adapters.onnx import ONNXBlackBox
    from sointer.blackbox import BlackBox
    from sointer.config import EnergyConfig, InterpreterConfig, TrainingConfig
    from sointer.explainer import SOInter
    from sointer.explanation import Explanation
    from sointer.groups import Patches, Superpixels
    from sointer.persistence import load
    from sointer.verification import Verification

__all__ = [
    "BlackBox",
    "CommandBlackBox",
    "EnergyConfig",
    "Explanation",
    "HTTPBlackBox",
    "InterpreterConfig",
    "ONNXBlackBox",
    "Patches",
    "SOInter",
    "Superpixels",
    "TrainingConfig",
    "Verification",
    "__version__",
    "errors",
    "load",
]

# Imported when they are first named: `sointer --help` must not wait for torch.
_HOMES = {
    "BlackBox": "sointer.blackbox",
    "CommandBlackBox": "sointer.adapters.command",
    "EnergyConfig": "sointer.config",
    "Explanation": "sointer.explanation",
    "HTTPBlackBox": "sointer.adapters.http",
    "InterpreterConfig": "sointer.config",
    "ONNXBlackBox": "sointer.adapters.onnx",
    "Patches": "sointer.groups",
    "SOInter": "sointer.explainer",
    "Superpixels": "sointer.groups",
    "TrainingConfig": "sointer.config",
    "Verification": "sointer.verification",
    "load": "sointer.persistence",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sointer' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
