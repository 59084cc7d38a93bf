"""The section of the page about images of 128 x 128 pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sointer import Patches, Superpixels
from studies.frame.drawing import interval
from studies.frame.markdown import figure, in_order, mean, number, pick, prose, sections, table
from studies.frame.study import Row
from studies.horses.black_boxes import UNET, load_images
from studies.horses.methods import ORDER, OURS, title
from studies.horses.pictures import draw_units
from studies.horses.swapped import both, fidelity_and_j

PATCH, N_SUPERPIXELS, N_EXAMPLE_UNITS = 4, 400, 16
GROUPS: dict[str, Any] = {"patches": Patches(PATCH), "superpixels": Superpixels(N_SUPERPIXELS)}
WORDS = {"patches": f"patches of {PATCH} x {PATCH} pixels", "superpixels": f"at most {N_SUPERPIXELS} superpixels"}


def page(rows: list[Row], images: Path) -> str:
    size = rows[0]["size"]
    return sections(
        "## Larger images",
        prose(
            f"Images of {size} x {size} pixels, so {size**2:,} targets in one fit. Units are {WORDS['patches']} or "
            f"{WORDS['superpixels']}, which follow the edges of each image."
        ),
        planted_section([row for row in rows if "r_precision" in row]),
        unet_section([row for row in rows if "swaps" in row]),
        examples_section(rows, images),
        cost_section(pick(rows, method=OURS)),
    )


def planted_section(rows: list[Row]) -> str:
    names = list(dict.fromkeys(row["segmenter"] for row in rows))
    if not names:
        return ""
    lines = []
    for groups in in_order(rows, "groups", tuple(GROUPS)):
        own = pick(rows, groups=groups)
        ideal = [number(mean(row["best_possible"] for row in pick(own, segmenter=name))) for name in names]
        lines.append([groups, "*best possible*", "", *ideal])
        for method in in_order(own, "method", ORDER):
            same = pick(own, method=method)
            values = [[row["r_precision"] for row in pick(same, segmenter=name)] for name in names]
            shown = [interval(found) if found else "–" for found in values]
            lines.append([groups, title(method), str(len({row["seed"] for row in same})), *shown])
    return sections(
        "### Deciding pixels that are known",
        prose(
            f"R-precision by pixels, {max(row['n_pairs'] for row in rows)} pairs "
            f"({min(row['n_pairs'] for row in rows)} for slow methods). Units cannot match the deciding windows "
            "exactly; *best possible* is what their true shares would reach. Brackets: 95 % intervals over seeds."
        ),
        table(["units", "method", "seeds", *names], lines),
    ).strip()


def unet_section(rows: list[Row]) -> str:
    if not rows:
        return ""
    ks = rows[0]["ks"]
    middle = ks[len(ks) // 2]
    lines = []
    for groups in in_order(rows, "groups", tuple(GROUPS)):
        for method in in_order(pick(rows, groups=groups), "method", ORDER):
            own = pick(rows, groups=groups, method=method)
            swaps = [both(own, k) for k in ks]
            fills = [fidelity_and_j(own, fill, middle) for fill in ("black", "mean")]
            lines.append([groups, method, *swaps, *fills])
    head = ["units", "method", *(f"insert / delete, K = {k:,}" for k in ks)]
    return sections(
        f"### {UNET}",
        prose(
            f"IoU {rows[0]['iou']:.3f} on test images; {rows[0]['n_pairs']} pairs, of which "
            f"{rows[0]['without_opposite']:.0%} have no image of the opposite label and are left out. K counts pixels, "
            "so that patches and superpixels can be compared."
        ),
        table([*head, *(f"fidelity / J on {fill}, K = {middle:,}" for fill in ("black", "mean image"))], lines),
    ).strip()


def examples_section(rows: list[Row], images: Path) -> str:
    shown = {row["groups"]: row["examples"] for row in rows if "examples" in row}
    if not shown:
        return ""
    test_images = load_images(128, bool(rows[0].get("quick"))).test.images
    draw_units(
        {name: shown[name] for name in GROUPS if name in shown}, test_images, images / "horses-large-examples.png"
    )
    return figure(
        images,
        "horses-large-examples.png",
        f"The best {N_EXAMPLE_UNITS} units (green) for one pixel (in the red square) of test images, explained for "
        "the U-Net. Drawn at random. Last row: the model's masks.",
    )


def cost_section(rows: list[Row]) -> str:
    lines = []
    for groups in in_order(rows, "groups", tuple(GROUPS)):
        for name in dict.fromkeys(row["segmenter"] for row in pick(rows, groups=groups)):
            own = pick(rows, groups=groups, segmenter=name)
            values = [
                f"{mean(row['fit_cpu_seconds'] for row in own):.0f}",
                f"{mean(row['fit_queries'] for row in own):,.0f}",
                f"{max(row['peak_gigabytes'] for row in own):.2f}",
                f"{mean(row['explain_cpu_ms'] for row in own):.1f}",
            ]
            lines.append([name, groups, str(len(own)), *values])
    if not lines:
        return ""
    head = ["model", "units", "seeds", "fit, CPU s", "queries in fit", "peak memory, GB", "CPU ms per sample"]
    text = "Cost of SOInter's fits, for all targets together, including the model's time."
    return sections("### Costs", prose(text), table(head, lines)).strip()
