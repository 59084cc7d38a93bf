"""Reading what was sent, no more of it and no longer than allowed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import Request
from starlette.requests import ClientDisconnect

from sointer._support.strict_json import parse
from sointer.serve.limits import Limits
from sointer.serve.refusals import Refusal


async def read_body(request: Request, limits: Limits) -> bytes:
    """The body; refused if it is not JSON, too large (counted, whatever the header says) or too slow."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        # Browsers ask before they send this type to another site, so pages elsewhere cannot use this server.
        raise Refusal(
            415, f"The content type is {kind or 'missing'!r}, expected JSON: send 'Content-Type: application/json'."
        )
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > 2 * limits.max_body_bytes:
        raise _too_large(limits)
    try:
        return await asyncio.wait_for(_read(request, limits), limits.timeout)
    except asyncio.TimeoutError:
        why = f"The body did not arrive within {limits.timeout:g} s."
        raise Refusal(408, why, Connection="close") from None
    except ClientDisconnect:
        raise Refusal(400, "The client went away.") from None


async def _read(request: Request, limits: Limits) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size <= limits.max_body_bytes:
            parts.append(part)
        else:
            parts.clear()  # a little more is read and dropped: who is still sending would not see our reply
        if size > 2 * limits.max_body_bytes:
            break
    if size > limits.max_body_bytes:
        raise _too_large(limits)
    return b"".join(parts)


def _too_large(limits: Limits) -> Refusal:
    why = f"The body is larger than {limits.max_body_bytes:,} bytes. Send fewer rows at a time."
    return Refusal(413, why, Connection="close")


def parse_json(body: bytes) -> dict[str, Any]:
    """The object that a body says."""
    try:
        content, all_finite = parse(body)
        if b"\\u" in body:
            json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Refusal(400, "The JSON holds half of a character, an unpaired surrogate.") from None
    except UnicodeDecodeError:
        raise Refusal(400, "The body is not UTF-8, expected JSON.") from None
    except RecursionError:
        raise Refusal(400, "The JSON is nested too deeply.") from None
    except ValueError as error:
        raise Refusal(400, f"The body is not JSON: {error}.") from None
    if not isinstance(content, dict):
        raise Refusal(422, f'The body is a JSON {_kind(content)}, expected an object such as {{"rows": [...]}}.')
    if not all_finite:
        raise Refusal(422, "The body holds NaN or infinite numbers, expected finite ones.")
    return content


def _kind(value: Any) -> str:
    kinds = {list: "array", str: "string", bool: "boolean", int: "number", float: "number", type(None): "null"}
    return kinds[type(value)]
