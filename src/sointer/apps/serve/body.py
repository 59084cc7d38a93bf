"""The body of a request: received in time, and read as JSON that takes memory in proportion to its bytes."""

from __future__ import annotations

import asyncio
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from sointer._support.strict_json import parse
from sointer.apps.serve.limits import Limits

MAX_PARTS, PARTS_PER_ROW, BYTES_PER_PART = 20_000, 3, 40
"""How many lists, objects and different names a body may hold: so many, some for each row that may be sent, and one for
so many bytes. Python takes up to 280 bytes for one, and two bytes are enough to ask for it."""
CLOSE = {"Connection": "close"}


class Bodies:
    """Receives bodies. However slowly they arrive, they take no place in a queue, and bounded memory together."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._arriving: dict[asyncio.Task[bytearray], int] = {}
        """How much of each is there, oldest first."""

    @property
    def n_arriving(self) -> int:
        """How many bodies are being received."""
        return len(self._arriving)

    async def receive(self, request: Request) -> bytearray:
        """A body; refused if it is not JSON, too large (counted, whatever the header says) or too slow."""
        kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
        if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
            # Browsers ask before they send this type to another site, so pages elsewhere cannot use this server.
            raise HTTPException(
                415, f"The content type is {kind or 'missing'!r}, expected JSON: send 'Content-Type: application/json'."
            )
        declared = request.headers.get("content-length", "")
        if declared.isascii() and declared.isdigit() and int(declared[:20]) > 2 * self.limits.max_body_bytes:
            raise _too_large(self.limits)
        task = asyncio.ensure_future(self._collect(request))
        self._arriving[task] = 0
        try:
            await asyncio.wait({task}, timeout=self.limits.timeout)
            if not task.done():
                raise HTTPException(408, f"The body did not arrive within {self.limits.timeout:g} s.", CLOSE)
            if task.cancelled():
                why = "Too much is being sent at once, and this body was the oldest that was not complete. Try again."
                raise HTTPException(429, why, {"Retry-After": "1", **CLOSE})
            return task.result()
        except ClientDisconnect:
            raise HTTPException(400, "The client went away.") from None
        finally:
            task.cancel()
            del self._arriving[task]

    async def _collect(self, request: Request) -> bytearray:
        limit, body, size = self.limits.max_body_bytes, bytearray(), 0
        me = asyncio.current_task()
        async for part in request.stream():
            size += len(part)
            if size <= limit:
                body += part
            else:
                body.clear()  # a little more is read and dropped: who is still sending would not see our reply
            if size > 2 * limit:
                break
            self._arriving[me] = min(size, limit)  # type: ignore[index]
            if sum(self._arriving.values()) > self.limits.n_places * limit:
                next(iter(self._arriving)).cancel()
        if size > limit:
            raise _too_large(self.limits)
        return body


def _too_large(limits: Limits) -> HTTPException:
    why = f"The body is larger than {limits.max_body_bytes:,} bytes. Send fewer rows at a time."
    return HTTPException(413, why, CLOSE)


def parse_json(body: bytearray, limits: Limits) -> dict[str, Any]:
    """The object that a body says. The body is emptied: whoever called holds it until all is done."""
    try:
        text = body.decode()
        body.clear()
        _check_structure(text, limits)
        content, all_finite = parse(text)
        if "\\u" in text:
            del text
            _check_characters(content)
    except UnicodeDecodeError:
        raise HTTPException(400, "The body is not UTF-8, expected JSON.") from None
    except UnicodeEncodeError:
        raise HTTPException(400, "The JSON holds half of a character, an unpaired surrogate.") from None
    except RecursionError:
        raise HTTPException(400, "The JSON is nested too deeply.") from None
    except ValueError as error:
        raise HTTPException(400, f"The body is not JSON: {error}.") from None
    if not isinstance(content, dict):
        kinds = {list: "array", str: "string", bool: "boolean", type(None): "null"}
        kind = kinds.get(type(content), "number")
        raise HTTPException(422, f'The body is a JSON {kind}, expected an object such as {{"rows": [...]}}.')
    if not all_finite:
        raise HTTPException(422, "The body holds NaN or infinite numbers, expected finite ones.")
    return content


def _check_structure(text: str, limits: Limits) -> None:
    """Refuse what Python would take many times its bytes for; brackets in strings count too, as counting is fast."""
    allowed = MAX_PARTS + PARTS_PER_ROW * limits.max_rows + len(text) // BYTES_PER_PART
    too_many = text.count("[") + text.count("{") > allowed
    if not too_many and text.count(":") > allowed:
        names, at = set(), text.find('"')
        while at >= 0 and not too_many:
            string, end = scanstring(text, at + 1)
            if text[end : end + BYTES_PER_PART].lstrip().startswith(":"):
                names.add(string)
            too_many = len(names) > allowed
            at = text.find('"', end)
    if too_many:
        raise HTTPException(
            413,
            f"The body holds more than {allowed:,} lists and objects, or different names, most of them almost empty. "
            "Send fewer rows at a time.",
        )


def _check_characters(content: Any) -> None:
    """UnicodeEncodeError if a string holds half of a character; one by one, as all of them together are large."""
    waiting = [content]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            one.encode()
        elif isinstance(one, dict):
            waiting += [*one, *one.values()]
        elif isinstance(one, list):
            waiting += one
