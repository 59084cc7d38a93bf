"""Measures of explanations, each defined once; and `evaluate`, which compares methods by them."""

from sointer.metrics.evaluation import evaluate, evaluate_sequences
from sointer.metrics.evaluation_baselines import BASELINES
from sointer.metrics.evaluation_result import (
    Evaluation,
    MeanInterval,
    MethodScore,
    SequenceEvaluation,
    TargetScore,
    TokenScore,
    mean_interval,
)
from sointer.metrics.faithfulness import (
    KeepAndDelete,
    PostHocF1,
    agreement,
    f1,
    keep_and_delete,
    post_hoc_f1,
    target_columns,
)
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
from sointer.metrics.leakage import Leakage, Reading, leakage
from sointer.metrics.masked_predictor import MaskedEvaluator
from sointer.metrics.pixels import fill_masked, iou, pixel_scores
from sointer.metrics.robustness import (
    NoiseStability,
    PersuasionCredit,
    noise_stability,
    persuasion_credit,
    top_k_overlap,
    transfer_scores,
)
from sointer.metrics.swaps import SwapScores, swap_scores

__all__ = [
    "BASELINES",
    "Evaluation",
    "KeepAndDelete",
    "Leakage",
    "MaskedEvaluator",
    "MeanInterval",
    "MethodScore",
    "NoiseStability",
    "PersuasionCredit",
    "PostHocF1",
    "Reading",
    "SequenceEvaluation",
    "SwapScores",
    "TargetScore",
    "TokenScore",
    "agreement",
    "evaluate",
    "evaluate_sequences",
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
