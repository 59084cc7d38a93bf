"""The page of the study of a text detector: where selected pixels lie, what swaps of them do, and what they cost."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from PIL import Image

from studies.frame.drawing import finish, interval, seeds_in
from studies.frame.markdown import prose, table
from studies.frame.study import Row

IN_PATCHES = "SOInter, patches"
METHODS = ("SOInter", IN_PATCHES, "Occlusion", "Rise", "NearestPixels", "Random")
OTHERS = ("NearestPixels", "Occlusion", "Rise", "Random")
"""What SOInter is compared with, seed by seed."""
N_SHOWN = 100
"""Selected pixels in the figure."""
MAIN_K = 100
GREEN, RED = (0, 170, 80), "#ff2424"

ByMethod = dict[str, list[Row]]


def page(rows: list[Row], images: Path) -> str:
    found = {method: same for method in METHODS if (same := [row for row in rows if row["method"] == method])}
    is_drawn = draw(found, images / "text-detector.png")
    parts = [
        OPENING,
        headline(found),
        FIGURE.format(k=N_SHOWN) if is_drawn else "",
        "## How it was measured",
        *(prose(paragraph) for paragraph in HOW.format(**figures(rows)).split("\n\n")),
        strokes_section(found),
        swaps_section(found),
        differences_section(found),
        cost_section(found),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


OPENING = """# Why is this pixel text?

A published text detector predicts for every pixel the probability that it is text. It gets images with two or three
drawn words, whose strokes are known to the pixel, and SOInter explains why a pixel inside a word is classified as
text. Are the selected pixels those of *this* word? Made by `make reproduce-text-detector`, all numbers
from `studies/results/text_detector`."""
FIGURE = """![Images, probabilities of text, and the pixels that each method selects](../images/text-detector.png)

*The first test image of each background. Red: the target. Green: the {k} pixels that each method selects.*"""
HOW = """**The model** is the detector of rapidocr-onnxruntime ({weights}), of which only the probabilities are used;
one query takes {query_ms:.1f} ms on one core. It gets images of 64 by 160 pixels; the package itself would enlarge
them first. A pixel counts as text if its probability exceeds 0.5, as everywhere in sointer (the package uses 0.3;
{unsure_share:.1%} of the probabilities lie between 0.05 and 0.95). {text_share:.1%} of the pixels count as text, and
{found:.1%} of the words have such a pixel.

**Images** are drawn: plain, gradient or noisy backgrounds; random places, sizes, fonts and colours; words at least 8
pixels apart. A stroke consists of the pixels that are at least half covered by ink. **Targets**: one random pixel per
test image in which a word was found, among those that count as text and lie on or within 3 pixels of a stroke. The
explainer sees images and probabilities, never strokes. SOInter was fitted on other images of the same kind, and swaps
use a third set. {n_targets} targets ({seeds}); the seed determines images, targets, the fit and all draws.

**Methods.** *SOInter* selects pixels, *SOInter, patches* squares of 4 by 4, whose pixels are ranked at random.
*NearestPixels* uses only the position of the target; inside a word, the nearest pixels are near its strokes anyway.
*Occlusion* and *Rise* query the model for every sample, with pixels of training images in place of removed ones;
*Random* selects at random."""


def figures(rows: Sequence[Row]) -> dict[str, object]:
    """What the page says about model and images."""
    by_seed = {row["seed"]: row for row in rows}
    return {
        "weights": ", ".join(sorted({row["weights"] for row in rows})),
        "query_ms": float(np.median([row["query_ms"] for row in rows])),
        "text_share": float(np.mean([row["text_share"] for row in by_seed.values()])),
        "unsure_share": float(np.mean([row["unsure_share"] for row in by_seed.values()])),
        "found": float(np.mean([row["found"] for row in by_seed.values()])),
        "n_targets": sum(row["n_targets"] for row in by_seed.values()),
        "seeds": seeds_in(rows),
    }


def headline(found: ByMethod) -> str:
    """The numbers that the study is about, in a sentence."""
    said = [f"{method} {mean(found[method], 'own', MAIN_K):.2f}" for method in METHODS if method in found]
    text = f"**Share of the {MAIN_K} selected pixels on or within 3 pixels of the strokes of the target's word: "
    return prose(text + ", ".join(said) + ".**")


def mean(rows: Sequence[Row], name: str, k: int) -> float:
    return float(np.mean([row[name][row["ks"].index(k)] for row in rows]))


def sizes_of(found: ByMethod) -> list[int]:
    return list(next(iter(found.values()))[0]["ks"])


def strokes_section(found: ByMethod) -> str:
    sizes, rows = sizes_of(found), [row for same in found.values() for row in same]
    near_share = np.mean([row["near_share"] for row in rows])
    most = ", ".join(f"{mean(rows, 'own_most', k):.2f} for K = {k}" for k in sizes)
    text = (
        "Shares of the K selected pixels. *Own*: on or within 3 pixels of the strokes of the target's word; *on*: on "
        "these strokes; *other*: on or within 3 pixels of the strokes of another word. "
        f"{near_share:.1%} of all pixels are near the target's word, which is what random pixels reach. The "
        f"maximum, limited by small words, is {most}. Brackets are 95 % intervals over seeds."
    )
    lines = [
        (
            method,
            str(len(same)),
            *(interval([row["own"][place] for row in same]) for place in range(len(sizes))),
            " / ".join(f"{mean(same, 'on', k):.2f}" for k in sizes),
            " / ".join(f"{mean(same, 'other', k):.2f}" for k in sizes),
        )
        for method, same in found.items()
    ]
    joined = " / ".join(map(str, sizes))
    head = ("method", "seeds", *(f"own, K = {k}" for k in sizes), f"on, K = {joined}", f"other, K = {joined}")
    return "\n\n".join(["## Near the strokes", prose(text), table(head, lines)])


SWAPS = {
    "insert": "insert",
    "delete": "delete",
    "j_black": "J, black",
    "j_inpaint": "J, inpainted",
    "distance": "distance from target",
}


def swaps_section(found: ByMethod) -> str:
    sizes = sizes_of(found)
    n_swapped, n = (sum(row[name] for row in next(iter(found.values()))) for name in ("n_swapped", "n_targets"))
    text = (
        "*Insert*: the selected pixels, put into an image in which the target is not text, make it text. *Delete*: "
        "that image's pixels, put in their place, remove the text. *J*: how much more often the target stays text "
        "with the selected pixels alone than with those of the other image in the same places, with the rest black "
        f"or inpainted; 0 if the shape of the mask alone decides. {n_swapped} of {n} targets have such an image. "
        "Higher is better, except for the distance (in pixels), which is descriptive. "
        f"All for K = {' / '.join(map(str, sizes))}."
    )
    lines = [
        (method, *(" / ".join(f"{mean(same, name, k):.{digits(name)}f}" for k in sizes) for name in SWAPS))
        for method, same in found.items()
    ]
    head = ("method", *SWAPS.values())
    return "\n\n".join(["## Swaps with other images", prose(text), table(head, lines)])


def digits(name: str) -> int:
    return 1 if name == "distance" else 2


def differences_section(found: ByMethod) -> str:
    """SOInter minus the others at the main K, seed by seed."""
    lines = []
    for ours in ("SOInter", IN_PATCHES):
        for method in OTHERS:
            pairs = [
                (mine, theirs)
                for mine in found.get(ours, [])
                for theirs in found.get(method, [])
                if mine["seed"] == theirs["seed"]
            ]
            if pairs:
                gaps = (
                    [mine[name][at] - theirs[name][at] for mine, theirs in pairs]
                    for name in ("own", "other", "insert", "delete")
                    for at in [pairs[0][0]["ks"].index(MAIN_K)]
                )
                lines.append((ours, method, str(len(pairs)), *(interval(gap, low=-1.0) for gap in gaps)))
    if not lines:
        return ""
    text = (
        f"Seed by seed, on the same images, targets and swaps, for K = {MAIN_K}; brackets are 95 % intervals over "
        "seeds. Below 0, the other method has more."
    )
    head = ("method", "minus", "seeds", "own", "other", "insert", "delete")
    return "\n\n".join(["## Differences", prose(text), table(head, lines)])


def cost_section(found: ByMethod) -> str:
    text = "Queries and CPU time on one core, including the model's own time; medians over seeds."
    head = ("method", "queries in fit", "queries per sample", "fit, CPU s", "per sample, CPU ms")
    lines = [
        (
            method,
            f"{np.median([row['fit_queries'] for row in same]):,.0f}",
            f"{np.median([row['sample_queries'] for row in same]):,.0f}",
            f"{np.median([row['fit_seconds'] for row in same]):.1f}",
            f"{np.median([1e3 * row['explain_seconds'] / row['n_targets'] for row in same]):.1f}",
        )
        for method, same in found.items()
    ]
    return "\n\n".join(["## Costs", text, table(head, lines)])


# --- the figure ------------------------------------------------------------------------------------------


def draw(found: ByMethod, path: Path) -> bool:
    """Examples side by side: image, probabilities, then what each method selects. False if no example was kept."""
    kept = {method: row["examples"] for method, same in found.items() for row in same if row["examples"]}
    if not kept:
        return False
    examples = next(iter(kept.values()))
    figure, axes = plt.subplots(
        2 + len(kept),
        len(examples),
        figsize=(3.1 * len(examples), 1.32 * (2 + len(kept))),
        squeeze=False,
        layout="constrained",
    )
    for column, example in zip(axes.T, examples, strict=True):
        column[0].imshow(pixels_of(example["image"]))
        column[0].set_title(f"{example['background']} background")
        column[1].imshow(pixels_of(example["probability"])[..., 0], cmap="gray", vmin=0, vmax=255)
    for line, shown in zip(axes[2:], kept.values(), strict=True):
        for ax, example in zip(line, shown, strict=True):
            ax.imshow(selected_over(pixels_of(example["image"]), example["selected"]))
    for ax, label in zip(axes[:, 0], ("image", "probability", *kept), strict=True):
        ax.set_ylabel(label.replace(", ", ",\n"), fontsize=8)
    for line in axes:
        for ax, example in zip(line, examples, strict=True):
            mark(ax, example["target"])
    finish(figure, path)
    plt.close(figure)
    return True


def pixels_of(png: str) -> np.ndarray:
    """(height, width, 3) bytes."""
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB"))


def selected_over(image: np.ndarray, selected: Sequence[int]) -> np.ndarray:
    """The image, faint, with the selected pixels in green."""
    shown = (0.4 * image + 0.6 * 255).astype(np.uint8)
    shown.reshape(-1, 3)[np.asarray(selected)] = GREEN
    return shown


def mark(ax: Axes, target: Sequence[int]) -> None:
    ax.plot(target[1], target[0], marker="s", markersize=4, color=RED, markeredgecolor="white", markeredgewidth=0.6)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.grid(False)
    ax.spines[:].set_visible(False)
