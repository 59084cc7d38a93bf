"""How long do 10,000 explanations take, and after how many has training paid off?"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from studies.frame.drawing import METHODS, finish, legend_below
from studies.frame.study import Case, Row, Study
from studies.synthetic.accuracy import ROW_BY_ROW, make
from studies.synthetic.black_boxes import planted

SIZES = (5, 10, 15, 20, 50, 100, 500)
N_EXPLAINED = 10_000
N_TIMED = {"KernelShap, as packaged": 5, "Lime, as packaged": 20, "KernelShap": 40, "Lime": 40, "ShapleySampling": 40}
"""Rows on which methods that ask about every row are timed; 10,000 would take them hours."""
TIMED = tuple(method for method in METHODS if method != "Random")
BASELINES = ("KernelShap, as packaged", "KernelShap", "Lime, as packaged", "Lime")


def cases(smoke: bool) -> Iterator[Case]:
    if smoke:
        yield {"n_features": 5, "repeat": 0, "methods": ["SOInter", "KernelShap, as packaged", "Lime"], "budget": 300}
        return
    for repeat in range(3):
        for n in SIZES:
            variants = ("SOInter-1", "SOInter, paper preset") if n > 100 else ()  # which say nothing new and take long
            yield {"n_features": n, "repeat": repeat, "methods": [m for m in TIMED if m not in variants]}


def run(n_features: int, repeat: int, methods: list[str], budget: int | None = None) -> dict[str, Any]:
    """All methods one after the other in one process, on E1; a first small fit pays for what torch loads lazily."""
    problem = planted("e1", n_features, repeat)
    X = problem.sample(5000, random_state=repeat)
    X_new = problem.sample(N_EXPLAINED, random_state=10_000 + repeat)
    make("SOInter", planted("e1", 5, repeat), 4, repeat, budget=100).fit(X[:200, :5])
    timed = {}
    for method in methods:
        explainer = make(method, problem, 4, repeat, budget)
        started = time.perf_counter()
        explainer.fit(X if method == "L2X" else X[: 5000 if n_features >= 50 else 2000])
        fit_seconds = time.perf_counter() - started
        rows = X_new[: N_TIMED[method]] if method in ROW_BY_ROW else X_new
        explainer.explain(rows[:1], target=0)
        asked = explainer.n_explain_queries_
        started = time.perf_counter()
        explainer.explain(rows, target=0)
        seconds = time.perf_counter() - started
        timed[method] = {
            "fit_seconds": round(fit_seconds, 3),
            "fit_queries": int(getattr(explainer, "n_queries_", 0)),
            "seconds_per_row": seconds / len(rows),
            "queries_per_row": (explainer.n_explain_queries_ - asked) / len(rows),
            "n_timed": len(rows),
        }
    return {"timed": timed}


# --- the page ----------------------------------------------------------------------------------------------


def page(rows: list[Row], images: Path) -> str:
    draw(rows, images / "explaining-time.png")
    return "\n".join(
        [
            "# How long does it take to explain?",
            "",
            "E1, one output, exact minimiser. (It takes no time; with a real model, methods that query it for every",
            f"sample are slower still.) {runs(rows)} per size; within a run, all methods were timed in turn, in one",
            "process with one thread. Methods that query the model for every sample were timed on a few samples and",
            "scaled to 10,000. Made by `make reproduce-synthetic`.",
            "",
            "![Seconds for 10,000 explanations, and samples until training pays off](../images/explaining-time.png)",
            "",
            "Left: 10,000 explanations, training not counted (paper, appendix E). Middle: training. Right: the",
            "number of explained samples from which SOInter, including training, takes less time than a baseline.",
            "",
            speed_table(rows),
            "",
            "## When does training pay off?",
            "",
            "Number of samples from which SOInter, including training, costs less than the baseline: in seconds,",
            "with a black box that costs nothing, and in queries, which matter if the model is slow or charged for.",
            "",
            pay_off_table(rows),
            "",
        ]
    )


def runs(rows: list[Row]) -> str:
    counts = sorted(Counter(row["n_features"] for row in rows).values())
    return f"{counts[0]} to {counts[-1]} runs" if counts[0] < counts[-1] else f"{counts[0]} run(s)"


def values(rows: list[Row], n: int, method: str, name: str) -> list[float]:
    return [row["timed"][method][name] for row in rows if row["n_features"] == n and method in row["timed"]]


def sizes(rows: list[Row]) -> list[int]:
    return sorted({row["n_features"] for row in rows})


def pays_off(rows: list[Row], n: int, baseline: str) -> float:
    """Rows after which SOInter has cost less time: the median over runs, each compared within itself."""
    found = []
    for row in rows:
        if row["n_features"] == n and baseline in row["timed"] and "SOInter" in row["timed"]:
            ours, other = row["timed"]["SOInter"], row["timed"][baseline]
            saved = other["seconds_per_row"] - ours["seconds_per_row"]
            found.append(np.ceil((ours["fit_seconds"] - other["fit_seconds"]) / saved) if saved > 0 else np.inf)
    return float(np.median(found)) if found else np.nan


def draw(rows: list[Row], path: Path) -> None:
    figure, (explain, fit, pay) = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
    for method, style in METHODS.items():
        at = [n for n in sizes(rows) if values(rows, n, method, "seconds_per_row")]
        if not at:
            continue
        seconds = [N_EXPLAINED * np.median(values(rows, n, method, "seconds_per_row")) for n in at]
        explain.plot(at, seconds, label=method, markersize=5, **style)
        if method not in ROW_BY_ROW:
            fit.plot(at, [np.median(values(rows, n, method, "fit_seconds")) for n in at], markersize=5, **style)
        if method in BASELINES:
            pay.plot(at, [pays_off(rows, n, method) for n in at], markersize=5, **style)
    explain.set_ylabel("seconds for 10,000 explanations")
    fit.set_ylabel("seconds of training")
    fit.set_ylim(bottom=0)
    pay.set_ylabel("rows until SOInter is cheaper")
    for ax in (explain, fit, pay):
        ax.set_xscale("log")
        if ax is not fit:
            ax.set_yscale("log")
        ax.set_xlabel("features")
        ax.set_xticks(sizes(rows), [str(n) for n in sizes(rows)])
        ax.minorticks_off()
    legend_below(figure, explain)
    finish(figure, path)


def speed_table(rows: list[Row]) -> str:
    lines = [
        "| features | SOInter, 10,000 samples, s | " + " | ".join(f"{m}: times as long" for m in TIMED[1:]) + " |",
        "|---" * (len(TIMED) + 1) + "|",
    ]
    for n in sizes(rows):
        ours = values(rows, n, "SOInter", "seconds_per_row")
        ratios = []
        for method in TIMED[1:]:
            other = values(rows, n, method, "seconds_per_row")
            ratio = [b / a for a, b in zip(ours, other, strict=False)]
            ratios.append(f"{np.median(ratio):,.{0 if np.median(ratio) >= 10 else 1}f}" if ratio else "-")
        lines.append(f"| {n} | {N_EXPLAINED * np.median(ours):.2f} | " + " | ".join(ratios) + " |")
    return "\n".join(lines)


def pay_off_table(rows: list[Row]) -> str:
    lines = [
        "| features | training, s | " + " | ".join(f"{m}: by time / by queries" for m in BASELINES) + " |",
        "|---" * (len(BASELINES) + 2) + "|",
    ]
    for n in sizes(rows):
        asked = values(rows, n, "SOInter", "fit_queries")
        parts = []
        for method in BASELINES:
            each = values(rows, n, method, "queries_per_row")
            by_time = pays_off(rows, n, method)
            parts.append(f"{by_time:,.0f} / {np.ceil(np.median(asked) / np.median(each)):,.0f}" if each else "-")
        lines.append(
            f"| {n} | {np.median(values(rows, n, 'SOInter', 'fit_seconds')):.1f} | " + " | ".join(parts) + " |"
        )
    return "\n".join(lines)


STUDY = Study("explaining_time", cases, run, page)
