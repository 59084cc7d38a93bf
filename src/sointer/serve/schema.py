"""What the server says about itself: to people, to monitors, and in OpenAPI."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from sointer._support.strict_json import as_finite
from sointer._version import __version__
from sointer.explainers.base import Explainer
from sointer.serve.desk import Desk
from sointer.serve.limits import Limits
from sointer.serve.rows import names_in_fit

ROWS = {
    "description": "Records, columns with data, lists in the order of the features, or texts.",
    "oneOf": [
        {"type": "array", "items": {"type": "object"}},
        {"type": "array", "items": {"type": "array"}},
        {"type": "array", "items": {"type": "string"}},
        {
            "type": "object",
            "required": ["columns", "data"],
            "properties": {
                "columns": {"type": "array", "items": {"type": "string"}},
                "data": {"type": "array", "items": {"type": "array"}},
            },
        },
    ],
}
QUESTION = {
    "type": "object",
    "required": ["rows"],
    "additionalProperties": False,
    "properties": {
        "rows": ROWS,
        "target": {"description": "The name or number of an output; or a list, one for each row."},
        "k": {"description": 'How many features to select, or "auto".'},
        "predicted": {"type": "array", "description": "The model's outputs for each row, if they are known."},
        "query": {"type": "boolean", "description": "Query the model, if there is one, for what it predicts (true)."},
        "verify": {"type": "boolean", "description": "Ask the model whether it predicts the same from these alone."},
        "format": {"enum": ["rows", "table"], "description": "One entry per row, or per row and feature."},
    },
}
INFERENCE = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "id": {"type": "string"},
        "inputs": {"type": "array", "items": {"type": "object", "required": ["name", "shape", "datatype", "data"]}},
        "outputs": {"type": "array", "items": {"type": "object", "required": ["name"]}},
        "parameters": {"type": "object", "description": "target, k, query, verify"},
    },
}
REFUSALS = {
    400: "The body is not JSON.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is not said to be JSON.",
    422: "What was asked cannot be answered; the reply says why.",
    429: "Too many requests are waiting; try again after the seconds in Retry-After.",
    502: "The model that is explained failed.",
    503: "No answer in time, or the server is shutting down; try again.",
}
ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}


def with_body(schema: dict[str, Any]) -> dict[str, Any]:
    """The part of OpenAPI about a request's body."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def refusals() -> dict[int | str, dict[str, Any]]:
    """The part of OpenAPI about what is refused."""
    content = {"application/json": {"schema": ERROR}}
    return {status: {"description": why, "content": content} for status, why in REFUSALS.items()}


def info(explainer: Explainer, name: str, limits: Limits) -> dict[str, Any]:
    """What can be asked."""
    image, outputs = explainer.input_format_.image, explainer.outputs_
    takes = "images" if image is not None else "texts" if explainer.text_ is not None else "rows"
    facts = {
        "name": name,
        "sointer": __version__,
        "takes": takes,
        "features": names_in_fit(explainer.input_format_) if takes == "rows" else None,
        "n_features": explainer.n_features_in_,
        "missing_is_zero": takes == "rows" and explainer.input_format_.kind == "csr",
        "image": None if image is None else [image.channels, image.height, image.width],
        "groups": explainer.groups_.unit_names if explainer.groups_.spec is not None and image is None else None,
        "targets": [explainer.output_names_[t] for t in explainer.targets_] if outputs.shape is None else None,
        "masks": outputs.shape,
        "output_kind": outputs.kind,
        "k": explainer.k,
        "has_model": explainer.black_box_ is not None,
        "held_out_agreement": getattr(explainer, "held_out_agreement_", None),
        "held_out_skill": getattr(explainer, "held_out_skill_", None),
        "known": list(explainer.known_columns),
        "limits": asdict(limits),
    }
    plain: dict[str, Any] = as_finite(facts)
    return plain


def metrics(desk: Desk, replies: Counter[int]) -> str:
    """Counters, in the text format that Prometheus reads."""
    lines = ["# TYPE sointer_replies_total counter"]
    lines += [f'sointer_replies_total{{status="{status}"}} {n}' for status, n in sorted(replies.items())]
    for name, kind, value in (
        ("sointer_rows_explained_total", "counter", desk.batches.n_explained),
        ("sointer_batches_total", "counter", desk.batches.n_batches),
        ("sointer_requests_inside", "gauge", desk.n_inside),
        ("sointer_places", "gauge", desk.limits.n_places),
    ):
        lines += [f"# TYPE {name} {kind}", f"{name} {value}"]
    return "\n".join(lines) + "\n"
