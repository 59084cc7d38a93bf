"""What all plots share: colours, axes, labels and titles."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from sointer._support import MAX_PLAIN
from sointer._support.validation import is_integer
from sointer.errors import InputError, require_extra
from sointer.masking.unit_values import UnitValues

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sointer.explanation import Explanation


BLUE, ORANGE, GREY = "#1f6fb2", "#d9600a", "#8a8f98"
NEUTRAL = "#56616f"
"""Of relevance, which has no sign."""
UP, DOWN = BLUE, ORANGE
"""Of effects, which have one."""
DISTINCT = ("#009e73", "#7a5195", "#e6b400", "#56b4e9", "#cc79a7", "#6b4226", GREY)
"""Colours of values, which most people can distinguish, also side by side; none of them is one of effects."""

MAX_NAME_LENGTH, MAX_HEIGHT = 32, 24.0
POINTS_PER_INCH, MAX_FONT, MIN_FONT, LINE_SPACING = 72.0, 10.0, 5.0, 1.25


def make_axes(ax: Axes | None, width: float = 6.0, height: float = 4.0) -> Axes:
    """These axes, or those of a new figure."""
    require_extra("matplotlib", "plot")
    if ax is not None:
        return ax
    from matplotlib import pyplot

    _, made = pyplot.subplots(figsize=(width, height), layout="constrained")
    return made


def relevance_colours() -> Any:
    """From nothing to the colour of relevance, for maps."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("relevance", ["#ffffff", "#98a1ad", "#333d49"])


def shorten(name: str, longest: int = MAX_NAME_LENGTH) -> str:
    """A name of at most so many letters: its beginning and its end, on one line."""
    line = " ".join(name.split()) or repr(name)
    if len(line) <= longest:
        return line
    kept = longest - 1
    return f"{line[: kept - kept // 3]}…{line[len(line) - kept // 3 :]}"


def shorten_all(names: list[str], longest: int = MAX_NAME_LENGTH) -> list[str]:
    """Short names; longer ones where different names would look alike."""
    for limit in (longest, 2 * longest, 4 * longest):
        shown = [shorten(name, limit) for name in names]
        if len(set(shown)) == len(set(names)):
            return shown
    return [shorten(name, max(map(len, names))) for name in names]


def bars_size(names: list[str]) -> tuple[float, float]:
    """Inches, width and height, for horizontal bars with names."""
    longest = max(map(len, shorten_all(names)), default=0)
    return 4.8 + 0.075 * min(longest, 80), min(1.2 + 0.3 * max(len(names), 1), MAX_HEIGHT)


def label_axis(
    ax: Axes, which: str, names: list[str], *, rotation: float = 0.0, longest: int = MAX_NAME_LENGTH
) -> None:
    """One label for each whole number of an axis ("x" or "y"), as large as fits; of too many, every second or so."""
    box = ax.get_window_extent()
    pixels = box.height if which == "y" else box.width
    points = pixels / ax.figure.dpi * POINTS_PER_INCH / max(len(names), 1) / LINE_SPACING
    step = max(1, int(np.ceil(MIN_FONT / points))) if points > 0 else 1
    font = float(np.clip(points * step, MIN_FONT, MAX_FONT))
    axis = ax.yaxis if which == "y" else ax.xaxis
    axis.set_ticks(range(0, len(names), step), shorten_all(names, longest)[::step])
    for label in axis.get_ticklabels():
        label.set_fontsize(font)
        label.set_parse_math(False)  # a name may hold dollar signs
        if rotation:
            label.set(rotation=rotation, ha="right", rotation_mode="anchor")


def title(ax: Axes, text: str) -> None:
    """Set a title, in which dollar signs are dollar signs."""
    ax.set_title(text, parse_math=False, fontsize=11)


def check_row(explanation: Sized, row: int) -> int:
    """The number of a row, counted from the end if negative; InputError if there is no such row."""
    if not is_integer(row):
        raise InputError(
            f"row is {row!r}, expected a whole number from 0 to {len(explanation) - 1}, counting the rows."
        )
    if not -len(explanation) <= row < len(explanation):
        raise InputError(f"row is {row}, expected 0 to {len(explanation) - 1}: there are {len(explanation)} rows.")
    return row % len(explanation)


def why(explanation: Explanation, row: int) -> str:
    """The title of a plot of one row: the target, the value explained, and the label of the sample if it has one."""
    name, index = shorten(explanation.output_names[explanation.target[row]]), explanation.source.index
    which = f"row {row}" if index is None else f"sample {shorten(str(index[explanation.sample[row]]))}"
    return f"what decides {name} ({value_text(explanation, row)}), {which}"


def value_text(explanation: Explanation, row: int) -> str:
    """The value that is explained, and whether the model predicts it or the explainer expects it."""
    value = short(explanation.value[row])
    return f"expected: {value}" if explanation.value_source == "expected" else f"the model predicts {value}"


def signed(effect: float) -> str:
    """An effect with its sign, which is never left out."""
    return digits(effect, "+").replace("-", "\N{MINUS SIGN}")


def digits(number: float, sign: Literal["", "+"] = "") -> str:
    """A number with three digits, or all before the point, as of years and prices."""
    return f"{number:{sign},.0f}" if 999.5 <= abs(number) < MAX_PLAIN else f"{number:{sign}.3g}"


def labels_with_values(explanation: Explanation, row: int, units: Sequence[int]) -> list[str]:
    """Features of a row with their values, such as "debt = 4,452"; words and pixels by their names alone."""
    names = [explanation.feature_names[unit] for unit in units]
    source = explanation.source
    form = source.input_format
    if form.image is not None or (form.has_words and not form.columns) or form.kind == "csr":
        return names
    values, words = UnitValues(source.take(np.array([row]))), {unit for _, _, unit in source.spans(row)}
    both = zip(names, units, strict=True)
    return [name if unit in words else f"{name} = {values.of(0, unit)}" for name, unit in both]


def short(value: Any) -> str:
    """A value as short as it can be."""
    return digits(float(value)) if isinstance(value, float | np.floating) else str(value)


Bytes = npt.NDArray[np.uint8]

SELECTED, TARGET = (0, 230, 118), (255, 36, 36)
"""Green pixels decide the value of the red one."""

# Two labels are dark and light; more get colours that most people can distinguish, repeated where they run out.
_TWO = ((38, 42, 51), (240, 239, 233))
_MANY = (
    (38, 42, 51),
    (86, 180, 233),
    (230, 159, 0),
    (204, 121, 167),
    (240, 228, 66),
    (0, 114, 178),
    (213, 94, 0),
    (148, 148, 156),
    (120, 94, 240),
    (240, 239, 233),
)


def to_rgb(images: npt.ArrayLike, seen: npt.ArrayLike | None = None) -> Bytes:
    """Images (n, channels, height, width) as red, green and blue from 0 to 255: (n, height, width, 3).

    Unless there are three channels, their mean is shown as grey. Values in [0, 1] and bytes are taken as they are; of
    anything else, such as standardised values, the smallest of each image becomes black and the largest white. Which it
    is, `seen` decides, numbers of any shape: by default the images themselves.
    """
    values = np.asarray(images, dtype=np.float64)
    if values.shape[1] != 3:
        values = values.mean(axis=1, keepdims=True)
    judged = values if seen is None else np.asarray(seen)
    low, high = float(judged.min()), float(judged.max())
    if low >= 0 and high <= 1:
        shares = values
    elif low >= 0 and 127 < high <= 255:
        shares = values / 255
    else:
        least = values.min(axis=(1, 2, 3), keepdims=True)
        span = values.max(axis=(1, 2, 3), keepdims=True) - least
        shares = (values - least) / np.where(span > 0, span, 1.0)
    levels = np.rint(255 * shares.transpose(0, 2, 3, 1)).astype(np.uint8)
    return np.repeat(levels, 3, axis=3) if levels.shape[3] == 1 else levels


def label_colours(n_labels: int) -> Bytes:
    """A colour for each of n labels: (n, 3)."""
    colours = _TWO if n_labels <= 2 else _MANY
    return np.array([colours[i % len(colours)] for i in range(n_labels)], dtype=np.uint8)


def number_colours(values: npt.NDArray[Any], low: float, high: float) -> Bytes:
    """Numbers as steps from dark (low) to light (high): the shape of `values` and 3."""
    shares = np.clip((values.astype(np.float64) - low) / (high - low if high > low else 1.0), 0.0, 1.0)
    dark, light = (np.array(colour, dtype=np.float64) for colour in _TWO)
    return np.rint(dark + shares[..., None] * (light - dark)).astype(np.uint8)
