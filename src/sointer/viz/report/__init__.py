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
from sointer.viz.report.sequences import sequence_page

if TYPE_CHECKING:
    from sointer.explainers.base import Explainer
    from sointer.explainers.sequences import SequenceExplainer

__all__ = ["ReportOptions", "write_report"]


def write_report(
    explainer: Explainer | SequenceExplainer,
    X: Any,
    path: str | PathLike[str],
    targets: Sequence[int | str] | None,
    options: ReportOptions,
) -> Path:
    """Explain samples and write the page that shows it; see Explainer.report."""
    check_is_fitted(explainer, "outputs_")
    require_extra("jinja2", "report")
    written = check_file_place(path, is_page=True)
    options.check()
    of_sequences = explainer.sequences_ is not None
    if targets is not None and (of_sequences or explainer.input_format_.image is not None):
        on = "sequences every label is one" if of_sequences else "masks every pixel is a target"
        raise InputError(f"report: targets is for tables and texts; on the page of {on}.")
    if explainer.sequences_ is not None:
        page = sequence_page(explainer.sequences_, X, options)
    else:
        with unwarned():  # the page marks which samples are far
            is_table = explainer.input_format_.image is None
            page = table_page(explainer, X, targets, options) if is_table else image_page(explainer, X, options)
    put(written, page.encode())
    return written
