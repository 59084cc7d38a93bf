"""How X looks to its owner, and the numeric matrix that the networks see."""

from sointer.inputs.format import InputFormat, Kind
from sointer.inputs.image import ImageShape

__all__ = ["ImageShape", "InputFormat", "Kind"]
