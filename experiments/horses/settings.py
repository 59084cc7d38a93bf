"""Two settings of the interpreter's training: how much hangs on them, and how they were chosen."""

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

TRIED: dict[str, tuple[float, ...]] = {"temperature": (0.03, 0.1, 0.3, 1.0, 3.0), "learning_rate": (1e-3, 3e-3, 8e-3)}
USUAL = {"temperature": 1.0, "learning_rate": 3e-3}
NAMES = {"temperature": "temperature tau", "learning_rate": "learning rate"}
QUERY_BUDGET, N_RESIDUAL_STEPS = 15_000, 250
"""Less than by default, for it is fitted many times."""
K_DISTANCE = 30


def cases(smoke: bool) -> Iterator[Case]:
    for setting, values in TRIED.items():
        for value in values[-1:] if smoke else values:
            yield {"setting": setting, "value": value} | ({"quick": True} if smoke else {})


def run(setting: str, value: float, quick: bool = False) -> dict[str, Any]:
    changed = {**USUAL, setting: value}
    recipe = Recipe(
        **changed, query_budget=QUERY_BUDGET, n_residual_steps=N_RESIDUAL_STEPS, quick=quick, judged_by="validation"
    )
    explainer, costs = fitted(recipe)
    found = measure(explainer, recipe.setting.questions())
    return {
        "f1": found.f1("as fitted"),
        "f1_interval": found.f1_intervals("as fitted"),
        "fidelity": found.fidelity("as fitted"),
        "distance": found.distance([K_DISTANCE]),
        "fit": costs,
    }


# --- the page ----------------------------------------------------------------------------------------------


def page(rows: list[Row], images: Path) -> str:
    compared = [name for name in TRIED if sum(row["setting"] == name for row in rows) > 1] or list(TRIED)
    rows = [row for row in rows if row["setting"] in compared]
    rows.sort(key=lambda row: (compared.index(row["setting"]), row["value"]))
    draw(rows, images / "horses-settings.png")
    return sections(
        "## Temperature and learning rate\n\nWhile the interpreter learns, its choice of pixels is softened by a "
        "temperature tau: small values choose all but hard, large ones blur the choice. How fast it learns matters "
        "too. Both defaults were chosen by images that no other result here is about: the 40 validation images, "
        "explained by explainers that had seen the 160 training images only. So it is here, with a U-Net that has "
        f"seen no others either, and with fewer questions ({QUERY_BUDGET:,}) and steps ({N_RESIDUAL_STEPS}) than by "
        "default; these values are not to be compared with those above. Of two learning rates that did about as well "
        "in full fits, which are not kept, the one was taken whose selected pixels lay nearer to the target. (When tau "
        "was chosen, the U-Net knew the validation images; and that a larger tau might be better was first seen on "
        "test images.)",
        figure(
            images,
            "horses-settings.png",
            "F1 against the value of a setting, one line for each number of pixels. Dotted: the default. "
            "The flatter the lines, the less hangs on the choice.",
        ),
        table_of(rows),
    )


def table_of(rows: list[Row]) -> str:
    ks = all_counts(rows)
    lines = [["setting", "value", *(f"F1, K = {k}" for k in ks), f"distance of {K_DISTANCE}", "fit, CPU minutes"]]
    for row in rows:
        values = [number(at(row["f1"], k), 3) for k in ks]
        away, minutes = number(at(row["distance"], K_DISTANCE), 1), f"{row['fit']['cpu_seconds'] / 60:.1f}"
        lines.append([NAMES[row["setting"]], f"{row['value']:g}", *values, away, minutes])
    return table(lines)


def draw(rows: list[Row], path: Path) -> None:
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    size = (1.2 + 4 * len(settings), 3.6)
    drawn, panels = plt.subplots(1, len(settings), figsize=size, sharey=True, squeeze=False, layout="constrained")
    axes, ks, colours = panels[0], all_counts(rows), mpl.colormaps["viridis"]
    for ax, setting in zip(axes, settings, strict=True):
        own = [row for row in rows if row["setting"] == setting]
        values = [row["value"] for row in own]
        for place, k in enumerate(ks):
            colour = colours(0.9 * place / max(len(ks) - 1, 1))
            ax.plot(values, [at(row["f1"], k) for row in own], marker="o", color=colour, label=f"K = {k}")
        ax.axvline(USUAL[setting], color="black", linestyle=":", linewidth=1)
        ax.set_xscale("log")
        ax.set_xticks(values, [f"{value:g}" for value in values])
        ax.minorticks_off()
        ax.set(xlabel=NAMES[setting], ylim=(0, 1.02))
    axes[0].set_ylabel("relative F1")
    axes[-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    finish(drawn, path)
    plt.close(drawn)


STUDY = Study("settings", cases, run, page)
