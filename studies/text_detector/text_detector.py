"""A text detector on drawn words: are the pixels selected for a pixel of a word near the strokes of that word?"""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sointer import Patches, SOInter
from sointer.config import EnergyConfig, TrainingConfig
from sointer.explainers.baselines.base import NearestPixels, Random
from sointer.explainers.baselines.by_swaps import Occlusion, Rise
from sointer.metrics.ground_truth import top_k
from sointer.metrics.pixels import pixel_scores
from sointer.metrics.swaps import swap_scores
from studies.frame.study import Case, Study
from studies.text_detector.detector import THRESHOLD, detector
from studies.text_detector.drawn_words import BACKGROUNDS, NEAR, DrawnWords, draw_words
from studies.text_detector.text_detector_page import IN_PATCHES, METHODS, N_SHOWN, page

SEEDS = (101, 102, 103)
"""Seeds that took no part in development."""
KS = (10, 30, 100, 300)
PATCH = 4
N_QUERIES = 16_000
"""Query budget of SOInter's fit."""
N_PER_SAMPLE = 500
"""Queries per sample of the baselines that query the model about every sample."""
FILLS = ("black", "inpaint")
QUICK: dict[str, Any] = {
    "energy": EnergyConfig(hidden=(4, 8), batch_size=8),
    "training": TrainingConfig(n_epochs=1),
}
"""The smoke setting's training, good for nothing but to see that all of it runs."""


class Sizes(NamedTuple):
    """How much is drawn and queried."""

    n_train: int = 400
    n_pool: int = 200
    n_test: int = 80
    n_queries: int = N_QUERIES
    n_per_sample: int = N_PER_SAMPLE


FULL = Sizes()
SMOKE = Sizes(n_train=24, n_pool=12, n_test=6, n_queries=40, n_per_sample=12)


def cases(smoke: bool) -> Iterator[Case]:
    """Seed by seed: an early stop leaves fewer seeds, not fewer methods."""
    for seed in (0,) if smoke else SEEDS:
        for method in METHODS:
            yield {"method": method, "seed": seed, **({"quick": True} if smoke else {})}


# --- what is explained -----------------------------------------------------------------------------------


class Setting(NamedTuple):
    """The images of one seed, and a target of every test image. The explainer sees neither strokes nor words."""

    train: NDArray[np.uint8]
    pool: NDArray[np.uint8]
    """Images that selected pixels are swapped with, held out from the explainer."""
    test: DrawnWords
    predicted: NDArray[np.float32]
    """(test, height, width) probabilities."""
    targets: NDArray[np.int64]
    """(test, 2) row and column."""
    words: NDArray[np.int64]
    """(test,) which word of its image the target lies in."""
    found: float
    """Share of the test images' words with a pixel that is called text."""
    query_ms: float
    """CPU milliseconds of one query."""


@cache
def setting(seed: int, sizes: Sizes) -> Setting:
    """Targets are drawn at random from all pixels near the strokes of a word of the image that are called text."""
    train, pool, test = (
        draw_words(n, np.random.default_rng([seed, part]))
        for part, n in enumerate((sizes.n_train, sizes.n_pool, sizes.n_test))
    )
    detector()(test.images[:1])  # the first call takes longer
    started = time.process_time()
    predicted = detector()(test.images)
    query_ms = 1e3 * (time.process_time() - started) / sizes.n_test
    is_text = (test.distances() <= NEAR) & (predicted > THRESHOLD)[:, None]
    has_text = is_text.any(axis=(1, 2, 3))
    found = is_text.any(axis=(2, 3)).sum() / test.n_words.sum()
    rng = np.random.default_rng([seed, 3])
    places = np.array([rng.choice(np.argwhere(here)) for here in is_text[has_text]])
    kept = DrawnWords(*(part[has_text] for part in test))
    return Setting(
        train.images, pool.images, kept, predicted[has_text], places[:, 1:], places[:, 0], float(found), query_ms
    )


# --- one case --------------------------------------------------------------------------------------------


def run(method: str, seed: int, quick: bool = False) -> dict[str, Any]:
    """Explain one pixel of every test image, and measure where the selected pixels lie and what they do."""
    sizes = SMOKE if quick else FULL
    return measure(method, setting(seed, sizes), seed, sizes, examples=quick or seed == SEEDS[0])


def measure(method: str, given: Setting, seed: int, sizes: Sizes, *, examples: bool = True) -> dict[str, Any]:
    explainer = make_explainer(method, seed, sizes)
    times = [time.process_time()]
    explainer.fit(given.train)
    times.append(time.process_time())
    explanation = explainer.explain(given.test.images, target=given.targets, predicted=given.predicted)
    scores = pixel_scores(explanation)
    times.append(time.process_time())
    n, best = len(scores), top_k(scores.reshape(len(scores), -1), max(KS), seed)
    swapped = swap_scores(
        detector(), given.test.images, given.targets, scores, given.pool, ks=KS, fills=FILLS, random_state=seed
    )
    return {
        "ks": list(KS),
        **near_strokes(best, given),
        "insert": rounded(swapped.insert),
        "delete": rounded(swapped.delete),
        **{f"j_{fill}": rounded(j) for fill, j in swapped.j.items()},
        "distance": [round(float(from_target(best[:, :k], given).mean()), 2) for k in KS],
        "n_targets": n,
        "n_swapped": int(swapped.used.sum()),
        "found": round(given.found, 4),
        "text_share": round(float((given.predicted > THRESHOLD).mean()), 4),
        "unsure_share": round(float(((given.predicted > 0.05) & (given.predicted < 0.95)).mean()), 4),
        "query_ms": round(given.query_ms, 2),
        "weights": detector().name,
        "fit_queries": int(explainer.n_queries_),
        "sample_queries": round(explainer.n_explain_queries_ / n, 1),
        "fit_seconds": round(times[1] - times[0], 2),
        "explain_seconds": round(times[2] - times[1], 3),
        "examples": show(best, given) if examples else [],
    }


def make_explainer(method: str, seed: int, sizes: Sizes) -> Any:
    common: dict[str, Any] = {"k": 30, "random_state": seed, "verbose": False}
    if method in ("SOInter", IN_PATCHES):
        units = {"groups": Patches(PATCH), "k": 8} if method == IN_PATCHES else {}
        settings = QUICK if sizes == SMOKE else {}
        return SOInter(detector(), query_budget=sizes.n_queries, **{**common, **units, **settings})
    if method in ("Occlusion", "Rise"):
        kind = Occlusion if method == "Occlusion" else Rise
        return kind(detector(), n_samples=sizes.n_per_sample, **common)
    return {"NearestPixels": NearestPixels, "Random": Random}[method](detector(), **common)


# --- measures --------------------------------------------------------------------------------------------


def near_strokes(best: NDArray[np.int64], given: Setting) -> dict[str, Any]:
    """Shares of the best k pixels near the strokes of the target's word, on them, and near those of other words.

    Beside them the share of all pixels that are near the target's word, and the most that any method could reach.
    """
    distances = given.test.distances().reshape(*given.test.strokes.shape[:2], -1)
    rows = np.arange(len(best))
    own = distances[rows, given.words]
    others = distances.copy()
    others[rows, given.words] = np.inf
    near = own <= NEAR

    def shares(which: NDArray[np.bool_]) -> list[float]:
        chosen = np.take_along_axis(which, best, axis=1)
        return rounded([chosen[:, :k].mean() for k in KS])

    return {
        "own": shares(near),
        "on": shares(own == 0),
        "other": shares(others.min(axis=1) <= NEAR),
        "near_share": round(float(near.mean()), 4),
        "own_most": rounded([np.minimum(near.sum(axis=1) / k, 1).mean() for k in KS]),
    }


def from_target(pixels: NDArray[np.int64], given: Setting) -> NDArray[np.float64]:
    down, right = np.divmod(pixels, given.test.images.shape[3])
    return np.asarray(np.hypot(down - given.targets[:, :1], right - given.targets[:, 1:]))


def rounded(values: Any) -> list[float]:
    return [round(float(value), 4) for value in values]


# --- examples --------------------------------------------------------------------------------------------


def show(best: NDArray[np.int64], given: Setting) -> list[dict[str, Any]]:
    """The first test image of every background, with what was selected, as plain values."""
    chosen = [np.flatnonzero(given.test.backgrounds == kind) for kind in range(len(BACKGROUNDS))]
    return [
        {
            "background": BACKGROUNDS[given.test.backgrounds[i]],
            "image": as_png(Image.fromarray(given.test.images[i].transpose(1, 2, 0)).quantize(64)),
            "probability": as_png(Image.fromarray((255 * given.predicted[i]).round().astype(np.uint8))),
            "target": given.targets[i].tolist(),
            "selected": best[i, :N_SHOWN].tolist(),
        }
        for i in sorted(int(places[0]) for places in chosen if len(places))
    ]


def as_png(image: Image.Image) -> str:
    file = io.BytesIO()
    image.save(file, format="PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


STUDY = Study(name="text_detector", cases=cases, run=run, page=page)
