"""JSON without surprises: no key twice, no number that is not one, and a checksum of what it says."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any


def parse(content: bytes | str) -> tuple[Any, bool]:
    """What a JSON text says, and whether all its numbers are finite; ValueError if a key is there twice."""
    all_finite = True

    def number(text: str) -> float:
        nonlocal all_finite
        value = float(text)
        all_finite = all_finite and math.isfinite(value)
        return value

    text = content.decode("utf-8") if isinstance(content, bytes) else content
    value = json.loads(text, object_pairs_hook=_unique, parse_float=number, parse_constant=number)
    return value, all_finite


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key is there twice")
    return result


def content_digest(value: Any) -> str:
    """SHA-256 of what a value says as JSON, however it is laid out."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def as_finite(value: Any) -> Any:
    """The same without NaN and infinities, which JSON does not know: null instead; tuples become lists."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): as_finite(one) for name, one in value.items()}
    return [as_finite(one) for one in value] if isinstance(value, list | tuple) else value
