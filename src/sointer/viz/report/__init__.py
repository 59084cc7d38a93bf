"""HTML reports: what they show, their text and their pages."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sklearn.utils.validation import check_is_fitted

from sointer._support.files import check_file_place, put
from sointer._support.validation import check_positive_int, is_integer
from sointer.errors import InputError, require_extra
from sointer.explainers.novelty import unwarned
from sointer.viz.report.collect import table_page
from sointer.viz.report.pixel_page import image_page

if TYPE_CHECKING:
    from sointer.explainers.base import Explainer


@unwarned()  # the page marks which samples are far
def write_report(
    explainer: Explainer,
    X: Any,
    path: str | PathLike[str],
    *,
    targets: Sequence[int | str] | None,
    n_samples: int,
    k: int | None,
    predicted: Any,
    verify: bool | int | None,
    title: str | None,
    sample_names: Sequence[str] | None,
    paths: bool | int,
) -> Path:
    """Explain samples and write the page that shows it; see Explainer.report."""
    check_is_fitted(explainer, "outputs_")
    if explainer.sequences_ is not None:
        if targets is not None:
            raise InputError("report: targets is for tables and texts; on the page of sequences every label is one.")
        return explainer.sequences_.report(
            X,
            path,
            n_samples=n_samples,
            k=k,
            predicted=predicted,
            verify=verify,
            title=title,
            sample_names=sample_names,
            paths=paths,
        )
    require_extra("jinja2", "report")
    written = check_file_place(path, is_page=True)
    check_positive_int(n_samples, "n_samples")
    for name, value in (("verify", verify), ("paths", paths)):
        if not (value is None or isinstance(value, bool) or (is_integer(value) and int(value) >= 0)):
            raise InputError(f"report: {name} must be True, False or a whole number of at least 0, got {value!r}.")
    shared: dict[str, Any] = {
        "n_samples": n_samples,
        "k": k,
        "predicted": predicted,
        "verify": verify,
        "sample_names": sample_names,
    }
    if explainer.input_format_.image is None:
        title = title or "What decides the model's predictions?"
        page = table_page(explainer, X, targets=targets, title=title, paths=paths, **shared)
    else:
        if targets is not None:
            raise InputError("report: targets is for tables and texts; on the page of masks every pixel is a target.")
        page = image_page(explainer, X, title=title or "What decides this pixel?", **shared)
    put(written, page.encode())
    return written
