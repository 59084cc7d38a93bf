"""Segmenters whose deciding pixels are known, on the horses: are these found?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer.metrics.ground_truth import r_precision, top_k, top_of_sizes
from sointer.zoo.planted_segmenters import PLANTED_SEGMENTERS, ConvolutionalSegmenter
from studies.frame.study import Case, Study
from studies.horses.black_boxes import CONVOLUTIONAL, Segmenter, load_segmenter
from studies.horses.methods import (
    CONTROLS,
    EXPECTED,
    GRADIENT,
    NEAREST,
    OURS,
    PER_SAMPLE,
    explain_all,
    fit,
    joined_scores,
)
from studies.horses.pairs import Pairs, draw_pairs, pack
from studies.horses.planted_page import page

SEEDS = (301, 302, 303)
"""Seeds that took no part in development."""
N_PAIRS, N_FEW, N_QUICK = 1024, 128, 24
"""Test pairs; of methods that query the model separately for each sample."""
ONCE = (*CONTROLS, GRADIENT, EXPECTED, *PER_SAMPLE)
"""Methods that learn nothing: one seed is enough."""
N_OUTSIDE = 10
N_LOOKED_AT = 20
"""Pairs that the example in the figure is chosen from: the one with the most deciding pixels."""


def cases(smoke: bool) -> Iterator[Case]:
    """Seed by seed: an early stop leaves fewer seeds, not fewer segmenters."""
    if smoke:
        yield from (case_of(name, OURS, 0, quick=True) for name in (*PLANTED_SEGMENTERS, CONVOLUTIONAL))
        yield from (case_of(name, NEAREST, 0, quick=True) for name in PLANTED_SEGMENTERS)
        yield from (case_of("majority", method, 0, quick=True) for method in ONCE if method != NEAREST)
        yield case_of(CONVOLUTIONAL, EXPECTED, 0, quick=True)
        return
    for seed in SEEDS:
        for name in (*PLANTED_SEGMENTERS, CONVOLUTIONAL):
            yield case_of(name, OURS, seed)
            if seed == SEEDS[0] or name == CONVOLUTIONAL:  # the seed decides the weights of that one
                others = (*CONTROLS, GRADIENT, EXPECTED) if name == CONVOLUTIONAL else ONCE
                yield from (case_of(name, method, seed) for method in others)


def case_of(segmenter: str, method: str, seed: int, quick: bool = False) -> Case:
    return {"segmenter": segmenter, "method": method, "seed": seed} | ({"quick": True} if quick else {})


def run(segmenter: str, method: str, seed: int, quick: bool = False) -> dict[str, Any]:
    model = load_segmenter(segmenter, seed=seed if segmenter == CONVOLUTIONAL else 0, quick=quick)
    return measure(model, method, seed, quick)


def measure(model: Segmenter, method: str, seed: int, quick: bool) -> dict[str, Any]:
    """What a method finds of the deciding pixels, or of the receptive field, and what that costs."""
    assert model.planted is not None
    n_pairs = N_QUICK if quick else N_FEW if method in PER_SAMPLE else N_PAIRS
    pairs = draw_pairs(n_pairs, len(model.test_images), model.size)
    X = model.test_images[pairs.image]
    fitted = fit(method, model, seed, quick=quick)
    parts, cost = explain_all(fitted, X, pairs.pixel)
    scores = joined_scores(parts)
    found: dict[str, Any] = {**fitted.cost(), **cost, "n_pairs": len(X)}
    if isinstance(model.planted, ConvolutionalSegmenter):
        return found | outside(scores, model.planted.relevant(X, pairs.pixel), seed)
    truth, cases = model.planted.relevant(X, pairs.pixel), model.planted.cases(X, pairs.pixel)
    found |= {
        "r_precision": round(r_precision(scores, truth, random_state=seed), 4),
        "first": round(r_precision(scores[:N_FEW], truth[:N_FEW], random_state=seed), 4),
        "n_first": min(N_FEW, len(X)),
        "n_known": int(truth.any(axis=(1, 2)).sum()),
        "by_case": by_case(scores, truth, cases, seed),
    }
    if method in (OURS, NEAREST):
        found["example"] = example(model, pairs, scores, truth)
    return found


def by_case(
    scores: NDArray[np.float32], truth: NDArray[np.bool_], cases: NDArray[np.str_], seed: int
) -> dict[str, list[float]]:
    """R-precision and number of pairs of every kind of truth."""
    found = {}
    for case in sorted(set(cases[truth.any(axis=(1, 2))].tolist())):
        own = cases == case
        found[case] = [round(r_precision(scores[own], truth[own], random_state=seed), 4), int(own.sum())]
    return found


def outside(scores: NDArray[np.float32], field: NDArray[np.bool_], seed: int) -> dict[str, Any]:
    """Shares of the best pixels that lie outside the receptive field, so that they cannot matter."""
    flat, inside = scores.reshape(len(scores), -1), field.reshape(len(field), -1)
    few = np.take_along_axis(inside, top_k(flat, N_OUTSIDE, seed), axis=1)
    chosen = top_of_sizes(flat, inside.sum(axis=1), seed)
    return {
        "outside_few": round(float(1 - few.mean()), 4),
        "n_few": N_OUTSIDE,
        "outside_all": round(float(1 - (chosen & inside).sum() / chosen.sum()), 4),
        "chance": round(float(1 - inside.mean()), 4),
    }


def example(model: Segmenter, pairs: Pairs, scores: NDArray[np.float32], truth: NDArray[np.bool_]) -> dict[str, Any]:
    """One pair, chosen by its truth alone; as many pixels are selected as decide."""
    place = int(truth[:N_LOOKED_AT].sum(axis=(1, 2)).argmax())
    chosen = top_of_sizes(scores[[place]].reshape(1, -1), truth[[place]].sum(axis=(1, 2)), 0)
    return {
        "image": int(pairs.image[place]),
        "target": pairs.pixel[place].tolist(),
        "size": model.size,
        "truth": pack(truth[place]),
        "selected": pack(chosen),
    }


STUDY = Study("planted", cases, run, page)
