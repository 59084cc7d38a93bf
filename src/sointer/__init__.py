"""Explain one output of a model that predicts many: which few features decided it, also through other outputs."""

from sointer._version import __version__
from sointer.blackbox import BlackBox
from sointer.config import EnergyConfig, InterpreterConfig, TrainingConfig
from sointer.explainer import SOInter
from sointer.explanation import Explanation, Verification
from sointer.groups import Patches, Superpixels
from sointer.persistence import load

__all__ = [
    "BlackBox",
    "EnergyConfig",
    "Explanation",
    "InterpreterConfig",
    "Patches",
    "SOInter",
    "Superpixels",
    "TrainingConfig",
    "Verification",
    "__version__",
    "load",
]
