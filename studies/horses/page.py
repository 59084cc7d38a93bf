"""The beginning of the page: what was done, and what was reached and what not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from sointer.zoo.planted_segmenters import PLANTED_SEGMENTERS
from studies.frame.markdown import mean, number, pick, prose, sections, table
from studies.frame.study import Row
from studies.horses import speed
from studies.horses.black_boxes import CONVOLUTIONAL, UNET, VALUE_NETWORK
from studies.horses.methods import EXPECTED, NEAREST, OURS, PER_SAMPLE, RANDOM
from studies.horses.segmenters_page import FILLS
from studies.horses.swapped import Difference, difference, main_ks, transfer_difference

Results = Mapping[str, list[Row]]

R_PRECISION = {"window": 0.97, "landmark": 0.90, "offset": 0.95, "flood": 0.95, "majority": 0.95}
OF_BEST = 0.90
OUTSIDE, FASTER, FIT_SECONDS, GIGABYTES = 0.01, 1000, 120, 4
"""Bars: at least, at most, at least (times), at most, at most."""


def opening(found: Results) -> str:
    known, compared = list(planted_lines(found)), list(compared_sections(found))
    parts = [
        "# Why is this pixel horse?",
        prose(
            "A segmenter labels every pixel of a photograph as horse or background. Which pixels decided the label "
            "of *this* one? SOInter was fitted on the 200 training and validation images of the Weizmann horses, "
            "for all pixels at once, without their true masks and without looking inside the segmenter. All numbers "
            "are for the 128 test images, which were not used for training or tuning. (Prototypes of the method "
            "were measured on some of them, with other seeds. The method was developed on the five rules below, "
            "with training and validation images, so other rules may be harder.) Every result is shown beside the "
            "**nearest pixels**, which use only the position of the target, and **random** pixels. **Gradient x "
            "input** and **expected gradients** look inside the model; the other methods do not. Made by `make "
            "reproduce-horses`; all numbers from `studies/results/horses`."
        ),
        "## Reached and not reached",
    ]
    if known:
        parts += [
            prose("Targets set where the truth is known, and for costs; means over seeds:"),
            table(["bar", "SOInter", "nearest pixels", "expected gradients †", "random", ""], known),
        ]
    if compared:
        parts += [
            prose(
                "For trained segmenters the truth is unknown, and the nearest pixels are the baseline to beat. Do "
                "predictions follow the selected pixels into other images (*insert*), disappear with them "
                "(*delete*), and depend on the pixels rather than on the shape of the mask (*J*)? Higher is better. "
                "Differences on the same pairs; *level*: the 95 % interval contains 0. Intervals are bootstrapped "
                "over test images, all seeds together; differences by seed are in the last column. By chance, one "
                "in twenty comparisons falls outside its interval."
            ),
            *compared,
        ]
    return sections(*parts)


def planted_lines(found: Results) -> Iterator[list[str]]:
    rows = found.get("planted", [])
    for name in PLANTED_SEGMENTERS:
        values = by_method(pick(rows, segmenter=name), "r_precision")
        if OURS in values:
            bar = R_PRECISION[name]
            yield line(f"{name}: R-precision at least {bar:.2f}", values, values[OURS] >= bar)
    values = by_method(pick(rows, segmenter=CONVOLUTIONAL), "outside_few")
    if OURS in values:
        bar = f"best 10 pixels outside the receptive field: at most {OUTSIDE:.2f}"
        yield line(bar, values, values[OURS] <= OUTSIDE)
    yield from large_lines([row for row in found.get("large", []) if "r_precision" in row])
    for row in found.get("speed", []):
        yield from cost_lines(row)


def by_method(rows: list[Row], measure: str) -> dict[str, float]:
    methods = dict.fromkeys(row["method"] for row in rows if row["method"] not in PER_SAMPLE)
    return {method: mean(row[measure] for row in pick(rows, method=method)) for method in methods}


def large_lines(rows: list[Row]) -> Iterator[list[str]]:
    """Of units, the share of what the best possible scores would reach."""
    for name, groups in dict.fromkeys((row["segmenter"], row["groups"]) for row in rows):
        own = pick(rows, segmenter=name, groups=groups)
        values = by_method(own, "r_precision")
        best = mean(row["best_possible"] for row in own)
        if OURS in values:
            bar = (
                f"{name}, {own[0]['size']} x {own[0]['size']}, {groups}: R-precision at least {OF_BEST:.2f} of the "
                f"best possible {best:.2f}"
            )
            yield line(bar, values, values[OURS] >= OF_BEST * best)


def line(bar: str, values: Mapping[str, float], reached: bool) -> list[str]:
    return [bar, *(number(values.get(method)) for method in (OURS, NEAREST, EXPECTED, RANDOM)), mark(reached)]


def cost_lines(row: Row) -> Iterator[list[str]]:
    def one(bar: str, value: str, reached: bool) -> list[str]:
        return [bar, value, "", "", "", mark(reached)]

    cpu, peak = row["fit_cpu_seconds"], row["peak_gigabytes"]
    ratio = row["timed"][speed.PACKAGED]["seconds_each"] / row["timed"][OURS]["seconds_each"]
    targets = f"{row['segmenter']}, fit for all {row['n_targets']:,} pixels"
    yield one(f"{targets}: at most {FIT_SECONDS} CPU seconds", f"{cpu:.0f}", cpu <= FIT_SECONDS)
    yield one(f"{targets}: at most {GIGABYTES} GB", f"{peak:.2f}", peak <= GIGABYTES)
    bar = f"explaining: at least {FASTER:,} times as fast as {speed.PACKAGED}"
    yield one(bar, f"{ratio:,.0f} ({speed.with_fit(row):,.0f} with the fit)", ratio >= FASTER)


def compared_sections(found: Results) -> Iterator[str]:
    """Of every trained segmenter, all measures beside those of the nearest pixels."""
    for name in (UNET, VALUE_NETWORK):
        rows = pick(found.get("segmenters", []), segmenter=name)
        ours, nearest = pick(rows, method=OURS), pick(rows, method=NEAREST)
        if not ours or not nearest:
            continue
        ks = main_ks(ours[0])
        lines = [compared_line(measure, ours, nearest, (measure,), difference) for measure in ("insert", "delete")]
        if all("transfer" in row for row in (*ours, *nearest)):
            both = ("insert", "delete")
            lines.append(compared_line("both, U-Nets never queried", ours, nearest, both, transfer_difference))
        for fill, words in FILLS.items():
            lines.append(compared_line(f"J, {words}", ours, nearest, (f"J {fill}",), difference))
        yield table([f"{name}: SOInter / nearest", *(f"K = {k}" for k in ks), "mean difference", "", "by seed"], lines)


def compared_line(
    words: str, ours: list[Row], theirs: list[Row], measures: tuple[str, ...], gap_of: Callable[..., Difference]
) -> list[str]:
    ks = main_ks(ours[0])
    gaps = [gap_of(ours, theirs, measures, (k,)) for k in ks]
    cells = [f"{number(gap.ours)} / {number(gap.theirs)} {gap.verdict}" for gap in gaps]
    over_all = gap_of(ours, theirs, measures, ks)
    by_seed = [f"{gap_of([row], theirs, measures, ks).mean:+.2f}" for row in ours if has_seed(theirs, row["seed"])]
    return [words, *cells, str(over_all), over_all.verdict, ", ".join(by_seed)]


def has_seed(rows: list[Row], seed: int) -> bool:
    return any(row["seed"] == seed for row in rows)


def mark(reached: bool) -> str:
    return "reached" if reached else "**not reached**"
