"""How good are these explanations, beside those of others? Measured with the model itself, on rows of your data."""

from sointer.evaluation.compare import evaluate
from sointer.evaluation.result import Evaluation, MethodScore, TargetScore
from sointer.evaluation.rivals import RIVALS

__all__ = ["RIVALS", "Evaluation", "MethodScore", "TargetScore", "evaluate"]
