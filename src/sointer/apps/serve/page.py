"""The page at /: paste or pick a row, choose an output, see what decided it."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

import numpy as np

from sointer._support import containers
from sointer._support.frames import as_pandas
from sointer._support.strict_json import as_finite
from sointer.apps.serve.rows import names_in_fit, row_as_json
from sointer.data.sequences import read_sequences
from sointer.data.text_tables import TextTableFormat
from sointer.explainers.base import Explainer
from sointer.viz.report.page import render_template
from sointer.viz.report.samples import sample_names_of

MAX_EXAMPLES, MAX_NAMES = 200, 2000


def render_page(explainer: Explainer, metadata: dict[str, Any], examples: Any) -> tuple[str, str]:
    """The page, and the policy that lets browsers run its own scripts and no others."""
    shown, drawn = _examples(explainer, examples)
    data = {
        "takes": metadata["takes"],
        "features": (metadata.get("features") or [])[:MAX_NAMES],
        "nFeatures": len(metadata.get("features") or []),
        "missingIsZero": metadata.get("missing_is_zero"),
        "targets": metadata.get("targets") or [],
        "k": metadata["k"],
        "hasModel": metadata["has_model"],
        "needsToken": metadata["needs_token"],
        "examples": as_finite(shown),
        "typical": None if drawn is None else as_finite(drawn),
        "textColumns": metadata.get("text_columns") or [],
        "name": metadata["name"],
    }
    page = render_template("serve.html", data=data, metadata=metadata)
    sources = {kind: re.findall(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL) for kind in ("script", "style")}
    script, style = (" ".join(map(_digest, sources[kind])) for kind in ("script", "style"))
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return page, policy


def _digest(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def _examples(explainer: Explainer, examples: Any) -> tuple[list[dict[str, Any]], Any]:
    """Rows to pick, by name, and a row to begin with that is nobody's."""
    if explainer.sequences_ is not None:
        if examples is None:
            return [], ""
        sequences = read_sequences(examples, explainer.sequences_.splitter, "examples")[:MAX_EXAMPLES]
        return [{"name": f"sequence {i}", "row": tokens} for i, tokens in enumerate(sequences)], None
    if explainer.input_format_.image is not None:
        return [], None
    names = names_in_fit(explainer.input_format_)
    if examples is None:
        return [], _typical(explainer, names)
    if not isinstance(examples, list):
        explainer.input_format_.encode(examples, caller="examples")
    n = min(MAX_EXAMPLES, containers.n_rows(examples))
    X = containers.rows(examples, np.arange(n))
    called = sample_names_of(X, None)
    return [{"name": called[i], "row": row_as_json(X, i, names)} for i in range(n)], None


def _typical(explainer: Explainer, names: list[str]) -> Any:
    """The mean of the training rows: rows themselves may be private. Of mostly-zero rows, its largest entries.

    Without rows, medians, which the networks start from.
    """
    if explainer.reads_text:
        return ""
    form = explainer.input_format_
    if isinstance(form, TextTableFormat):
        return row_as_json(as_pandas(form.typical(explainer.background_.rows.values)), 0, names)
    rows, is_sparse = explainer.background_.rows, form.kind == "csr"
    if rows.shape[0] == 0:  # saved with rows="none"
        rows = np.zeros((1, rows.shape[1])) if is_sparse else explainer.shift_.reshape(1, -1)
    mean = np.asarray(rows.mean(axis=0), dtype=np.float64).reshape(1, -1)
    if is_sparse:
        largest = np.argsort(-mean[0], kind="stable")[:5]
        return {names[place]: 1 for place in sorted(largest.tolist())}
    row = row_as_json(as_pandas(form.decode(mean)), 0, names)
    return {name: float(f"{value:.3g}") if isinstance(value, float) else value for name, value in row.items()}
