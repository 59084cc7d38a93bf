"""HTML reports: what they show, their text and their pages."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sklearn.utils.validation import check_is_fitted

from sointer._support.files import check_file_place, put
from sointer.errors import InputError, require_extra
from sointer.explainers.novelty import unwarned
from sointer.viz.report.collect import table_page
from sointer.viz.report.pixel_page import image_page
from sointer.viz.report.samples import ReportOptions

if TYPE_CHECKING:
    from sointer.explainers.base import Explainer

__all__ = ["ReportOptions", "write_report"]


@unwarned()  # the page marks which samples are far
def write_report(
    explainer: Explainer,
    X: Any,
    path: str | PathLike[str],
    targets: Sequence[int | str] | None,
    options: ReportOptions,
) -> Path:
    """Explain samples and write the page that shows it; see Explainer.report."""
    check_is_fitted(explainer, "outputs_")
    if explainer.sequences_ is not None:
        if targets is not None:
            raise InputError("report: targets is for tables and texts; on the page of sequences every label is one.")
        return explainer.sequences_.report(X, path, **vars(options))
    require_extra("jinja2", "report")
    written = check_file_place(path, is_page=True)
    options.check()
    if explainer.input_format_.image is None:
        page = table_page(explainer, X, targets, options)
    else:
        if targets is not None:
            raise InputError("report: targets is for tables and texts; on the page of masks every pixel is a target.")
        page = image_page(explainer, X, options)
    put(written, page.encode())
    return written
