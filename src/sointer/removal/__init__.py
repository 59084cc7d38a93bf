"""What "absent" means: the values that stand in for removed features."""

from sointer.removal.background import MOST_BACKGROUND_ROWS, Background
from sointer.removal.base import Removal
from sointer.removal.blur import BlurRemoval
from sointer.removal.conditional import ConditionalRemoval
from sointer.removal.fixed import FixedRemoval
from sointer.removal.function import FunctionRemoval
from sointer.removal.make import make_removal
from sointer.removal.marginal import MarginalRemoval

__all__ = [
    "MOST_BACKGROUND_ROWS",
    "Background",
    "BlurRemoval",
    "ConditionalRemoval",
    "FixedRemoval",
    "FunctionRemoval",
    "MarginalRemoval",
    "Removal",
    "make_removal",
]
