"""Masks relaxed to [0, 1]: how well they cover the truth, and gradients of that."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def relaxed_iou(y: Tensor, truth: Tensor) -> Tensor:
    """Intersection over union, sum min / sum max, of relaxed masks with 0/1 truth; 1 where both are empty."""
    in_both = (y * truth).flatten(1).sum(dim=1)  # for 0/1 truth, min is y * truth
    in_either = (y + truth - y * truth).flatten(1).sum(dim=1)
    return torch.where(in_either > 0, in_both / in_either.clamp_min(torch.finfo(y.dtype).tiny), 1.0)


def class_iou(predicted: NDArray[Any], truth: NDArray[Any]) -> NDArray[np.float64]:
    """IoU of every image, averaged over the classes but 0 that are on either side; 1 where there are none."""
    total = np.zeros(len(truth))
    n_present = np.zeros(len(truth))
    for label in range(1, int(max(predicted.max(initial=0), truth.max(initial=0))) + 1):
        found, real = predicted == label, truth == label
        in_either = (found | real).sum(axis=(1, 2))
        total += (found & real).sum(axis=(1, 2)) / np.maximum(in_either, 1)
        n_present += in_either > 0
    return np.where(n_present > 0, total / np.maximum(n_present, 1), 1.0)
