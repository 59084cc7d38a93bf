"""Trained segmenters: does the prediction follow the selected pixels into other images?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer.metrics.ground_truth import top_k
from sointer.metrics.masked_predictor import MaskedEvaluator
from sointer.metrics.robustness import persuasion_credit, top_k_overlap, transfer_scores
from sointer.metrics.swaps import SwapScores, swap_scores
from studies.frame.study import Case, Study
from studies.horses.black_boxes import UNET, VALUE_NETWORK, Segmenter, load_segmenter
from studies.horses.methods import (
    CONTROLS,
    GRADIENT,
    NEAREST,
    OURS,
    PER_SAMPLE,
    RANDOM,
    WHITE_BOX,
    explain_all,
    fit,
    joined_scores,
    score,
)
from studies.horses.pairs import Pairs, draw_pairs, pack
from studies.horses.segmenters_page import page

SEEDS = (301, 302, 303)
"""Of the U-Nets and of the explainers: seeds that took no part in development."""
KS = (1, 3, 10, 30, 100, 300)
N_PAIRS, N_SLOW, N_FEW, N_QUICK = 320, 128, 64, 24
"""Test pairs; of the deep value network; of methods that query the model separately for each sample."""
METHODS = (OURS, *CONTROLS, *WHITE_BOX)
NOISY = (OURS, NEAREST, GRADIENT, RANDOM)
"""Methods that also explain noisy images."""
VARIANCES = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)
"""Of the noise, on pixels in [0, 1]."""
N_NOISY, K_NOISY = 128, 30
K_EXAMPLES, N_EXAMPLES = 30, 6


# --- cases -----------------------------------------------------------------------------------------------


def cases(smoke: bool) -> Iterator[Case]:
    """Seed by seed, methods together: the U-Net's masked evaluator is trained once for all of them."""
    if smoke:
        yield from (case_of(UNET, method, 0, quick=True) for method in (*METHODS, *PER_SAMPLE))
        yield from (case_of(UNET, method, 1, quick=True) for method in (OURS, NEAREST))
        yield from (case_of(VALUE_NETWORK, method, 0, quick=True) for method in (OURS, NEAREST))
        return
    for seed in SEEDS:
        yield from (case_of(UNET, method, seed) for method in METHODS)
        if seed == SEEDS[0]:
            yield from (case_of(UNET, method, seed) for method in PER_SAMPLE)
            yield from (case_of(VALUE_NETWORK, method, seed) for method in (OURS, *CONTROLS))


def case_of(segmenter: str, method: str, seed: int, quick: bool = False) -> Case:
    return {"segmenter": segmenter, "method": method, "seed": seed} | ({"quick": True} if quick else {})


def other_unets(segmenter: str, seed: int, quick: bool) -> dict[str, Any]:
    """U-Nets of other seeds, which the explainer never queries; of other models there is one seed only."""
    seeds = () if segmenter != UNET else (0, 1) if quick else SEEDS
    return {str(other): load_segmenter(UNET, seed=other, quick=quick).predict for other in seeds if other != seed}


@lru_cache(maxsize=1)
def evaluator_of(segmenter: str, seed: int, quick: bool) -> MaskedEvaluator:
    """A network that predicts the segmenter's masks from randomly masked training images."""
    model = load_segmenter(segmenter, seed=seed, quick=quick)
    small: dict[str, Any] = {"n_steps": 20, "widths": (4, 8)} if quick else {}
    return MaskedEvaluator(**small, random_state=seed).fit(model.fit_images, model.predict(model.fit_images))


# --- one case --------------------------------------------------------------------------------------------


def run(segmenter: str, method: str, seed: int, quick: bool = False) -> dict[str, Any]:
    model = load_segmenter(segmenter, seed=seed, quick=quick)
    full = N_SLOW if segmenter == VALUE_NETWORK else N_PAIRS
    n_pairs = N_QUICK if quick else N_FEW if method in PER_SAMPLE else full
    pairs = draw_pairs(n_pairs, len(model.test_images), model.size)
    X, masks = model.test_images[pairs.image], model.predict(model.test_images)
    ks = [k for k in KS if k < model.size**2]
    fitted = fit(method, model, seed, quick=quick)
    parts, cost = explain_all(fitted, X, pairs.pixel)
    scores = joined_scores(parts)
    evaluator = evaluator_of(segmenter, seed, quick)
    swaps = swap_scores(
        model.predict, X, pairs.pixel, scores, model.test_images, ks=ks, evaluator=evaluator, random_state=seed
    )
    values = masks[(pairs.image, *pairs.pixel.T)]
    whole = np.ones((len(masks), *masks.shape[1:]), dtype=bool)
    found: dict[str, Any] = {
        **fitted.cost(),
        **cost,
        "iou": round(model.iou or 0.0, 4),
        "evaluator_agreement": round(float((evaluator.predict(model.test_images, whole) == masks).mean()), 4),
        "n_pairs": len(X),
        "without_opposite": round(swaps.without_opposite, 4),
        "ks": ks,
        **kept(swaps, pairs),
        "distance": distances(scores, pairs.pixel, ks, seed),
    }
    others = other_unets(segmenter, seed, quick)
    if others and method not in PER_SAMPLE:
        moved = transfer_scores(
            others, X, pairs.pixel, scores, model.test_images, values, ks=ks, fills=(), random_state=seed
        )
        found["transfer"] = {name: kept(one, pairs) | {"other_value": one.other_value} for name, one in moved.items()}
    if method in NOISY:
        found["noise"] = [
            under_noise(fitted.explainer, model, pairs, scores, variance, seed)
            for variance in (VARIANCES[:2] if quick else VARIANCES)
        ]
    if method == OURS:
        found["told"] = told_the_opposite(fitted.explainer, model, pairs, masks, scores, ks, seed)
        found["examples"] = examples(fitted.explainer, model, masks)
    return found


def kept(swaps: SwapScores, pairs: Pairs) -> dict[str, Any]:
    """A yes or no for every pair that was measured, by measure and size; of one z per pair there is nothing between."""
    measures = {"insert": swaps.insert_rows, "delete": swaps.delete_rows}
    for fill in swaps.own_rows:
        measures |= {f"own {fill}": swaps.own_rows[fill], f"foreign {fill}": swaps.foreign_rows[fill]}
    return {
        "images": pairs.image[swaps.used].tolist(),
        "swaps": {name: [pack(column > 0.5) for column in rows.T] for name, rows in measures.items()},
    }


def distances(scores: NDArray[np.float32], pixels: NDArray[np.int64], ks: Sequence[int], seed: int) -> list[float]:
    """How far the best k pixels lie from the target, in pixels, on average."""
    best = top_k(scores.reshape(len(scores), -1), max(ks), seed)
    down, right = np.divmod(best, scores.shape[2])
    away = np.hypot(down - pixels[:, :1], right - pixels[:, 1:])
    return [round(float(away[:, :k].mean()), 2) for k in ks]


def told_the_opposite(
    explainer: Any,
    model: Segmenter,
    pairs: Pairs,
    masks: NDArray[Any],
    scores: NDArray[np.float32],
    ks: Sequence[int],
    seed: int,
) -> dict[str, Any]:
    """How often the wrong label that an explainer is given comes true on its selection, and whether it listens."""
    X, wrong = model.test_images[pairs.image], masks[pairs.image].copy()
    at = (np.arange(len(X)), *pairs.pixel.T)
    wrong[at] = 1 - wrong[at]
    opposite = score(explainer, X, pairs.pixel, predicted=wrong)
    k = min(K_EXAMPLES, model.size**2)
    credit = persuasion_credit(model.predict, X, pairs.pixel, scores, opposite, ks=ks, random_state=seed)
    return {
        "overlap": round(float(top_k_overlap(scores, opposite, k, random_state=seed).mean()), 4),
        "persuaded": credit.persuaded.round(4).tolist(),
        "own_error": (1 - credit.fidelity).round(4).tolist(),
    }


def under_noise(
    explainer: Any, model: Segmenter, pairs: Pairs, clean: NDArray[np.float32], variance: float, seed: int
) -> dict[str, Any]:
    """Explanations of noisy images: are the pixels those of the clean image, and do predictions still follow them?"""
    few = pairs.first(N_NOISY)
    noisy = with_noise(model.test_images, variance)
    scores = score(explainer, noisy[few.image], few.pixel)
    before, after = (model.predict(images)[(few.image, *few.pixel.T)] for images in (model.test_images, noisy))
    same = before == after
    k = min(K_NOISY, model.size**2)
    swaps = swap_scores(
        model.predict, noisy[few.image], few.pixel, scores, model.test_images, ks=[k], fills=(), random_state=seed
    )
    overlap = top_k_overlap(clean[:N_NOISY], scores, k, random_state=seed)
    return {
        "variance": variance,
        "same_label": round(float(same.mean()), 4),
        "overlap": round(float(overlap[same].mean()), 4) if same.any() else None,
        "insert": round(float(swaps.insert[0]), 4),
        "delete": round(float(swaps.delete[0]), 4),
    }


def with_noise(images: NDArray[np.uint8], variance: float) -> NDArray[np.uint8]:
    """Normal noise of this variance on pixels in [0, 1], cut off there and rounded back to bytes."""
    noise = np.random.default_rng(2).standard_normal(images.shape) * np.sqrt(variance)
    return np.rint(255 * np.clip(images / 255 + noise, 0, 1)).astype(np.uint8)


# --- examples for the figure -----------------------------------------------------------------------------


def choose(masks: NDArray[Any], n: int = N_EXAMPLES) -> Pairs:
    """Images and pixels at random, by a fixed seed: the first pixels are called horse, the last two are not."""
    rng = np.random.default_rng(7)
    image = rng.choice(len(masks), size=n, replace=False)
    pixels = []
    for place, mask in enumerate(masks[image]):
        wanted = mask == (place < n - 2)
        pixels.append(rng.choice(np.argwhere(wanted if wanted.any() else ~wanted)))
    return Pairs(image, np.array(pixels))


def examples(explainer: Any, model: Segmenter, masks: NDArray[Any], k: int = K_EXAMPLES) -> list[dict[str, Any]]:
    """What is selected for the chosen pixels, as plain values."""
    pairs = choose(masks)
    scores = score(explainer, model.test_images[pairs.image], pairs.pixel).reshape(len(pairs.image), -1)
    selected = np.zeros(scores.shape, dtype=bool)
    np.put_along_axis(selected, top_k(scores, k, 0), True, axis=1)
    return as_plain_values(pairs, masks, selected)


def as_plain_values(pairs: Pairs, masks: NDArray[Any], selected: NDArray[np.bool_]) -> list[dict[str, Any]]:
    """Pairs, the model's masks and what was selected, as results keep them."""
    return [
        {
            "image": int(image),
            "target": pixel.tolist(),
            "size": masks.shape[-1],
            "label": int(masks[(image, *pixel)]),
            "mask": pack(masks[image] > 0),
            "selected": pack(chosen),
        }
        for image, pixel, chosen in zip(pairs.image, pairs.pixel, selected, strict=True)
    ]


STUDY = Study("segmenters", cases, run, page)
