"""A small picture of an explained image for HTML, made without matplotlib."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sointer.plot.colours import SELECTED, TARGET, Bytes
from sointer.plot.image_view import ImageView

if TYPE_CHECKING:
    from sointer.explanation import Explanation

Mask = npt.NDArray[np.bool_]

SIDE = 160


def thumbnail(explanation: Explanation, row: int) -> str:
    """An <img> of one image, its selected pixels in green, the best strongest, and its target in red."""
    view = ImageView.of(explanation, row)
    height, width = view.ranks.shape
    zoom = max(1, SIDE // max(height, width))
    share = view.strength[..., None]
    mixed = (1 - share) * view.rgb + share * np.array(SELECTED)
    large = np.rint(mixed).astype(np.uint8).repeat(zoom, axis=0).repeat(zoom, axis=1)
    large[_edge(view.target.repeat(zoom, axis=0).repeat(zoom, axis=1), thickness=max(1, zoom // 3))] = TARGET
    source = base64.b64encode(png(large)).decode("ascii")
    size = f'width="{width * zoom}" height="{height * zoom}"'
    return f'<img alt="selected pixels in green, the target in red" {size} src="data:image/png;base64,{source}">'


def png(rgb: Bytes) -> bytes:
    """An image (height, width, 3) as a PNG file."""
    height, width, _ = rgb.shape
    lines = np.zeros((height, 1 + 3 * width), dtype=np.uint8)  # every line begins with its filter, 0 for none
    lines[:, 1:] = rgb.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    packed = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def _edge(mask: Mask, thickness: int) -> Mask:
    """The outermost pixels of a mask."""
    inside = np.pad(mask, thickness)
    for axis in (0, 1):
        for _ in range(thickness):
            inside = inside & np.roll(inside, 1, axis) & np.roll(inside, -1, axis)
    return mask & ~inside[thickness:-thickness, thickness:-thickness]
