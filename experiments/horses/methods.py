"""The methods that are compared: SOInter in some settings, and what needs no training."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from drawing import METHODS as STYLES
from explainers import Costs, Recipe, fitted, units
from gradient import GradientTimesInput, SizeOfGradient

from sointer.baselines import NearestPixels, Random

UNTRAINED = {
    "NearestPixels": NearestPixels,
    "Random": Random,
    "gradient x input": GradientTimesInput,
    "size of gradient x input": SizeOfGradient,
}
METHODS = ("SOInter", "SOInter-1", "gradient x input", "size of gradient x input", "NearestPixels", "Random")

COLOURS: dict[str, dict[str, Any]] = {
    **STYLES,
    "gradient x input": {"color": "#009e73", "marker": "^"},
    "size of gradient x input": {"color": "#009e73", "marker": "v", "linestyle": "--", "markerfacecolor": "white"},
    "NearestPixels": {"color": "#cc79a7", "marker": "D", "linestyle": "--"},
}
"""A method looks the same in every figure."""


def explainer_of(method: str, recipe: Recipe) -> tuple[Any, Costs | None]:
    """An explainer that is ready, and what its fit cost if it has one worth the name."""
    if method in UNTRAINED:
        model, groups = recipe.setting.model.predict, units(recipe.groups)
        made = UNTRAINED[method](model, k=1, removal=recipe.removal, groups=groups, random_state=0, verbose=False)
        return made.fit(recipe.setting.train), None
    changes: dict[str, Any] = {
        "SOInter": {},
        "SOInter-1": {"structured": False},
        "SOInter, paper preset": {"preset": "paper"},
    }[method]
    return fitted(replace(recipe, **changes))
