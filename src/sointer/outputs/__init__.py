"""What an output is: labels, probabilities or numbers; how to encode them and when two agree."""

from sointer.outputs.kinds import KINDS, MOST_CLASSES, Kind, Outputs

__all__ = ["KINDS", "MOST_CLASSES", "Kind", "Outputs"]
