"""The page and figures of the removal study, made from its results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt

from sointer.data.inputs import InputFormat
from sointer.masking.build import make_removal
from studies.frame.drawing import finish, interval
from studies.frame.study import Row

REMOVALS = ("zero", "mean", "marginal", "conditional")
PROBLEMS = {"e1": "E1", "mediated_xor": "mediated xor", "presence": "presence"}
SITUATIONS = {
    "independent": "independent inputs",
    "mean 3": "independent, mean 3",
    "equal 0.5": "all pairs correlated 0.5",
    "equal 0.9": "all pairs correlated 0.9",
    "ar1 0.9": "neighbours correlated 0.9",
    "decoys 0.9": "noisy copies, correlated 0.9",
    "decoys 0.99": "noisy copies, correlated 0.99",
    "present or not": "0/1, zero is absence",
}
Cell = tuple[str, str]
"""A problem and a situation."""


def page(rows: list[Row], images: Path) -> str:
    """Draw both figures and write the page."""
    fits = [row for row in rows if row["part"] == "explanations"]
    made = [row for row in rows if row["part"] == "rows"]
    draw_inputs(images / "removal-inputs.png")
    draw_found(fits, made, images / "removal-found.png")
    sections = [
        introduction(rows),
        "![Real and masked rows of two correlated features, for four removals](../images/removal-inputs.png)",
        "## Findings\n\n" + "\n".join([*found(fits, made), *cross_checks(fits), *credit(fits, made)]),
        "![Exact match, and what unused features are worth, by data and removal](../images/removal-found.png)",
        "Not measured (–): with inputs of mean 0, removal by the mean is nearly the same as by zero.",
        "## Which features are found?\n\nExact match with the planted set, mean and 95 % interval over seeds."
        + fewer_seeds(fits)
        + "\n\n"
        + by_situation(fits, lambda own: interval([row["exact_match"] for row in own])),
        "Number of selected features that are relevant (out of how many), and number that are *unused* in the sense "
        "below.\n\n" + by_situation(fits, selected),
        "## Does an explanation hold under another removal?\n\n"
        "Fidelity of explanations fitted under one removal (rows), measured under another (columns): mean and worst "
        "over the situations.\n\n" + fidelities(fits),
        "## What does a removal give credit for?\n\nFidelity when only unused features are kept, as many as there "
        "are relevant ones: copies of the relevant features if there are any, otherwise other features on which the "
        "target does not depend. In brackets: when nothing is kept.\n\n" + by_situation(made, unused),
        "## How realistic are masked rows?\n\nHow often a classifier (quadratic discriminant analysis) "
        "distinguishes rows masked to their relevant features from unmasked ones, on held-out rows; 0.50 is "
        "guessing. (Slightly more is expected even for realistic rows, because 2,000 of them share 1,000 donors.)\n\n"
        + by_situation(made, lambda own: f"{mean(own, 'told_apart'):.2f}"),
        "## What does it cost?\n\n" + costs(fits),
    ]
    return "\n\n".join(sections) + "\n"


def introduction(rows: list[Row]) -> str:
    seeds = sorted({row["seed"] for row in rows})
    return f"""# What the choice of removal changes

An explanation says: keep these features, and the prediction stays, whatever replaces the others. What replaces them
is a choice: **zero**, the **mean**, the values of another row (**marginal**), or those of a row that is similar in
the kept features (**conditional**: one of the ten nearest of 1,000). The figure shows two correlated features, of
which the second is removed. Advice based on this page: [which removal to choose](../concepts/removal.md).

Measured on exact black boxes with 20 shuffled features whose relevant features are known: SOInter with defaults, k =
the size of the relevant set, 2,000 training rows, up to 300 held-out rows, {len(seeds)}
{"seed" if len(seeds) == 1 else "seeds"} ({", ".join(map(str, seeds))}). *E1* is the paper's energy (both outputs);
*mediated xor* acts only through other outputs; *presence* has 0/1 features of which 30 % are 1; a pair of them
makes a tag true. Made by `python -m studies run synthetic/removal`."""


def found(fits: list[Row], made: list[Row]) -> list[str]:
    lines = []
    of_all = {removal: cell_means(fits, removal, "exact_match") for removal in present(fits)}
    common = set.intersection(*(set(cells) for cells in of_all.values())) if of_all else set()
    if len({len(cells) for cells in of_all.values()}) > 1 and common:
        means = ", ".join(f"{removal} {np.mean([c[cell] for cell in common]):.2f}" for removal, c in of_all.items())
        lines.append(f"- On the {len(common)} situations in which all removals were fitted: exact match {means}.")
    for removal, by_cell in of_all.items():
        worst = min(by_cell, key=lambda cell: by_cell[cell])
        shares = sorted(cell_means(made, removal, "told_apart").values())
        apart = dict.fromkeys(f"{value:.0%}" for value in (*shares[:1], *shares[-1:]))
        lines.append(
            f"- **{removal}**: exact match {np.mean(list(by_cell.values())):.2f}, mean of {len(by_cell)} situations; "
            f"worst {by_cell[worst]:.2f} ({label(worst)}). A classifier distinguishes its rows from real ones "
            f"{' to '.join(apart)} of the time."
        )
    return lines


def cross_checks(fits: list[Row]) -> list[str]:
    """Explanations that look faithful under their own removal and are not under another."""
    parts = []
    for removal in present(fits):
        own = cell_means(fits, removal, f"fidelity {removal}")
        others = {r: cell_means(fits, removal, f"fidelity {r}") for r in REMOVALS if r != removal}
        loss, cell, other = max((own[cell] - there[cell], cell, r) for r, there in others.items() for cell in there)
        if loss >= 0.05:
            parts.append(
                f"fitted with {removal}, {own[cell]:.2f} under {removal} but {own[cell] - loss:.2f} under {other} "
                f"({label(cell)})"
            )
    return [f"- **Fidelity under one removal alone can mislead**: {'; '.join(parts)}."] if parts else []


def credit(fits: list[Row], made: list[Row]) -> list[str]:
    """What copies, which the model does not use, are worth under each removal."""
    copies = [row for row in made if row["situation"].startswith("decoys")]
    if not copies:
        return []
    worth = {r: mean([row for row in copies if row["removal"] == r], "fidelity of unused") for r in present(copies)}
    chosen = {
        removal: [row["n_unused"] for row in fits if row["removal"] == removal and "decoys" in row["situation"]]
        for removal in present(fits)
    }
    line = (
        "- **Credit for what the model does not use.** If only noisy copies of the relevant features are kept, "
        f"which the model ignores, its prediction stays this often: {listed(worth)}. A conditional draw infers the "
        "originals from their copies."
    )
    selected = listed({removal: float(np.mean(values)) for removal, values in chosen.items() if values})
    return [line + (f" Copies among the four features that SOInter selects: {selected}." if selected else "")]


def listed(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in values.items())


def fewer_seeds(fits: list[Row]) -> str:
    """Which situations have results of some seeds only."""
    count = {cell: len({row["seed"] for row in of(fits, cell)}) for cell in situations(fits)}
    few = [f"{label(cell)} ({n})" for cell, n in count.items() if n < max(count.values())]
    return f" Fewer seeds so far: {', '.join(few)}." if few else ""


def by_situation(rows: list[Row], tell: Callable[[list[Row]], str]) -> str:
    """A table: situations down, removals across."""
    head = ["problem", "inputs", *present(rows)]
    lines = [head, ["---"] * len(head)]
    for cell in situations(rows):
        found = [[row for row in of(rows, cell) if row["removal"] == removal] for removal in present(rows)]
        lines.append([PROBLEMS[cell[0]], SITUATIONS[cell[1]], *(tell(own) if own else "" for own in found)])
    return table(lines)


def selected(own: list[Row]) -> str:
    return f"{mean(own, 'n_relevant'):.2f} of {own[0]['k']}; {mean(own, 'n_unused'):.2f}"


def unused(own: list[Row]) -> str:
    return f"{mean(own, 'fidelity of unused'):.2f} ({mean(own, 'fidelity of nothing'):.2f})"


def fidelities(rows: list[Row]) -> str:
    lines = [["fitted under", *(f"judged: {removal}" for removal in REMOVALS)], ["---"] * (len(REMOVALS) + 1)]
    for removal in present(rows):
        by_other = [list(cell_means(rows, removal, f"fidelity {other}").values()) for other in REMOVALS]
        lines.append([removal, *(f"{np.mean(values):.3f} (worst {min(values):.2f})" for values in by_other)])
    return table(lines)


def costs(rows: list[Row]) -> str:
    timed = [row for row in rows if "fit_cpu_seconds" in row]
    if "marginal" not in present(timed):
        return "Not measured."
    seconds = {r: np.median([row["fit_cpu_seconds"] for row in timed if row["removal"] == r]) for r in present(timed)}
    parts = ", ".join(f"{removal} {value / seconds['marginal']:.2f}" for removal, value in seconds.items())
    return (
        "Median time of a fit on one core, as a multiple of the one with marginal draws "
        f"({seconds['marginal']:.0f} s): {parts}. All query the model about at most "
        f"{max(row['n_queries'] for row in rows):,} rows, and explaining costs the same."
    )


def draw_inputs(path: Path) -> None:
    """Two correlated features around 3; the second is removed."""
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((1200, 1))
    real = 3.0 + np.sqrt(0.9) * shared + np.sqrt(0.1) * rng.standard_normal((1200, 2))
    batch, keep = real[:200], np.tile([True, False], (200, 1))
    figure, axes = plt.subplots(1, 4, figsize=(10.5, 3.0), sharex=True, sharey=True)
    for ax, removal in zip(axes, REMOVALS, strict=True):
        reduced = make_removal(removal, real, InputFormat.infer(real), rng).apply(batch, keep, rng)
        ax.scatter(*real[200:].T, s=6, color="#bbbbbb", label="real rows")
        ax.scatter(*reduced.T, s=9, color="#d55e00", label="rows whose second feature is removed")
        ax.set(title=removal, xlabel="first feature, kept")
    axes[0].set_ylabel("second feature")
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=2, frameon=False
    )
    figure.tight_layout()
    finish(figure, path)


def draw_found(fits: list[Row], made: list[Row], path: Path) -> None:
    """Two tables in colour: what is found, and what features that are not used are worth."""
    down = situations(fits or made)
    figure, axes = plt.subplots(1, 2, figsize=(10.5, 1.2 + 0.32 * len(down)), sharey=True)
    panels = [
        (fits, "exact_match", "exact match with the relevant features", "Blues"),
        (made, "fidelity of unused", "answers repeated on unused features alone", "Oranges"),
    ]
    for ax, (rows, name, title, colours) in zip(axes, panels, strict=True):
        values = np.full((len(down), len(REMOVALS)), np.nan)
        for j, removal in enumerate(REMOVALS):
            for cell, value in cell_means(rows, removal, name).items():
                if cell in down:
                    values[down.index(cell), j] = value
        ax.imshow(values, cmap=colours, vmin=0.0, vmax=1.1, aspect="auto")
        for (i, j), value in np.ndenumerate(values):
            text = "–" if np.isnan(value) else f"{value:.2f}"
            ax.text(j, i, text, ha="center", va="center", color="white" if value > 0.7 else "black")
        ax.set_xticks(range(len(REMOVALS)), REMOVALS)
        ax.set_yticks(range(len(down)), [label(cell) for cell in down])
        ax.tick_params(length=0)
        ax.set_title(title, fontsize=10)
        ax.grid(False)
        ax.spines[:].set_visible(False)
    figure.tight_layout()
    finish(figure, path)


def cell_means(rows: list[Row], removal: str, name: str) -> dict[Cell, float]:
    """The mean over seeds in every situation there are results for."""
    own = [row for row in rows if row["removal"] == removal]
    return {cell: mean(of(own, cell), name) for cell in situations(own)}


def situations(rows: list[Row]) -> list[Cell]:
    """The situations there are results for, simple ones first."""
    there = {(row["problem"], row["situation"]) for row in rows}
    return [(p, s) for p in PROBLEMS for s in SITUATIONS if (p, s) in there]


def present(rows: list[Row]) -> list[str]:
    there = {row["removal"] for row in rows}
    return [removal for removal in REMOVALS if removal in there]


def of(rows: list[Row], cell: Cell) -> list[Row]:
    return [row for row in rows if (row["problem"], row["situation"]) == cell]


def mean(rows: list[Row], name: str) -> float:
    return float(np.mean([row[name] for row in rows]))


def label(cell: Cell) -> str:
    return f"{PROBLEMS[cell[0]]}: {SITUATIONS[cell[1]]}"


def table(lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
