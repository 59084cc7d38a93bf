"""The section of the page about trained segmenters: insert, delete and J, always beside nearest and random pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from studies.frame.drawing import finish, legend_below
from studies.frame.markdown import figure, in_order, mean, number, pick, prose, sections, table
from studies.frame.study import Row
from studies.horses.black_boxes import UNET, VALUE_NETWORK, load_images
from studies.horses.methods import CONTROLS, ORDER, OURS, PER_SAMPLE, STYLES, title
from studies.horses.pairs import mean_of_images
from studies.horses.pictures import draw_papers_figure, mask_of
from studies.horses.swapped import both, difference, fidelity_and_j, main_ks, share, single_number, values

FILLS = {"black": "black", "mean": "mean image", "inpaint": "inpainted", "evaluator": "evaluator"}
NOISE_MEASURES = ("overlap", "insert", "delete")
FILES = {UNET: "unet", VALUE_NETWORK: "dvn"}


def page(rows: list[Row], images: Path) -> str:
    names = in_order(rows, "segmenter", (UNET, VALUE_NETWORK))
    draw(rows, names, images / "horses-swaps.png")
    return sections(
        "## What is selected",
        *(examples_of(rows, name, images) for name in names),
        "## Does the prediction follow the selected pixels?",
        prose(
            "x is the image to explain, z another test image for which the model predicts the opposite label of the "
            "target. *Insert*: the share of targets that get x's label when x's K selected pixels are put into z. "
            "*Delete*: the share that lose x's label when z's pixels replace x's selected ones. Both are 0 for K = "
            "0; higher is better. z is the same for all methods. The comparison that counts is the one with the "
            "nearest pixels."
        ),
        figure(
            images,
            "horses-swaps.png",
            "Insert and delete against the number of selected pixels. Bands: 95 % bootstrap intervals over test "
            "images.",
        ),
        *(part for name in names for part in swap_sections(pick(rows, segmenter=name), name)),
        j_section(rows, names),
        told_section(rows, names),
        transfer_section(pick(rows, segmenter=UNET)),
        noise_section(rows, names),
    )


def fast(rows: list[Row]) -> list[Row]:
    """Rows of methods that were measured on all pairs."""
    return [row for row in rows if row["method"] not in PER_SAMPLE]


# --- examples --------------------------------------------------------------------------------------------


def examples_of(rows: list[Row], name: str, images: Path) -> str:
    own = [row for row in pick(rows, segmenter=name, method=OURS) if "examples" in row]
    if not own:
        return ""
    file = f"horses-examples-{FILES[name]}.png"
    test_images = load_images(32, bool(own[0].get("quick"))).test.images
    draw_papers_figure(own[0]["examples"], test_images, images / file)
    n_selected = int(mask_of(own[0]["examples"][0], "selected").sum())
    return figure(
        images,
        file,
        f"Single pixels of test images, explained for the {name}. Top: the target (red) and the {n_selected} "
        "selected pixels (green). Middle: the model's mask. Bottom: the smallest rectangle around the selected "
        "pixels. Drawn at random; the last two targets are background.",
    )


# --- insert and delete -----------------------------------------------------------------------------------


def swap_sections(rows: list[Row], name: str) -> list[str]:
    own = fast(rows)
    first, n_seeds = own[0], len({row["seed"] for row in own})
    ks = first["ks"]
    lines = []
    for method in in_order(own, "method", ORDER):
        of_method = pick(own, method=method)
        lines.append(
            [
                title(method),
                str(len(of_method)),
                *(both(of_method, k) for k in ks),
                number(single_number(of_method), 3),
                number(mean(row["distance"][ks.index(main_ks(row)[0])] for row in of_method), 1),
            ]
        )
    head = ["insert / delete, K =", "seeds", *map(str, ks), "mean", f"distance, K = {main_ks(first)[0]}"]
    text = (
        f"**{name}**: IoU {mean(row['iou'] for row in own):.3f} on test images; {n_seeds} seed{'s' * (n_seeds > 1)} "
        f"of training and explaining; {first['n_pairs']} pairs of a test image and a pixel each, of which "
        f"{mean(row['without_opposite'] for row in own):.0%} have no image z and are left out. *Mean*: insert and "
        f"delete over K = {', '.join(map(str, main_ks(first)))}. *Distance*: from the selected pixels to the target, "
        "in pixels."
    )
    if name == VALUE_NETWORK:
        text += " Gradient methods are not shown: the gradient through its inference is zero almost everywhere."
    return [prose(text), table(head, lines), differences_table(own, name), per_sample_section(rows, name)]


def differences_table(rows: list[Row], name: str) -> str:
    ours = pick(rows, method=OURS)
    others = [method for method in in_order(rows, "method", ORDER) if method != OURS]
    if not ours or not others:
        return ""
    ks = main_ks(ours[0])
    lines = []
    for method in others:
        theirs = pick(rows, method=method)
        cells = [difference(ours, theirs, (measure,), (k,)) for measure in ("insert", "delete") for k in ks]
        lines.append([title(method), *map(str, cells)])
    head = ["SOInter minus", *(f"{measure}, K = {k}" for measure in ("insert", "delete") for k in ks)]
    text = f"{name}, differences on the same pairs, with 95 % intervals. Below 0, the other method is ahead."
    return sections(prose(text), table(head, lines)).strip()


def per_sample_section(rows: list[Row], name: str) -> str:
    slow = [row for row in rows if row["method"] in PER_SAMPLE]
    if not slow:
        return ""
    n, seed, ks = len(slow[0]["images"]), slow[0]["seed"], main_ks(slow[0])
    lines = []
    for method in in_order(rows, "method", (OURS, *CONTROLS, *PER_SAMPLE)):
        own = pick(rows, method=method, seed=seed)
        if own:
            costs = [f"{mean(row[what] for row in own):,.0f}" for what in ("explain_queries", "explain_cpu_ms")]
            lines.append([method, *costs, *(both(own, k, n) for k in ks), number(single_number(own, n), 3)])
    text = (
        f"{name}, methods that query it for each sample, on the first {n} of these pairs and one seed (standard "
        f"errors up to {0.5 / n**0.5:.2f})."
    )
    head = ["insert / delete, K =", "queries per sample", "CPU ms per sample", *map(str, ks), "mean"]
    return sections(prose(text), table(head, lines)).strip()


def draw(rows: list[Row], names: list[str], path: Path) -> None:
    drawn, axes = plt.subplots(
        len(names), 2, figsize=(9.5, 3.3 * len(names)), squeeze=False, sharey=True, layout="constrained"
    )
    for line, name in zip(axes, names, strict=True):
        own = fast(pick(rows, segmenter=name))
        for ax, measure in zip(line, ("insert", "delete"), strict=True):
            for method in in_order(own, "method", tuple(STYLES)):
                curve(ax, pick(own, method=method), measure, STYLES[method], title(method))
            ks = own[0]["ks"]
            ax.set_xscale("log")
            ax.set_xticks(ks, [str(k) for k in ks])
            ax.minorticks_off()
            ax.set(title=f"{name}: {measure}", xlabel="selected pixels, K", ylim=(-0.02, 1.02))
        line[0].set_ylabel("share of targets")
    legend_below(drawn, axes[0, 0], 5)
    finish(drawn, path)
    plt.close(drawn)


def curve(ax: Axes, rows: list[Row], measure: str, style: dict[str, Any], label: str) -> None:
    ks = rows[0]["ks"]
    found = [
        mean_of_images([values(row, measure, k) for row in rows], [np.array(row["images"]) for row in rows]) for k in ks
    ]
    middle, low, high = zip(*found, strict=True)
    ax.plot(ks, middle, label=label, markersize=5, **style)
    ax.fill_between(ks, low, high, color=style["color"], alpha=0.12, linewidth=0)


# --- J ---------------------------------------------------------------------------------------------------


def j_section(rows: list[Row], names: list[str]) -> str:
    parts = [
        "## The pixels, or the shape of the mask?",
        prose(
            "*Fidelity* is the share of targets that keep their label when all pixels except the selected ones are "
            "filled in. It is also high for masks that reveal the label by their shape, so it is shown with *J*: "
            "fidelity minus the share with x's label when the same mask shows z's pixels. J is 0 if the mask alone "
            "decides. *Evaluator*: a network trained on the model's masks of randomly masked images replaces the "
            "model; only its J is meaningful, because it guesses a typical mask where little is visible."
        ),
    ]
    for name in names:
        own = fast(pick(rows, segmenter=name))
        ks = main_ks(own[0])
        head = ["fidelity / J", "filled with", *(f"K = {k}" for k in ks)]
        lines = []
        for method in in_order(own, "method", ORDER):
            for fill, words in FILLS.items():
                cells = [fidelity_and_j(pick(own, method=method), fill, k) for k in ks]
                lines.append([title(method), words, *cells])
        agreement = mean(row["evaluator_agreement"] for row in own)
        parts += [
            prose(f"**{name}** (its evaluator agrees with it on {agreement:.1%} of pixels of unmasked test images):"),
            table(head, lines),
        ]
    return sections(*parts).strip()


# --- controls --------------------------------------------------------------------------------------------


def told_section(rows: list[Row], names: list[str]) -> str:
    lines, listens = [], False
    for name in names:
        ours = [row for row in pick(rows, segmenter=name, method=OURS) if "told" in row]
        if ours:
            overlap = mean(row["told"]["overlap"] for row in ours)
            listens |= overlap < 1
            cells = []
            for k in main_ks(ours[0]):
                shares = [
                    mean(row["told"][what][row["ks"].index(k)] for row in ours) for what in ("persuaded", "own_error")
                ]
                cells.append(" / ".join(map(number, (*shares, share(ours, "J black", k)))))
            lines.append([name, number(overlap), *cells])
    if not lines:
        return ""
    verdict = (
        "SOInter selects different pixels when it is given the opposite label, so compare both numbers."
        if listens
        else "SOInter selects the same pixels whichever label it is given, so both numbers are its own error, and this "
        "control does not apply."
    )
    ks = main_ks(next(row for row in rows if "told" in row))
    return sections(
        "## Given the opposite label",
        prose(
            "SOInter is given the opposite of the model's label as the prediction to explain. Shown are the share "
            "of targets that get this wrong label from the selected pixels on black, the same share when the right "
            "label is given (its own error), and J on black. *Overlap*: of the best 30 pixels for both labels. "
            f"{verdict}"
        ),
        table(["given the opposite label / own error / J", "overlap", *(f"K = {k}" for k in ks)], lines),
    ).strip()


def transfer_section(rows: list[Row]) -> str:
    own = [row for row in rows if "transfer" in row]
    if not own:
        return ""
    ks = main_ks(own[0])
    lines = []
    for method in in_order(own, "method", ORDER):
        parts = [(row, part) for row in pick(own, method=method) for part in row["transfer"].values()]
        cells = [
            " / ".join(
                number(float(np.concatenate([values(row, measure, k, part) for row, part in parts]).mean()))
                for measure in ("insert", "delete")
            )
            for k in ks
        ]
        lines.append([title(method), str(len(parts)), *cells])
    left_out = mean(part["other_value"] for row in own for part in row["transfer"].values())
    return sections(
        "## Models that were never queried",
        prose(
            "The pixels selected for one U-Net are swapped in and out of images given to U-Nets of other seeds, to "
            "which quirks of one model do not transfer. Targets for which the other U-Net predicts another label "
            f"({left_out:.0%}) are left out."
        ),
        table(["insert / delete, K =", "pairs of U-Nets", *map(str, ks)], lines),
    ).strip()


def noise_section(rows: list[Row], names: list[str]) -> str:
    noisy = [row for row in rows if "noise" in row]
    if not noisy:
        return ""
    variances = [level["variance"] for level in noisy[0]["noise"]]
    lines = []
    for name in names:
        for method in in_order(pick(noisy, segmenter=name), "method", ORDER):
            own = pick(noisy, segmenter=name, method=method)
            cells = []
            for place in range(len(variances)):
                levels = [row["noise"][place] for row in own]
                found = [mean(one[what] for one in levels if one[what] is not None) for what in NOISE_MEASURES]
                cells.append(" / ".join(map(number, found)))
            lines.append([name, title(method), *cells])
    shown = [
        f"{mean(level['same_label'] for row in noisy for level in row['noise'] if level['variance'] == one):.0%}"
        for one in variances
    ]
    return sections(
        "## Noise on the images",
        prose(
            "Gaussian noise on the test images, with pixels in [0, 1]; fits used clean images. *Overlap*: share of "
            "the best 30 pixels that are also selected for the clean image, where the model's label stays (for "
            f"{', '.join(shown)} of targets). Insert and delete: K = 30."
        ),
        table(["overlap / insert / delete, variance", "method", *(f"{one:g}" for one in variances)], lines),
    ).strip()
