"""Does the black box say the same of a pixel when it sees the selected pixels alone?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from explainers import Recipe
from fidelity_page import page
from measures import KS, Measured, measure
from methods import METHODS, explainer_of
from pictures import examples
from setting import BLACK_BOXES
from study import Case, Study

OTHER_REMOVALS = ("blur", "mean")
TOLD_OTHERWISE = ("SOInter", "SOInter-1", "NearestPixels")
"""Methods that are also told the opposite of what the black box says; the nearest pixels do not listen."""
K_EXAMPLES = 30
SOME_METHODS = ("SOInter", "gradient x input", "NearestPixels")


def cases(smoke: bool) -> Iterator[Case]:
    for black_box in BLACK_BOXES:
        for method in SOME_METHODS if smoke and black_box == "dvn" else METHODS:
            yield {"black_box": black_box, "method": method, "seed": 0} | ({"quick": True} if smoke else {})


def run(black_box: str, method: str, seed: int, quick: bool = False) -> dict[str, Any]:
    recipe = Recipe(black_box, seed=seed, quick=quick)
    explainer, costs = explainer_of(method, recipe)
    questions = recipe.setting.questions()
    found = measure(explainer, questions, removals=("as fitted", *OTHER_REMOVALS))
    result: dict[str, Any] = {
        "iou": round(recipe.setting.iou(), 4),
        "n_pairs": len(questions),
        "n_images": len(questions.images),
        "share_horse": round(float(questions.said.mean()), 4),
        **quality(found, "as fitted"),
        "distance": found.distance(KS),
        "other_removal": {removal: quality(found, removal) for removal in OTHER_REMOVALS},
        "fit": costs,
    }
    if costs is not None:
        untold = measure(explainer, questions, tell="nothing")
        result["not_told"] = quality(untold, "as fitted") | {
            "guessed": round(float((untold.expected == questions.said).mean()), 4)
        }
        result["examples"] = examples(explainer, recipe.setting, K_EXAMPLES)
    if method in TOLD_OTHERWISE:
        result["told_wrong"] = measure(explainer, questions, tell="the opposite").misled("as fitted")
    return result


def quality(found: Measured, removal: str) -> dict[str, Any]:
    return {
        "f1": found.f1(removal),
        "f1_interval": found.f1_intervals(removal),
        "fidelity": found.fidelity(removal),
    }


STUDY = Study("fidelity", cases, run, page)
