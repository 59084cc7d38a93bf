"""The page of the study of features that differ by sample: one figure, tables, and what structure adds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from sointer.metrics import mean_interval
from studies.frame.drawing import METHODS, finish, interval, seeds_in
from studies.frame.markdown import prose, table
from studies.frame.study import Row

ONE_LIST = "One list"
ORDER = (
    "SOInter",
    "SOInter-1",
    "Invase",
    "Invase, paper",
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
    "Invase, paper": {"color": "#56b4e9", "marker": "P", "markerfacecolor": "white"},
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
    sections = [
        bars_section(rows),
        weak_section(rows),
        HOW.format(seeds=seeds_in(rows)),
        settings_section(rows),
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
    return "\n\n".join([OPENING, *(section for section in sections if section)]) + "\n"


OPENING = """# Which features matter to this sample?

In these problems, the relevant features differ from sample to sample and are known. *TPR*: share of a
sample's relevant features that were selected. *FDR*: share of its selected features that are not relevant. *Exact*:
share of samples whose selected set is exactly the relevant one. *Switch*: share of samples for which the features
that decide which others matter were selected. All are means over held-out samples. With the *size given*, a method
selects as many features as are relevant; with *no size given*, it decides itself.

![Exact match by method on INVASE's problems, and by kind of switch](../images/instancewise.png)"""
HOW = """## How it was measured

SOInter and SOInter-1 (`structured=False`) use their defaults, with the same seeds, data and number of queries: 5,000,
or 20,000 with 100 features and for numbers. Other trained methods get as many. ShapleySampling, KernelShap and Lime
spend 1,000 queries on each of 100 samples; all others explain 1,000 samples. *One list* spends the same number of
queries as SOInter on Shapley values, sums their absolute values over samples and gives every sample the same list.
*Random* selects at random. Each line states its number of seeds ({seeds}). Brackets are 95 % intervals over seeds.
Features are shuffled in every run. Made by `python -m studies run instancewise`.

SOInter's defaults were chosen while looking at some of these problems, INVASE's among them, with other seeds.
Results with these seeds were seen before the last changes to the method. One fixed a failure on seed 102 of l2x_switch,
to which no required value refers. Another fixed one on seed 102 of syn5 with labels, **to which required values do
refer** (exact match there was 0.467 with the size given), by the order of features that are not needed; no cut-off was
changed for either. Splits on weighted sums and pairs of splits were added because the hidden switches below had not
been found; no required value refers to these. Of the baselines, only those named
below were tuned; they were run with one or two of the seeds."""
SWITCH_TEXT = (
    "The target is one of the other outputs, and a condition decides which: one threshold (axis), a sum of two "
    "features (oblique), the sign of a product (parity), two thresholds (nested) or a category. *Hidden*: the "
    "condition is not among the outputs."
)
CORRELATED_TEXT = "The seven outputs of `syn_model` on inputs with pairwise correlation rho."
ALONE_TEXT = "The same functions, each as a model with a single output."
PUBLISHED = ("l2x_", "lspin", "clusters", "logistic")
PUBLISHED_TEXT = (
    "L2X's four problems, LSPIN's two groups, OpenXAI's clusters and four logistic regressions; "
    "see [data sets](../reference/datasets.md#problems-with-planted-truth)."
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


def n_seeds_of(rows: Iterable[Row]) -> int:
    return len({row["seed"] for row in rows})


def seeds_of_line(by_method: dict[str, list[Row]]) -> str:
    """How many seeds stand behind a line with one column per method: "5", or "5; Invase 2" where some have others."""
    counts = {method: n_seeds_of(rows) for method, rows in by_method.items() if rows}
    if not counts:
        return "0"
    usual = counts.get("SOInter", max(counts.values()))
    return "; ".join([str(usual), *(f"{method} {n}" for method, n in counts.items() if n != usual)])


# --- what must be reached --------------------------------------------------------------------------------


class Bar(NamedTuple):
    """What SOInter must reach in a setting: every output named, in the mean over seeds."""

    setting: Setting
    part: str
    measure: str | None
    bound: float
    targets: tuple[str, ...] | None = None
    """All outputs that are explained, if None."""

    @property
    def is_upper(self) -> bool:
        return self.measure == "fdr"

    def reached(self, value: float) -> bool:
        value = round(value, 4)
        return value <= self.bound if self.is_upper else value >= self.bound


def all_bars() -> list[Bar]:
    """Every bar, in the order of the page; those of settings that were not run are not printed."""
    found: list[Bar] = []
    for n_features, names in ((11, (*SYN[:3], "switch", *SYN[3:])), (100, SYN[3:])):
        for kind in ("probability", "binary"):
            found += rate_bars(Setting("syn_model", n_features, kind), names)
    for kind in ("probability", "binary"):
        for name in SYN[3:]:
            found += rate_bars(Setting(name, 11, kind), (name,))
        for switch in ("axis", "oblique", "parity", "nested", "category"):
            found.append(Bar(Setting(f"switch_{switch}", 12, kind), "given", "exact", 0.95))
        found.append(Bar(Setting("syn_model, rho 0.9", 11, kind), "given", "exact", 0.95, SYN[3:]))
    found += [Bar(Setting(name, 10, "continuous"), "given", "exact", 0.95) for name in NUMBERS]
    found.append(Bar(Setting("logistic_regressions", 12, "probability"), "sign", None, 0.95))
    return found


def rate_bars(setting: Setting, targets: tuple[str, ...]) -> list[Bar]:
    """Exact match with the size given; TPR and FDR without."""
    exact, tpr, fdr = (0.99, 0.99, 0.01) if setting.kind == "probability" else (0.98, 0.97, 0.03)
    return [
        Bar(setting, "given", "exact", exact, targets),
        Bar(setting, "own", "tpr", tpr, targets),
        Bar(setting, "own", "fdr", fdr, targets),
    ]


class Outcome(NamedTuple):
    """The output that is furthest from the bar."""

    bar: Bar
    target: str
    by_seed: list[float]

    @property
    def is_reached(self) -> bool:
        return self.bar.reached(float(np.mean(self.by_seed)))

    def line(self) -> tuple[str, ...]:
        bar, values = self.bar, self.by_seed
        what = {"exact": "exact, size given", "tpr": "TPR, no size given", "fdr": "FDR, no size given", None: "sign"}
        worst_seed = max(values) if bar.is_upper else min(values)
        return (
            str(bar.setting),
            what[bar.measure],
            f"{'at most' if bar.is_upper else 'at least'} {bar.bound:.2f}",
            f"{np.mean(values):.3f} ({self.target})",
            f"{worst_seed:.3f}",
            str(len(values)),
            "yes" if self.is_reached else "**no**",
        )


def outcomes(rows: list[Row]) -> list[Outcome]:
    found, by_setting = [], by_setting_and_method(rows)
    for bar in all_bars():
        same = by_setting.get((bar.setting, "SOInter"), [])
        names = [name for name in (same[0]["targets"] if same else ()) if bar.targets is None or name in bar.targets]
        per_target = {name: values for name in names if (values := by_seed(same, bar.part, bar.measure, [name]))}
        if per_target:
            choose = max if bar.is_upper else min
            worst = choose(per_target, key=lambda name: float(np.mean(list(per_target[name].values()))))
            found.append(Outcome(bar, worst, list(per_target[worst].values())))
    return found


def bars_section(rows: list[Row]) -> str:
    """What was not reached first."""
    found = outcomes(rows)
    if not found:
        return ""
    missed, reached = ([one for one in found if one.is_reached == is_reached] for is_reached in (False, True))
    text = (
        f"SOInter reached {len(reached)} of {len(found)} bars. "
        + (f"**Not reached: {len(missed)}**; these come first. " if missed else "None was missed. ")
        + "A bar counts as reached if the mean over seeds of *every* output of the problem reaches it; shown is the "
        "output that is furthest from it, and the worst of its seeds."
    )
    head = ("problem", "measure", "must reach", "reached (worst output)", "worst seed", "seeds", "reached?")
    return "\n\n".join(
        ["## Reached and not reached", prose(text), table(head, [one.line() for one in (*missed, *reached)])]
    )


WEAK = 0.9


def weak_section(rows: list[Row]) -> str:
    """Outputs that SOInter gets wrong often, bars or not, and who is better."""
    found, lines = by_setting_and_method(rows), []
    for setting in settings(rows):
        own = found.get((setting, "SOInter"), [])
        for name in own[0]["targets"] if own else ():
            values = {
                method: float(np.mean(list(exact.values())))
                for method in methods(rows)
                if (exact := by_seed(found.get((setting, method), []), "given", "exact", [name]))
            }
            baselines = {method: value for method, value in values.items() if method != "SOInter"}
            best = max(baselines, key=lambda method: baselines[method], default=None)
            is_behind = best is not None and baselines[best] > values["SOInter"] + 0.005
            if values["SOInter"] < WEAK or is_behind:
                other = "" if best is None else f"{baselines[best]:.2f} ({best})"
                lines.append((str(setting), name, f"{values['SOInter']:.2f}", other))
    if not lines:
        return ""
    text = (
        f"Exact match with the size given is below {WEAK:.2f}, or another method is ahead, for these outputs of the "
        f"{len(settings(rows))} problems on this page:"
    )
    return "\n\n".join(
        [
            "## Where it is weak",
            prose(text),
            table(("problem", "output", "SOInter", "best other method run"), lines),
        ]
    )


# --- sections --------------------------------------------------------------------------------------------


def settings_section(rows: list[Row]) -> str:
    """What every method that learns was set to."""
    used: dict[str, list[str]] = {}
    for row in rows:
        if row.get("setting"):
            texts = used.setdefault(row["method"], [])
            if row["setting"] not in texts:
                texts.append(row["setting"])
    if not used:
        return ""
    lines = [f"- **{method}**: {'; '.join(used[method])}." for method in ORDER if method in used]
    text = (
        "Settings of the trained baselines: HideAndSeek is our implementation, with the penalty that its "
        "documentation recommends for the kind of output. *Invase* is the package, which differs from its paper; "
        "*Invase, paper* is our implementation of the paper, with the best of three settings tried on Syn4 with one "
        "other seed."
    )
    return "\n".join([prose(text), "", *lines])


def syn_section(rows: list[Row]) -> str:
    parts = []
    found = by_setting_and_method(rows)
    for setting in [one for one in settings(rows) if one.problem == "syn_model"]:
        here = [row for row in rows if setting_of(row) == setting]
        lines = [
            (
                method,
                str(n_seeds_of(found[setting, method])),
                *(cell(by_seed(found[setting, method], "given", "exact", [name])) for name in SYN),
                cell(by_seed(found[setting, method], "given", "switch")),
            )
            for method in methods(here)
        ]
        own = [
            (
                method,
                str(n_seeds_of(found[setting, method])),
                *(rates(found[setting, method], "own", [name]) for name in SYN),
            )
            for method in methods(here)
            if by_seed(found[setting, method], "own", "tpr")
        ]
        parts += [
            f"### {setting.n_features} features, {KINDS[setting.kind]}",
            "Size given: exact match, and switch accuracy over Syn4 to Syn6.",
            table(("method", "seeds", *SYN, "switch"), lines),
        ]
        if own:
            parts += ["No size given: TPR / FDR, exact match.", table(("method", "seeds", *SYN), own)]
    if not parts:
        return ""
    text = (
        "One model with seven outputs: INVASE's Syn1 to Syn6, and the condition that switches in the last three. "
        "Published figures for these problems were obtained from noisy labels without queries and are not "
        "comparable; here, every method queries the same exact model."
    )
    return "\n\n".join(["## INVASE's problems as one model", prose(text), *parts])


def problems_section(title: str, rows: list[Row], belongs: Any, text: str) -> str:
    """Exact match of every method, and our own sizes, one line per problem."""
    here = [row for row in rows if belongs(row["problem"])]
    if not here:
        return ""
    found, present = by_setting_and_method(here), methods(here)
    lines = [
        (
            str(setting),
            seeds_of_line({method: found.get((setting, method), []) for method in present}),
            *(cell(by_seed(found.get((setting, method), []), "given", "exact")) for method in present),
            cell(by_seed(found.get((setting, "SOInter"), []), "given", "switch")),
            rates(found.get((setting, "SOInter"), []), "own"),
        )
        for setting in settings(here)
    ]
    head = ("problem", "seeds", *present, "SOInter, switch", "SOInter, no size given: TPR / FDR, exact")
    return "\n\n".join(
        [f"## {title}", prose(f"{text} Columns with a method's name: exact match, size given."), table(head, lines)]
    )


def structure_section(rows: list[Row]) -> str:
    """SOInter and SOInter-1 as pairs: same seed, same data, same number of queries."""
    lines = []
    found = by_setting_and_method(rows)
    for setting in settings(rows):
        ours, alone = (found.get((setting, method), []) for method in ("SOInter", "SOInter-1"))
        line = [str(setting), str(len({row["seed"] for row in ours} & {row["seed"] for row in alone}))]
        for part in ("given", "own"):
            first, second = by_seed(ours, part, "exact"), by_seed(alone, part, "exact")
            common = sorted(set(first) & set(second))
            line.append(interval([first[s] - second[s] for s in common], low=-1.0) if common else "")
        if any(line[2:]):
            lines.append(line)
    if not lines:
        return ""
    text = (
        "Exact match of SOInter minus that of SOInter-1, mean over all targets, pair by pair. If the interval "
        "contains 0, these seeds show no benefit of the other outputs."
    )
    return "\n\n".join(
        ["## What structure adds", prose(text), table(("problem", "pairs", "size given", "no size given"), lines)]
    )


def sign_section(rows: list[Row]) -> str:
    here = [row for row in rows if row["problem"] == "logistic_regressions"]
    found = by_setting_and_method(here)
    lines = [
        (str(setting), method, str(len(signs)), cell(signs))
        for setting in settings(here)
        for method in methods(here)
        if (signs := by_seed(found.get((setting, method), []), "sign"))
    ]
    if not lines:
        return ""
    text = (
        "Four logistic regressions with known coefficients. Among the larger half of the true contributions w (x - "
        "mean), the share with the right sign."
    )
    return "\n\n".join(["## Signs", prose(text), table(("problem", "method", "seeds", "right sign"), lines)])


def cost_section(rows: list[Row]) -> str:
    found = by_setting_and_method([row for row in rows if row["problem"] == "syn_model"])
    lines = [
        (
            str(setting),
            method,
            str(n_seeds_of(same)),
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
        "seeds",
        "queries in fit",
        "per sample, size given",
        "per sample, no size given",
        "fit, CPU s",
        "per sample, CPU ms",
    )
    text = (
        "For all outputs explained: all seven, or Syn4 to Syn6 for slow methods (Invase; HideAndSeek with 100 "
        "features). The one query for a sample's predictions is not counted. "
        "CPU seconds of one thread."
    )
    return "\n\n".join(["## Queries and seconds", prose(text), table(head, lines)])


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
    drawn = {name: handle for ax in (right, left) for handle, name in zip(*ax.get_legend_handles_labels(), strict=True)}
    labels = [method for method in ORDER if method in drawn]
    handles = [drawn[method] for method in labels]
    figure.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.4, 0.0), ncols=5, frameon=False)
    finish(figure, path)


def points(ax: Axes, x: Any, values: Sequence[dict[int, float]], method: str) -> None:
    """One point per place with its 95 % interval, where there are more than two seeds."""
    style = {
        name: value
        for name, value in STYLES[method].items()
        if name in ("color", "marker", "markerfacecolor", "zorder")
    }
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
