"""What a report shows of an explainer: for images, every pixel of their masks explained."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from sointer.errors import InputError
from sointer.inputs.image import ImageShape
from sointer.validation import check_positive_int, check_unique_names

if TYPE_CHECKING:
    from sointer.base import Explainer

MOST_SHOWN = 50
MOST_TARGETS = 1024
EXPLAINED_AT_ONCE = 2**22


def image_report(
    explainer: Explainer,
    X: Any,
    path: str | PathLike[str],
    *,
    k: int | None,
    names: Sequence[str] | None,
    title: str,
    verify: bool,
) -> Path:
    """Explain all pixels of the masks of X and write the page that shows them."""
    from sointer.report import PixelPageContent, render_pixel_page

    check_is_fitted(explainer, "outputs_")
    image = explainer.input_format_.image
    if image is None or explainer.outputs_.shape is None:
        raise InputError(
            "report: so far there are reports of images and their masks only, and this explainer was fitted on other "
            "data. Use explain(X, target).to_html(path)."
        )
    rows = explainer.input_format_.encode(X, caller="report")
    chosen = explainer.k if k is None else check_positive_int(k, "k")
    n_shown = MOST_SHOWN if chosen == "auto" else int(chosen)
    n_shown = min(n_shown, explainer.groups_.n_units)
    stride = stride_of(image)
    targets = [(r, c) for r in range(0, image.height, stride) for c in range(0, image.width, stride)]
    shown = explainer._source(X, None)
    selected, confirmed = [], []
    for i in range(len(rows)):
        parts = [
            _explained(explainer, X[i : i + 1], shown.answers[i : i + 1], some, n_shown, verify)
            for some in _parts(targets, image)
        ]
        selected.append(np.concatenate([part[0] for part in parts]))
        confirmed.append(np.concatenate([part[1] for part in parts]))
    content = PixelPageContent(
        images=image.unflatten(rows),
        answers=shown.answers.reshape(-1, *image.size),
        selected=np.stack(selected),
        names=[f"image {i}" for i in range(len(rows))]
        if names is None
        else check_unique_names(names, len(rows), "names"),
        title=title,
        confirmed=np.stack(confirmed) if verify else None,
        stride=stride,
        units=None if shown.groups.spec is None else shown.groups.unit_of_features(len(rows)),
    )
    written = Path(path)
    written.write_text(render_pixel_page(content), encoding="utf-8")
    return written


def stride_of(image: ImageShape) -> int:
    """Of large images not every pixel is explained, but those of every so many rows and columns."""
    stride = 1
    while -(-image.height // stride) * -(-image.width // stride) > MOST_TARGETS:
        stride *= 2
    return stride


def _parts(targets: list[tuple[int, int]], image: ImageShape) -> list[list[tuple[int, int]]]:
    size = max(1, EXPLAINED_AT_ONCE // image.n_columns)
    return [targets[start : start + size] for start in range(0, len(targets), size)]


def _explained(
    explainer: Explainer, one: Any, answer: NDArray[Any], targets: list[tuple[int, int]], k: int, verify: bool
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    many = explainer.input_format_.rows(one, np.zeros(len(targets), dtype=np.int64))
    explanation = explainer.explain(many, np.array(targets), k=k, predicted=np.repeat(answer, len(targets), axis=0))
    selected = np.full((len(targets), k), -1)
    selected[:, : explanation.selected.shape[1]] = explanation.selected
    return selected, explanation.verify().confirmed if verify else np.zeros(len(targets), dtype=bool)
