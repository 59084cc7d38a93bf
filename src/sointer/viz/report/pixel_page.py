"""The HTML report on masks: what decided any pixel? One file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from sointer._support.progress import last_value
from sointer._support.validation import check_positive_int, check_unique_names
from sointer.data.images import ImageShape
from sointer.data.labels import Classes, column_labels
from sointer.errors import InputError
from sointer.masking.rows import ExplainedRows
from sointer.verification import SHAPE_ALONE
from sointer.viz.plots.canvas import SELECTED, TARGET, label_colours, number_colours, to_rgb
from sointer.viz.report.page import pack, render_template
from sointer.viz.report.samples import N_DRAWS, ReportOptions, verification_budget

if TYPE_CHECKING:
    from sointer.explainers.base import Explainer


MAX_UNITS = 65535


MAX_FLOAT_LABELS, MAX_LABELS, N_STEPS = 32, 256, 256
NOTHING = 65535
"""Stands for -1 in the page, where pixels are unsigned numbers of two bytes."""


@dataclass(frozen=True, eq=False)
class PixelPageContent:
    """Images, what the black box predicts for their pixels, and which pixels decide it."""

    images: npt.NDArray[Any]
    """(n, channels, height, width)"""
    outputs: npt.NDArray[Any]
    """(n, height, width) labels, probabilities or numbers."""
    selected: npt.NDArray[np.integer[Any]]
    """(n, targets, k) pixel numbers row * width + column, best first; -1 for none."""
    names: list[str]
    """(n,)"""
    title: str
    confirmed: npt.NDArray[np.bool_] | None = None
    """(n, targets) whether the black box predicts the same from the selected pixels alone."""
    unsure: npt.NDArray[np.bool_] | None = None
    """(n, targets) whether more draws would be needed to say so; None where none is unsure."""
    stride: int = 1
    """Targets are the pixels of every stride-th row and column, along rows; 1: all of them."""
    known: npt.NDArray[np.bool_] | None = None
    """(n, targets) whether anything could be learned about each target; None where that is not known."""
    quality: str = ""
    """How far the explanations can be trusted, in words."""
    units: npt.NDArray[np.integer[Any]] | None = None
    """(n, height * width) the patch or superpixel of each pixel, if `selected` holds those instead of pixels."""

    def __post_init__(self) -> None:
        if self.outputs.dtype.kind not in "biuf" and len(np.unique(self.outputs.astype(str))) > MAX_LABELS:
            raise InputError(f"outputs has more than {MAX_LABELS} labels, expected at most as many; join rare ones.")
        if self.n_units > MAX_UNITS:
            raise InputError(
                f"the page has {self.n_units} pixels or groups to choose from, expected at most {MAX_UNITS}; make the "
                "images smaller."
            )

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the images."""
        return self.images.shape[2], self.images.shape[3]

    @property
    def grid(self) -> tuple[int, int]:
        """How many rows and columns of pixels are targets."""
        height, width = self.size
        return len(range(0, height, self.stride)), len(range(0, width, self.stride))

    @property
    def n_units(self) -> int:
        """How many things could be selected in an image: pixels, patches or superpixels."""
        height, width = self.size
        return height * width if self.units is None else int(np.max(self.units)) + 1


def render_pixel_page(content: PixelPageContent) -> str:
    """The page as text; everything given by the user is escaped."""
    return render_template("pixels.html", title=content.title, quality=content.quality, data=_data(content))


def _data(content: PixelPageContent) -> dict[str, Any]:
    """What the page's script needs; arrays are packed, one text for each image."""
    height, width = content.size
    grid_height, grid_width = content.grid
    selected = np.where(content.selected < 0, NOTHING, content.selected)
    return {
        "height": height,
        "width": width,
        "stride": content.stride,
        "gridHeight": grid_height,
        "gridWidth": grid_width,
        "k": content.selected.shape[2],
        "nothing": NOTHING,
        "names": [str(name) for name in content.names],
        "green": list(SELECTED),
        "red": list(TARGET),
        "images": _pack(to_rgb(content.images), "u1"),
        **_outputs(content),
        "selected": _pack(selected, "<u2"),
        "units": None if content.units is None else _pack(content.units, "<u2"),
        "confirmed": None if content.confirmed is None else _pack(content.confirmed, "u1"),
        "unsure": None if content.unsure is None else _pack(content.unsure, "u1"),
        "known": None if content.known is None else _pack(content.known, "u1"),
    }


def _outputs(content: PixelPageContent) -> dict[str, Any]:
    """The masks as codes with a colour each, and what the codes mean: labels, or steps between two numbers."""
    outputs = np.asarray(content.outputs)
    flat = outputs.reshape(-1)
    labels = column_labels(flat)
    most = MAX_FLOAT_LABELS if flat.dtype.kind == "f" else MAX_LABELS
    if len(labels) <= most:
        codes = Classes(tuple(labels)).encode(flat)
        words = [f"{label:g}" if isinstance(label, float) else str(label) for label in labels]
        colours, values = label_colours(len(labels)), None
    else:
        numbers = flat.astype(np.float64)
        low, high = min(float(numbers.min()), 0.0), max(float(numbers.max()), 1.0)
        if (low, high) != (0.0, 1.0):
            low, high = float(numbers.min()), float(numbers.max())
        codes = np.rint((N_STEPS - 1) * (numbers - low) / (high - low))
        words = [f"{low:.3g}", f"{high:.3g}"]
        colours, values = number_colours(np.linspace(0, 1, N_STEPS), 0.0, 1.0), _pack(outputs, "<f4")
    return {
        "outputs": _pack(codes.reshape(outputs.shape), "u1"),
        "labels": words,
        "colours": colours.tolist(),
        "values": values,
    }


def _pack(array: npt.NDArray[Any], dtype: str) -> list[str]:
    """The bytes of each row of an array, as base64."""
    return [pack(row, dtype) for row in array]


MAX_SHOWN = 50
MAX_TARGETS = 1024
MAX_BATCH_VALUES = 2**22


def image_page(
    explainer: Explainer,
    X: Any,
    options: ReportOptions,
) -> str:
    """Explain all pixels of the masks of X; the page that shows them."""
    image = explainer.input_format_.image
    if image is None or explainer.outputs_.shape is None:
        raise InputError(
            "report: of images there are reports on masks only, and this model gives each image a list of outputs. "
            "Use explain(X, target).to_html(path)."
        )
    given = explainer._source(X, options.predicted)
    if given.predicted is None and explainer.black_box_ is None:
        raise InputError(
            "report: the page of masks shows what the model predicts, and the explainer has no model. Name it with "
            "--model, in Python with sointer.load(path, black_box=model), or give predicted=."
        )
    names = [f"image {i}" for i in range(given.n_samples)]
    if options.sample_names is not None:
        names = check_unique_names(options.sample_names, given.n_samples, "sample_names")
    chosen = explainer.k if options.k is None else check_positive_int(options.k, "k")
    n_shown = MAX_SHOWN if chosen == "auto" else int(chosen)
    n_shown = min(n_shown, explainer.groups_.n_units)
    stride = stride_of(image)
    pixels = np.arange(image.n_pixels).reshape(image.size)[::stride, ::stride].ravel()
    explainer._resolve(pixels.tolist(), len(pixels))  # not all may have been fitted
    shown = given.take(np.arange(min(options.n_samples, given.n_samples)))
    shown = shown.queried() if shown.predicted is None else shown
    n_images = shown.n_samples
    n_queries = n_images * len(pixels) * (N_DRAWS if explainer.removal_.is_random else 1)
    verifies = n_queries <= verification_budget(explainer, options.verify, n_queries)
    parts = [
        _explained(explainer, rows, targets, n_shown, verifies, only_needed=chosen == "auto")
        for rows, targets in _batches(shown, pixels)
    ]
    selected, confirmed, unsure, known = (np.concatenate(part) for part in zip(*parts, strict=True))
    content = PixelPageContent(
        images=image.unflatten(shown.data),
        outputs=shown.predictions.reshape(-1, *image.size),
        selected=selected.reshape(n_images, len(pixels), -1),
        names=names[:n_images],
        title=options.title or "What decides this pixel?",
        confirmed=confirmed.reshape(n_images, -1) if verifies else None,
        unsure=unsure.reshape(n_images, -1) if verifies else None,
        known=known.reshape(n_images, -1),
        quality=_quality(explainer) + (f" “Confirmed” is no proof: {SHAPE_ALONE}." if verifies else ""),
        stride=stride,
        units=None if shown.groups.spec is None else shown.groups.unit_of_features(n_images),
    )
    return render_pixel_page(content)


def stride_of(image: ImageShape) -> int:
    """Of large images not every pixel is explained, but those of every so many rows and columns."""
    stride = 1
    while -(-image.height // stride) * -(-image.width // stride) > MAX_TARGETS:
        stride *= 2
    return stride


def _batches(shown: ExplainedRows, pixels: NDArray[np.int64]) -> Iterator[tuple[ExplainedRows, NDArray[np.int64]]]:
    """Rows about all of these pixels of every image, as many at a time as memory has room for."""
    size = max(1, MAX_BATCH_VALUES // shown.input_format.n_columns)
    n_images = max(1, size // len(pixels))
    for first in range(0, shown.n_samples, n_images):
        rows, targets = shown.take(np.arange(first, min(first + n_images, shown.n_samples))).for_each(pixels)
        for start in range(0, len(targets), size):
            batch = slice(start, start + size)
            yield replace(rows, sample=rows.sample_of_row[batch]), targets[batch]


def _explained(
    explainer: Explainer, rows: ExplainedRows, targets: NDArray[np.int64], k: int, verifies: bool, *, only_needed: bool
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """What is shown for each target; whether the model confirms that, or is unsure; whether anything was learned."""
    explanation = explainer._explain_rows(rows, targets, k)
    selected = np.full((len(targets), k), -1)
    selected[:, : explanation.selected.shape[1]] = explanation.selected
    if only_needed and explanation.needed is not None:
        needed = np.take_along_axis(explanation.needed, np.maximum(selected, 0), axis=1)
        selected = np.where(needed, selected, -1)
    known = np.ones(len(targets), dtype=bool) if explanation.n_opposite is None else explanation.n_opposite > 0
    if not verifies:
        nothing = np.zeros(len(targets), dtype=bool)
        return selected, nothing, nothing, known
    verification = replace(explanation, selected=selected).verify(n_draws=N_DRAWS)
    return selected, verification.confirmed, verification.unsure, known


def _quality(explainer: Explainer) -> str:
    """How well it was learned which image mixtures follow, where that was learned."""
    share = getattr(explainer, "held_out_agreement_", None)
    if share is None or not hasattr(getattr(explainer, "interpreter_", None), "evidence_share"):
        return ""
    if not np.isfinite(share):
        return "No mixtures of two images were held out, so the quality of the fit is unknown."
    by_rules = last_value(getattr(explainer, "history_", []), "held_out_by_rules")
    beside = (
        "" if by_rules is None else f" (a rule that only counts pixels, in all or around the target: {by_rules:.0%})"
    )
    return f"For {share:.0%} of held-out mixtures of two images, the explainer predicts which one they follow{beside}."
