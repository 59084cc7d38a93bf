"""Images cut into a grid of square patches."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from sointer.groups.fixed import FixedGroups
from sointer.inputs import ImageShape
from sointer.validation import check_positive_int


@dataclass(frozen=True)
class Patches:
    """Pixels stand or fall together in square patches; those at the lower and right edge may be smaller.

    Examples
    --------
    >>> from sointer import Patches
    >>> Patches(4)
    Patches(size=4)
    """

    size: int
    """Height and width of a patch, in pixels."""

    def __post_init__(self) -> None:
        check_positive_int(self.size, "size of Patches")

    def cut(self, image: ImageShape) -> PatchGroups:
        """The patches of images of this shape."""
        n_across = -(-image.width // self.size)
        n_down = -(-image.height // self.size)
        row, column = np.divmod(np.arange(image.n_pixels), image.width)
        names = [f"patch ({i}, {j})" for i in range(n_down) for j in range(n_across)]
        unit_of_pixel = (row // self.size) * n_across + column // self.size
        return PatchGroups(names, unit_of_pixel, image.column_pixel, patches=self, image=image)


@dataclass(frozen=True, eq=False)
class PatchGroups(FixedGroups):
    """The patches of images of one shape."""

    patches: Patches = field(kw_only=True)
    image: ImageShape = field(kw_only=True)

    @property
    def spec(self) -> Patches:
        return self.patches

    def to_json(self) -> dict[str, Any]:
        return {"patches": asdict(self.patches), "image": asdict(self.image)}
