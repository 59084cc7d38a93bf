"""The beginning of the page: what was required beside what was reached."""

from __future__ import annotations

from collections.abc import Iterator

from studies.frame.markdown import sections, table, times
from studies.frame.study import Row
from studies.speed import explain, imports, slow_black_box
from studies.speed.peers_page import by_black_box, ratio
from studies.speed.scaling_page import D_BAR, along, growth

FASTER = {"e1-20": 1000, "e1-200": 5000}
"""Times faster than shap's KernelExplainer and lime: what was required."""
GIGABYTES, N_STREAMED, TWO_WORKERS = 2.0, 1_000_000, 1.8
Results = dict[str, list[Row]]
Line = list[str]


def opening(found: Results) -> str:
    return sections(
        "# Speed, queries, memory",
        "The cost of training SOInter and of explaining with it, compared with other packages on the same black "
        "boxes. Made by `make bench`; all numbers from `studies/results/speed`. Look at the ratios: everything that "
        "is compared ran on the same machine, one process at a time.",
        "## Requirements\n\n" + table(["required", "reached", ""], judged(found)),
    )


def closing(found: Results) -> str:
    cores = sorted({row["n_cores"] for rows in found.values() for row in rows if "n_cores" in row})
    machine = f"on a machine of {' or '.join(map(str, cores))} cores, " if cores else ""
    return f"\n## How it was measured\n\nWith one thread, {machine}{HOW}\n"


HOW = """each measurement in its own process; peak memory is that of the whole process, including libraries. Methods
that query the model for every sample were timed on up to 100 samples, or for 8 seconds, and scaled to 100 and 10,000;
SOInter and L2X were run in full. *All outputs* is scaled from 16 outputs for methods that explain several outputs at
once, and from one otherwise. *10 ms per row* is computed, not measured: each method's own time on E1 plus 10 ms per
query, without any overlap for SOInter. The horses, costs against sizes, the slow black box, streaming, workers and
imports were measured earlier, on another, faster machine; nothing is compared across the two.

- **shap KernelExplainer** and **PermutationExplainer** with their defaults (the latter with its minimum number of
evaluations where 500 are too few), **lime** with its defaults (LimeTabularExplainer; for the horses
  LimeImageExplainer with every pixel a segment), **captum** with its defaults (25 samples, one row per call) and with
  1,000 samples in one call, **shapiq** with its TabularExplainer for Shapley values and 1,000 coalitions (it has no
  default).
- Background: for numbers 100 rows of the data; for texts and images a single row of zeros, the cheapest that these
packages accept. captum uses zeros by default.
- **our KernelShap** and **our Lime** are those of `sointer.explainers.baselines`: at most 1,000 queries per row,
spent on features that differ from their reference.
- *Exactly the right features* is the share of rows in which the four deciding features are ranked first; ties are
broken at random. For the faithfulness of explanations see [texts](text.md) and [horses](horses.md)."""


def judged(found: Results) -> Iterator[Line]:
    """Lines of the table: what, how much, and whether that is enough."""
    for row in found.get("explain", []):
        required = f"explain, {explain.name_of(row)}: at most {explain.BAR} x the bare forward pass"
        yield [required, f"{row['ratio']:.2f} x", mark(row["ratio"] <= explain.BAR)]
    yield from judged_peers(found.get("peers", []))
    for row in found.get("slow_black_box", []):
        if row["seconds_per_row"]:
            required = f"a black box of 10 ms per row: at least {slow_black_box.BAR:.0%} of the fit is spent inside it"
            yield [required, f"{row['share']:.1%}", mark(row["share"] >= slow_black_box.BAR)]
    outputs = along(found.get("scaling", []), "outputs")
    if len(outputs) > 1:
        few, many = outputs[0]["size"], outputs[-1]["size"]
        required = f"from {few:,} to {many:,} outputs: the fit costs at most {D_BAR} x as much"
        yield [required, f"{growth(outputs):.1f} x", mark(growth(outputs) <= D_BAR)]
    for row in found.get("streaming", []):
        gigabytes = row["peak_bytes"] / 1e9
        required = f"{row['rows']:,} x 1,000 sparse rows explained from Parquet: at most {GIGABYTES:g} GB"
        reached = f"{gigabytes:.2f} GB, {row['rows_per_second']:,} rows per second"
        enough = row["rows"] >= N_STREAMED
        yield [required, reached, mark(gigabytes <= GIGABYTES) if enough else f"fewer than {N_STREAMED:,} rows"]
    for row in found.get("fan_out", []):
        faster = row["two_workers_over_one"]
        required = f"two dask workers, a black box of 10 ms per row: at least {TWO_WORKERS} x as fast as one"
        yield [required, f"{faster:.2f} x", mark(faster >= TWO_WORKERS)]
    for row in found.get("imports", [])[-1:]:
        for statement in imports.OURS:
            ratio_here = row["ratios"][statement]
            required = f"`{statement}`: at most {imports.BAR} x `{imports.TORCH}`"
            yield [required, f"{ratio_here:.2f} x", mark(ratio_here <= imports.BAR)]


def judged_peers(rows: list[Row]) -> Iterator[Line]:
    titles = {row["black_box"]: row["title"] for row in rows}
    results = by_black_box(rows)
    for black_box, bar in FASTER.items():
        for method in ("shap KernelExplainer", "lime"):
            own = results.get(titles.get(black_box, ""), {})
            if {"SOInter", method} <= set(own):
                reached, with_fit = ratio(own, method), ratio(own, method, with_fit=True)
                required = f"10,000 explanations, {titles[black_box]}: at least {bar:,} x as fast as {method}"
                yield [required, f"{times(reached)} x ({times(with_fit)} x with training)", mark(reached >= bar)]


def mark(reached: bool) -> str:
    return "reached" if reached else "**not reached**"
