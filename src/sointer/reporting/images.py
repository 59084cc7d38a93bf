"""What a report shows of images: every pixel of their masks explained."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sointer._support.containers import n_rows
from sointer._support.validation import check_positive_int, check_unique_names
from sointer.data.images import ImageShape
from sointer.errors import InputError, NoOppositeWarning
from sointer.interpreter.image import ImageInterpreter
from sointer.masking.rows import Queried
from sointer.report.pixel_page import PixelPageContent, render_pixel_page
from sointer.reporting.asking import N_DRAWS, question_budget

if TYPE_CHECKING:
    from sointer.explainers.base import Explainer

MOST_SHOWN = 50
MOST_TARGETS = 1024
EXPLAINED_AT_ONCE = 2**22


def image_page(
    explainer: Explainer,
    X: Any,
    *,
    n_samples: int,
    k: int | None,
    predicted: Any,
    verify: bool | int | None,
    title: str,
    sample_names: Sequence[str] | None,
) -> str:
    """Explain all pixels of the masks of X; the page that shows them."""
    image = explainer.input_format_.image
    if image is None or explainer.outputs_.shape is None:
        raise InputError(
            "report: of images there are reports on masks only, and this model gives each image a list of outputs. "
            "Use explain(X, target).to_html(path)."
        )
    explainer.input_format_.encode(X, caller="report")
    n_given = n_rows(X)
    if sample_names is not None:
        sample_names = check_unique_names(sample_names, n_given, "sample_names")
    chosen = explainer.k if k is None else check_positive_int(k, "k")
    n_shown = MOST_SHOWN if chosen == "auto" else int(chosen)
    n_shown = min(n_shown, explainer.groups_.n_units)
    stride = stride_of(image)
    targets = [(r, c) for r in range(0, image.height, stride) for c in range(0, image.width, stride)]
    shown = explainer._source(X[:n_samples], None if predicted is None else predicted[:n_samples])
    rows = shown.data
    n_questions = len(rows) * len(targets) * (N_DRAWS if explainer.removal_.is_random else 1)
    asks = n_questions <= question_budget(explainer, len(rows), verify, n_questions)
    selected, confirmed, known = [], [], []
    for i in range(len(rows)):
        parts = [
            _explained(
                explainer, X[i : i + 1], shown.answers[i : i + 1], some, n_shown, asks, only_needed=chosen == "auto"
            )
            for some in _parts(targets, image)
        ]
        selected.append(np.concatenate([part[0] for part in parts]))
        confirmed.append(np.concatenate([part[1] for part in parts]))
        known.append(np.concatenate([part[2] for part in parts]))
    content = PixelPageContent(
        images=image.unflatten(rows),
        answers=shown.answers.reshape(-1, *image.size),
        selected=np.stack(selected),
        names=[f"image {i}" for i in range(len(rows))] if sample_names is None else list(sample_names)[: len(rows)],
        title=title,
        confirmed=np.stack(confirmed) if asks else None,
        known=np.stack(known),
        quality=_quality(explainer),
        stride=stride,
        units=None if shown.groups.spec is None else shown.groups.unit_of_features(len(rows)),
    )
    return render_pixel_page(content)


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
    explainer: Explainer,
    one: Any,
    answer: NDArray[Any],
    targets: list[tuple[int, int]],
    k: int,
    asks: bool,
    *,
    only_needed: bool,
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    """What was selected for each target, whether the model confirms it, and whether anything could be learned of it."""
    many = explainer.input_format_.rows(one, np.zeros(len(targets), dtype=np.int64))
    predicted = Queried(np.repeat(answer, len(targets), axis=0))  # what was given was checked before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoOppositeWarning)  # the page says it of every pixel
        explanation = explainer.explain(many, np.array(targets), k=k, predicted=predicted)
    selected = np.full((len(targets), k), -1)
    selected[:, : explanation.selected.shape[1]] = explanation.selected
    if only_needed and explanation.needed is not None:
        needed = np.take_along_axis(explanation.needed, np.maximum(selected, 0), axis=1)
        selected = np.where(needed, selected, -1)
    known = np.ones(len(targets), dtype=bool) if explanation.n_opposite is None else explanation.n_opposite > 0
    if not asks:
        return selected, np.zeros(len(targets), dtype=bool), known
    rows = np.arange(len(targets))
    agreement = explanation.source.agreement(
        explanation.unit_mask, explanation.target, rows=rows, n_draws=N_DRAWS, seed=0
    )
    return selected, agreement == 1.0, known


def _quality(explainer: Explainer) -> str:
    """How well it was learned which image mixtures follow, where that was learned."""
    share = getattr(explainer, "held_out_agreement_", None)
    if share is None or not isinstance(getattr(explainer, "interpreter_", None), ImageInterpreter):
        return ""
    return f"For {share:.0%} of held-out mixtures of two images it was predicted which of the two they follow."
