"""Gaussian noise on the images: is what is selected still right, and still the same?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from drawing import finish, legend_below
from explainers import Recipe
from matplotlib import pyplot as plt
from measures import Measured, explain, measure
from methods import COLOURS, explainer_of
from numpy.typing import NDArray
from setting import BLACK_BOXES
from study import Case, Row, Study
from tables import all_counts, at, figure, number, sections, table

from sointer.metrics import iou

VARIANCES = (0.0, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
KS = (10, 30, 100, 300)
METHODS = ("SOInter", "NearestPixels")
MOST_LOST, UP_TO = 0.05, 1e-2
"""What was asked for: F1 at most so much lower, up to this variance."""


def cases(smoke: bool) -> Iterator[Case]:
    for black_box in ("unet",) if smoke else BLACK_BOXES:
        for method in METHODS:
            for variance in (0.0, 1e-2) if smoke else VARIANCES:
                case = {"black_box": black_box, "method": method, "variance": variance}
                yield case | ({"quick": True} if smoke else {})


def run(black_box: str, method: str, variance: float, quick: bool = False) -> dict[str, Any]:
    recipe = Recipe(black_box, quick=quick)
    explainer, _ = explainer_of(method, recipe)
    setting = recipe.setting
    clean, noisy = setting.questions(), setting.questions(images=with_noise(setting.test, variance))
    found = measure(explainer, noisy, KS)
    before = np.concatenate([explain(explainer, some, found.selected.shape[1]).selected for some in clean.parts(500)])
    return {
        "f1": found.f1("as fitted"),
        "f1_interval": found.f1_intervals("as fitted"),
        "fidelity": found.fidelity("as fitted"),
        "overlap": overlaps(found, before),
        "iou": round(float(np.mean(iou(setting.truth, noisy.masks))), 4),
        "same_answer": round(float((clean.said == noisy.said).mean()), 4),
        "share_horse": round(float(noisy.said.mean()), 4),
        "n_pairs": len(noisy),
    }


def with_noise(images: NDArray[np.uint8], variance: float) -> NDArray[np.uint8]:
    """Noise of this variance on pixels in [0, 1], cut off there and rounded back to bytes."""
    noise = np.random.default_rng(2).standard_normal(images.shape) * np.sqrt(variance)
    return np.rint(255 * np.clip(images / 255 + noise, 0, 1)).astype(np.uint8)


def overlaps(found: Measured, before: NDArray[np.int64]) -> dict[int, float]:
    """The share of the k pixels selected now that were also selected on the clean image."""
    result = {}
    for k in found.replies["as fitted"]:
        pairs = zip(found.selected[:, :k], before[:, :k], strict=True)
        both = [np.intersect1d(a[a >= 0], b[b >= 0]).size for a, b in pairs]
        result[k] = round(float(np.mean(both)) / k, 4)
    return result


# --- the page ----------------------------------------------------------------------------------------------


def page(rows: list[Row], images: Path) -> str:
    draw(rows, images / "horses-noise.png")
    return sections(
        "## Noise on the images\n\nGaussian noise was added to the test images (values scaled to [0, 1], cut off, "
        "rounded back to bytes). The black box is asked about the noisy image, whole and reduced; the explainer, "
        "fitted on clean images, is told what it says.",
        figure(
            images,
            "horses-noise.png",
            "F1 and overlap against the variance of the noise. Left and middle: does the black box repeat on the "
            "selected pixels what it says of the whole noisy image? Right: how many of the selected pixels are those "
            "selected on the clean image (K = 30). Left end of each line: no noise. A variance of 1 is more noise than "
            "image.",
        ),
        *(verdict(rows, box, name) for box, name in BLACK_BOXES.items()),
        table_of(rows),
    )


def pick(rows: list[Row], box: str, method: str) -> list[Row]:
    own = [row for row in rows if row["black_box"] == box and row["method"] == method]
    return sorted(own, key=lambda row: row["variance"])


def verdict(rows: list[Row], box: str, name: str) -> str:
    own = pick(rows, box, "SOInter")
    if not own or own[0]["variance"] > 0:
        return ""
    clean = own[0]["f1"]
    lost = {
        (row["variance"], k): at(clean, k) - at(row["f1"], k)
        for row in own[1:]
        if row["variance"] <= UP_TO
        for k in all_counts(own)
    }
    if not lost:
        return ""
    (variance, k), most = max(lost.items(), key=lambda item: item[1])
    verb = "is kept" if most <= MOST_LOST else "is **not** kept"
    return (
        f"{name}: asked for were at most {100 * MOST_LOST:.0f} points of F1 lost up to a variance of {UP_TO:g}; "
        f"this {verb}: the most lost is {100 * most:.1f} points (variance {variance:g}, K = {k})."
    )


def table_of(rows: list[Row]) -> str:
    ks = all_counts(rows)
    head = ["black box", "method", "variance", *(f"F1, K = {k}" for k in ks), *(f"overlap, K = {k}" for k in ks)]
    lines = [[*head, "same answer as clean", "IoU of the black box"]]
    for box, name in BLACK_BOXES.items():
        for method in METHODS:
            for row in pick(rows, box, method):
                values = [number(at(row[what], k), 3) for what in ("f1", "overlap") for k in ks]
                others = [f"{row['same_answer']:.1%}", number(row["iou"], 3)]
                lines.append([name, method, f"{row['variance']:g}", *values, *others])
    return table(lines)


def draw(rows: list[Row], path: Path) -> None:
    drawn, axes = plt.subplots(1, 3, figsize=(12.5, 3.5), layout="constrained")
    shades = (1.0, 0.75, 0.5, 0.3)
    for ax, (box, name) in zip(axes[:2], BLACK_BOXES.items(), strict=True):
        for method in METHODS:
            own = pick(rows, box, method)
            for k, shade in zip(all_counts(own) if own else [], shades, strict=False):
                ax.plot(
                    places(own),
                    [at(row["f1"], k) for row in own],
                    label=f"{method}, K = {k}",
                    alpha=shade,
                    markersize=5,
                    **COLOURS[method],
                )
        ax.set(title=name, ylabel="relative F1", ylim=(0, 1.02))
    for (box, name), line in zip(BLACK_BOXES.items(), ("-", "--"), strict=True):
        own = pick(rows, box, "SOInter")
        if own:
            values = [at(row["overlap"], 30) for row in own]
            axes[2].plot(places(own), values, line, color=COLOURS["SOInter"]["color"], marker="o", label=name)
    axes[2].set(title="same pixels as without noise, K = 30", ylabel="overlap", ylim=(0, 1.02))
    axes[2].legend(frameon=False)
    for ax in axes:
        ax.set_xscale("log")
        ax.set_xlabel("variance of the noise")
        ax.set_xticks([1e-5, *VARIANCES[1:]], ["0", *(f"{v:g}" for v in VARIANCES[1:])])
        ax.set_xlim(7e-6, 1.5)
        ax.minorticks_off()
    legend_below(drawn, axes[0], 4)
    finish(drawn, path)
    plt.close(drawn)


def places(own: list[Row]) -> list[float]:
    """Where variances stand on a log axis, which has no 0."""
    return [row["variance"] or 1e-5 for row in own]


STUDY = Study("noise", cases, run, page)
