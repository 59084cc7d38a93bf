"""Rivals with SOInter's interface: the same constructor head, `fit`, `explain` and `Explanation`."""

from sointer.baselines.kernel_shap import KernelShap
from sointer.baselines.l2x import L2X
from sointer.baselines.lime import Lime
from sointer.baselines.nearest_pixels import NearestPixels
from sointer.baselines.random import Random
from sointer.baselines.shapley_sampling import ShapleySampling

__all__ = ["L2X", "KernelShap", "Lime", "NearestPixels", "Random", "ShapleySampling"]
