"""What there is to see in the explanation of one image, as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sointer.data.images import ImageShape
from sointer.data.labels import column_labels
from sointer.errors import InputError
from sointer.plot.canvas import check_row, short
from sointer.plot.colours import Bytes, label_colours, number_colours, to_rgb

if TYPE_CHECKING:
    from sointer.explanation import Explanation
    from sointer.masking.rows import Source

FAINTEST, STRONGEST = 0.22, 0.72


@dataclass(frozen=True)
class ImageView:
    """An image, its target, and what was selected for it."""

    title: str
    """What is explained: "(12, 7) = 1", or "(12, 7), expected: 1" where the model was not queried."""
    rgb: Bytes
    """(height, width, 3)"""
    ranks: npt.NDArray[np.int64]
    """(height, width): 0 for pixels of the best feature or group, 1 for the next; -1 if not selected."""
    n_ranks: int
    grouped: bool
    """Whether pixels were selected together, as patches or superpixels."""
    target: npt.NDArray[np.bool_]
    """(height, width): the pixel or region that is explained; nowhere, if outputs are not pixels."""
    answer: Bytes | None
    """The mask that the model predicts, in colours (height, width, 3), where it is known."""

    @classmethod
    def of(cls, explanation: Explanation, row: int) -> ImageView:
        row = check_row(explanation, row)
        source, shape = explanation.source, image_shape(explanation)
        units = explanation.selected[row][explanation.selected[row] >= 0]
        # Every selected unit alone, as pixels; groups may differ from image to image.
        alone = np.zeros((len(units), source.groups.n_units), dtype=bool)
        alone[np.arange(len(units)), units] = True
        members = source.groups.take(np.full(len(units), row)).to_features(alone)
        ranks = np.full(members.shape[1], -1, dtype=np.int64)
        for rank, pixels in enumerate(members):
            ranks[pixels] = rank
        return cls(
            title=_title(explanation, row),
            rgb=to_rgb(shape.unflatten(source.rows(np.array([row]))), seen=source.data)[0],
            ranks=ranks.reshape(shape.size),
            n_ranks=len(units),
            grouped=bool(members.sum() > len(units)),
            target=_target(source, int(explanation.target[row])).reshape(shape.size),
            answer=_answer(source, row),
        )

    @property
    def strength(self) -> npt.NDArray[np.float64]:
        """(height, width): how strongly each selected pixel is shown, the best most; 0 if not selected."""
        share = self.ranks / max(self.n_ranks - 1, 1)
        return np.where(self.ranks < 0, 0.0, STRONGEST - (STRONGEST - FAINTEST) * share)

    @property
    def outlined(self) -> npt.NDArray[np.int64]:
        """(height, width): pixels with the same number share an outline, -1 has none; groups have one each."""
        return self.ranks if self.grouped else np.where(self.ranks < 0, -1, 0)

    @property
    def rectangle(self) -> tuple[slice, slice]:
        """Rows and columns of the smallest rectangle that holds the target and all selected pixels."""
        shown = self.target | (self.ranks >= 0)
        if not shown.any():
            return slice(0, shown.shape[0]), slice(0, shown.shape[1])
        rows, columns = np.flatnonzero(shown.any(axis=1)), np.flatnonzero(shown.any(axis=0))
        return slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1)


def image_shape(explanation: Explanation) -> ImageShape:
    """The channels, height and width of the explained images; an error if the rows are not images."""
    shape = explanation.source.input_format.image
    if shape is None:
        raise InputError(
            "image: the explained rows are a table, expected images (n, channels, height, width); use "
            "plot.bar(explanation, row), or for rows that are flattened images plot.pixels(explanation, row, "
            "image_shape=(height, width))."
        )
    return shape


def _title(explanation: Explanation, row: int) -> str:
    name, value = explanation.output_names[explanation.target[row]], short(explanation.value[row])
    return f"{name}, expected: {value}" if explanation.value_source == "expected" else f"{name} = {value}"


def _target(source: Source, target: int) -> npt.NDArray[np.bool_]:
    shape = source.input_format.image
    assert shape is not None
    where = np.zeros(shape.n_pixels, dtype=bool)
    if source.outputs.shape is None:
        return where
    if target < source.outputs.n_outputs:
        where[target] = True
    else:
        where |= source.regions[target - source.outputs.n_outputs]
    return where


def _answer(source: Source, row: int) -> Bytes | None:
    known, outputs = source.predicted, source.outputs
    if known is None or outputs.shape is None:
        return None
    answer = known[row]
    if outputs.kind == "probability":
        colours = number_colours(answer, 0.0, 1.0)
    elif outputs.kind == "continuous":
        colours = number_colours(answer, float(known.min()), float(known.max()))
    else:
        classes = outputs.label_sets[0]
        assert classes is not None
        labels = classes.extend(column_labels(answer))
        colours = label_colours(len(labels))[labels.encode(answer)]
    return colours.reshape(*outputs.shape, 3)
