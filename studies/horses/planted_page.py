"""The section of the page about segmenters with planted truth."""

from __future__ import annotations

from pathlib import Path

from sointer.zoo.planted_segmenters import PLANTED_SEGMENTERS
from studies.frame.drawing import interval
from studies.frame.markdown import figure, in_order, mean, number, pick, prose, sections, table
from studies.frame.study import Row
from studies.horses.black_boxes import CONVOLUTIONAL, load_images
from studies.horses.methods import NEAREST, ORDER, OURS, PER_SAMPLE, title
from studies.horses.pictures import draw_planted

RULES = {
    "window": "the mean red of the 5 x 5 window around the pixel",
    "landmark": "red around the pixel plus the brightness of a fixed patch far away",
    "offset": "red around the pixel AND brightness 12 rows below or above it",
    "flood": "a path of bright pixels from the middle column to the pixel: outputs depend on each other",
    "majority": "two of three windows in a row agree, as in a conditional random field",
}


def page(rows: list[Row], images: Path) -> str:
    planted = [row for row in rows if row["segmenter"] != CONVOLUTIONAL]
    names = in_order(planted, "segmenter", tuple(PLANTED_SEGMENTERS))
    examples = {
        name: {
            method: own[0]["example"]
            for method in (OURS, NEAREST)
            if (own := pick(planted, segmenter=name, method=method))
        }
        for name in names
    }
    examples = {name: by_method for name, by_method in examples.items() if by_method}
    draw_planted(examples, load_images(32, bool(rows[0].get("quick"))).test.images, images / "horses-planted.png")
    return sections(
        "## Deciding pixels that are known",
        prose(
            "These segmenters are rules, so the deciding pixels are known: "
            + "; ".join(f"*{name}*, {RULES[name]}" for name in names)
            + ". *R-precision*: the share of deciding pixels among the best k, where k is their number. "
            "Pairs with ambiguous truth are left out. Methods marked † look inside the model."
        ),
        r_precision_table(planted, names),
        figure(
            images,
            "horses-planted.png",
            "Deciding pixels (yellow) and as many selected ones (green). Red: the target. Shown is the pair with "
            "the most deciding pixels among the first.",
        ),
        per_sample_section(planted, names),
        by_case_section(planted, names),
        field_section(pick(rows, segmenter=CONVOLUTIONAL)),
    )


def r_precision_table(rows: list[Row], names: list[str]) -> str:
    methods = [method for method in in_order(rows, "method", ORDER) if method not in PER_SAMPLE]
    head = ["R-precision", "seeds", *names]
    lines = []
    for method in methods:
        own = pick(rows, method=method)
        values = [[row["r_precision"] for row in pick(own, segmenter=name)] for name in names]
        shown = [interval(found) if found else "–" for found in values]
        lines.append([title(method), str(len({row["seed"] for row in own})), *shown])
    ours = pick(rows, method=OURS)
    cost = (
        f"Brackets: 95 % intervals over seeds. {ours[0]['n_pairs']:,} pairs of a test image and a pixel each. "
        f"SOInter's fits took {mean(row['fit_cpu_seconds'] for row in ours):.0f} CPU seconds and "
        f"{mean(row['fit_queries'] for row in ours):,.0f} queries on average."
        if ours
        else ""
    )
    return sections(table(head, lines), prose(cost)).strip()


def per_sample_section(rows: list[Row], names: list[str]) -> str:
    """Methods that query the model for each sample, and the others on the same pairs."""
    slow = in_order(rows, "method", PER_SAMPLE)
    if not slow:
        return ""
    lines = []
    for method in (*in_order(rows, "method", (OURS, NEAREST)), *slow):
        own = pick(rows, method=method)
        values = [number(mean(row["first"] for row in pick(own, segmenter=name))) for name in names]
        costs = [f"{mean(row[what] for row in own):,.0f}" for what in ("explain_queries", "explain_cpu_ms")]
        lines.append([method, *costs, *values])
    n_first = pick(rows, method=slow[0])[0]["n_first"]
    return sections(
        "### Methods that query the model for each sample",
        prose(f"Compared on the first {n_first} pairs only."),
        table(["R-precision", "queries per sample", "CPU ms per sample", *names], lines),
    ).strip()


def by_case_section(rows: list[Row], names: list[str]) -> str:
    lines = []
    for name in names:
        own = pick(rows, segmenter=name)
        methods = [method for method in in_order(own, "method", ORDER) if method not in PER_SAMPLE]
        kinds = sorted({kind for row in own if row["method"] in methods for kind in row["by_case"]})
        for kind in kinds if len(kinds) > 1 else ():
            found = {
                method: [row["by_case"][kind] for row in pick(own, method=method) if kind in row["by_case"]]
                for method in methods
            }
            count = max((n for cells in found.values() for _, n in cells), default=0)
            shown = ", ".join(f"{title(method)} {number(mean(v for v, _ in cells))}" for method, cells in found.items())
            lines.append([name, kind, str(count), shown])
    if not lines:
        return ""
    return sections(
        "### By kind of truth",
        prose(
            "*both*: both parts support the label; *near*, *far*: only one does, or only one is needed; *path*: the "
            "label is 1 and the whole path decides; *gap*: it is 0 and the dark pixels on the path decide; *3 of "
            "3*, *2 of 3*: number of windows that agree with the label."
        ),
        table(["segmenter", "truth", "pairs", "R-precision"], lines),
    ).strip()


def field_section(rows: list[Row]) -> str:
    """Selected pixels that cannot matter."""
    if not rows:
        return ""
    lines = []
    for method in in_order(rows, "method", ORDER):
        own = pick(rows, method=method)
        shares = [interval([row[name] for row in own]) for name in ("outside_few", "outside_all")]
        lines.append([title(method), str(len(own)), *shares])
    first = rows[0]
    return sections(
        "### Pixels that cannot matter",
        prose(
            "A convolutional network with random weights and a receptive field of 7 x 7 pixels: share of selected "
            f"pixels outside the field (at random: {mean(row['chance'] for row in rows):.2f}). Lower is better."
        ),
        table(["share outside", "seeds", f"best {first['n_few']}", "as many as the field has"], lines),
    ).strip()
