"""Features that stand or fall together: named groups, patches and superpixels of images."""

from sointer.groups.base import Groups
from sointer.groups.patches import Patches
from sointer.groups.superpixels import Superpixels

__all__ = ["Groups", "Patches", "Superpixels"]
