"""Explanations as other packages want them: one number for every number of the input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sointer.explanation import Explanation


def attributions(explanation: Explanation, *, selected_only: bool = False) -> NDArray[np.float32]:
    """The effect of every feature, in the shape of the input: (rows, features), or (n, channels, height, width).

    Effects are signed and in the unit of the output; a group shares its effect evenly among its features, so that the
    sum stays. Where effects are not known, the scores are given, which have no sign: a group gives each of its
    features its score, a pixel gives it to all its channels. `selected_only` makes everything that was not selected 0.
    """
    source = explanation.source
    of_units = explanation.scores if explanation.effects is None else explanation.effects
    if selected_only:
        of_units = np.where(explanation.unit_mask, of_units, 0.0)
    units = np.asarray(source.groups.unit_of_features(len(explanation)), dtype=np.int64)
    of_features = np.take_along_axis(of_units, units, axis=1).astype(np.float32)
    if explanation.effects is not None:
        n_members = np.bincount(units[0], minlength=of_units.shape[1])  # groups of tables are the same in all rows
        of_features /= n_members[units].astype(np.float32)
    image = source.input_format.image
    if image is None:
        return of_features
    pixels = of_features.reshape(len(explanation), 1, image.height, image.width)
    return np.repeat(pixels, image.channels, axis=1)


def as_rows(inputs: Any, explainer: Any) -> Any:
    """Inputs with further dimensions of a model's own, as in (n, 1, features), as the table that was fitted."""
    is_table = explainer.input_format_.image is None
    if is_table and len(inputs.shape) != 2 and int(np.prod(inputs.shape[1:])) == explainer.n_features_in_:
        return inputs.reshape(inputs.shape[0], -1)
    return inputs
