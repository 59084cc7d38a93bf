"""The figures of the study of mediated effects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from sointer.metrics import mean_interval
from studies.frame.drawing import METHODS
from studies.frame.study import Row

INK, GREY, FAINT = "#222222", "#9a9a9a", "#d9d9d9"
STYLES: dict[str, dict[str, Any]] = {
    **{name: METHODS[name] for name in ("SOInter-1", "ShapleySampling", "KernelShap", "Lime", "L2X")},
    "SOInter": {**METHODS["SOInter"], "linewidth": 3.2, "markersize": 9, "zorder": 3},
}
PER_ROW = ("ShapleySampling", "KernelShap", "Lime")
PER_ROW_BUDGET = 100_000
LOWEST, HIGHEST = -0.03, 1.03


def values(rows: list[Row], along: str, **fixed: Any) -> dict[Any, list[float]]:
    """Exact match of all seeds at each value of one thing, the others fixed."""
    found: dict[Any, list[float]] = {}
    for row in rows:
        if all(row[name] == value for name, value in fixed.items()):
            found.setdefault(row[along], []).append(row["exact_match"])
    return dict(sorted(found.items()))


def plot(axes: Axes, found: dict[Any, list[float]], method: str, **changes: Any) -> None:
    """Means, with 95 % intervals over the seeds."""
    if not found:
        return
    style = {"linewidth": 2.0, "markersize": 6, "zorder": 4, **STYLES[method], **changes}
    x, intervals = list(found), [mean_interval(seeds) for seeds in found.values()]
    low = np.clip([one.low for one in intervals], 0, 1)
    high = np.clip([one.high for one in intervals], 0, 1)
    axes.fill_between(x, low, high, color=style["color"], alpha=0.13, linewidth=0, zorder=2)
    axes.plot(x, [one.mean for one in intervals], clip_on=False, label=method, **style)


def share_axis(axes: Axes) -> None:
    axes.set_ylim(LOWEST, HIGHEST)
    axes.yaxis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GREY)
    axes.tick_params(length=0, labelsize=12, colors=INK)


# --- the README's figure ---------------------------------------------------------------------------------


def draw_readme(rows: list[Row], path: Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 5.1), width_ratios=(1.0, 1.3), facecolor="white")
    draw_problem(left)
    found = {name: values(rows, "budget", problem="outputs", size=5, method=name) for name in reversed(STYLES)}
    found = {name: one for name, one in found.items() if one}
    for name, one in found.items():
        plot(right, one, name)
    label_lines(right, found)
    share_axis(right)
    right.set_xscale("log")
    right.set_xlim(400, 130_000)
    right.xaxis.set_minor_locator(NullLocator())
    right.xaxis.set_major_locator(FixedLocator(sorted({budget for one in found.values() for budget in one})))
    right.xaxis.set_major_formatter(FuncFormatter(lambda budget, _: thousands(budget)))
    right.set_xlabel("total queries, to explain 100 samples", fontsize=13, color=INK, labelpad=8)
    for axes, question, answer in (
        (left, "Four of 20 features decide the target,", "through other outputs of the model."),
        (right, "How often are exactly those four found?", "Share of rows, at equal cost for every method."),
    ):
        axes.text(0, 1.19, question, transform=axes.transAxes, fontsize=15.5, color=INK, weight="bold")
        axes.text(0, 1.12, answer, transform=axes.transAxes, fontsize=13.5, color="#555555")
    figure.subplots_adjust(left=0.02, right=0.955, top=0.79, bottom=0.155, wspace=0.14)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def thousands(budget: float) -> str:
    short = f"{budget / 1000:g}k" if budget >= 1000 else f"{budget:g}"
    return f"{short}\n1,000 per row" if budget == PER_ROW_BUDGET else short


def label_lines(axes: Axes, found: dict[str, dict[Any, list[float]]]) -> None:
    """Beside each line where it climbs past one half; at its end where it never does."""
    flat: dict[float, list[tuple[float, str]]] = {}
    for method, one in found.items():
        x, y = np.log10(list(one)), np.array([np.mean(seeds) for seeds in one.values()])
        first = int(np.argmax(y >= 0.5))
        if method == "SOInter":
            top = int(np.argmax(y))
            label(axes, method, 10 ** x[top], y[top], (-4, 11), "left", fontsize=18, weight="bold")
        elif y[first] >= 0.5 and first > 0:
            between = np.interp(0.5, y[first - 1 : first + 1], x[first - 1 : first + 1])
            label(axes, method, 10**between, 0.5, (11, 6), "left")
        else:
            flat.setdefault(10 ** x[-1], []).append((y[-1], method))
    for x_end, ends in flat.items():
        for y_end, method in ends:
            is_lower = len(ends) > 1 and y_end == min(ends)[0] > 0.06
            label(axes, method, x_end, y_end, (4, -19 if is_lower else 9), "right")


def label(axes: Axes, method: str, x: float, y: float, offset: Any, side: str, **changes: Any) -> None:
    style = {"fontsize": 13, "color": STYLES[method]["color"], "ha": side, "zorder": 8, **changes}
    axes.annotate(method, (x, y), xytext=offset, textcoords="offset points", annotation_clip=False, **style)


def draw_problem(axes: Axes) -> None:
    """Four features, two outputs between them and the target, and all that distracts."""
    axes.set_xlim(0, 10)
    axes.set_ylim(0, 10)
    axes.axis("off")
    strong = STYLES["SOInter"]["color"]
    features = [(0.5, y) for y in (9.5, 8.1, 6.1, 4.7)]
    mediators, target, unrelated = [(4.8, 8.8), (4.8, 5.4)], (8.8, 7.1), [(4.8, 2.3), (4.8, 0.7)]
    grey = [(0.3 + 0.5 * (i % 4), 2.7 - 0.75 * (i // 4)) for i in range(16)]
    for i, (x, y) in enumerate(features):
        mediator = mediators[i // 2]
        arrow(axes, (x + 0.5, y), (mediator[0] - 1.75, mediator[1] + (0.25 if i % 2 == 0 else -0.25)), strong)
    for (x, y), side in zip(mediators, (0.35, -0.35), strict=True):
        arrow(axes, (x + 1.7, y), (target[0] - 1.2, target[1] + side), strong)
    for place, (x, y) in ((3, unrelated[0]), (7, unrelated[0]), (11, unrelated[1]), (15, unrelated[1])):
        arrow(axes, (grey[place][0] + 0.2, grey[place][1]), (x - 1.75, y), FAINT, width=1.2)
    axes.scatter(*zip(*features, strict=True), s=900, color=strong, linewidths=0, zorder=3, clip_on=False)
    axes.scatter(*zip(*grey, strict=True), s=95, color=FAINT, linewidths=0, zorder=3, clip_on=False)
    for i, place in enumerate(features):
        axes.text(*place, f"$x_{i}$", color="white", fontsize=15, ha="center", va="center_baseline", zorder=4)
    box(axes, mediators[0], "$y_0 = [x_0 + x_1 > 0]$", INK, INK, "white")
    box(axes, mediators[1], "$y_1 = [x_2 \\cdot x_3 > 0]$", INK, INK, "white")
    for place in unrelated:
        box(axes, place, "another output", "white", FAINT, GREY)
    box(axes, target, "target\n$y_0$ xor $y_1$", strong, strong, "white", size=(2.2, 1.9))
    axes.text(0.05, -0.75, "16 other features", color=GREY, fontsize=12, ha="left", va="center")


def box(
    axes: Axes, place: tuple[float, float], text: str, face: str, edge: str, ink: str, size: Any = (3.4, 1.25)
) -> None:
    width, height = size
    pad = 0.1
    corner = (place[0] - width / 2 + pad, place[1] - height / 2 + pad)
    shape = f"round,pad={pad},rounding_size=0.25"
    inner = (width - 2 * pad, height - 2 * pad)
    axes.add_patch(FancyBboxPatch(corner, *inner, boxstyle=shape, facecolor=face, edgecolor=edge, lw=1.4, zorder=3))
    axes.text(*place, text, color=ink, fontsize=12.5, ha="center", va="center", zorder=4, linespacing=1.4)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], color: str, *, width: float = 2.3) -> None:
    style = {"arrowstyle": "-|>", "mutation_scale": 6.5 * width, "linewidth": width, "color": color}
    axes.add_patch(FancyArrowPatch(start, end, shrinkA=0, shrinkB=0, zorder=2, clip_on=False, **style))


# --- the figures of the page -----------------------------------------------------------------------------


def draw_outputs(rows: list[Row], path: Path) -> None:
    """Against the number of outputs: all with the same budget, and per-row methods with their usual one."""
    draw_panels(
        rows, path, "outputs", "outputs", [("all methods: 2,000 queries", 2_000, 2_000), (usual(2_000), 2_000, None)]
    )


def draw_chains(rows: list[Row], path: Path) -> None:
    """Against the length of the chain, likewise."""
    panels = [
        ("all methods: 2,000 queries", 2_000, 2_000),
        ("all methods: 5,000 queries", 5_000, 5_000),
        (usual(5_000), 5_000, None),
    ]
    draw_panels(rows, path, "chain", "links in the chain", panels)


def usual(budget: int) -> str:
    return f"methods that query per sample: 1,000 each,\n{PER_ROW_BUDGET:,} in total; others: {budget:,}"


def draw_panels(
    rows: list[Row], path: Path, problem: str, label: str, panels: list[tuple[str, int, int | None]]
) -> None:
    figure, all_axes = plt.subplots(1, len(panels), figsize=(4.3 * len(panels) + 0.6, 4.4), sharey=True)
    for axes, (title, learned, per_row) in zip(all_axes, panels, strict=True):
        for method in reversed(STYLES):
            budget = (per_row or PER_ROW_BUDGET) if method in PER_ROW else learned
            found = values(rows, "size", problem=problem, method=method, budget=budget)
            plot(axes, found, method)
        share_axis(axes)
        sizes = sorted({row["size"] for row in rows if row["problem"] == problem})
        axes.xaxis.set_major_locator(FixedLocator(sizes))
        axes.set_xlabel(label, fontsize=12, color=INK)
        axes.set_title(title, fontsize=12, color=INK, pad=10)
    all_axes[0].set_ylabel("exact match", fontsize=12, color=INK)
    handles = {name: line for axes in all_axes for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    names = [name for name in STYLES if name in handles]
    figure.legend([handles[n] for n in names], names, loc="lower center", ncols=6, frameon=False, fontsize=11)
    figure.tight_layout(rect=(0, 0.09, 1, 1), w_pad=2)
    figure.savefig(path, dpi=130)
    plt.close(figure)
