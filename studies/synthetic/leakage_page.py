"""The page and the figure of the leakage study, made from its rows alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from studies.frame.drawing import METHODS, finish, interval, legend_below

Rows = list[dict[str, Any]]

STYLES = {
    "planted truth": {"color": "black", "marker": "*"},
    **{name: METHODS[name] for name in ("SOInter", "SOInter-1", "SOInter, paper preset", "L2X", "KernelShap")},
    "Random": {"color": "#999999", "marker": "h"},
    "cheater": {"color": "black", "marker": "x"},
}
TOLERANCE = 0.1
SIZES = {1: "k = 1", 2: "k = 2", "true size": "k = true size"}


def page(rows: Rows, images: Path) -> str:
    draw(rows, images / "leakage-evaluator.png")
    seeds = sorted({row["seed"] for row in rows})
    problems = dict.fromkeys((row["problem"], row["n_features"]) for row in rows)
    return "\n".join(
        [
            "# Do selections carry the prediction, or leak it?",
            "",
            "An explainer that is trained together with a predictor can encode the prediction in its choice: selecting",
            "*this* feature means yes, *that* one no, although neither matters. `sointer.metrics.leakage` detects this",
            "([how](../concepts/trust.md#does-the-selection-carry-the-prediction-or-leak-it); after EVAL-X, Jethani et",
            "al. 2021). An *evaluator* learns to predict the black box's output from masked rows, with masks that "
            "do not",
            "depend on the row. A second network, *joint*, also sees the explainer's own masks; a third, *shape*, sees",
            "the masks alone. What these two predict beyond the evaluator is leaked.",
            "",
            f"Measured on {len(problems)} planted problem{'s' * (len(problems) > 1)} "
            f"({', '.join(f'{name} with {n} features' for name, n in problems)}; the last planted target of each; "
            f"{_numbers(rows, 'n_rows')} held-out rows), {len(seeds)} seed{'s' * (len(seeds) > 1)}, with as many",
            "features as are relevant, and with too few, which invites leakage. Two controls: the",
            "*cheater* selects one irrelevant feature for yes and another for no, and the *planted truth* selects",
            "the relevant features. Accuracy is balanced, so guessing reaches 0.5.",
            "",
            "## Findings",
            "",
            *account(rows),
            "",
            "![Accuracy of joint or shape against that of the evaluator](../images/leakage-evaluator.png)",
            "",
            "*On the diagonal, all information is in the selected values; in the shaded region, more than"
            f" {TOLERANCE:.2f}",
            "above it, predictions leak. Further right is better. Means over seeds.*",
            "",
            "## All figures",
            "",
            "*Leaked* is the better of joint and shape minus the evaluator; the last columns count runs. *Exact match*",
            "is the share of rows whose selection is the planted set. Mean and, with several seeds, 95 % interval.",
            "",
            *table(rows),
            "",
        ]
    )


def account(rows: Rows) -> list[str]:
    """One line for each method: how often it was found to leak, and how much its selections carry."""
    learners = [row for row in rows if row["method"] not in ("planted truth", "cheater", "Random")]
    enough = [row for row in learners if row["k"] == "true size"]
    too_few = [row for row in learners if row["k"] != "true size"]
    lines = [
        f"With enough features, {sum(row['leaks'] for row in enough)} of {len(enough)} selections leak, "
        f"with too few {sum(row['leaks'] for row in too_few)} of {len(too_few)} (controls not counted).",
        "A run is one problem, k and seed.",
        "",
    ]
    for method in _methods(rows):
        same = [row for row in rows if row["method"] == method]
        guilty = [row for row in same if row["leaks"]]
        text = f"- **{method}**: leaks in {len(guilty)} of {len(same)} runs"
        if guilty:
            where = dict.fromkeys(f"{row['problem']} with {SIZES[row['k']]}" for row in guilty)
            text += f" ({', '.join(where)}; by at most {max(row['leaked'] for row in guilty):.2f}"
            n_informative = sum(row["informative"] for row in guilty)
            text += f"; values informative, too, in {n_informative})" if n_informative else ")"
        for name, wanted in (("enough", True), ("too few", False)):
            subset = [row for row in same if (row["k"] == "true size") == wanted]
            if subset:
                ours, best = np.mean([r["evaluator"] for r in subset]), np.mean([r["joint"] for r in subset])
                text += f"; with {name} features, accuracy {ours:.2f} (evaluator) and {best:.2f} (joint)"
        lines.append(text + ".")
    undecided = [row for row in rows if not row["conclusive"]]
    if undecided:
        lines.append(
            f"- In {len(undecided)} of {len(rows)} runs nothing was found, but the evaluator fails even on unmasked "
            "rows, so the result is inconclusive."
        )
    return lines


def draw(rows: Rows, path: Path) -> None:
    problems = list(dict.fromkeys((row["problem"], row["n_features"]) for row in rows))
    sizes = [size for size in SIZES if any(row["k"] == size for row in rows)]
    figure = Figure(figsize=(2.15 * len(problems) + 1, 2.2 * len(sizes) + 0.5), layout="constrained")
    axes = figure.subplots(len(sizes), len(problems), sharex=True, sharey=True, squeeze=False)
    edge = np.array([0.4, 1.05])
    for (line, size), (column, (problem, n)) in ((a, b) for a in enumerate(sizes) for b in enumerate(problems)):
        ax = axes[line, column]
        ax.fill_between(edge, edge + TOLERANCE, 2, color="#d55e00", alpha=0.1, linewidth=0)
        ax.plot(edge, edge, color="#777777", linewidth=0.8)
        ax.set(xlim=edge, ylim=edge, aspect="equal", xticks=(0.5, 0.75, 1), yticks=(0.5, 0.75, 1))
        if line == 0:
            ax.set_title(f"{problem}, n = {n}", fontsize=9)
        for method in _methods(rows):
            same = [
                row
                for row in rows
                if (row["problem"], row["n_features"], row["k"], row["method"]) == (problem, n, size, method)
            ]
            if same:
                x = np.mean([row["evaluator"] for row in same])
                y = np.mean([max(row["joint"], row["shape"]) for row in same])
                ax.plot(x, y, linestyle="", **_marker(method))
    for line, size in enumerate(sizes):
        axes[line, 0].set_ylabel(f"{SIZES[size]}\nbest of joint, shape")
    figure.supxlabel("accuracy of the evaluator, from the selected values", fontsize=9)
    axes[0, 0].text(0.42, 0.72, "leaked", color="#b04a00", fontsize=8, va="center")
    for method in _methods(rows):
        axes[0, 0].plot([], [], linestyle="", label=method, **_marker(method))
    legend_below(figure, axes[0, 0], columns=min(8, max(3, 2 * len(problems))))
    finish(figure, path)


def table(rows: Rows) -> list[str]:
    lines = [
        "| problem | features | k | method | evaluator | joint | shape | whole rows | leaked | exact match "
        "| leaks | informative | seeds |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    order = {method: number for number, method in enumerate(_methods(rows))}
    keys = dict.fromkeys((r["problem"], r["n_features"], str(r["k"]), r["method"]) for r in rows)
    for key in sorted(keys, key=lambda key: (key[0], key[1], key[2], order[key[3]])):
        same = [r for r in rows if (r["problem"], r["n_features"], str(r["k"]), r["method"]) == key]
        means = [interval([r[name] for r in same]) for name in ("evaluator", "joint", "shape", "whole")]
        lines.append(
            f"| {key[0]} | {key[1]} | {same[0]['n_selected']} | {key[3]} | {' | '.join(means)} "
            f"| {interval([r['leaked'] for r in same], low=-1)} | {np.mean([r['exact_match'] for r in same]):.2f} "
            f"| {sum(r['leaks'] for r in same)} | {sum(r['informative'] for r in same)} | {len(same)} |"
        )
    return lines


def _marker(method: str) -> dict[str, Any]:
    """Large for the first, small for those drawn over it, so that points in one place can all be seen."""
    size = {"SOInter": 10, "SOInter-1": 6, "planted truth": 11, "cheater": 8}.get(method, 7)
    edge = {} if method == "cheater" else {"markeredgecolor": "white", "markeredgewidth": 0.6}
    return {"markersize": size, **{key: STYLES[method][key] for key in ("color", "marker")}, **edge}


def _methods(rows: Rows) -> list[str]:
    return [method for method in STYLES if any(row["method"] == method for row in rows)]


def _numbers(rows: Rows, name: str) -> str:
    return " or ".join(f"{number:,}" for number in sorted({row[name] for row in rows}, reverse=True))
