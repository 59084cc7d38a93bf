"""The page of the study of features that differ by sample: one figure, tables, and what structure adds."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from drawing import METHODS, finish, interval, seeds
from matplotlib.axes import Axes
from study import Row

from sointer.metrics import mean_interval

ONE_LIST = "One list"
ORDER = (
    "SOInter",
    "SOInter-1",
    "Invase",
    "HideAndSeek",
    "L2X",
    "ShapleySampling",
    "KernelShap",
    "Lime",
    ONE_LIST,
    "Random",
)
STYLES = {
    **METHODS,
    ONE_LIST: {"color": "#666666", "marker": "_"},
    "Invase": {"color": "#56b4e9", "marker": "P"},
    "HideAndSeek": {"color": "#e69f00", "marker": "p"},
}
SYN = tuple(f"syn{number}" for number in range(1, 7))
KINDS = {"probability": "probabilities", "binary": "labels", "continuous": "numbers"}


class Setting(NamedTuple):
    """What is explained: a problem, its number of features and the kind of its outputs."""

    problem: str
    n_features: int
    kind: str

    def __str__(self) -> str:
        return f"{self.problem}, {self.n_features} features, {KINDS[self.kind]}"


def page(rows: list[Row], images: Path) -> str:
    draw(rows, images / "instancewise.png")
    n_seeds = seeds(len({row["seed"] for row in of_method}) for of_method in by_setting_and_method(rows).values())
    sections = [
        syn_section(rows),
        problems_section("Harder switches", rows, lambda name: name.startswith("switch_"), SWITCH_TEXT),
        problems_section("Correlated inputs", rows, lambda name: "rho" in name, CORRELATED_TEXT),
        problems_section("One output alone", rows, lambda name: name in SYN, ALONE_TEXT),
        problems_section("Other published problems", rows, lambda name: name.startswith(PUBLISHED), PUBLISHED_TEXT),
        problems_section("Numbers", rows, lambda name: name in NUMBERS, NUMBERS_TEXT),
        structure_section(rows),
        sign_section(rows),
        cost_section(rows),
    ]
    return "\n\n".join([OPENING.format(seeds=n_seeds), *(section for section in sections if section)]) + "\n"


OPENING = """# Which features matter to this sample?

In these problems the relevant features differ from sample to sample and are known for every sample. *TPR*: share of a
sample's relevant features that were selected. *FDR*: share of its selected features that are not relevant. *Exact*:
share of samples whose selected set is exactly the relevant one. *Switch*: share of samples in which the features that
decide which others matter were selected. All are means over held-out samples. With the *size given*, a method may
select as many features as are relevant; with *no size given*, it decides itself.

SOInter and SOInter-1 (`structured=False`) are used at their defaults, with the same seeds, data and number of queries:
5,000, or 20,000 with 100 features. L2X and other methods that learn get as many. ShapleySampling, KernelShap and Lime
spend 1,000 queries on each of 100 samples. *One list* spends our number of queries on Shapley values, sums their sizes
over samples and gives everybody the same list. {seeds}, none of which took part in development; brackets are 95 %
intervals over seeds. Features are shuffled in every run. Made by `python experiments/instancewise/run.py`.

![Exact match by method on INVASE's problems, and by kind of switch](../images/instancewise.png)"""
SWITCH_TEXT = (
    "The target is one of the other outputs, and a condition decides which: one threshold (axis), a sum of two "
    "features (oblique), the sign of a product (parity), two thresholds (nested) or a category. *Hidden*: the "
    "condition is not among the outputs."
)
CORRELATED_TEXT = "The seven outputs of `syn_model` on inputs of which every pair has the correlation rho."
ALONE_TEXT = "The same functions, each as a model with a single output."
PUBLISHED = ("l2x_", "lspin", "clusters", "logistic")
PUBLISHED_TEXT = (
    "L2X's four problems, LSPIN's two groups, OpenXAI's clusters and four logistic regressions; "
    "[data sets](../datasets.md) says where ours differ from the published ones."
)
NUMBERS = ("friedman1", "friedman2", "mechanics")
NUMBERS_TEXT = "Regression with several outputs; the same features matter in every sample."


# --- from results to values ------------------------------------------------------------------------------


def setting_of(row: Row) -> Setting:
    return Setting(row["problem"], row["n_features"], row["kind"])


def by_setting_and_method(rows: Iterable[Row]) -> dict[tuple[Setting, str], list[Row]]:
    found: dict[tuple[Setting, str], list[Row]] = {}
    for row in rows:
        found.setdefault((setting_of(row), row["method"]), []).append(row)
    return found


def settings(rows: Iterable[Row]) -> list[Setting]:
    return list(dict.fromkeys(setting_of(row) for row in rows))


def methods(rows: Iterable[Row]) -> list[str]:
    present = {row["method"] for row in rows}
    return [method for method in ORDER if method in present]


def by_seed(
    rows: Iterable[Row], part: str, measure: str | None = None, targets: Sequence[str] | None = None
) -> dict[int, float]:
    """For every seed the mean over targets (all, or these) of a measure; seeds without it are left out.

    `part` is "given", "own" or "sign"; the last is a measure itself.
    """
    values: dict[int, float] = {}
    for row in rows:
        found: list[Any] = [
            of_target[part]
            for name, of_target in row["targets"].items()
            if targets is None or name in targets
            if part in of_target
        ]
        if measure is not None:
            found = [one[measure] for one in found if measure in one]
        if found:
            values[row["seed"]] = float(np.mean(found))
    return values


def cell(values: dict[int, float]) -> str:
    return interval(list(values.values())) if values else ""


def rates(rows: list[Row], part: str, targets: Sequence[str] | None = None) -> str:
    """TPR / FDR, exact match with its interval."""
    tpr, fdr = (by_seed(rows, part, measure, targets) for measure in ("tpr", "fdr"))
    if not tpr:
        return ""
    means = f"{np.mean(list(tpr.values())):.1%} / {np.mean(list(fdr.values())):.1%}"
    return f"{means}, {cell(by_seed(rows, part, 'exact', targets))}"


def paragraph(text: str) -> str:
    return textwrap.fill(text, 119, break_long_words=False, break_on_hyphens=False)


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return "\n".join(
        [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(line)} |" for line in lines)]
    )


# --- sections --------------------------------------------------------------------------------------------


def syn_section(rows: list[Row]) -> str:
    parts = []
    found = by_setting_and_method(rows)
    for setting in [one for one in settings(rows) if one.problem == "syn_model"]:
        here = [row for row in rows if setting_of(row) == setting]
        lines = [
            (
                method,
                *(cell(by_seed(found[setting, method], "given", "exact", [name])) for name in SYN),
                cell(by_seed(found[setting, method], "given", "switch")),
            )
            for method in methods(here)
        ]
        own = [
            (method, *(rates(found[setting, method], "own", [name]) for name in SYN))
            for method in methods(here)
            if by_seed(found[setting, method], "own", "tpr")
        ]
        parts += [
            f"### {setting.n_features} features, {KINDS[setting.kind]}",
            "Size given: exact match, and switch accuracy over Syn4 to Syn6.",
            table(("method", *SYN, "switch"), lines),
        ]
        if own:
            parts += ["No size given: TPR / FDR, exact match.", table(("method", *SYN), own)]
    if not parts:
        return ""
    text = (
        "One model with seven outputs: INVASE's Syn1 to Syn6 and the condition that switches in the last three. "
        "Published figures for these problems come from noisy labels without queries and are not comparable; every "
        "method here queries the same exact model."
    )
    return "\n\n".join(["## INVASE's problems as one model", paragraph(text), *parts])


def problems_section(title: str, rows: list[Row], belongs: Any, text: str) -> str:
    """Exact match of every method, and our own sizes, one line per problem."""
    here = [row for row in rows if belongs(row["problem"])]
    if not here:
        return ""
    found, present = by_setting_and_method(here), methods(here)
    lines = [
        (
            str(setting),
            *(cell(by_seed(found.get((setting, method), []), "given", "exact")) for method in present),
            cell(by_seed(found.get((setting, "SOInter"), []), "given", "switch")),
            rates(found.get((setting, "SOInter"), []), "own"),
        )
        for setting in settings(here)
    ]
    head = ("problem", *present, "SOInter, switch", "SOInter, no size given: TPR / FDR, exact")
    return "\n\n".join(
        [f"## {title}", paragraph(f"{text} Columns with a method's name: exact match, size given."), table(head, lines)]
    )


def structure_section(rows: list[Row]) -> str:
    """SOInter and SOInter-1 as pairs: same seed, same data, same number of queries."""
    lines = []
    found = by_setting_and_method(rows)
    for setting in settings(rows):
        ours, alone = (found.get((setting, method), []) for method in ("SOInter", "SOInter-1"))
        line = [str(setting)]
        for part in ("given", "own"):
            first, second = by_seed(ours, part, "exact"), by_seed(alone, part, "exact")
            common = sorted(set(first) & set(second))
            line.append(interval([first[s] - second[s] for s in common], low=-1.0) if common else "")
        if any(line[1:]):
            lines.append(line)
    if not lines:
        return ""
    text = (
        "Exact match of SOInter minus that of SOInter-1, mean over all targets, pair by pair. An interval that holds 0 "
        "means that looking at other outputs made no difference that these seeds can show."
    )
    return "\n\n".join(
        ["## What structure adds", paragraph(text), table(("problem", "size given", "no size given"), lines)]
    )


def sign_section(rows: list[Row]) -> str:
    here = [row for row in rows if row["problem"] == "logistic_regressions"]
    found = by_setting_and_method(here)
    lines = [
        (str(setting), method, cell(signs))
        for setting in settings(here)
        for method in methods(here)
        if (signs := by_seed(found.get((setting, method), []), "sign"))
    ]
    if not lines:
        return ""
    text = (
        "Four logistic regressions with known coefficients. Share of the stronger half of the true contributions, "
        "w (x - mean), whose sign is right."
    )
    return "\n\n".join(["## Signs", paragraph(text), table(("problem", "method", "right sign"), lines)])


def cost_section(rows: list[Row]) -> str:
    found = by_setting_and_method([row for row in rows if row["problem"] == "syn_model"])
    lines = [
        (
            str(setting),
            method,
            *(f"{np.mean([row[name] for row in same]):,.0f}" for name in ("fit_queries", "row_queries")),
            f"{np.mean([row['own_queries'] for row in same]):,.0f}" if has_own(same) else "",
            f"{np.median([row['fit_seconds'] for row in same]):.1f}",
            f"{np.median([1e3 * row['explain_seconds'] / row['n_test'] for row in same]):.2f}",
        )
        for (setting, method), same in sorted(found.items(), key=lambda item: (item[0][0], ORDER.index(item[0][1])))
    ]
    if not lines:
        return ""
    head = (
        "problem",
        "method",
        "queries in fit",
        "per sample, size given",
        "per sample, no size given",
        "fit, s",
        "per sample, ms",
    )
    text = "For all seven outputs of a sample together; the one query for its predictions is not counted."
    return "\n\n".join(["## Queries and seconds", text, table(head, lines)])


def has_own(rows: list[Row]) -> bool:
    return any("own" in of_target for row in rows for of_target in row["targets"].values())


# --- the figure ------------------------------------------------------------------------------------------


def draw(rows: list[Row], path: Path) -> None:
    """Exact match with the size given: INVASE's problems by method, and switches with and without structure."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4), width_ratios=(3, 2), sharey=True, layout="constrained")
    found = by_setting_and_method(rows)
    setting = Setting("syn_model", 11, "probability")
    present = [method for method in ORDER if (setting, method) in found]
    for place, method in enumerate(present):
        shift = (place - (len(present) - 1) / 2) * 0.08
        values = [by_seed(found[setting, method], "given", "exact", [name]) for name in SYN]
        points(left, np.arange(len(SYN)) + shift, values, method)
    left.set_xticks(range(len(SYN)), [name.capitalize() for name in SYN])
    left.set_title("one model, seven outputs, 11 features, probabilities")
    left.set_ylabel("exact match, size given")
    left.set_ylim(-0.03, 1.05)
    switches = [one for one in settings(rows) if one.problem.startswith("switch_")]
    for place, method in enumerate(("SOInter", "SOInter-1")):
        values = [by_seed(found.get((one, method), []), "given", "exact") for one in switches]
        points(right, np.arange(len(switches)) + 0.2 * (place - 0.5), values, method)
    names = [
        one.problem.removeprefix("switch_").replace("_", ", ") + (", labels" if one.kind == "binary" else "")
        for one in switches
    ]
    right.set_xticks(range(len(switches)), names, rotation=60, ha="right")
    right.set_xlim(-0.7, len(switches) - 0.3)
    right.set_title("kinds of switch")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.4, 0.0), ncols=5, frameon=False)
    finish(figure, path)


def points(ax: Axes, x: Any, values: Sequence[dict[int, float]], method: str) -> None:
    """One point per place with its 95 % interval, where there are more than two seeds."""
    style = {name: value for name, value in STYLES[method].items() if name in ("color", "marker", "zorder")}
    shown = [(position, list(of.values())) for position, of in zip(x, values, strict=True) if of]
    if not shown:
        return
    bars = np.zeros((2, len(shown)))
    for column, (_, of) in enumerate(shown):
        if len(of) > 2:
            found = mean_interval(of)
            bars[:, column] = found.mean - max(found.low, 0.0), min(found.high, 1.0) - found.mean
    ax.errorbar(
        [position for position, _ in shown],
        [np.mean(of) for _, of in shown],
        yerr=np.maximum(bars, 0.0),
        label=method,
        linestyle="none",
        markersize=6,
        elinewidth=1,
        **style,
    )
