"""The page of the study of structure: every number on it is computed from the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from studies.frame.drawing import METHODS, band, finish, legend_below, seeds
from studies.frame.study import Row

COUPLED, SHARED, ALONE = "SOInter", "SOInter, outputs not coupled", "SOInter-1"
STYLES = {
    COUPLED: METHODS["SOInter"],
    SHARED: {"color": "#009e73", "marker": "^", "linestyle": "--"},
    ALONE: METHODS["SOInter-1"],
}
AGAINST_QUERIES = {
    "xor": "y0 xor y1",
    "chain": "a chain of four xors",
    "majority": "majority of three outputs",
    "rare": "y0 and y1, in 4 % of samples",
}
CLEARLY = 0.02
Measure = Callable[[Row], float]


def page(rows: list[Row], images: Path) -> str:
    parts = [introduction(rows)]
    if any(against_queries(row) for row in rows):
        draw(rows, images / "structure.png")
        parts.append(queries_section(rows))
    parts += [outputs_section(rows), switches_section(rows), real_section(rows)]
    return "\n\n".join(part for part in parts if part) + "\n"


def against_queries(row: Row) -> bool:
    return row["problem"] in AGAINST_QUERIES and row.get("n_outputs") is None


def introduction(rows: list[Row]) -> str:
    counts = [len({row["seed"] for row in rows if row["method"] == method}) for method in STYLES]
    return f"""# Does learning all outputs together help?

Made by `python -m studies run tables/structure` from `studies/results/tables/structure*.jsonl`.

{headline(rows)}

Three explainers with the same data, queries and seeds ({seeds(counts)}, none of which took part in development):

- **{COUPLED}**: one energy for all outputs, coupled as in eq. 17-3 of the paper; localities may split on outputs.
- **{SHARED}**: the same network with the coupling fixed at zero.
- **{ALONE}**: a separate network for every output; localities split on features only.

*Exact match*: the share of held-out samples whose relevant features are found exactly, given their number.
*Agreement*: the share of held-out samples, unmasked, for which the energy predicts the model's label."""


def headline(rows: list[Row]) -> str:
    """How often the coupled energy is ahead of each of the others, and how often behind, in matched pairs."""
    said = []
    for other in (SHARED, ALONE):
        differences = paired(rows, "exact", other)
        ahead, behind = (sum(d > CLEARLY for d in differences), sum(d < -CLEARLY for d in differences))
        if differences:
            said.append(
                f"against *{other}* it is ahead in {ahead} and behind in {behind} of {len(differences)} pairs "
                f"(mean difference {np.mean(differences):+.3f})"
            )
    return "**Exact match of SOInter: " + "; ".join(said) + ".**" if said else ""


def paired(rows: list[Row], measure: str, other: str) -> list[float]:
    """Coupled minus other, for every case that both have run."""
    found: dict[tuple[object, ...], dict[str, float]] = {}
    for row in rows:
        if measure in row:
            key = (row["problem"], row.get("n_outputs"), row["budget"], row["seed"])
            found.setdefault(key, {})[row["method"]] = row[measure]
    return [of[COUPLED] - of[other] for of in found.values() if COUPLED in of and other in of]


def queries_section(rows: list[Row]) -> str:
    return f"""## Effects through other outputs, against queries

![Exact match and agreement against queries](../images/structure.png)

Twenty features; the target is a function of other outputs. Exact match, then true positive and false discovery rates
of the selection if no size is given:

{
        table(
            [row for row in rows if against_queries(row)],
            lambda row: (AGAINST_QUERIES[row["problem"]], row["budget"]),
            ("target", "queries"),
        )
    }"""


def outputs_section(rows: list[Row]) -> str:
    own = [row for row in rows if row.get("n_outputs") is not None]
    if not own:
        return ""
    return f"""## Many outputs

y0 xor y1 with 1,000 queries and a growing number of unrelated outputs:

{table(own, lambda row: (row["n_outputs"],), ("outputs",))}"""


def switches_section(rows: list[Row]) -> str:
    own = [row for row in rows if row["problem"].startswith("switch")]
    if not own:
        return ""
    return f"""## Switches among the outputs

Which features decide the target depends on another output: an oblique threshold, a parity, or two nested thresholds.

{table(own, lambda row: (row["problem"].removeprefix("switch "), row["budget"]), ("switch, outputs", "queries"))}"""


def real_section(rows: list[Row]) -> str:
    own = [row for row in rows if "keep" in row]
    if not own:
        return ""
    return f"""## Chains and random fields on real labels

The model predicts labels: it is a chain of logistic regressions in which each sees the labels before it, or a random
field with a link between every two labels. {own[0]["budget"]:,} queries; for every output, the share of predictions
that stay on the best eight features alone, and the share that flip without them:

{table(own, lambda row: (row["problem"],), ("model",), ("keep", "delete", "agreement"))}"""


def table(
    rows: list[Row],
    key: Callable[[Row], tuple[object, ...]],
    names: Sequence[str],
    measures: Sequence[str] = ("exact", "tpr", "fdr", "agreement"),
) -> str:
    """A line for every key, and for every method its means over seeds."""
    titles = {"exact": "exact match", "tpr": "TPR", "fdr": "FDR"}
    lines = [f"| {' | '.join(names)} | method | seeds | {' | '.join(titles.get(name, name) for name in measures)} |"]
    lines.append("|" + "---|" * (len(names) + 2 + len(measures)))
    keys = list(dict.fromkeys(key(row) for row in rows))
    for wanted in keys:
        for method in STYLES:
            own = [row for row in rows if row["method"] == method and key(row) == wanted]
            if own:
                said = (f"{value:,}" if isinstance(value, int) else str(value) for value in wanted)
                means = (f"{np.mean([row[name] for row in own]):.3f}" for name in measures)
                lines.append(f"| {' | '.join(said)} | {method} | {len(own)} | {' | '.join(means)} |")
    return "\n".join(lines)


def draw(rows: list[Row], path: Path) -> None:
    own = [row for row in rows if against_queries(row)]
    problems = [name for name in AGAINST_QUERIES if any(row["problem"] == name for row in own)]
    budgets = sorted({row["budget"] for row in own})
    figure = Figure(figsize=(2.6 * len(problems), 4.4), layout="constrained")
    axes = figure.subplots(2, len(problems), sharex=True, sharey="row", squeeze=False)
    for column, problem in enumerate(problems):
        for row_of_axes, measure in enumerate(("exact", "agreement")):
            ax = axes[row_of_axes, column]
            for method, style in STYLES.items():
                values: dict[float, list[float]] = {}
                for row in own:
                    if row["problem"] == problem and row["method"] == method:
                        values.setdefault(row["budget"], []).append(row[measure])
                if values:
                    band(ax, values, method, style)
            ax.set_xscale("log")
            ax.set_xticks(budgets, [f"{budget:,}" for budget in budgets], rotation=45)
            ax.minorticks_off()
        axes[0, column].set_title(AGAINST_QUERIES[problem], fontsize=9)
        axes[1, column].set_xlabel("queries")
    axes[0, 0].set_ylabel("exact match")
    axes[1, 0].set_ylabel("agreement")
    legend_below(figure, axes[0, 0], 3)
    finish(figure, path)
