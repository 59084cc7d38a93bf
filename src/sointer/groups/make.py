"""Groups from what the user asked for, or from what was saved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sointer.errors import InputError
from sointer.groups.base import Groups
from sointer.groups.fixed import FixedGroups
from sointer.groups.patches import Patches
from sointer.groups.superpixels import SuperpixelGroups, Superpixels
from sointer.inputs import ImageShape, InputFormat


def make_groups(
    groups: Any,
    feature_names: Sequence[str],
    column_feature: npt.ArrayLike | None,
    input_format: InputFormat | None,
) -> Groups:
    """See `Groups.build`."""
    image = None if input_format is None else input_format.image
    for kind in (Patches, Superpixels):
        if groups is kind:
            name = kind.__name__
            raise InputError(f"groups is the class {name}, expected an object of it, such as {name}(8).")
    if isinstance(groups, (Patches, Superpixels)):
        if image is None or input_format is None:
            raise InputError(
                f"groups={groups!r} was given with a table, but is for images (n, channels, height, width). Give "
                "groups of features as {name: features}."
            )
        if isinstance(groups, Patches):
            return groups.cut(image)
        return SuperpixelGroups(groups, image, input_format.pixel_range)
    if image is not None and isinstance(groups, np.ndarray) and groups.ndim == 2:
        if groups.shape != image.size or groups.dtype.kind not in "iu":
            raise InputError(
                f"groups as a map must be integers of shape {image.size}, one group id per pixel, got {groups.dtype} "
                f"of shape {groups.shape}."
            )
        groups = groups.ravel()
    n_features = len(feature_names)
    owner = np.asarray(np.arange(n_features) if column_feature is None else column_feature, dtype=np.int64)
    return FixedGroups.of(groups, feature_names, owner)


def restore_groups(data: dict[str, Any]) -> Groups:
    """The groups whose `to_json` this was."""
    if "patches" in data:
        return Patches(**data["patches"]).cut(ImageShape(**data["image"]))
    if "superpixels" in data:
        return SuperpixelGroups(Superpixels(**data["superpixels"]), ImageShape(**data["image"]), data["pixel_range"])
    return FixedGroups.restore(data)
