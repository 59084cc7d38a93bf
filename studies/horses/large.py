"""Sixteen times as many pixels: 128 x 128, explained by patches and by superpixels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer import Explanation
from sointer.metrics.ground_truth import r_precision, top_k
from sointer.metrics.swaps import swap_scores
from studies.frame.apart import in_new_process, peak_gigabytes
from studies.frame.study import Case, Study
from studies.horses.black_boxes import UNET, Segmenter, load_segmenter
from studies.horses.large_page import GROUPS, N_EXAMPLE_UNITS, page
from studies.horses.methods import (
    CONTROLS,
    EXPECTED,
    GRADIENT,
    KERNEL_SHAP,
    OURS,
    WHITE_BOX,
    explain_all,
    explanations,
    fit,
    joined_scores,
)
from studies.horses.pairs import Pairs, draw_pairs
from studies.horses.segmenters import as_plain_values, choose, kept

SEEDS = (301, 302, 303)
"""Seeds that took no part in development."""
SIZE = 128
PLANTED = ("offset", "majority")
"""Their deciding pixels are windows of 9 x 9 pixels, which patches and superpixels can show."""
N_PAIRS, N_FEW, N_SWAPPED, N_QUICK = 256, 64, 128, 12
"""Test pairs; of methods that take long for each sample; of the U-Net."""
SLOW = (GRADIENT, EXPECTED, KERNEL_SHAP)
KS = (64, 256, 1024, 4096)
"""Selected pixels: 4, 16, 64 and 256 patches."""


def cases(smoke: bool) -> Iterator[Case]:
    """Seed by seed: an early stop leaves fewer seeds. What learns nothing, and the U-Net, have one seed."""
    if smoke:
        yield case_of("majority", "superpixels", OURS, 0, quick=True)
        yield from (case_of("majority", "superpixels", method, 0, quick=True) for method in (*CONTROLS, *SLOW))
        yield from (case_of(UNET, groups, OURS, 0, quick=True) for groups in GROUPS)
        yield from (case_of(UNET, "patches", method, 0, quick=True) for method in CONTROLS)
        return
    for seed in SEEDS:
        for groups in GROUPS:
            for name in PLANTED:
                yield case_of(name, groups, OURS, seed)
                if seed == SEEDS[0]:
                    yield from (case_of(name, groups, method, seed) for method in (*CONTROLS, GRADIENT, EXPECTED))
            if seed == SEEDS[0] and groups == "superpixels":
                yield case_of("majority", groups, KERNEL_SHAP, seed)
            if seed == SEEDS[0]:
                yield from (case_of(UNET, groups, method, seed) for method in (OURS, *CONTROLS))


def case_of(segmenter: str, groups: str, method: str, seed: int, quick: bool = False) -> Case:
    named = {"segmenter": segmenter, "groups": groups, "method": method, "seed": seed}
    return named | ({"quick": True} if quick else {})


def run(segmenter: str, groups: str, method: str, seed: int, quick: bool = False) -> dict[str, Any]:
    """Explainers that learn are fitted in a process of their own, whose memory is measured."""
    load_segmenter(segmenter, SIZE, training_seed(segmenter), quick)  # trained here, so that its memory does not count
    arguments: dict[str, Any] = {
        "segmenter": segmenter,
        "groups": groups,
        "method": method,
        "seed": seed,
        "quick": quick,
    }
    return in_new_process(explain_and_measure, **arguments) if method == OURS else explain_and_measure(**arguments)


def training_seed(segmenter: str) -> int:
    return SEEDS[0] if segmenter == UNET else 0


def explain_and_measure(segmenter: str, groups: str, method: str, seed: int, quick: bool) -> dict[str, Any]:
    model = load_segmenter(segmenter, SIZE, training_seed(segmenter), quick)
    full = N_FEW if method in SLOW else N_PAIRS if model.planted else N_SWAPPED
    pairs = draw_pairs(N_QUICK if quick else full, len(model.test_images), model.size)
    fitted = fit(method, model, seed, groups=GROUPS[groups], quick=quick)
    found: dict[str, Any] = {**fitted.cost(), "n_pairs": len(pairs.image), "size": model.size}
    if method not in (*CONTROLS, *WHITE_BOX):
        found["peak_gigabytes"] = peak_gigabytes()
    parts, cost = explain_all(fitted, model.test_images[pairs.image], pairs.pixel)
    found |= cost
    scores = joined_scores(parts)
    if model.planted is not None:
        truth = model.planted.relevant(model.test_images[pairs.image], pairs.pixel)
        units = np.concatenate([units_of(part) for part in parts])
        return found | {
            "r_precision": round(r_precision(scores, truth, random_state=seed), 4),
            "best_possible": round(r_precision(shares(units, truth), truth, random_state=seed), 4),
        }
    found |= swapped(model, pairs, scores, seed)
    if method == OURS:
        found["examples"] = examples(fitted.explainer, model)
    return found


def units_of(explanation: Explanation) -> NDArray[np.int64]:
    """The unit that each pixel belongs to: (n, pixels)."""
    return explanation.source.groups.unit_of_features(len(explanation))


def shares(units: NDArray[np.int64], truth: NDArray[np.bool_]) -> NDArray[np.float64]:
    """At each pixel the share of its unit that decides: no scores of units can be better than these."""
    flat, found = truth.reshape(len(truth), -1), np.empty(units.shape)
    for row, own in enumerate(units):
        found[row] = (np.bincount(own, flat[row]) / np.maximum(np.bincount(own), 1))[own]
    return found.reshape(truth.shape)


def swapped(model: Segmenter, pairs: Pairs, scores: NDArray[np.float32], seed: int) -> dict[str, Any]:
    """Insert, delete and J; inpainting takes too long on images of this size."""
    ks = [k for k in KS if k < model.size**2]
    found = swap_scores(
        model.predict,
        model.test_images[pairs.image],
        pairs.pixel,
        scores,
        model.test_images,
        ks=ks,
        fills=("black", "mean"),
        random_state=seed,
    )
    return {
        "ks": ks,
        "iou": round(model.iou or 0.0, 4),
        "without_opposite": round(found.without_opposite, 4),
        **kept(found, pairs),
    }


def examples(explainer: Any, model: Segmenter) -> list[dict[str, Any]]:
    """The best units for pixels drawn at random, as plain values."""
    masks = model.predict(model.test_images)
    pairs = choose(masks)
    (explanation,) = explanations(explainer, model.test_images[pairs.image], pairs.pixel)
    best = top_k(explanation.scores, min(N_EXAMPLE_UNITS, explanation.scores.shape[1]), 0)
    selected = [np.isin(units, chosen) for units, chosen in zip(units_of(explanation), best, strict=True)]
    return as_plain_values(pairs, masks, np.array(selected))


STUDY = Study("large", cases, run, page)
