"""Sixteen times as many pixels: 128 by 128, explained by patches and by superpixels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drawing import finish, legend_below
from explainers import N_SUPERPIXELS, PATCH, Recipe
from matplotlib import pyplot as plt
from measures import measure
from methods import explainer_of
from pictures import draw_rows, examples
from setting import pictures
from study import Case, Row, Study
from tables import all_counts, at, by_other_code, curve, figure, fit_cost, log_counts, number, sections, table

GROUPS = {"patches": f"patches of {PATCH} by {PATCH} pixels", "superpixels": f"at most {N_SUPERPIXELS} superpixels"}
METHODS = ("SOInter", "NearestPixels", "Random")
KS = (1, 2, 4, 8, 16, 32)
PART, K_TRAINED, K_EXAMPLES = 100, 8, 8


def cases(smoke: bool) -> Iterator[Case]:
    for groups in GROUPS:
        for method in METHODS:
            yield {"groups": groups, "method": method} | ({"quick": True} if smoke else {})


def run(groups: str, method: str, quick: bool = False) -> dict[str, Any]:
    recipe = Recipe("unet", 128, K_TRAINED, groups=groups, quick=quick)
    explainer, costs = explainer_of(method, recipe)
    questions = recipe.setting.questions()
    found = measure(explainer, questions, KS, part=PART)
    result: dict[str, Any] = {
        "iou": round(recipe.setting.iou(), 4),
        "n_pairs": len(questions),
        "n_units": explainer.groups_.n_units,
        "n_targets": explainer.n_outputs_,
        "f1": found.f1("as fitted"),
        "f1_interval": found.f1_intervals("as fitted"),
        "fidelity": found.fidelity("as fitted"),
        "fit": costs,
    }
    if costs is not None:
        result["examples"] = examples(explainer, recipe.setting, K_EXAMPLES)
    return result


# --- the page ----------------------------------------------------------------------------------------------


def page(rows: list[Row], images: Path) -> str:
    draw(rows, images / "horses-scale.png")
    shown = {GROUPS[g]: row["examples"] for g in GROUPS for row in pick(rows, g).values() if "examples" in row}
    parts = [
        f"## Larger images\n\nHorses of 128 by 128 pixels, a U-Net (IoU {rows[0]['iou']:.3f}), "
        f"{rows[0]['n_targets']:,} targets in one fit{by_other_code(rows)}. Not single pixels "
        "but units are kept or made black: patches of "
        "a grid, or superpixels, which follow the edges of each image. "
        f"{rows[0]['n_pairs']:,} random pixels of test images.",
        figure(
            images,
            "horses-scale.png",
            "F1 against the number of units kept. Left: patches. Right: superpixels. NearestPixels takes the units "
            "nearest to the target, its own first.",
        ),
        table_of(rows),
        costs(rows),
    ]
    if shown:
        quick = any(row.get("quick") for row in rows)
        draw_rows(shown, pictures("test", 128, quick)[0], images / "horses-scale-examples.png")
        parts.append(
            figure(
                images,
                "horses-scale-examples.png",
                f"The {K_EXAMPLES} units that SOInter selects (green) for one pixel (in the middle of the red square) "
                "of test images. Above: patches. Below: superpixels of the same images for the same pixels. Last row: "
                "the black box's masks.",
            )
        )
    return sections(*parts)


def pick(rows: list[Row], groups: str) -> dict[str, Row]:
    return {m: row for m in METHODS for row in rows if row["groups"] == groups and row["method"] == m}


def table_of(rows: list[Row]) -> str:
    ks = all_counts(rows)
    lines = [["units", "method", *(f"F1, K = {k}" for k in ks)]]
    for groups, name in GROUPS.items():
        for method, row in pick(rows, groups).items():
            lines.append([name, method, *(number(at(row["f1"], k), 3) for k in ks)])
    return table(lines)


def costs(rows: list[Row]) -> str:
    told = [f"{GROUPS[row['groups']]}: {fit_cost(row['fit'])}" for row in rows if row["fit"] is not None]
    return f"Fits for all {rows[0]['n_targets']:,} targets: {'; '.join(told)}." if told else ""


def draw(rows: list[Row], path: Path) -> None:
    drawn, axes = plt.subplots(1, len(GROUPS), figsize=(9.5, 3.5), layout="constrained", sharey=True)
    for ax, (groups, name) in zip(axes, GROUPS.items(), strict=True):
        own = pick(rows, groups)
        for method, row in own.items():
            curve(ax, row["f1"], method, row["f1_interval"])
        if own:
            log_counts(ax, all_counts(own.values()), "selected units, K")
        ax.set(title=name, ylim=(0, 1.02))
    axes[0].set_ylabel("relative F1")
    legend_below(drawn, next((ax for ax in axes if ax.lines), axes[0]), 3)
    finish(drawn, path)
    plt.close(drawn)


STUDY = Study("scale", cases, run, page)
