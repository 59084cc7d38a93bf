"""Figures and section of the fidelity study, made from its results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from drawing import finish, legend_below
from matplotlib import pyplot as plt
from methods import METHODS
from pictures import draw_panels
from setting import BLACK_BOXES, pictures
from study import Row
from tables import BARS, all_counts, at, curve, figure, log_counts, number, sections, table

K_FAR, FAR = 30, 0.6
RIVALS = ("NearestPixels", "gradient x input", "size of gradient x input", "Random")


def page(rows: list[Row], images: Path) -> str:
    draw_f1(rows, images / "horses-f1.png")
    draw_distance(rows, images / "horses-distance.png")
    return sections(
        "## What is selected\n\n" + paper_figure(rows, images),
        "## Does the black box say the same on the selected pixels alone?",
        figure(
            images,
            "horses-f1.png",
            "F1 against the number of pixels kept. For each of many random pixels of test images (never seen in "
            'training) K pixels were kept and all others made black. F1 compares "horse" before and after: 1 means '
            "that the black box repeats every answer. Bands: 95 % intervals, drawing test images anew. Crosses: what "
            "was asked for.",
        ),
        *(f"**{name}.** {verdict(of(rows, box))}\n\n{f1_table(of(rows, box))}" for box, name in boxes(rows)),
        "The comparison that counts is the one with the nearest pixels: that selected pixels lie around the target is "
        "no merit by itself.",
        f"Fidelity, the share of all pixels of which the black box says the same:\n\n{fidelity_table(rows)}",
        "## Does it matter how the rest is removed?\n\nThe explainers were fitted with black pixels standing in for "
        "removed ones. Here the same selections are judged with the rest blurred, or replaced by the mean image: F1.",
        other_removals(rows),
        "## Is the explainer told what the black box says?\n\nAbove, each explainer was told the black box's mask "
        "(`predicted=`), as one who explains an answer knows it. Without it SOInter guesses the mask first.",
        not_told(rows),
        "## Can the explainer talk the black box into anything?\n\nA control: the explainer is told the opposite of "
        "what the black box says of the target, and we count how often the black box then says that wrong thing on "
        "the selected pixels. The more often, the less a repeated answer proves: an explainer that can produce any "
        "answer also produces the right one. The nearest pixels do not listen to what they are told, so theirs is "
        "the rate of mistakes that come by themselves.",
        told_wrong(rows),
        "## How far from the target are the selected pixels?",
        figure(
            images,
            "horses-distance.png",
            "Mean distance of the first K selected pixels from the target, in pixels. The nearest pixels are as near "
            "as K pixels can be; what lies further out was chosen although it is further out.",
        ),
        distances(rows),
    )


def distances(rows: list[Row]) -> str:
    """The figure's numbers, for the methods that say most about SOInter's."""
    methods = [method for method in ("SOInter", "NearestPixels", "Random") if any(r["method"] == method for r in rows)]
    ks = all_counts(rows)
    lines = [["black box", "method", *(f"K = {k}" for k in ks)]]
    for box, name in boxes(rows):
        own = of(rows, box)
        for method in methods:
            if method in own:
                lines.append([name, method, *(number(at(own[method]["distance"], k), 1) for k in ks)])
    return sections(table(lines), *(far_out(name, of(rows, box)) for box, name in boxes(rows))).rstrip()


def far_out(name: str, own: dict[str, Row]) -> str:
    """A warning, where selections lie almost anywhere."""
    if "SOInter" not in own or "Random" not in own or K_FAR not in all_counts([own["SOInter"], own["Random"]]):
        return ""
    ours, by_lot = (at(own[method]["distance"], K_FAR) for method in ("SOInter", "Random"))
    if ours < FAR * by_lot:
        return ""
    return (
        f"**{name}: much of what is selected is not what a person would point at.** On an image that is black but for "
        f"a few pixels, patterns far from the target make the black box say the same, and they are found: {K_FAR} "
        f"selected pixels lie {number(ours, 1)} pixels away on average, {K_FAR} pixels by lot {number(by_lot, 1)}. "
        "That is true of this black box and of black pixels as what is absent; what it says of horses is another "
        "question. See the control above."
    )


def boxes(rows: list[Row]) -> list[tuple[str, str]]:
    there = {row["black_box"] for row in rows}
    return [(box, name) for box, name in BLACK_BOXES.items() if box in there]


def of(rows: list[Row], box: str) -> dict[str, Row]:
    """The rows of a black box by method, the first seed of each."""
    found: dict[str, Row] = {}
    for method in METHODS:
        own = [row for row in rows if row["black_box"] == box and row["method"] == method]
        if own:
            found[method] = min(own, key=lambda row: row["seed"])
    return found


def is_quick(rows: list[Row]) -> bool:
    return any(row.get("quick") for row in rows)


def paper_figure(rows: list[Row], images: Path) -> str:
    """The paper's figure, from the examples kept with the results."""
    shown = []
    for box, name in boxes(rows):
        row = of(rows, box).get("SOInter")
        if row is None:
            continue
        file = f"horses-examples-{box}.png"
        draw_panels(row["examples"], pictures("test", quick=is_quick(rows))[0], images / file)
        n_repeated = sum(example["confirmed"] for example in row["examples"])
        shown.append(
            figure(
                images,
                file,
                f"What decides single pixels of held-out horses, as the {name} sees them. Top: the image, the target "
                "pixel (red) and the 30 pixels that SOInter selects for it (green; the stronger, the earlier chosen). "
                "Middle: the black box's mask (white: horse). Bottom: the smallest rectangle that holds them all. The "
                "first pixels are called horse, the last two background; images were taken at even steps through the "
                f"test set and pixels by lot. On the green pixels alone the black box repeats {n_repeated} of "
                f"{len(row['examples'])} answers.",
            )
        )
    return "\n\n".join(shown)


def verdict(own: dict[str, Row]) -> str:
    """What is good and what is not, in words."""
    if "SOInter" not in own:
        return "SOInter has no result yet."
    ours = own["SOInter"]
    told = [f"It has an IoU of {ours['iou']:.3f} on the {ours['n_images']} test images; {ours['n_pairs']:,} pixels."]
    bars = {k: bar for k, bar in BARS.items() if at(ours["f1"], k) is not None and ours["black_box"] == "unet"}
    missed = [
        f"{k} ({number(at(ours['f1'], k), 3)} of {bar:.2f})" for k, bar in bars.items() if at(ours["f1"], k) < bar
    ]
    if missed:
        told.append(f"SOInter **misses** what was asked for at K = {', '.join(missed)}.")
    elif bars:
        told.append(f"SOInter reaches what was asked for at K = {', '.join(map(str, bars))}.")
    for method in RIVALS:
        if method in own:
            below = [k for k in all_counts([ours]) if not at(ours["f1"], k) > at(own[method]["f1"], k)]
            where = f"**not above it at K = {', '.join(map(str, below))}**" if below else "above it at every K"
            told.append(f"Against {method}: {where}.")
    if "SOInter-1" in own:
        gain = [at(ours["f1"], k) - at(own["SOInter-1"]["f1"], k) for k in all_counts([ours])]
        told.append(
            f"Letting pixels of the mask hang together (against SOInter-1, which does not) changes F1 by "
            f"{min(gain):+.3f} to {max(gain):+.3f}."
        )
    return " ".join(told)


def f1_table(own: dict[str, Row]) -> str:
    ks = all_counts(own.values())
    lines = [["F1 at K =", *map(str, ks)]]
    for method, row in own.items():
        lines.append([method, *(with_interval(row, k) for k in ks)])
    if any(row["black_box"] == "unet" for row in own.values()):
        lines.append(["asked for", *(number(BARS.get(k)) for k in ks)])
    return table(lines)


def with_interval(row: dict[str, Any], k: int) -> str:
    low, high = at(row["f1_interval"], k)
    return f"{number(at(row['f1'], k), 3)} [{low:.2f}, {high:.2f}]"


def fidelity_table(rows: list[Row]) -> str:
    ks = all_counts(rows)
    lines = [["black box", "method", *(f"K = {k}" for k in ks)]]
    for box, name in boxes(rows):
        for method, row in of(rows, box).items():
            lines.append([name, method, *(number(at(row["fidelity"], k), 3) for k in ks)])
        share = 1 - next(iter(of(rows, box).values()))["share_horse"]
        lines.append([name, 'always say "background"', *([number(share, 3)] * len(ks))])
    return table(lines)


def other_removals(rows: list[Row]) -> str:
    ks = all_counts(rows)
    lines = [["black box", "rest", "method", *(f"K = {k}" for k in ks)]]
    for box, name in boxes(rows):
        own = of(rows, box)
        for removal in next(iter(own.values()))["other_removal"]:
            for method, row in own.items():
                values = row["other_removal"][removal]["f1"]
                lines.append([name, removal, method, *(number(at(values, k), 3) for k in ks)])
    return table(lines)


def not_told(rows: list[Row]) -> str:
    ks = all_counts(rows)
    lines = [["black box", "method", "right guesses", *(f"F1, K = {k}" for k in ks)]]
    for box, name in boxes(rows):
        for method, row in of(rows, box).items():
            if "not_told" in row:
                values = row["not_told"]
                lines.append([name, method, f"{values['guessed']:.1%}", *(number(at(values["f1"], k), 3) for k in ks)])
    return table(lines)


def told_wrong(rows: list[Row]) -> str:
    ks = all_counts(rows)
    lines = [["black box", "method", "talked", *(f"K = {k}" for k in ks)]]
    for box, name in boxes(rows):
        for method, row in of(rows, box).items():
            for label, other in (("background", "horse"), ("horse", "background")):
                if "told_wrong" in row:
                    values = row["told_wrong"][label]
                    what = f"{label} into {other}"
                    lines.append([name, method, what, *(number(at(values, k), 3) for k in ks)])
    return table(lines)


def draw_f1(rows: list[Row], path: Path) -> None:
    shown = boxes(rows)
    drawn, axes = plt.subplots(1, len(shown), figsize=(5.4 * len(shown), 3.8), layout="constrained", squeeze=False)
    for ax, (box, name) in zip(axes[0], shown, strict=True):
        own = of(rows, box)
        for method, row in own.items():
            curve(ax, row["f1"], method, row["f1_interval"])
        bars = {k: bar for k, bar in BARS.items() if k in all_counts(own.values())}
        if box == "unet":
            ax.plot(list(bars), list(bars.values()), "x", color="black", markersize=8, label="asked for", zorder=6)
        log_counts(ax, all_counts(own.values()))
        ax.set(title=name, ylabel="relative F1", ylim=(0, 1.02))
    legend_below(drawn, axes[0, 0], 7)
    finish(drawn, path)
    plt.close(drawn)


def draw_distance(rows: list[Row], path: Path) -> None:
    shown = boxes(rows)
    drawn, axes = plt.subplots(1, len(shown), figsize=(5.4 * len(shown), 3.4), layout="constrained", squeeze=False)
    for ax, (box, name) in zip(axes[0], shown, strict=True):
        own = of(rows, box)
        for method, row in own.items():
            curve(ax, row["distance"], method)
        log_counts(ax, all_counts(own.values()))
        ax.set(title=name, ylabel="distance from the target, pixels")
        ax.set_ylim(bottom=0)
    legend_below(drawn, axes[0, 0], 7)
    finish(drawn, path)
    plt.close(drawn)
