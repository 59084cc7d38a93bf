"""The paper's own recipe, which has an interpreter of its own for every pixel: for one pixel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from explainers import Recipe, fitted
from measures import measure
from methods import explainer_of
from study import Case, Row, Study
from tables import all_counts, at, fit_cost, number, sections, table

PIXEL = (16, 16)
METHODS = ("SOInter, paper preset", "SOInter", "NearestPixels")
N_ROUNDS, N_PRETRAINING_STEPS = 50, 400
"""The paper's preset has up to 100 and 1,500, which take half an hour of CPU time."""


def cases(smoke: bool) -> Iterator[Case]:
    for method in METHODS:
        yield {"method": method} | ({"quick": True} if smoke else {})


def run(method: str, quick: bool = False) -> dict[str, Any]:
    recipe = Recipe(quick=quick)
    pixel = (8, 8) if quick else PIXEL
    if method == "SOInter, paper preset":
        own = replace(recipe, preset="paper", target=pixel, n_rounds=N_ROUNDS, n_pretraining_steps=N_PRETRAINING_STEPS)
        explainer, costs = fitted(own)
    else:
        explainer, costs = explainer_of(method, recipe)
    questions = recipe.setting.questions_about(*pixel)
    found = measure(explainer, questions)
    n_weights = sum(weight.numel() for weight in explainer.interpreter_.parameters()) if costs is not None else 0
    return {
        "n_weights": n_weights,
        "f1": found.f1("as fitted"),
        "f1_interval": found.f1_intervals("as fitted"),
        "fidelity": found.fidelity("as fitted"),
        "distance": found.distance(list(found.replies["as fitted"])),
        "n_images": len(questions),
        "share_horse": round(float(questions.said.mean()), 4),
        "n_rounds": N_ROUNDS,
        "n_pretraining_steps": N_PRETRAINING_STEPS,
        "fit": costs,
    }


# --- the page ----------------------------------------------------------------------------------------------


def page(rows: list[Row], images: Path) -> str:
    first = next((row for row in rows if row["method"] == METHODS[0]), rows[0])
    return sections(
        '## The paper\'s own recipe\n\n`preset="paper"` has an interpreter of its own for every target '
        f"(here of {first['n_weights'] / 1e6:.1f} million weights), so that explaining all pixels is out of its reach. "
        f"Here it explains a single pixel, in the middle of the image, on the {first['n_images']} test images (the "
        f"black box calls {first['share_horse']:.0%} of them horse there), with {first['n_rounds']} rounds instead of "
        f"at most 100 and {first['n_pretraining_steps']} steps of pre-training instead of 1,500, to save time.",
        table_of(rows),
        "; ".join(f"{row['method']}: {fit_cost(row['fit'])}" for row in rows if row["fit"] is not None) + ".",
    )


def table_of(rows: list[Row]) -> str:
    ks = all_counts(rows)
    lines = [["method", *(f"F1, K = {k}" for k in ks), *(f"distance, K = {k}" for k in ks[:2])]]
    for method in METHODS:
        for row in rows:
            if row["method"] == method:
                values = [number(at(row["f1"], k), 3) for k in ks]
                lines.append([method, *values, *(number(at(row["distance"], k), 1) for k in ks[:2])])
    return table(lines)


STUDY = Study("paper", cases, run, page)
