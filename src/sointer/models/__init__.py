"""Structured models to explain: multi-label classifiers whose labels depend on one another."""

from sointer.models.cache import fit_or_load
from sointer.models.deep_value import DeepValueNetwork
from sointer.models.spen import SPEN

__all__ = ["SPEN", "DeepValueNetwork", "fit_or_load"]
