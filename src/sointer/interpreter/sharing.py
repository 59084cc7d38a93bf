"""Who can share a pass of the energy: several targets of the same image."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

MOST_TARGETS_AT_ONCE = 32


def shared_slots(keys: Sequence[Hashable], n_slots: int) -> Iterator[NDArray[np.int64]]:
    """Rows in batches of up to n_slots images, each with the rows that have the same key: (slots, rows), -1 for none.

    An image with many rows takes several slots, so that few slots stay empty.
    """
    rows_of: dict[Hashable, list[int]] = {}
    for row, key in enumerate(keys):
        rows_of.setdefault(key, []).append(row)
    length = min(MOST_TARGETS_AT_ONCE, max(1, -(-len(keys) // n_slots)))
    pieces = [rows[i : i + length] for rows in rows_of.values() for i in range(0, len(rows), length)]
    pieces.sort(key=len, reverse=True)
    for start in range(0, len(pieces), n_slots):
        batch = pieces[start : start + n_slots]
        slots = np.full((len(batch), len(batch[0])), -1, dtype=np.int64)
        for slot, rows in zip(slots, batch, strict=True):
            slot[: len(rows)] = rows
        yield slots
