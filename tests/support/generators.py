"""numpy's global generator."""

from __future__ import annotations

import numpy as np


def numpy_state() -> np.ndarray:
    return np.random.get_state()[1].copy()  # noqa: NPY002
