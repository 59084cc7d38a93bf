"""Our own explainers: SOInter and L2X, which are trained once, and KernelSHAP and LIME, tuned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer import SOInter
from sointer.config import EnergyConfig, TrainingConfig
from sointer.explainers.baselines.l2x import L2X
from sointer.explainers.baselines.lime_and_shap import KernelShap, Lime
from studies.speed.subjects import Subject


class Ours:
    """One of our explainers, with its defaults; quick: a fit of seconds, worth nothing."""

    several = True

    def __init__(self, method: str, subject: Subject, box: Any, quick: bool = False) -> None:
        self.subject = subject
        self.is_trained = method in ("SOInter", "L2X")  # so 10,000 explanations are made, not scaled up from a few
        settings: dict[str, Any] = {"k": subject.k, "removal": subject.removal, "random_state": 0, "verbose": False}
        if quick and method == "SOInter":
            settings |= quick_images() if subject.has_images else quick_tables()
        elif quick:
            settings |= {"n_steps": 20} if method == "L2X" else {"n_samples": 60}
        kinds = {"SOInter": SOInter, "L2X": L2X, "our KernelShap": KernelShap, "our Lime": Lime}
        self.explainer = kinds[method](box, **settings)

    def fit(self) -> None:
        self.explainer.fit(self.subject.train)

    def explain(self, index: Sequence[int], targets: NDArray[np.int64]) -> NDArray[np.int64]:
        """The k features that decide one output of each row."""
        found = self.explainer.explain(self.subject.rows[np.asarray(index)], target=self.subject.named(targets))
        return np.asarray(found.selected)

    def explain_outputs(self, index: int, outputs: Sequence[int]) -> None:
        """Several outputs of one row."""
        self.explain([index] * len(outputs), np.asarray(outputs))


OURS = ("SOInter", "L2X", "our KernelShap", "our Lime")


def quick_tables() -> dict[str, Any]:
    """Settings of a SOInter that is fitted in a moment."""
    return {
        "query_budget": 100,
        "energy": EnergyConfig(hidden=(16,), batch_size=32),
        "training": TrainingConfig(n_epochs=2),
    }


def quick_images() -> dict[str, Any]:
    return {
        "query_budget": 60,
        "energy": EnergyConfig(hidden=(4, 8), batch_size=8),
        "training": TrainingConfig(n_epochs=1),
    }
