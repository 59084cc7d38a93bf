"""Baselines with SOInter's interface: the same constructor head, `fit`, `explain` and `Explanation`."""

from sointer.explainers.baselines.base import NearestPixels, Random
from sointer.explainers.baselines.by_swaps import MinimalRegion, Occlusion, Rise
from sointer.explainers.baselines.gradients import ExpectedGradients, GradientTimesInput
from sointer.explainers.baselines.invase import Invase
from sointer.explainers.baselines.l2x import L2X
from sointer.explainers.baselines.lime_and_shap import KernelShap, Lime, ShapleySampling
from sointer.explainers.baselines.trained import HideAndSeek
from sointer.explainers.baselines.tree_shap import TreeShap

__all__ = [
    "L2X",
    "ExpectedGradients",
    "GradientTimesInput",
    "HideAndSeek",
    "Invase",
    "KernelShap",
    "Lime",
    "MinimalRegion",
    "NearestPixels",
    "Occlusion",
    "Random",
    "Rise",
    "ShapleySampling",
    "TreeShap",
]
