"""How long do a fit and 10,000 explanations take, beside shap's KernelExplainer?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sointer import Superpixels
from studies.frame.apart import in_new_process, peak_gigabytes
from studies.frame.markdown import prose, sections, table
from studies.frame.study import Case, Row, Study
from studies.horses.black_boxes import UNET, Segmenter, load_segmenter
from studies.horses.methods import KERNEL_SHAP, NEAREST, OURS, fit
from studies.horses.pairs import Pairs, draw_pairs

SEED = 301
PACKAGED = "shap's KernelExplainer"
N_EXPLAINED, N_TIMED = 10_000, 3
"""Pairs; of methods that query the model for each of them, so that they take long."""
N_SUPERPIXELS = 100


def cases(smoke: bool) -> Iterator[Case]:
    yield {"segmenter": UNET} | ({"quick": True} if smoke else {})


def run(segmenter: str, quick: bool = False) -> dict[str, Any]:
    load_segmenter(segmenter, seed=SEED, quick=quick)  # trained here, so that its memory does not count
    return in_new_process(measure, segmenter=segmenter, quick=quick)


def measure(segmenter: str, quick: bool) -> dict[str, Any]:
    """All methods, one after the other, in one process."""
    model = load_segmenter(segmenter, seed=SEED, quick=quick)
    fitted = fit(OURS, model, SEED, quick=quick)
    peak = peak_gigabytes()
    many = draw_pairs(100 if quick else N_EXPLAINED, len(model.test_images), model.size)
    few = many.first(1 if quick else N_TIMED)
    nearest = fit(NEAREST, model, SEED)
    shap = fit(KERNEL_SHAP, model, SEED, groups=Superpixels(N_SUPERPIXELS), quick=quick)
    n_samples: int | str = 60 if quick else "auto"
    timed = {
        OURS: clock(lambda pairs: explain(fitted.explainer, model, pairs), many),
        NEAREST: clock(lambda pairs: explain(nearest.explainer, model, pairs), many),
        KERNEL_SHAP: clock(lambda pairs: explain(shap.explainer, model, pairs), few),
        PACKAGED: clock(lambda pairs: as_packaged(model, pairs, n_samples), few),
    }
    n_queries = {OURS: 1, NEAREST: 1, KERNEL_SHAP: shap.explainer.n_samples + 1}
    n_queries[PACKAGED] = 60 if quick else 2 * model.size**2 + 2**11
    return {
        **fitted.cost(),
        "peak_gigabytes": peak,
        "n_threads": torch.get_num_threads(),
        "n_targets": model.size**2,
        "timed": {method: found | {"queries": n_queries[method]} for method, found in timed.items()},
    }


def explain(explainer: Any, model: Segmenter, pairs: Pairs) -> None:
    explainer.explain(model.test_images[pairs.image], target=pairs.pixel)


def clock(run_on: Callable[[Pairs], None], pairs: Pairs) -> dict[str, Any]:
    """CPU seconds per explanation; one is made before, to pay for what is loaded at first use."""
    run_on(pairs.first(1))
    started = time.process_time()
    run_on(pairs)
    return {"seconds_each": (time.process_time() - started) / len(pairs.image), "n_timed": len(pairs.image)}


def as_packaged(model: Segmenter, pairs: Pairs, n_samples: int | str) -> None:
    """shap's KernelExplainer with its defaults: every pixel a player, black in place of those that are out."""
    from shap import KernelExplainer

    n_pixels = model.size**2
    for image, (row, column) in zip(pairs.image, pairs.pixel, strict=True):
        shown = model.test_images[image]

        def worth(keep: Any, shown: Any = shown, row: int = row, column: int = column) -> Any:
            kept = (keep.reshape(-1, 1, model.size, model.size) > 0.5) * shown
            return model.predict(kept.astype(np.uint8))[:, row, column].astype(np.float64)

        KernelExplainer(worth, np.zeros((1, n_pixels))).shap_values(
            np.ones((1, n_pixels)), nsamples=n_samples, silent=True
        )


# --- the page --------------------------------------------------------------------------------------------


def page(rows: list[Row], images: Path) -> str:
    parts = [
        "## How long it takes",
        prose(
            "CPU seconds of one process, one method after the other. Methods that query the model for each explanation "
            f"were timed on a few of the {N_EXPLAINED:,} pairs. {PACKAGED} has its defaults: every pixel is a player."
        ),
    ]
    for row in rows:
        text = (
            f"{row['segmenter']}: SOInter's fit for all {row['n_targets']:,} pixels took {row['fit_cpu_seconds']:.0f} "
            f"CPU seconds, {row['fit_queries']:,} queries and at most {row['peak_gigabytes']:.2f} GB."
        )
        parts += [prose(text), table_of(row)]
    return sections(*parts)


def table_of(row: Row) -> str:
    ours = row["timed"][OURS]["seconds_each"]
    head = ["method", "timed on", "CPU ms each", "queries each", f"CPU minutes for {N_EXPLAINED:,}", "times SOInter's"]
    lines = []
    for method, found in row["timed"].items():
        each = found["seconds_each"]
        shown = f"{each / ours:,.0f}" if each >= 10 * ours else f"{each / ours:.2f}"
        minutes = f"{N_EXPLAINED * each / 60:,.1f}"
        lines.append([method, f"{found['n_timed']:,}", f"{1e3 * each:,.2f}", f"{found['queries']:,}", minutes, shown])
    return table(head, lines)


def with_fit(row: Row) -> float:
    """How many times as long KernelExplainer takes for all pairs as SOInter does, its fit included."""
    ours = row["fit_cpu_seconds"] + N_EXPLAINED * row["timed"][OURS]["seconds_each"]
    return float(N_EXPLAINED * row["timed"][PACKAGED]["seconds_each"] / ours)


STUDY = Study("speed", cases, run, page)
