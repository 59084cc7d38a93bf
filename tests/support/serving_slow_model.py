"""A model that takes its time, for a server in a process of its own."""

from __future__ import annotations

import time
from typing import Any

from quick import labels


def answer(X: Any) -> Any:
    time.sleep(0.2)
    return labels(X)
