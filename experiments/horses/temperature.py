"""tau, the temperature at which the interpreter learns to choose: how much hangs on it?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
from drawing import finish
from explainers import Recipe, fitted
from matplotlib import pyplot as plt
from measures import measure
from study import Case, Row, Study
from tables import all_counts, at, figure, number, sections, table

TEMPERATURES = (0.03, 0.1, 0.3, 1.0, 3.0)
USUAL = 1.0
QUERY_BUDGET, N_RESIDUAL_STEPS = 15_000, 250
"""Less than by default, for it is fitted five times."""


def cases(smoke: bool) -> Iterator[Case]:
    for temperature in (1.0,) if smoke else TEMPERATURES:
        yield {"temperature": temperature} | ({"quick": True} if smoke else {})


def run(temperature: float, quick: bool = False) -> dict[str, Any]:
    recipe = Recipe(temperature=temperature, query_budget=QUERY_BUDGET, n_residual_steps=N_RESIDUAL_STEPS, quick=quick)
    explainer, costs = fitted(recipe)
    found = measure(explainer, recipe.setting.questions())
    return {
        "f1": found.f1("as fitted"),
        "f1_interval": found.f1_intervals("as fitted"),
        "fidelity": found.fidelity("as fitted"),
        "fit": costs,
    }


# --- the page ----------------------------------------------------------------------------------------------


def page(rows: list[Row], images: Path) -> str:
    rows = sorted(rows, key=lambda row: row["temperature"])
    draw(rows, images / "horses-temperature.png")
    return sections(
        "## Temperature\n\nWhile the interpreter learns, its choice of pixels is softened by a temperature tau: small "
        "values choose all but hard, large ones blur the choice. Fitted on the U-Net with fewer questions "
        f"({QUERY_BUDGET:,}) and steps ({N_RESIDUAL_STEPS}) than by default, so these values are not to be "
        "compared with those above. They were seen before the default was chosen, between 0.3 and 1 and by the 40 "
        "validation images, so what is reported here is not quite blind to that choice.",
        figure(
            images,
            "horses-temperature.png",
            f"F1 against tau, one line for each number of pixels. Dotted: the default, {USUAL:g}. The flatter the "
            "lines, the less hangs on the choice.",
        ),
        verdict(rows),
        table_of(rows),
    )


def verdict(rows: list[Row]) -> str:
    told = []
    for k in all_counts(rows):
        best = max(rows, key=lambda row: at(row["f1"], k))
        worst = min(rows, key=lambda row: at(row["f1"], k))
        told.append(
            f"K = {k}: best {number(at(best['f1'], k), 3)} (tau {best['temperature']:g}), "
            f"worst {number(at(worst['f1'], k), 3)} (tau {worst['temperature']:g})"
        )
    return "; ".join(told) + "."


def table_of(rows: list[Row]) -> str:
    ks = all_counts(rows)
    lines = [["tau", *(f"F1, K = {k}" for k in ks), "fit, CPU minutes"]]
    for row in rows:
        values = [number(at(row["f1"], k), 3) for k in ks]
        lines.append([f"{row['temperature']:g}", *values, f"{row['fit']['cpu_seconds'] / 60:.1f}"])
    return table(lines)


def draw(rows: list[Row], path: Path) -> None:
    drawn, ax = plt.subplots(figsize=(5.6, 3.6), layout="constrained")
    ks, taus = all_counts(rows), [row["temperature"] for row in rows]
    colours = mpl.colormaps["viridis"]
    for place, k in enumerate(ks):
        colour = colours(0.9 * place / max(len(ks) - 1, 1))
        ax.plot(taus, [at(row["f1"], k) for row in rows], marker="o", color=colour, label=f"K = {k}")
    ax.axvline(USUAL, color="black", linestyle=":", linewidth=1)
    ax.set_xscale("log")
    ax.set_xticks(taus, [f"{tau:g}" for tau in taus])
    ax.minorticks_off()
    ax.set(xlabel="temperature tau", ylabel="relative F1", ylim=(0, 1.02))
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    finish(drawn, path)
    plt.close(drawn)


STUDY = Study("temperature", cases, run, page)
