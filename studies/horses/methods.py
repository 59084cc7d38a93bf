"""The methods that are compared: how each is fitted, what it costs, and the scores that it gives to pixels."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer import EnergyConfig, Explanation, SOInter, Superpixels, TrainingConfig
from sointer.explainers.baselines.base import NearestPixels, Random
from sointer.explainers.baselines.by_swaps import MinimalRegion, Occlusion, Rise
from sointer.explainers.baselines.gradients import ExpectedGradients, GradientTimesInput
from sointer.explainers.baselines.lime_and_shap import KernelShap
from sointer.metrics.pixels import pixel_scores
from studies.frame.drawing import METHODS
from studies.horses.black_boxes import Segmenter

OURS = "SOInter"
NEAREST, RANDOM = "nearest pixels", "random"
GRADIENT, EXPECTED = "gradient x input", "expected gradients"
RISE, OCCLUSION, REGION, KERNEL_SHAP = "RISE", "occlusion", "minimal region", "KernelSHAP, superpixels"
CONTROLS = (NEAREST, RANDOM)
WHITE_BOX = (GRADIENT, EXPECTED)
"""Methods that look inside the model."""
PER_SAMPLE = (RISE, OCCLUSION, REGION, KERNEL_SHAP)
"""Methods that query the model separately for each sample."""
ORDER = (OURS, *CONTROLS, *WHITE_BOX, *PER_SAMPLE)
N_SUPERPIXELS = 100
N_PER_SAMPLE = 500
"""Queries per sample of the methods that query the model separately for each."""
KINDS: dict[str, Any] = {
    NEAREST: NearestPixels,
    RANDOM: Random,
    GRADIENT: GradientTimesInput,
    EXPECTED: ExpectedGradients,
    RISE: Rise,
    OCCLUSION: Occlusion,
    REGION: MinimalRegion,
    KERNEL_SHAP: KernelShap,
}
STYLES: dict[str, dict[str, Any]] = {
    OURS: METHODS["SOInter"],
    NEAREST: {"color": "#cc79a7", "marker": "D", "linestyle": "--"},
    RANDOM: METHODS["Random"],
    GRADIENT: {"color": "#009e73", "marker": "^"},
    EXPECTED: {"color": "#0072b2", "marker": "v"},
}
"""A method looks the same in every figure."""
QUICK: dict[str, Any] = {
    "query_budget": 150,
    "energy": EnergyConfig(hidden=(4, 8), batch_size=8),
    "training": TrainingConfig(n_epochs=1),
}
"""SOInter's settings in smoke runs, good for nothing but to see that all of it runs."""
CHUNK = 200


def title(method: str) -> str:
    """A method's name on the page: those that look inside the model are marked."""
    return f"{method} †" if method in WHITE_BOX else method


@dataclass(frozen=True)
class Fitted:
    """An explainer, and what its fit cost."""

    explainer: Any
    cpu_seconds: float
    n_queries: int

    def cost(self) -> dict[str, Any]:
        return {"fit_cpu_seconds": round(self.cpu_seconds, 1), "fit_queries": self.n_queries}


def fit(method: str, segmenter: Segmenter, seed: int, groups: Any = None, quick: bool = False) -> Fitted:
    """Fit a method on training and validation images; SOInter at its defaults."""
    started = time.process_time()
    if method == KERNEL_SHAP and groups is None:
        groups = Superpixels(N_SUPERPIXELS)
    common: dict[str, Any] = {"groups": groups, "random_state": seed, "verbose": False}
    if method == OURS:
        settings = QUICK if quick else {}
        explainer = SOInter(segmenter.predict, **common, **settings)
    else:
        if method in PER_SAMPLE:
            common["n_samples"] = 60 if quick else N_PER_SAMPLE
        model = segmenter.module if method in WHITE_BOX else segmenter.predict
        explainer = KINDS[method](model, k=1, **common)
    explainer.fit(segmenter.fit_images)
    return Fitted(explainer, time.process_time() - started, explainer.n_queries_)


def explain_all(
    fitted: Fitted, images: NDArray[Any], targets: NDArray[np.int64]
) -> tuple[Sequence[Explanation], dict[str, Any]]:
    """Explanations of one target per image, and what each cost."""
    before, started = fitted.explainer.n_explain_queries_, time.process_time()
    found = explanations(fitted.explainer, images, targets)
    seconds = time.process_time() - started
    n_queries = fitted.explainer.n_explain_queries_ - before
    return found, {
        "explain_cpu_ms": round(1e3 * seconds / len(images), 2),
        "explain_queries": round(n_queries / len(images), 1),
    }


def score(
    explainer: Any, images: NDArray[Any], targets: NDArray[np.int64], predicted: NDArray[Any] | None = None
) -> NDArray[np.float32]:
    """Scores of all pixels for one target per image, larger is more relevant: (n, height, width)."""
    return joined_scores(explanations(explainer, images, targets, predicted))


def joined_scores(parts: Sequence[Explanation]) -> NDArray[np.float32]:
    """Scores of all pixels: (n, height, width)."""
    return np.concatenate([pixel_scores(part) for part in parts])


def explanations(
    explainer: Any, images: NDArray[Any], targets: NDArray[np.int64], predicted: NDArray[Any] | None = None
) -> Sequence[Explanation]:
    """The explanations of some images at a time."""
    parts = [slice(start, start + CHUNK) for start in range(0, len(images), CHUNK)]
    return [
        explainer.explain(images[part], target=targets[part], predicted=None if predicted is None else predicted[part])
        for part in parts
    ]
