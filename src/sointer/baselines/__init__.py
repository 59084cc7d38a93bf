"""Rivals with SOInter's interface: the same constructor head, `fit`, `explain` and `Explanation`."""

from sointer.baselines.gradients import ExpectedGradients, GradientTimesInput
from sointer.baselines.hide_and_seek import HideAndSeek
from sointer.baselines.invase import Invase
from sointer.baselines.kernel_shap import KernelShap
from sointer.baselines.l2x import L2X
from sointer.baselines.lime import Lime
from sointer.baselines.minimal_region import MinimalRegion
from sointer.baselines.nearest_pixels import NearestPixels
from sointer.baselines.occlusion import Occlusion
from sointer.baselines.random import Random
from sointer.baselines.rise import Rise
from sointer.baselines.shapley_sampling import ShapleySampling
from sointer.baselines.tree_shap import TreeShap

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
