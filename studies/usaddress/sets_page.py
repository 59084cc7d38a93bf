"""The section on sets and paths of the page of usaddress, and its figure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from studies.frame.drawing import METHODS as STYLES
from studies.frame.drawing import finish
from studies.frame.markdown import figure, in_order, mean, number, pick, prose, sections, table
from studies.frame.study import Row

OURS, CEILING = "SequenceExplainer", "brute force, judged by other draws"
NEAREST, RANDOM = "nearest tokens", "random"
LIME, SHAP, LOO = "lime's regression", "shap's KernelExplainer", "leave one out"
METHODS = (OURS, NEAREST, LIME, SHAP, LOO, RANDOM, CEILING)
EXACT_BAR, WITHIN_BAR = 0.92, 0.85
CALL_BARS = {"0": 0.95, "1": 0.85, "2+": 0.95}
N_RESAMPLED = 1000


def share(rows: list[Row], name: str, measure: int) -> float:
    """Mean over seeds of the share of targets: 1 exact, 2 within tolerance; of 3, tokens too many."""
    of_seeds = [np.sum(row[name], axis=0) for row in rows if name in row]
    return mean(float(counts[measure] / counts[0]) for counts in of_seeds)


def interval(rows: list[Row], name: str, measure: int) -> str:
    """95 % of what other addresses would give: addresses, the same for all seeds, are drawn anew."""
    counts = np.array([row[name] for row in rows if name in row], dtype=float)
    if not len(counts):
        return "–"
    chosen = np.random.default_rng(0).integers(0, counts.shape[1], (N_RESAMPLED, counts.shape[1]))
    drawn = counts[:, chosen].sum(axis=2)  # (seeds, resampled, measures)
    low, high = np.quantile((drawn[..., measure] / drawn[..., 0]).mean(axis=0), [0.025, 0.975])
    return f"{share(rows, name, measure):.3f} [{low:.2f}, {high:.2f}]"


def by_queries(rows: list[Row]) -> dict[int, list[Row]]:
    """The explainer's own rows, by how many queries it learned from."""
    ours = pick(rows, method=OURS)
    return {queries: pick(ours, queries=queries) for queries in sorted({row["queries"] for row in ours})}


def set_lines(rows: list[Row]) -> Iterator[list[str]]:
    groups = {f"{OURS}, {queries:,} queries": found for queries, found in by_queries(rows).items()}
    groups |= {method: pick(rows, method=method) for method in in_order(rows, "method", METHODS[1:])}
    for name, found in groups.items():
        cells = [interval(found, kind, measure) for kind in ("given", "own") for measure in (1, 2)]
        yield [name, *cells, number(share(found, "own", 3)), str(len(found))]


def path_lines(rows: list[Row]) -> Iterator[list[str]]:
    for distance, bar in CALL_BARS.items():
        counts = [row["paths"][distance] for row in rows if distance in row["paths"]]
        if counts:
            n, crf, own, same = (float(np.mean(values)) for values in zip(*counts, strict=True))
            said = own / n if distance == "2+" else same / n
            reached = "reached" if said >= bar else "not reached"
            yield [distance, f"{n:.0f}", f"{crf / n:.3f}", f"{own / n:.3f}", f"{same / n:.3f}", f"{bar:.2f}", reached]


def page(rows: list[Row], images: Path) -> str:
    ours = next(iter(by_queries(rows).values()), [])
    draw(rows, images / "usaddress.png")
    head = ["method", "exact, size given", "within tolerance, size given", "exact, own size"]
    head += ["within tolerance, own size", "tokens too many", "seeds"]
    parts = [
        "## The smallest sets of tokens that keep a label",
        figure(
            images, "usaddress.png", "Share of labels for which a smallest sufficient set is found, given its size."
        ),
        table(head, list(set_lines(rows))),
    ]
    if ours:
        seconds, queries = mean(row["fit_seconds"] for row in ours), ours[0]["queries"]
        parts += [
            prose(
                f"A fit with {queries:,} queries takes {seconds:.0f} CPU seconds and predicts "
                f"{mean(row['held_out_agreement'] for row in ours):.3f} of held-out labels correctly; explaining "
                "takes one query per address. lime, shap and leave one out query the tagger 200 times per address, "
                "for all of its labels together. In brackets: 95 % intervals over addresses."
            ),
            "## Direct, or through other labels",
            prose(
                "In the CRF, direct and mediated effects are known: its potentials at the label's own position, or "
                "at all others, are replaced by those of an address with another token. Effects above 0.05 in the "
                "CRF, by distance in tokens; *same*: share of effects whose larger part is classified as in the "
                "CRF. At distance two or more, the CRF has only mediated effects, so the bar concerns the share "
                f"classified as mediated. Means over {len(ours)} seed{'s' * (len(ours) > 1)}, {queries:,} queries."
            ),
            table(
                ["distance", "effects", "CRF: mediated", "explainer: mediated", "same", "bar", ""],
                list(path_lines(ours)),
            ),
        ]
    return sections(*parts)


def draw(rows: list[Row], path: Path) -> None:
    methods = in_order(rows, "method", METHODS)
    fewest = min(row["queries"] for row in rows)
    values = [share(pick(rows, method=method, queries=fewest), "given", 1) for method in methods]
    fig, ax = plt.subplots(figsize=(6.5, 2.6))
    colours = [STYLES["SOInter"]["color"] if method == OURS else "#999999" for method in methods]
    ax.barh(methods, values, color=colours)
    for place, value in enumerate(values):
        ax.text(value + 0.01, place, f"{value:.2f}", va="center")
    ax.set_xlim(0, 1.05)
    ax.invert_yaxis()
    ax.set_xlabel("smallest sufficient tokens found exactly, size given")
    finish(fig, path)
