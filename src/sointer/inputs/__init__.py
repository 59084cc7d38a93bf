"""How X looks to its owner, and the numeric matrix that the networks see."""

from sointer.inputs.format import InputFormat, Kind

__all__ = ["InputFormat", "Kind"]
