"""The tables of docs/results/planted-truth.md, made from results.jsonl alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sointer.metrics import mean_interval

PAGE = Path(__file__).parents[2] / "docs" / "results" / "planted-truth.md"
Rows = list[dict[str, Any]]


def write_tables(rows: Rows) -> None:
    """Write the page; every number on it comes from `rows`."""
    parts = [
        "# Does SOInter find the planted features?",
        "",
        "Made by `make reproduce` from `experiments/planted_truth/results.jsonl`. In every problem the black box is",
        "known exactly, and so are the features that can change each output. *Exact match* is the share of 1,000",
        "held-out rows whose selected set is exactly that set, with k its size; the worst seed stands beside the mean.",
        "*Fidelity* is the share of rows on which the black box gives the target the same value when all other",
        "features are replaced by another row's. Defaults everywhere unless stated; no setting was tuned per problem.",
        "Features are shuffled in every run. Seconds are from a busy machine of two cores: upper bounds.",
        "",
        "## The paper's problems, default preset",
        "",
        table_of(rows, preset="default", structured=True, problems=("e1", "e2")),
        "",
        "The paper calls x1 to x4 relevant in E2, but x2 never changes the minimiser: the true set is {x1, x3, x4}.",
        "",
        "## Features that act only through other outputs, few queries",
        "",
        table_of(rows, problems=("mediated_xor",), budgets=(1000, 2000), both=True),
        "",
        "## Every other problem, 20 features, automatic budget",
        "",
        table_of(rows, problems=None, preset="default", structured=True, budgets=(None,)),
        "",
        "`switch` is the hard one: which features matter depends on the row, and on many rows fewer would do, so",
        "exact match is not expected there; fidelity is what counts.",
        "",
        "## The paper preset, as written, beside the default",
        "",
        comparison(rows),
    ]
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text("\n".join(parts) + "\n")


def table_of(
    rows: Rows,
    *,
    problems: tuple[str, ...] | None,
    preset: str = "default",
    structured: bool = True,
    budgets: tuple[int | None, ...] = (None,),
    both: bool = False,
) -> str:
    """One line for each problem, size, method and target."""
    chosen = [
        row
        for row in rows
        if row["preset"] == preset
        and (both or row["structured"] == structured)
        and row["query_budget"] in budgets
        and (row["problem"] in problems if problems else row["problem"] not in ("e1", "e2"))
    ]
    lines = [
        "| problem | features | method | target | exact match (worst seed) | median rank | fidelity at k | at k + 1 "
        "| black-box rows | fit, s | seeds |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    keys = list(dict.fromkeys((r["problem"], r["n_features"], r["method"], r["query_budget"]) for r in chosen))
    for key in keys:
        same = [r for r in chosen if (r["problem"], r["n_features"], r["method"], r["query_budget"]) == key]
        for target in same[0]["targets"]:
            found = [r["targets"][target] for r in same]
            match = [f["exact_match"] for f in found]
            lines.append(
                f"| {key[0]} | {key[1]} | {key[2]} | {target} | {np.mean(match):.3f} ({min(match):.3f}) "
                f"| {mean(found, 'median_rank'):.2f} | {mean(found, 'fidelity'):.3f} "
                f"| {mean(found, 'fidelity_one_more'):.3f} | {np.mean([r['n_queries'] for r in same]):,.0f} "
                f"| {np.mean([r['fit_seconds'] for r in same]):.0f} | {len(same)} |"
            )
    threads = sorted({r["n_threads"] for r in chosen})
    return "\n".join(lines) + f"\n\nFit times with {' or '.join(map(str, threads))} torch thread(s)."


def comparison(rows: Rows) -> str:
    """Exact match of both presets on the paper's problems: mean and 95 % interval over seeds."""
    lines = [
        "| problem | features | target | paper preset, true set | default preset, true set "
        "| paper preset, the paper's set | fidelity, paper / default | black-box rows, paper / default "
        "| fit, s | seeds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    paper = [r for r in rows if r["preset"] == "paper"]
    default = [r for r in rows if r["preset"] == "default" and r["query_budget"] is None and r["structured"]]
    for problem, n in dict.fromkeys((r["problem"], r["n_features"]) for r in paper):
        ours = [r for r in paper if (r["problem"], r["n_features"]) == (problem, n)]
        other = [r for r in default if (r["problem"], r["n_features"]) == (problem, n)]
        if not other:
            continue
        for target in ours[0]["targets"]:
            a, b = [r["targets"][target] for r in ours], [r["targets"][target] for r in other]
            stated = interval([f.get("exact_match_paper_set", f["exact_match"]) for f in a])
            lines.append(
                f"| {problem} | {n} | {target} | {interval([f['exact_match'] for f in a])} "
                f"| {interval([f['exact_match'] for f in b])} | {stated} "
                f"| {mean(a, 'fidelity'):.3f} / {mean(b, 'fidelity'):.3f} "
                f"| {mean(ours, 'n_queries'):,.0f} / {mean(other, 'n_queries'):,.0f} "
                f"| {mean(ours, 'fit_seconds'):.0f} / {mean(other, 'fit_seconds'):.0f} | {len(ours)} / {len(other)} |"
            )
    note = (
        "The paper preset removes by zero, the default by another row's values; each is verified under its own removal."
    )
    return "\n".join([*lines, "", note])


def mean(found: list[dict[str, Any]], name: str) -> float:
    return float(np.mean([f[name] for f in found]))


def interval(values: list[float]) -> str:
    whole = mean_interval(values)
    if len(values) < 2:
        return f"{whole.mean:.3f}"
    return f"{whole.mean:.3f} [{max(0.0, whole.low):.2f}, {min(1.0, whole.high):.2f}]"
