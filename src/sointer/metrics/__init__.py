"""Measures of explanations, each defined once, on plain arrays."""

from sointer.metrics.evaluator import MaskedEvaluator
from sointer.metrics.faithfulness import PostHocF1, agreement, f1, post_hoc_f1, target_columns
from sointer.metrics.fills import fill_masked
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
from sointer.metrics.persuasion import PersuasionCredit, persuasion_credit
from sointer.metrics.pixels import pixel_scores
from sointer.metrics.segmentation import iou
from sointer.metrics.stability import NoiseStability, noise_stability, top_k_overlap
from sointer.metrics.swaps import SwapScores, swap_scores
from sointer.metrics.transfer import transfer_scores

__all__ = [
    "KeepAndDelete",
    "Leakage",
    "MaskedEvaluator",
    "MeanInterval",
    "NoiseStability",
    "PersuasionCredit",
    "PostHocF1",
    "Reading",
    "SwapScores",
    "agreement",
    "exact_match",
    "f1",
    "false_discovery_rates",
    "fill_masked",
    "iou",
    "keep_and_delete",
    "leakage",
    "mean_interval",
    "median_rank",
    "noise_stability",
    "persuasion_credit",
    "pixel_scores",
    "post_hoc_f1",
    "r_precision",
    "recall_at_k",
    "sign_accuracy",
    "swap_scores",
    "switch_accuracy",
    "target_columns",
    "top_k",
    "top_k_overlap",
    "top_of_sizes",
    "transfer_scores",
    "true_positive_rates",
]
