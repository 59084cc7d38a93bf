"""Measures of explanations, each defined once, on plain arrays."""

from sointer.metrics.faithfulness import PostHocF1, agreement, f1, post_hoc_f1, target_columns
from sointer.metrics.ground_truth import (
    exact_match,
    false_discovery_rates,
    median_rank,
    r_precision,
    recall_at_k,
    sign_accuracy,
    switch_accuracy,
    top_k,
    top_of_sizes,
    true_positive_rates,
)
from sointer.metrics.intervals import MeanInterval, mean_interval
from sointer.metrics.keep_and_delete import KeepAndDelete, keep_and_delete
from sointer.metrics.leakage import Leakage, Reading, leakage
from sointer.metrics.segmentation import iou

__all__ = [
    "KeepAndDelete",
    "Leakage",
    "MeanInterval",
    "PostHocF1",
    "Reading",
    "agreement",
    "exact_match",
    "f1",
    "false_discovery_rates",
    "iou",
    "keep_and_delete",
    "leakage",
    "mean_interval",
    "median_rank",
    "post_hoc_f1",
    "r_precision",
    "recall_at_k",
    "sign_accuracy",
    "switch_accuracy",
    "target_columns",
    "top_k",
    "top_of_sizes",
    "true_positive_rates",
]
