"""Answered questions about images, kept small: what an energy for images learns from."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer.outputs import Outputs
from sointer.training.task import Replies

LARGEST_HALF = 6e4
LARGEST_ROUNDING = 0.02
"""Of half precision, as a share of the deviation of the data."""
MOST_BYTES = 2**30


class ImagePool:
    """Images with parts removed, and the masks they got: points in half precision, classes in bytes."""

    def __init__(self, outputs: Outputs, n_columns: int, capacity: int, *, half: bool) -> None:
        self.outputs = outputs
        self._points = torch.empty(capacity, n_columns, dtype=torch.float16 if half else torch.float32)
        self._codes = torch.empty(capacity, outputs.n_outputs, dtype=torch.uint8)
        self.held_out = torch.zeros(capacity, dtype=torch.bool)
        self.n = 0

    def __len__(self) -> int:
        return self.n

    def add(self, replies: Replies) -> int:
        """Keep more answers, as many as there is room for; masks with a class never seen before cannot be learned from.

        Returns how many were kept.
        """
        known = self.outputs.knows(replies.raw)
        raw = replies.raw[known][: len(self._points) - self.n]
        new = slice(self.n, self.n + len(raw))
        if len(raw):
            self._points[new] = replies.points.where(known).dense()[: len(raw)].to(self._points.dtype)
            self._codes[new] = torch.from_numpy(self.outputs.labels(raw).astype(np.uint8))
        self.n = new.stop
        return len(raw)

    def take(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Some points, and the classes of all their pixels."""
        return self._points[index].float(), self._codes[index].long()


def fits_half(data: NDArray[Any]) -> bool:
    """Whether half precision holds such numbers, and what tells them apart."""
    if np.abs(data).max() >= LARGEST_HALF:
        return False
    rounded = np.abs(data - data.astype(np.float16)).max()
    return bool(rounded <= LARGEST_ROUNDING * data.std())


def room_for(n_columns: int, n_outputs: int) -> int:
    """How many answers about images may be kept."""
    return MOST_BYTES // (2 * n_columns + n_outputs)
