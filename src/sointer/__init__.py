"""Explain one output of a model that predicts many: which few features decided it, also through other outputs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sointer import errors
from sointer._support import __version__

if TYPE_CHECKING:
    from sointer.blackbox.adapters.command import CommandBlackBox
    from sointer.blackbox.adapters.http import HTTPBlackBox
    from sointer.blackbox.adapters.onnx import ONNXBlackBox
    from sointer.blackbox.box import BlackBox
    from sointer.config import EnergyConfig, InterpreterConfig, TrainingConfig
    from sointer.explainers.record_check import verify_record
    from sointer.explainers.sequences import SequenceExplainer
    from sointer.explainers.sointer import SOInter
    from sointer.explanation import Explanation
    from sointer.io.explainers import load
    from sointer.masking.groups import Patches
    from sointer.masking.superpixels import Superpixels
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
    "SequenceExplainer",
    "Superpixels",
    "TrainingConfig",
    "Verification",
    "__version__",
    "errors",
    "load",
    "verify_record",
]

# Imported when they are first named: `sointer --help` must not wait for torch.
_HOMES = {
    "BlackBox": "sointer.blackbox",
    "CommandBlackBox": "sointer.blackbox.adapters.command",
    "EnergyConfig": "sointer.config",
    "Explanation": "sointer.explanation",
    "HTTPBlackBox": "sointer.blackbox.adapters.http",
    "InterpreterConfig": "sointer.config",
    "ONNXBlackBox": "sointer.blackbox.adapters.onnx",
    "Patches": "sointer.masking.groups",
    "SOInter": "sointer.explainers.sointer",
    "SequenceExplainer": "sointer.explainers.sequences",
    "Superpixels": "sointer.masking.superpixels",
    "TrainingConfig": "sointer.config",
    "Verification": "sointer.verification",
    "load": "sointer.io.explainers",
    "verify_record": "sointer.explainers.record_check",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sointer' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
