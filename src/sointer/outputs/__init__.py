"""What an output is: labels, probabilities or numbers; how to encode them and when two agree."""

from sointer.outputs.kinds import KINDS, Kind, Outputs

__all__ = ["KINDS", "Kind", "Outputs"]
