"""Removed pixels are blurred, or those of the mean image, instead of black: fitted so, and judged so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from drawing import finish, legend_below
from explainers import Recipe
from matplotlib import pyplot as plt
from measures import f1, measure
from methods import explainer_of
from setting import Setting
from study import Case, Row, Study
from tables import all_counts, at, by_other_code, curve, figure, fit_cost, log_counts, number, sections, table

from sointer.inputs import InputFormat
from sointer.removal import make_removal

REMOVALS = ("zero", "blur", "mean")
METHODS = ("SOInter", "NearestPixels", "Random")
QUERY_BUDGET, N_RESIDUAL_STEPS = 15_000, 250


def cases(smoke: bool) -> Iterator[Case]:
    for removal in REMOVALS[:2] if smoke else REMOVALS:
        for method in METHODS:
            yield {"removal": removal, "method": method} | ({"quick": True} if smoke else {})


def run(removal: str, method: str, quick: bool = False) -> dict[str, Any]:
    # Black pixels are what the other studies fit with; for the others a smaller fit will do.
    less = {} if removal == "zero" else {"query_budget": QUERY_BUDGET, "n_residual_steps": N_RESIDUAL_STEPS}
    recipe = Recipe("unet", removal=removal, quick=quick, **less)
    explainer, costs = explainer_of(method, recipe)
    found = measure(explainer, recipe.setting.questions())
    return {
        "f1": found.f1("as fitted"),
        "f1_interval": found.f1_intervals("as fitted"),
        "fidelity": found.fidelity("as fitted"),
        "f1_of_nothing": round(f1_of_nothing(recipe.setting, removal), 4),
        "fit": costs,
    }


def f1_of_nothing(setting: Setting, removal: str) -> float:
    """F1 when all pixels are removed: what the removal itself gives away."""
    questions, read = setting.questions(), InputFormat.infer(setting.train)
    rng = np.random.default_rng(0)
    rows = read.encode(setting.test, caller="study")
    absent = make_removal(removal, read.encode(setting.train, caller="study"), read, rng)
    masks = setting.ask(read.decode(absent.apply(rows, np.zeros(rows.shape, dtype=bool), rng)))
    return f1(questions.said, masks[questions.image, questions.pixel[:, 0], questions.pixel[:, 1]])


# --- the page ----------------------------------------------------------------------------------------------


def page(rows: list[Row], images: Path) -> str:
    draw(rows, images / "horses-removal.png")
    return sections(
        "## Fitted with another removal\n\nWhat stands in for removed pixels can be chosen: black (`zero`), a blurred "
        "copy of the image (`blur`), or the mean image (`mean`). Each was fitted, and judged, with its own; others "
        f"than black with fewer queries ({QUERY_BUDGET:,}) and steps ({N_RESIDUAL_STEPS}) than by default"
        f"{by_other_code(rows)}. A blurred image may still show where the horse is: K = 0 says how many answers the "
        "black box repeats before a single pixel is kept.",
        figure(
            images,
            "horses-removal.png",
            "F1 for three ways to remove pixels. Dotted black line: the F1 when nothing at all is kept, which is what "
            "the removal itself gives away; only what is above it was explained.",
        ),
        table_of(rows),
        costs(rows),
    )


def pick(rows: list[Row], removal: str) -> dict[str, Row]:
    return {m: row for m in METHODS for row in rows if row["removal"] == removal and row["method"] == m}


def table_of(rows: list[Row]) -> str:
    ks = all_counts(rows)
    lines = [["removal", "method", "K = 0", *(f"K = {k}" for k in ks)]]
    for removal in REMOVALS:
        for method, row in pick(rows, removal).items():
            values = [number(at(row["f1"], k), 3) for k in ks]
            lines.append([removal, method, number(row["f1_of_nothing"], 3), *values])
    return table(lines)


def costs(rows: list[Row]) -> str:
    told = [f"{row['removal']}: {fit_cost(row['fit'])}" for row in rows if row["fit"] is not None]
    return "Fits: " + "; ".join(told) + "." if told else ""


def draw(rows: list[Row], path: Path) -> None:
    drawn, axes = plt.subplots(1, len(REMOVALS), figsize=(11.5, 3.4), layout="constrained", sharey=True)
    for ax, removal in zip(axes, REMOVALS, strict=True):
        own = pick(rows, removal)
        for method, row in own.items():
            curve(ax, row["f1"], method, row["f1_interval"])
        if own:
            nothing = next(iter(own.values()))["f1_of_nothing"]
            ax.axhline(nothing, color="black", linestyle=":", linewidth=1, label="nothing kept")
            log_counts(ax, all_counts(own.values()))
        ax.set(title=removal, ylim=(0, 1.02))
    axes[0].set_ylabel("relative F1")
    legend_below(drawn, next((ax for ax in axes if ax.lines), axes[0]), 4)
    finish(drawn, path)
    plt.close(drawn)


STUDY = Study("removal", cases, run, page)
