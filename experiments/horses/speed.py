"""How long do explanations take, and what does the fit cost?"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from explainers import Recipe
from methods import explainer_of
from setting import BLACK_BOXES, Questions, Setting
from study import Case, Row, Study
from tables import fit_cost, sections, table

from sointer.baselines import KernelShap

N_EXPLAINED, N_TIMED = 10_000, 3
K = 30
FASTER = 1000
"""Times faster than KernelShap: what was asked for."""
MINUTES, GIGABYTES = 15, 4
"""What the fit may take, on two cores: what was asked for."""


def cases(smoke: bool) -> Iterator[Case]:
    for black_box in ("unet",) if smoke else ("unet", "dvn"):
        yield {"black_box": black_box} | ({"quick": True} if smoke else {})


def run(black_box: str, quick: bool = False) -> dict[str, Any]:
    """All methods one after the other in one process."""
    recipe = Recipe(black_box, quick=quick)
    setting = recipe.setting
    many = setting.questions(200 if quick else N_EXPLAINED)
    few = many.about(slice(1 if quick else N_TIMED))
    explainer, costs = explainer_of("SOInter", recipe)
    nearest, _ = explainer_of("NearestPixels", recipe)
    shap = KernelShap(
        setting.model.predict, k=K, removal="zero", n_samples=60 if quick else None, random_state=0, verbose=False
    ).fit(setting.train)
    timed = {
        "SOInter": clock(lambda some: explainer.explain(*both(some), k=K), many),
        "NearestPixels": clock(lambda some: nearest.explain(*both(some), k=K), many),
        "KernelShap": clock(lambda some: shap.explain(*both(some), k=K), few)
        | {"queries": shap.n_explain_queries_ / (len(few) + 1)},
        "KernelShap, as packaged": clock(lambda some: as_packaged(setting, some, 60 if quick else "auto"), few)
        | {"queries": 60 if quick else 2 * setting.size**2 + 2**11},
    }
    return {
        "timed": timed,
        "n_threads": torch.get_num_threads(),
        "peak_gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        "fit": costs,
    }


def both(questions: Questions) -> tuple[Any, Any]:
    return questions.images[questions.image], questions.pixel


def clock(explain: Callable[[Questions], Any], questions: Questions) -> dict[str, Any]:
    """Seconds per explanation; one is made before, to pay for what is loaded when first used."""
    explain(questions.about(slice(1)))
    started = time.perf_counter()
    explain(questions)
    return {"seconds_each": (time.perf_counter() - started) / len(questions), "n_timed": len(questions)}


def as_packaged(setting: Setting, questions: Questions, n_samples: int | str) -> None:
    """shap's KernelExplainer with its defaults: every pixel a player, black standing in for those that are out."""
    from shap import KernelExplainer

    n_pixels = setting.size**2
    for image, (row, column) in zip(questions.image, questions.pixel, strict=True):
        picture = questions.images[image]

        def worth(keep: Any, picture: Any = picture, row: int = row, column: int = column) -> Any:
            kept = (keep.reshape(-1, 1, setting.size, setting.size) > 0.5) * picture
            return setting.model.predict(kept.astype(np.uint8))[:, row, column].astype(np.float64)

        KernelExplainer(worth, np.zeros((1, n_pixels))).shap_values(
            np.ones((1, n_pixels)), nsamples=n_samples, silent=True
        )


# --- the page ----------------------------------------------------------------------------------------------


def page(rows: list[Row], images: Path) -> str:
    parts = [
        "## How long it takes\n\nIn one process, one method after the other. KernelShap asks the black box about "
        "every explanation, so it was timed on a few and scaled; *KernelShap* is our setting, *as packaged* the shap "
        "package with its defaults. NearestPixels computes next to nothing."
    ]
    for row in rows:
        parts += [f"### {BLACK_BOXES[row['black_box']]}", table_of(row), verdict(row)]
    return sections(*parts)


def table_of(row: Row) -> str:
    ours = row["timed"]["SOInter"]["seconds_each"]
    head = [
        "method",
        "timed on",
        "seconds each",
        f"hours for {N_EXPLAINED:,}",
        "questions each",
        "times SOInter's time",
    ]
    lines = [head]
    for method, found in row["timed"].items():
        each = found["seconds_each"]
        hours, ratio = N_EXPLAINED * each / 3600, each / ours
        questions = f"{found['queries']:,.0f}" if "queries" in found else "0"
        shown = f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2f}"
        lines.append([method, f"{found['n_timed']:,}", f"{each:.5f}", f"{hours:.3f}", questions, shown])
    return table(lines)


def verdict(row: Row) -> str:
    ours, fit = row["timed"]["SOInter"]["seconds_each"], row["fit"]
    told = []
    for method in ("KernelShap", "KernelShap, as packaged"):
        ratio = row["timed"][method]["seconds_each"] / ours
        verb = "reached" if ratio >= FASTER else "**not** reached"
        told.append(f"{ratio:,.0f} times as fast as {method} ({FASTER:,} were asked for: {verb})")
    minutes, peak = fit["seconds"] / 60, fit["peak_gigabytes"]
    in_time = "kept" if minutes <= MINUTES else "**not** kept"
    in_memory = "kept" if peak <= GIGABYTES else "**not** kept"
    return (
        f"SOInter explains {', '.join(told)}. Its fit for all {fit['n_targets']:,} pixels took {fit_cost(fit)}; at "
        f"most {MINUTES} minutes on two cores ({in_time}) and {GIGABYTES} GB ({in_memory}) were asked for. This run "
        f"used {row['n_threads']} thread(s) and at most {row['peak_gigabytes']:.2f} GB."
    )


STUDY = Study("speed", cases, run, page)
