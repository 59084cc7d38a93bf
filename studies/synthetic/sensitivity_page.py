"""The page of the study of sensitivity: curves for every setting, k, and both readings of the temperature."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from studies.frame.drawing import band, finish, interval, legend_below, seeds
from studies.frame.study import Row

PROBLEMS = {
    "S-1-5": ("e1", 5),
    "S-1-20": ("e1", 20),
    "S-2-5": ("e2", 5),
    "S-2-20": ("e2", 20),
    "xor of two outputs": ("mediated_xor", 20),
    "chain of 3 outputs": ("mediated_chain_3", 20),
}
LAYERS = ((50,), (150,), (50, 50), (150, 150), (300, 300), (150, 150, 150))
DEFAULTS = {"budget": 5000, "n_rows": 2000, "layers": [150, 150]}
"""What the default setting is, which is run once for all ("nothing" is varied)."""
COLOURS = ("#0072b2", "#56b4e9", "#d55e00", "#e69f00", "#009e73", "#cc79a7")
STYLES = {name: {"color": c, "marker": m} for (name, c, m) in zip(PROBLEMS, COLOURS, "osv^DX", strict=True)}
AXES = {
    "budget": "black-box rows in fit",
    "n_rows": "rows of data",
    "layers": "layers of F",
    "temperature, paper preset": "temperature, paper preset",
}


def page(rows: list[Row], images: Path) -> str:
    draw_settings(rows, images / "sensitivity.png")
    draw_k(rows, images / "sensitivity-k.png")
    draw_readings(rows, images / "sensitivity-readings.png")
    n_seeds = seeds(seeds_per_cell(rows).values())
    return "\n".join(
        [
            "# How sensitive is SOInter to its settings?",
            "",
            "One setting is changed at a time; all others have their defaults. S-1-20 is the paper's energy E1 with 20",
            "features, S-2-5 is E2 with 5, and so on. In the last two problems, features affect the target only",
            f"through other outputs. Exact minimisers, {n_seeds} per point, 500 held-out",
            "rows, mean over all outputs of a problem. Made by `make reproduce-synthetic`.",
            "",
            "![Exact match against each setting](../images/sensitivity.png)",
            "",
            table(rows),
            "",
            "## k",
            "",
            "Fitted and explained with k features, from 1 to all of them. Left: the share of selected features that",
            "are relevant, which can be 1 as long as k does not exceed their number. Right: fidelity when only the",
            "selected features are kept.",
            "",
            "![Precision and fidelity against k](../images/sensitivity-k.png)",
            "",
            k_text(rows),
            "",
            "## The temperature, in both readings",
            "",
            "The paper divides by tau (eq. 14) and reports 10 or 100 as the best values. Division by 100 makes",
            "choices nearly uniform, so the reported values make sense only if tau is a factor, an inverse",
            "temperature. The same runs in both readings, paper preset:",
            "",
            "![Exact match and fidelity against tau](../images/sensitivity-readings.png)",
            "",
            readings_text(rows),
            "",
        ]
    )


def cells(rows: list[Row], varied: str, problem: str, measure: str) -> dict[Any, list[float]]:
    """Values of a measure, one per seed, by setting; the default setting counts for whatever is varied."""
    found: dict[Any, list[float]] = {}
    for row in rows:
        if row["problem"] != problem or row["varied"] not in (varied, "nothing"):
            continue
        value = row["value"]
        if varied == "k" and value == row["n_relevant"]:
            continue  # the default setting under another name
        if row["varied"] == "nothing":
            value = row["n_relevant"] if varied == "k" else DEFAULTS.get(varied)
        if value is not None:
            found.setdefault(tuple(value) if isinstance(value, list) else value, []).append(row[measure])
    return dict(sorted(found.items()))


def seeds_per_cell(rows: list[Row]) -> dict[tuple[Any, ...], int]:
    return Counter((row["varied"], row["problem"], str(row["value"])) for row in rows)


def draw_settings(rows: list[Row], path: Path) -> None:
    figure, axes = plt.subplots(1, len(AXES), figsize=(15, 3), sharey=True, layout="constrained")
    for ax, (varied, label) in zip(axes, AXES.items(), strict=True):
        for problem, style in STYLES.items():
            found = cells(rows, varied, problem, "exact_match")
            if varied == "layers":
                found = {LAYERS.index(widths): values for widths, values in found.items()}
            if found:
                band(ax, found, problem, style)
        if varied == "layers":
            ax.set_xticks(range(len(LAYERS)), ["x".join(map(str, w)) for w in LAYERS], rotation=45)
        else:
            ax.set_xscale("log")
        ax.set_xlabel(label)
    axes[0].set_ylabel("exact match")
    axes[0].set_ylim(-0.03, 1.05)
    legend_below(figure, max(axes, key=lambda ax: len(ax.lines)), columns=6)
    finish(figure, path)


def draw_k(rows: list[Row], path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(10, 3), layout="constrained")
    for ax, measure, label in zip(
        axes, ("precision", "fidelity"), ("relevant among selected", "fidelity"), strict=True
    ):
        for problem, style in STYLES.items():
            found = cells(rows, "k", problem, measure)
            if found:
                band(ax, found, problem, style)
        ax.set_xlabel("k")
        ax.set_ylabel(label)
    legend_below(figure, axes[0], columns=6)
    finish(figure, path)


def draw_readings(rows: list[Row], path: Path) -> None:
    """The same runs twice: tau as a divisor, and as a factor."""
    figure, axes = plt.subplots(1, 4, figsize=(14, 3), sharey=True, layout="constrained")
    views = [(measure, inverse) for measure in ("exact_match", "fidelity") for inverse in (False, True)]
    for ax, (measure, inverse) in zip(axes, views, strict=True):
        for problem, style in STYLES.items():
            found = cells(rows, "temperature, paper preset", problem, measure)
            if found:
                band(ax, {1 / tau if inverse else tau: values for tau, values in found.items()}, problem, style)
        ax.set_xscale("log")
        ax.set_xlabel("tau, multiplied" if inverse else "tau, divided (eq. 14)")
        ax.set_title(measure.replace("_", " "))
    axes[0].set_ylim(-0.03, 1.05)
    legend_below(figure, axes[0], columns=6)
    finish(figure, path)


def table(rows: list[Row]) -> str:
    """Every setting's mean exact match over the six problems, and the worst problem."""
    lines = ["| setting | value | exact match, mean over problems | worst problem |", "|---|---|---|---|"]
    for varied in AXES:
        found = {problem: cells(rows, varied, problem, "exact_match") for problem in PROBLEMS}
        for value in dict.fromkeys(value for of_problem in found.values() for value in of_problem):
            means = {problem: np.mean(v[value]) for problem, v in found.items() if value in v}
            worst = min(means, key=lambda problem: means[problem])
            which = "all alike" if len(set(means.values())) == 1 else f"{worst}: {means[worst]:.3f}"
            shown = "x".join(map(str, value)) if isinstance(value, tuple) else f"{value:g}"
            lines.append(f"| {AXES[varied]} | {shown} | {np.mean(list(means.values())):.3f} | {which} |")
    return "\n".join(lines)


def k_text(rows: list[Row]) -> str:
    chosen = [row for row in rows if row["varied"] == "k"]
    if not chosen:
        return ""
    few = [row["precision"] for row in chosen if row["value"] < row["n_relevant"]]
    enough = [row["recall"] for row in chosen if row["value"] > row["n_relevant"]]
    kept = [row["fidelity"] for row in chosen if row["value"] > row["n_relevant"]]
    return (
        f"With k below the number of relevant features, {mean(few)} of the selected features are relevant; with k "
        f"above that number, {mean(enough)} of the relevant features are selected and fidelity is {mean(kept)}. When "
        'in doubt, choose k too large; `k="auto"` chooses it for each row.'
    )


def readings_text(rows: list[Row]) -> str:
    lines = []
    for problem in PROBLEMS:
        found = cells(rows, "temperature, paper preset", problem, "fidelity")
        if found:
            best = max(found, key=lambda tau: np.mean(found[tau]))
            exact = cells(rows, "temperature, paper preset", problem, "exact_match")
            lines.append(
                f"- {problem}: fidelity is best at tau = {best:g} divided ({1 / best:g} multiplied), "
                f"{interval(found[best])}; the best exact match at any tau is "
                f"{max(float(np.mean(values)) for values in exact.values()):.2f}."
            )
    return "\n".join(lines)


def mean(values: list[float]) -> str:
    return f"{np.mean(values):.3f}" if values else "-"
