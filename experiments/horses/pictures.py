"""Examples for the figures: chosen once, kept with the results, drawn beside the images they are about."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from drawing import finish
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from measures import explain
from numpy.typing import NDArray
from setting import Questions, Setting

from sointer.plot.outlines import borders, outline

GREEN, RED, RIM = "#00e676", "#ff2424", "#1a1a1a"
N_EXAMPLES = 6

Example = dict[str, Any]


def choose(setting: Setting, n: int = N_EXAMPLES) -> Questions:
    """Test images at even steps through the set, with a pixel each that the black box calls horse; the last two: not.

    Chosen by lot before anything was explained, so that the examples are neither good nor bad ones.
    """
    rng = np.random.default_rng(1)
    masks = setting.ask(setting.test)
    image = np.linspace(0, len(masks) - 1, n).round().astype(np.int64)
    pixels = []
    for number, mask in enumerate(masks[image]):
        label = int(number < n - 2)
        there = np.argwhere(mask == label) if (mask == label).any() else np.argwhere(mask >= 0)
        pixels.append(rng.choice(there))
    return Questions(setting.test, masks, image, np.array(pixels))


def examples(explainer: Any, setting: Setting, k: int) -> list[Example]:
    """What is selected for the chosen questions, as plain values."""
    questions = choose(setting)
    explanation = explain(explainer, questions, k)
    confirmed = explanation.verify().confirmed
    members = explanation.source.groups.take(np.arange(len(questions)))
    ranks = np.full((len(questions), setting.size**2), -1, dtype=np.int16)
    for place in range(explanation.selected.shape[1]):
        alone = np.zeros((len(questions), members.n_units), dtype=bool)
        there = np.flatnonzero(explanation.selected[:, place] >= 0)
        alone[there, explanation.selected[there, place]] = True
        ranks[members.to_features(alone)] = place
    return [
        {
            "image": int(questions.image[i]),
            "target": questions.pixel[i].tolist(),
            "said": int(questions.said[i]),
            "confirmed": bool(confirmed[i]),
            "mask": pack(questions.masks[questions.image[i]]),
            "ranks": base64.b64encode(ranks[i].tobytes()).decode(),
        }
        for i in range(len(questions))
    ]


def pack(mask: NDArray[np.uint8]) -> str:
    return base64.b64encode(np.packbits(mask).tobytes()).decode()


def unpack(text: str, size: int) -> NDArray[np.uint8]:
    return np.unpackbits(np.frombuffer(base64.b64decode(text), dtype=np.uint8))[: size**2].reshape(size, size)


def ranks_of(example: Example, size: int) -> NDArray[np.int16]:
    """The place of every pixel in the order of choice, those of one group alike; -1 if it was not chosen."""
    return np.frombuffer(base64.b64decode(example["ranks"]), dtype=np.int16).reshape(size, size)


def draw_panels(found: Sequence[Example], images: NDArray[np.uint8], path: Path, *, grouped: bool = False) -> None:
    """Input, mask and smallest rectangle of every example, side by side."""
    size = images.shape[2]
    figure, axes = plt.subplots(3, len(found), figsize=(1.9 * len(found), 6.1), layout="constrained", squeeze=False)
    for (top, middle, bottom), example in zip(axes.T, found, strict=True):
        image, ranks = images[example["image"]].transpose(1, 2, 0), ranks_of(example, size)
        overlay(top, image, ranks, example["target"], grouped)
        label = "horse" if example["said"] else "background"
        top.set_title(f"{label}{'' if example['confirmed'] else ', not repeated'}", fontsize=9)
        middle.imshow(unpack(example["mask"], size), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        mark(middle, example["target"], size)
        shown = ranks >= 0
        shown[tuple(example["target"])] = True
        rows, columns = np.flatnonzero(shown.any(axis=1)), np.flatnonzero(shown.any(axis=0))
        only = np.full_like(image, 255)
        window = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        only[window] = image[window]
        bottom.imshow(only, interpolation="nearest")
        mark(bottom, example["target"], size)
    names = ("input, selected, target", "what the black box says", "smallest rectangle")
    for ax, name in zip(axes[:, 0], names, strict=True):
        ax.set_ylabel(name, fontsize=9)
    for ax in axes.ravel():
        bare(ax)
    finish(figure, path)
    plt.close(figure)


def draw_rows(rows: dict[str, Sequence[Example]], images: NDArray[np.uint8], path: Path) -> None:
    """A row of overlays for each kind of unit, the masks below."""
    size, n_examples = images.shape[2], len(next(iter(rows.values())))
    figure, axes = plt.subplots(
        len(rows) + 1,
        n_examples,
        figsize=(1.9 * n_examples, 2.0 * (len(rows) + 1)),
        layout="constrained",
        squeeze=False,
    )
    for line, (name, found) in zip(axes, rows.items(), strict=False):
        line[0].set_ylabel(name, fontsize=9)
        for ax, example in zip(line, found, strict=True):
            image = images[example["image"]].transpose(1, 2, 0)
            overlay(ax, image, ranks_of(example, size), example["target"], grouped=True)
    axes[-1, 0].set_ylabel("what the black box says", fontsize=9)
    for ax, example in zip(axes[-1], next(iter(rows.values())), strict=True):
        ax.imshow(unpack(example["mask"], size), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        mark(ax, example["target"], size)
    for ax in axes.ravel():
        bare(ax)
    finish(figure, path)
    plt.close(figure)


def overlay(ax: Axes, image: NDArray[Any], ranks: NDArray[np.int16], target: Sequence[int], grouped: bool) -> None:
    """The image, what was selected (stronger green: chosen earlier) and the target."""
    share = ranks / max(int(ranks.max()), 1)
    fill = np.zeros((*ranks.shape, 4))
    fill[..., :3] = np.array([0, 230, 118]) / 255
    fill[..., 3] = np.where(ranks >= 0, 0.65 - 0.4 * share, 0.0)
    ax.imshow(image, interpolation="nearest")
    ax.imshow(fill, interpolation="nearest")
    lines(ax, borders(ranks if grouped else np.where(ranks >= 0, 0, -1)), GREEN, 0.9)
    mark(ax, target, len(ranks))


def mark(ax: Axes, target: Sequence[int], size: int) -> None:
    """The target in red; of a large image, a square around it, which can be seen."""
    where = np.zeros((size, size), dtype=bool)
    row, column = target
    around = size // 64
    where[max(row - around, 0) : row + around + 1, max(column - around, 0) : column + around + 1] = True
    lines(ax, outline(where), RED, 2.0)


def lines(ax: Axes, segments: Any, colour: str, width: float) -> None:
    for paint, points in ((RIM, width + 0.7), (colour, width)):
        ax.add_collection(
            LineCollection(segments, colors=paint, linewidths=points, capstyle="projecting"), autolim=False
        )


def bare(ax: Axes) -> None:
    ax.set_xticks([])
    ax.set_yticks([])
    ax.grid(False)
    ax.spines[:].set_visible(False)
