"""What explaining returns: what was selected, whether the model confirms it, and the paths that effects take."""

from sointer.explanation.explanation import Explanation
from sointer.explanation.verification import LEVEL, Verification

__all__ = ["LEVEL", "Explanation", "Verification"]
