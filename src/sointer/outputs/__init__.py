"""What an output is: labels, probabilities or numbers; how to encode them and when two agree."""

from sointer.outputs.kinds import Outputs
from sointer.outputs.reading import KINDS, MOST_CLASSES, Kind

__all__ = ["KINDS", "MOST_CLASSES", "Kind", "Outputs"]
