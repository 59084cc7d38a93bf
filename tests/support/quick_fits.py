"""Settings for fits that only have to be the same as another one."""

from __future__ import annotations

from typing import Any

from sointer import TrainingConfig

QUICK: dict[str, Any] = {
    "k": 2,
    "query_budget": 300,
    "random_state": 0,
    "training": TrainingConfig(n_epochs=5),
}
