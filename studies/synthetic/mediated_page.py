"""The page of the study of mediated effects: every number on it is computed from the results."""

from __future__ import annotations

from collections.abc import Iterator
from math import comb
from pathlib import Path

import numpy as np

from sointer.metrics import mean_interval
from studies.frame.study import Row
from studies.synthetic.mediated_figures import (
    PER_ROW,
    PER_ROW_BUDGET,
    STYLES,
    draw_chains,
    draw_outputs,
    draw_readme,
    values,
)

SUMMED = "ShapleySampling, summed"
PACKAGED = "KernelShap, as packaged"
BASELINES = tuple(name for name in STYLES if name != "SOInter")
FOUND, CLEARLY_WORSE = 0.99, 0.005
Setting = tuple[str, int]
README: Setting = ("outputs", 5)


def page(rows: list[Row], images: Path) -> str:
    draw_readme(rows, images / "mediated.png")
    parts = [introduction(rows), budget_table(rows, README)]
    if any(row["problem"] == "outputs" and row["size"] != 5 for row in rows):
        draw_outputs(rows, images / "mediated-outputs.png")
        parts.append(outputs_section())
    if any(row["problem"] == "chain" for row in rows):
        draw_chains(rows, images / "mediated-chains.png")
        parts += [chains_section(), two_links(rows)]
    parts += [behind_section(rows), warning_section(rows), one_list_section(rows), switch_section(rows), seeds(rows)]
    return "\n\n".join(part for part in parts if part) + "\n"


# --- what the page says ----------------------------------------------------------------------------------


def introduction(rows: list[Row]) -> str:
    return f"""# Features that act only through other outputs

Made by `python -m studies run synthetic/mediated` from `studies/results/synthetic/mediated*.jsonl`.

{headline(rows)}

![The problem, and how often each method finds exactly the four features, against queries](../images/mediated.png)

A model with several outputs computes one of them, the target, from other outputs. A method that sees the target alone
has to learn a parity of hidden variables; a method that sees all outputs sees the intermediate steps. SOInter-1 learns
these parities too; for problems that it does not learn, see [structure](structure.md). In the figure,
y0 = [x0 + x1 > 0], y1 = [x2 · x3 > 0], and the target is y0 xor y1; two more outputs and 16 more features are
unrelated.

**Measure.** Exact match: the share of held-out samples whose k selected features are exactly the k that can change
the target. A random choice is right in {chance(rows)} samples. Bands are 95 % intervals over seeds.

**Cost.** Total number of queries. SOInter, SOInter-1 (each output separately) and L2X learn once and then explain any
number of samples, here 200, without further queries. ShapleySampling, KernelShap and Lime query the model for each of
the 100 samples they explain, so their budget is divided by 100; {PER_ROW_BUDGET:,} is their usual 1,000 per sample.
They need at least 10 queries per sample, so they have no point at 500. The 1,000 queries from which they learn the
format of the outputs are not counted. KernelShap and Lime are tuned: like SOInter, they replace features by another
row's values. Features are shuffled in every run; nothing was tuned on these seeds."""


def headline(rows: list[Row]) -> str:
    means = mean_table(rows, README)
    enough = first_budget(means.get("SOInter", {}))
    if enough is None:
        return "No budget run so far was enough for SOInter on the first problem."
    others = {name: means[name][enough] for name in BASELINES if enough in means.get(name, {})}
    own = means["SOInter"][enough]
    said = f"**With {enough:,} queries in total, SOInter is exactly right in {own:.0%} of the samples.**"
    if others:
        best = max(others, key=lambda name: others[name])
        said += f" With the same number, the best other method ({best}) is right in {others[best]:.0%}."
    needed = [f"{name} {number(first_budget(means.get(name, {})))}" for name in BASELINES if means.get(name)]
    return said + f" Queries needed for {FOUND:.0%}: " + ", ".join(needed) + "." + packaged(rows)


def packaged(rows: list[Row]) -> str:
    own = [row for row in rows if row["method"] == PACKAGED]
    if not own:
        return ""
    match, n_queries = np.mean([r["exact_match"] for r in own]), np.mean([r["n_queries"] for r in own])
    return (
        f" KernelShap with the defaults of its package (100 background rows) is right in {match:.0%} of 100 "
        "samples, with "
        f"{n_queries:,.0f} queries ({len(own)} seed{'s' if len(own) > 1 else ''})."
    )


def outputs_section() -> str:
    return """## More outputs

![Exact match against the number of outputs](../images/mediated-outputs.png)

With two outputs, the model is the smallest with a mediated effect: y0 = [x0 · x1 > 0] and the target
y0 xor [x2 > 0], where x2 acts directly. From three on, it is the problem above with none to five unrelated outputs."""


def chains_section() -> str:
    return """## Longer chains

![Exact match against the length of the chain](../images/mediated-chains.png)

c0 = [x0 + x1 > 0]; each link adds a side output s = [x > 0] of one more feature and the next c, which is the last
c xor s. The target is the c at the end: after four links, a parity of five outputs, decided by six features."""


def two_links(rows: list[Row]) -> str:
    found = budget_table(rows, ("chain", 2))
    return f"Two links, all budgets:\n\n{found}" if found else ""


def behind_section(rows: list[Row]) -> str:
    lines = list(behind(rows))
    compared = len({(r["problem"], r["size"], r["budget"]) for r in rows if r["method"] == "SOInter"})
    found = (
        "In these cases:\n\n" + "\n".join(lines)
        if lines
        else "No other method in the figures has a higher mean than SOInter for the same budget."
    )
    return f"## Where SOInter is not best\n\n{compared} combinations of problem and budget were compared. {found}"


def behind(rows: list[Row]) -> Iterator[str]:
    for problem, size in settings(rows):
        means = mean_table(rows, (problem, size))
        for budget, own in means.get("SOInter", {}).items():
            for name in BASELINES:
                other = means.get(name, {}).get(budget, 0.0)
                if other > own + CLEARLY_WORSE:
                    yield f"- {title(problem, size)}, {budget:,} queries: {name} {other:.0%}, SOInter {own:.0%}"
    for problem, size in settings(rows):
        means = mean_table(rows, (problem, size))
        ours = means.get("SOInter", {})
        for name in PER_ROW:
            other = means.get(name, {}).get(PER_ROW_BUDGET, 0.0)
            if ours and other > max(ours.values()) + CLEARLY_WORSE:
                yield (
                    f"- {title(problem, size)}: {name} with {PER_ROW_BUDGET:,} queries {other:.0%}, SOInter at most "
                    f"{max(ours.values()):.0%}, with up to {max(ours):,}"
                )


def warning_section(rows: list[Row]) -> str:
    own = [row for row in rows if row["method"] == "SOInter" and row["problem"] != "switch"]
    wrong, right = [r for r in own if r["exact_match"] < 0.5], [r for r in own if r["exact_match"] >= FOUND]
    if not wrong:
        return ""
    where = ", ".join(
        f"{title(*setting)} with {budget:,} queries ({n} of {of})" for setting, budget, n, of in failures(own)
    )
    return (
        f"## When SOInter fails\n\n{len(wrong)} of {len(own)} fits were right in less than half of the rows: {where}. "
        f"fit() warned that it had learned too little in {warned(wrong)} of these {len(wrong)}, and in "
        f"{warned(right)} of the {len(right)} fits that were right in at least {FOUND:.0%} of the rows. The "
        "warning is based on the average over all outputs, so easy outputs can hide a target that was not learned; "
        "verify() reveals it."
    )


def failures(own: list[Row]) -> Iterator[tuple[Setting, int, int, int]]:
    for problem, size, budget in sorted({(r["problem"], r["size"], r["budget"]) for r in own}):
        same = [r for r in own if (r["problem"], r["size"], r["budget"]) == (problem, size, budget)]
        n = sum(r["exact_match"] < 0.5 for r in same)
        if n:
            yield (problem, size), budget, n, len(same)


def warned(fits: list[Row]) -> int:
    return sum(row["warned"] for row in fits)


def one_list_section(rows: list[Row]) -> str:
    own = [row for row in rows if row["method"] == SUMMED and row["problem"] != "switch"]
    if not own:
        return ""
    matches = {b: np.mean([r["exact_match"] for r in own if r["budget"] == b]) for b in {r["budget"] for r in own}}
    few = [b for b in sorted(matches) if all(matches[smaller] < FOUND for smaller in matches if smaller < b)]
    said = ", ".join(f"{matches[budget]:.0%} of cases with {budget:,}" for budget in few)
    return f"""## If one list is enough for all samples

In all these problems, the same features matter for every sample. If you know this and want only that one list, you
need no trained explainer: for some samples, restore one feature after the other (ShapleySampling with one
permutation), sum the changes per feature, and take the k largest. Averaged over all settings above, that list is
exactly right in {said} queries in total{ahead(rows)}. The methods of the figures solve a harder problem: they explain
each sample without knowing that all are alike."""


def ahead(rows: list[Row]) -> str:
    """Where the one list is right more often than SOInter for the same budget."""
    places = []
    for problem, size in settings(rows):
        ours = values(rows, "budget", problem=problem, size=size, method="SOInter")
        listed = values(rows, "budget", problem=problem, size=size, method=SUMMED)
        for budget in sorted(ours.keys() & listed.keys()) if problem != "switch" else ():
            if np.mean(listed[budget]) > np.mean(ours[budget]) + CLEARLY_WORSE:
                places.append(f"{title(problem, size)} with {budget:,} ({np.mean(ours[budget]):.0%})")
    return ", ahead of SOInter for " + ", ".join(places) if places else ""


def switch_section(rows: list[Row]) -> str:
    if not any(row["problem"] == "switch" for row in rows):
        return ""
    return f"""### If samples differ

`switch`: y0 = [x0 > 0], y1 = [x1 · x2 > 0], y2 = [x3 + x4 > 0], and the target is y1 where y0 = 1, else y2: three
features matter, but not the same three for every sample. A single list is right for at most about half of the
samples. Exact match is a hard measure here, because for many samples fewer features determine the target.

{table(rows, ("switch", 6), (*STYLES, SUMMED))}"""


# --- tables and figures in the text ----------------------------------------------------------------------


def budget_table(rows: list[Row], setting: Setting) -> str:
    return table(rows, setting, tuple(STYLES))


def table(rows: list[Row], setting: Setting, methods: tuple[str, ...]) -> str:
    found = {name: values(rows, "budget", problem=setting[0], size=setting[1], method=name) for name in methods}
    budgets = sorted({budget for one in found.values() for budget in one})
    if not budgets:
        return ""
    lines = ["| queries in total |  " + " | ".join(f"{b:,}" for b in budgets) + " |", "|---" * (len(budgets) + 1) + "|"]
    for name, one in found.items():
        if one:
            lines.append(f"| {name} | " + " | ".join(cell(one.get(budget)) for budget in budgets) + " |")
    return "\n".join(lines)


def cell(seeds: list[float] | None) -> str:
    if not seeds:
        return ""
    whole = mean_interval(seeds)
    if len(seeds) == 1 or whole.low == whole.high:
        return f"{whole.mean:.2f}"
    return f"{whole.mean:.2f} [{max(0.0, whole.low):.2f}, {min(1.0, whole.high):.2f}]"


def mean_table(rows: list[Row], setting: Setting) -> dict[str, dict[int, float]]:
    return {
        name: {budget: float(np.mean(seeds)) for budget, seeds in one.items()}
        for name in STYLES
        if (one := values(rows, "budget", problem=setting[0], size=setting[1], method=name))
    }


def settings(rows: list[Row]) -> list[Setting]:
    return sorted({(row["problem"], row["size"]) for row in rows})


def title(problem: str, size: int) -> str:
    if problem == "switch":
        return "switch"
    return f"{size} outputs" if problem == "outputs" else f"chain of {size}"


def first_budget(means: dict[int, float]) -> int | None:
    """The smallest budget from which on every one was enough."""
    enough = None
    for budget in sorted(means, reverse=True):
        if means[budget] < FOUND:
            break
        enough = budget
    return enough


def number(budget: int | None) -> str:
    return "never" if budget is None else f"{budget:,}"


def chance(rows: list[Row]) -> str:
    odds = sorted({comb(20, row["n_relevant"]) for row in rows})
    return f"one of {odds[0]:,}" if len(odds) == 1 else f"one of {odds[0]:,} to {odds[-1]:,}"


def seeds(rows: list[Row]) -> str:
    counts: dict[str, set[int]] = {}
    for row in rows:
        same = (row["problem"], row["size"], row["method"], row["budget"])
        n = sum((r["problem"], r["size"], r["method"], r["budget"]) == same for r in rows)
        counts.setdefault(row["method"], set()).add(n)
    said = "; ".join(f"{name} {min(n)}" + (f" to {max(n)}" if len(n) > 1 else "") for name, n in sorted(counts.items()))
    return f"Seeds per point: {said}."
