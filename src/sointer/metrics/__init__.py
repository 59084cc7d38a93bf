"""Measures of explanations, each defined once, on plain arrays."""

from sointer.metrics.faithfulness import PostHocF1, agreement, f1, post_hoc_f1, target_columns
from sointer.metrics.ground_truth import exact_match, median_rank, recall_at_k, top_k
from sointer.metrics.intervals import MeanInterval, mean_interval
from sointer.metrics.leakage import Leakage, Reading, leakage
from sointer.metrics.segmentation import iou

__all__ = [
    "Leakage",
    "MeanInterval",
    "PostHocF1",
    "Reading",
    "agreement",
    "exact_match",
    "f1",
    "iou",
    "leakage",
    "mean_interval",
    "median_rank",
    "post_hoc_f1",
    "recall_at_k",
    "target_columns",
    "top_k",
]
