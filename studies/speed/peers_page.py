"""The section on the costs of SOInter and of other packages, side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from studies.frame.drawing import finish, legend_below
from studies.frame.markdown import count, duration, figure, sections, table, times
from studies.frame.study import Row

SLOW = 0.010
"""Seconds that the made-up slow black box takes for a row."""
MANY = 10_000
ALONE = "black box alone"
Results = dict[str, Row]
"""The rows of one black box by method."""

STYLES: dict[str, dict[str, Any]] = {
    "SOInter": {"color": "#d55e00", "marker": "o", "linewidth": 2.8, "zorder": 5},
    "L2X": {"color": "#3c9fd6", "marker": "X"},
    "shap KernelExplainer": {"color": "#cc79a7", "marker": "D"},
    "shap PermutationExplainer": {"color": "#cc79a7", "marker": "d", "linestyle": "--"},
    "lime": {"color": "#b8860b", "marker": "v"},
    "shapiq KernelSHAP": {"color": "#7a5195", "marker": "s"},
    "captum KernelShap": {"color": "#009e73", "marker": "^", "linestyle": ":"},
    "captum Lime": {"color": "#009e73", "marker": ">", "linestyle": ":"},
    "captum FeatureAblation": {"color": "#009e73", "marker": "<", "linestyle": "-."},
    "captum KernelShap, 1,000 samples": {"color": "#009e73", "marker": "^"},
    "captum Lime, 1,000 samples": {"color": "#009e73", "marker": ">"},
    "our KernelShap": {"color": "#777777", "marker": "D"},
    "our Lime": {"color": "#777777", "marker": "v"},
}


def page(rows: list[Row], images: Path) -> str:
    found = by_black_box(rows)
    complete = {title: results for title, results in found.items() if "SOInter" in results}
    if not complete:
        return ""
    draw_totals(complete, images / "bench-peers.png")
    draw_ratios(complete, images / "bench-ratios.png")
    return sections(
        "## Against other packages",
        figure(
            images,
            "bench-peers.png",
            "Total time, including training, against the number of explanations. After training, SOInter's "
            "explanations cost almost nothing; most other methods query the black box for every row.",
        ),
        figure(
            images,
            "bench-ratios.png",
            f"Time of other methods for {MANY:,} explanations as a multiple of SOInter's, its training not counted "
            "(left) and counted (right).",
        ),
        f"### {MANY:,} explanations, time as a multiple of SOInter's",
        "Training not counted / counted.",
        ratio_table(complete),
        "### All outputs of one row, time as a multiple of SOInter's",
        "Training not counted.",
        outputs_table(complete),
        *(part for title, results in complete.items() for part in one_black_box(title, results)),
    )


# --- from results to costs ---------------------------------------------------------------------------------


def by_black_box(rows: Iterable[Row]) -> dict[str, Results]:
    """The results by the titles of the black boxes; one more, that is slow, by arithmetic."""
    found: dict[str, Results] = {}
    for row in rows:
        found.setdefault(row["title"], {})[row["method"]] = row
    first = next((row["title"] for row in rows if row["black_box"] == "e1-20"), None)
    if first is not None:
        found[f"{first}, 10 ms per row"] = {
            method: slowed(row) for method, row in found[first].items() if method != ALONE
        }
    return found


def slowed(row: Row) -> Row:
    """What it would have cost had the black box taken 10 ms for every row: its own time replaced."""

    def replaced(cost: dict[str, float]) -> dict[str, float]:
        asking = SLOW * cost["queries"]
        return {**cost, "seconds": cost["seconds"] - cost["inside"] + asking, "inside": asking}

    costs = {name: replaced(row[name]) for name in ("fit", "each", "all_outputs")}
    if "explained" in row:
        costs["explained"] = {n: replaced(cost) for n, cost in row["explained"].items()}
    return {**row, **costs}


def explaining(row: Row, n: int) -> float:
    """Seconds for n explanations, training not counted: as measured, or scaled up."""
    measured = row.get("explained", {}).get(str(n))
    return float(measured["seconds"] if measured else n * row["each"]["seconds"])


def total(row: Row, n: int) -> float:
    return float(row["fit"]["seconds"]) + explaining(row, n)


def ratio(results: Results, method: str, n: int = MANY, *, with_fit: bool = False) -> float:
    cost = total if with_fit else explaining
    return cost(results[method], n) / cost(results["SOInter"], n)


def pays_off(ours: Row, other: Row, name: str) -> float:
    """Explanations after which SOInter has cost less, in `seconds` or `queries`."""
    saved = other["each"][name] - ours["each"][name]
    spent = ours["fit"][name] - other["fit"][name]
    if saved > 0:
        return max(1.0, math.ceil(spent / saved))
    return 1.0 if saved == 0 and spent <= 0 else math.inf


def baselines(results: Results) -> list[str]:
    return [method for method in STYLES if method in results and method != "SOInter"]


# --- tables ------------------------------------------------------------------------------------------------


def ratio_table(found: dict[str, Results]) -> str:
    def cell(results: Results, method: str) -> str:
        return f"**{times(ratio(results, method))}** / {times(ratio(results, method, with_fit=True))}"

    return by_method(found, cell)


def outputs_table(found: dict[str, Results]) -> str:
    def cell(results: Results, method: str) -> str:
        other, ours = (results[one]["all_outputs"]["seconds"] for one in (method, "SOInter"))
        return times(other / ours)

    titles = {f"{title}: {results['SOInter']['n_outputs']:,} outputs": results for title, results in found.items()}
    return by_method(titles, cell)


def by_method(found: dict[str, Results], cell: Callable[[Results, str], str]) -> str:
    """A line for every method, a column for every black box."""
    methods = [method for method in STYLES if any(method in baselines(results) for results in found.values())]
    body = [[method, *(cell(one, method) if method in one else "–" for one in found.values())] for method in methods]
    return table(["", *found], body)


def one_black_box(title: str, results: Results) -> list[str]:
    knows = any("exact" in row for row in results.values())
    n_outputs = results["SOInter"]["n_outputs"]
    head = ["method", "training", "1 explanation", "100", f"{MANY:,}", f"all {n_outputs:,} outputs of a row"]
    head += ["queries: training", "each explanation", "all outputs", "SOInter pays off after: by time / by queries"]
    lines = [[*head, "peak memory, GB", "rows timed", *(["exactly the right features"] if knows else [])]]
    lines += [line(results, method, knows) for method in ("SOInter", *baselines(results))]
    return [f"### {title}", table(lines[0], lines[1:]), limits(results)]


def line(results: Results, method: str, knows: bool) -> list[str]:
    row, ours = results[method], results["SOInter"]
    cells = [
        f"**{method}**" if method == "SOInter" else method,
        "none" if row["fit"]["seconds"] < 1e-3 else duration(row["fit"]["seconds"]),
    ]
    cells += [duration(explaining(row, n)) for n in (1, 100, MANY)]
    cells += [duration(row["all_outputs"]["seconds"]), count(row["fit"]["queries"]), count(row["each"]["queries"])]
    cells += [count(row["all_outputs"]["queries"])]
    after = [pays_off(ours, row, name) for name in ("seconds", "queries")]
    cells.append("" if method == "SOInter" else " / ".join("never" if math.isinf(n) else count(n) for n in after))
    cells += [f"{row['peak_gigabytes']:.2f}", f"{row['n_timed']:,}"]
    return cells + ([f"{row['exact']:.0%}" if "exact" in row else "–"] if knows else [])


def limits(results: Results) -> str:
    """The physical limits: the bare forward pass, and the bare black-box calls."""
    ours, alone = results["SOInter"], results.get(ALONE)
    parts = []
    if "bare" in ours:
        bare, mine = ours["bare"]["seconds"], ours["each"]["seconds"]
        parts.append(
            f"One explanation takes {duration(mine)}; the interpreter's forward pass alone takes {duration(bare)}."
        )
    if alone is not None:
        single, batch = (alone["calls"][name]["seconds"] for name in ("single", "batch"))
        asking = ours["fit"]["queries"] * batch
        parts.append(
            f"The black box alone takes {duration(batch)} per row in batches of 1,024 ({duration(single)} for a "
            f"single row), so SOInter's training queries cost at least {duration(asking)}; a process that only loads "
            f"and calls it uses {alone['peak_gigabytes']:.2f} GB."
        )
    return " ".join(parts)


# --- figures -----------------------------------------------------------------------------------------------


def draw_totals(found: dict[str, Results], path: Path) -> None:
    n_columns = min(3, len(found))
    n_lines = math.ceil(len(found) / n_columns)
    size = (4.3 * n_columns, 3.4 * n_lines)
    drawing, axes = plt.subplots(n_lines, n_columns, figsize=size, layout="constrained", squeeze=False)
    n = np.logspace(0, 6, 61)
    for ax, (title, results) in zip(axes.flat, found.items(), strict=False):
        for method in ("SOInter", *baselines(results)):
            row, style = results[method], STYLES[method]
            seconds = row["fit"]["seconds"] + n * row["each"]["seconds"]
            ax.plot(n, seconds, label=method, markevery=(5, 20), markersize=5, **style)
        ax.set(xscale="log", yscale="log", title=title, xlabel="explanations", ylabel="time, training included")
        unit_ticks(ax)
    for ax in axes.flat[len(found) :]:
        ax.set_visible(False)
    handles = {label: handle for ax in axes.flat for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    legend = {method: handles[method] for method in STYLES if method in handles}
    drawing.legend(legend.values(), legend, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=4, frameon=False)
    finish(drawing, path)


def unit_ticks(ax: Any) -> None:
    low, high = ax.get_ylim()
    units = {1e-3: "1 ms", 1e-2: "10 ms", 0.1: "0.1 s", 1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h"}
    units |= {36_000: "10 h", 86_400 * 4: "4 days", 86_400 * 30: "1 month", 86_400 * 365: "1 year"}
    units |= {86_400 * 3650: "10 years", 86_400 * 36_500: "100 years"}
    shown = {at: name for at, name in units.items() if low <= at <= high}
    ax.set_yticks(list(shown), list(shown.values()))
    ax.minorticks_off()


def draw_ratios(found: dict[str, Results], path: Path) -> None:
    methods = [method for method in STYLES if any(method in baselines(results) for results in found.values())][::-1]
    size = (11, 0.6 + 0.36 * len(methods))
    drawing, axes = plt.subplots(1, 2, figsize=size, layout="constrained", sharey=True)
    colours = ("#3c9fd6", "#0072b2", "#b8860b", "#009e73", "#d55e00")
    for ax, with_fit in zip(axes, (False, True), strict=True):
        for i, (title, results) in enumerate(found.items()):
            at = [y for y, method in enumerate(methods) if method in results]
            ratios = [ratio(results, methods[y], with_fit=with_fit) for y in at]
            ax.scatter(ratios, at, label=title, color=colours[i % len(colours)], s=36, zorder=3)
        ax.axvline(1, color="#555555", linewidth=1)
        ax.set(xscale="log", xlabel=f"times SOInter's time, training {'' if with_fit else 'not '}counted")
        ax.set_yticks(range(len(methods)), methods)
    legend_below(drawing, axes[0])
    finish(drawing, path)
