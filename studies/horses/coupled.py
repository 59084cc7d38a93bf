"""Does it help images to couple the pixels of a mask, to pass evidence on through other pixels, or to eliminate?

The energy of images has no terms between pixels of the mask. Here they are added to a fitted one: a convolution over
the mask, by mean field, learned from further mixtures. What depends on other outputs is flood and majority.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from sointer import SOInter
from sointer.energy.image import ImageEnergy
from sointer.interpreter.image import ImageInterpreter, PixelUnits
from sointer.metrics.ground_truth import r_precision
from sointer.training.image_swaps import several_scales
from studies.frame.markdown import in_order, prose, sections, table
from studies.frame.study import Case, Row, Study
from studies.horses.black_boxes import load_segmenter
from studies.horses.methods import QUICK
from studies.horses.pairs import draw_pairs

SEEDS = (311, 312)
SEGMENTERS = ("flood", "majority")
SIZES, N_ITERATIONS, N_STEPS, BATCH = (3, 7, 15), 6, 250, 64
"""Pixels along the sides of the kernels; rounds of mean field; steps of learning, and mixtures in each."""
SHARE_FITTED, N_LEARNED, N_JUDGED, N_PAIRS = 0.75, 700, 300, 300
"""Of the images (the others judge); mixtures to learn a kernel from, and to judge it; pairs."""
SHARES = (0.25, 0.5, 1.0)
"""Of relevance that is passed on through other pixels."""
N_OTHERS = 4
ALONE, ELIMINATED, R = "alone", "half eliminated", "r_precision"


def cases(smoke: bool) -> Iterator[Case]:
    for seed in SEEDS[:1] if smoke else SEEDS:
        for segmenter in SEGMENTERS:
            yield {"segmenter": segmenter, "seed": seed} | ({"quick": True} if smoke else {})


@dataclass(frozen=True)
class Problem:
    """A fitted energy, and the model that it was fitted to."""

    explainer: SOInter
    energy: ImageEnergy
    interpreter: ImageInterpreter
    predict: Any

    def encoded(self, images: NDArray[Any]) -> Tensor:
        return torch.as_tensor(np.asarray(self.explainer.input_format_.encode(images), dtype=np.float32))

    def signs(self, images: NDArray[Any]) -> Tensor:
        """Masks as -1 and 1: (n, pixels)."""
        return torch.as_tensor(2.0 * (self.predict(images).reshape(len(images), -1) > 0.5) - 1).float()

    def mixtures(self, images: NDArray[Any], n: int, rng: np.random.Generator) -> Mixed:
        first = rng.integers(len(images), size=n)
        second = (first + rng.integers(1, len(images), size=n)) % len(images)
        keep = several_scales(PixelUnits(None, self.energy.image.n_pixels), self.energy.image.size, n, rng)
        mixed = np.where(keep.reshape(n, 1, *self.energy.image.size), images[first], images[second])
        signs, share = self.signs(images), torch.as_tensor(keep).float()
        alone = torch.cat([self.alone(images, signs, *part) for part in parts(first, second, share)])
        return Mixed(alone, self.signs(mixed), signs[first] != signs[second])

    def alone(self, images: NDArray[Any], signs: Tensor, first: Any, second: Any, share: Tensor) -> Tensor:
        """Log-odds of the label 1, by evidence alone: (mixtures, pixels)."""
        targets, total = torch.arange(self.energy.image.n_pixels), torch.zeros(())
        for index, own in ((first, share), (second, 1 - share)):
            with torch.no_grad():
                signed = self.energy.evidence(self.energy.maps(self.encoded(images[index])), targets).signed
            total = total + signs[index] * (signed * own[:, None, :]).sum(2)
        return total

    def relevance(self, image: NDArray[Any]) -> Tensor:
        """Shares of all pixels in the decisions of all pixels: (targets, pixels)."""
        targets = torch.arange(self.energy.image.n_pixels)
        with torch.no_grad():
            found = self.interpreter.relevance(self.energy.evidence(self.energy.maps(self.encoded(image)), targets))[0]
        return found / found.sum(1, keepdim=True).clamp_min(1e-12)


@dataclass(frozen=True)
class Mixed:
    """Mixtures of two images: all (mixtures, pixels)."""

    alone: Tensor
    """Log-odds of the label 1, by evidence alone."""
    signs: Tensor
    """The labels that the model predicts."""
    differ: Tensor
    """Whether the two images have different labels."""

    def accuracy(self, log_odds: Tensor) -> float:
        return float(((log_odds > 0) == (self.signs > 0))[self.differ].float().mean())


def parts(first: Any, second: Any, share: Tensor, size: int = 16) -> Iterator[tuple[Any, Any, Tensor]]:
    for start in range(0, len(first), size):
        yield first[start : start + size], second[start : start + size], share[start : start + size]


class Coupling(torch.nn.Module):
    """Terms between pixels of a mask, by displacement; the marginals are those of mean field."""

    def __init__(self, side: int, size: tuple[int, int]) -> None:
        super().__init__()
        self.kernel = torch.nn.Parameter(torch.zeros(1, 1, side, side))
        self.scale, self.bias = torch.nn.Parameter(torch.ones(())), torch.nn.Parameter(torch.zeros(()))
        self.side, self.size = side, size

    def between(self) -> Tensor:
        other = torch.ones_like(self.kernel)
        other[0, 0, self.side // 2, self.side // 2] = 0
        return self.kernel * other

    def forward(self, alone: Tensor) -> Tensor:
        own = log_odds = alone * self.scale + self.bias
        for _ in range(N_ITERATIONS):
            expected = torch.tanh(log_odds / 2).view(-1, 1, *self.size)
            log_odds = own + F.conv2d(expected, self.between(), padding=self.side // 2).flatten(1)
        return log_odds

    def learn(self, mixed: Mixed, rng: np.random.Generator, n_steps: int) -> None:
        slow, fast = {"params": [self.kernel], "lr": 3e-3}, {"params": [self.scale, self.bias], "lr": 2e-2}
        optimiser = torch.optim.Adam([slow, fast])
        for _ in range(n_steps):
            i = torch.as_tensor(rng.integers(len(mixed.alone), size=BATCH))
            wanted, counts = (mixed.signs[i] > 0).float(), mixed.differ[i]
            loss = F.binary_cross_entropy_with_logits(self(mixed.alone[i]), wanted, reduction="none")
            optimiser.zero_grad()
            ((loss * counts).sum() / counts.sum().clamp_min(1)).backward()
            optimiser.step()
        self.requires_grad_(False)

    def of_others(self, target: int, signs: Tensor) -> Tensor:
        """How much each other pixel of the mask that is labelled alike supports a target: shares (pixels,)."""
        (height, width), half = self.size, self.side // 2
        row, column = divmod(target, width)
        wide = F.pad(self.between()[0, 0], (width, width, height, height))
        top, left = height + half - row, width + half - column
        found = wide[top : top + height, left : left + width].flatten() * (signs == signs[target])
        return found.clamp_min(0) / found.clamp_min(0).sum().clamp_min(1e-9)


def run(segmenter: str, seed: int, quick: bool = False) -> dict[str, Any]:
    model, rng = load_segmenter(segmenter, seed=0, quick=quick), np.random.default_rng(seed)
    assert model.planted is not None
    images = model.fit_images[rng.permutation(len(model.fit_images))]
    n_ours = int(SHARE_FITTED * len(images))
    ours, others = images[:n_ours], images[n_ours:]
    explainer = SOInter(model.predict, random_state=seed, verbose=False, **(QUICK if quick else {})).fit(ours)
    problem = Problem(explainer, explainer.energy_, explainer.interpreter_, model.predict)
    n = 16 if quick else 1
    learned, judged = (
        problem.mixtures(part, count // n, rng) for part, count in ((ours, N_LEARNED), (others, N_JUDGED))
    )
    pairs = draw_pairs(N_PAIRS // n, len(others), model.size)
    truth = model.planted.relevant(others[pairs.image], pairs.pixel).reshape(len(pairs.image), -1)
    targets = pairs.pixel[:, 0] * model.size + pairs.pixel[:, 1]
    found: dict[str, Any] = {"agreement": {ALONE: round(judged.accuracy(judged.alone), 4)}, R: {}}

    def note(name: str, scores: list[Tensor]) -> None:
        found[R][name] = round(r_precision(torch.stack(scores).numpy(), truth, random_state=seed), 4)

    whole = {image: problem.relevance(others[[image]]) for image in np.unique(pairs.image)}
    signs = problem.signs(others)
    alone = [whole[image][target] for image, target in zip(pairs.image, targets, strict=True)]
    note(ALONE, alone)
    note(ELIMINATED, list(eliminated(problem, others, pairs.image, targets, alone, rng)))
    for side in SIZES[:1] if quick else SIZES:
        coupling = Coupling(side, problem.energy.image.size)
        coupling.learn(learned, rng, N_STEPS // n)
        found["agreement"][f"{side} x {side}"] = round(judged.accuracy(coupling(judged.alone)), 4)
        for share in SHARES:
            passed = [
                (1 - share) * own + share * coupling.of_others(int(target), signs[image]) @ whole[image]
                for own, image, target in zip(alone, pairs.image, targets, strict=True)
            ]
            note(f"{side} x {side}, {share:.0%} passed on", passed)
    return found


def eliminated(
    problem: Problem,
    images: NDArray[Any],
    index: NDArray[np.int64],
    targets: NDArray[np.int64],
    alone: list[Tensor],
    rng: np.random.Generator,
) -> Iterator[Tensor]:
    """The less relevant half of the pixels is replaced by other images' pixels, and the rest is scored anew."""
    for image, target, own in zip(index, targets, alone, strict=True):
        kept = own >= own.median()
        total = torch.zeros_like(own)
        for other in rng.integers(len(images), size=N_OTHERS):
            keep = kept.numpy().reshape(1, 1, *problem.energy.image.size)
            total += problem.relevance(np.where(keep, images[[image]], images[[other]]))[target]
        yield own + kept * (1 + total)


# --- the page ----------------------------------------------------------------------------------------------


def page(rows: list[Row], images: Path) -> str:
    names = in_order(rows, "segmenter", SEGMENTERS)

    def mean(name: str, measure: str, *variants: str) -> str:
        own = [row[measure] for row in rows if row["segmenter"] == name]
        return " / ".join(f"{np.mean([found[one] for found in own]):.2f}" if one in own[0] else "–" for one in variants)

    sides = [variant for variant in rows[0]["agreement"] if variant != ALONE]
    lines = [[ALONE, *(cell for name in names for cell in (mean(name, "agreement", ALONE), mean(name, R, ALONE)))]]
    for side in sides:
        passed = [f"{side}, {share:.0%} passed on" for share in SHARES]
        cells = [cell for name in names for cell in (mean(name, "agreement", side), mean(name, R, *passed))]
        lines.append([f"coupled, {side}", *cells])
    lines.append([ELIMINATED, *(cell for name in names for cell in ("–", mean(name, R, ELIMINATED)))])
    heads = [head for name in names for head in (f"{name}: agreement", "R-precision; 25 / 50 / 100 % passed on")]
    gains = [row["agreement"][side] - row["agreement"][ALONE] for row in rows for side in sides]
    others = [row[R][variant] - row[R][ALONE] for row in rows for variant in row[R] if variant != ALONE]
    return sections(
        "## Would coupling help?",
        prose(
            "In flood and majority, labels depend on the labels of other pixels, but the energy of images has no terms "
            "between pixels of the mask. Here such terms are added to fitted energies: a convolution over the mask, "
            "with mean-field marginals, learned from further mixtures. *Agreement*: share of mixtures of new images "
            "whose label is predicted correctly, where the labels of the two images differ. *Passed on*: that share of "
            "the relevance comes from what is relevant to other pixels of the mask, in proportion to their coupling "
            "to the target. *Half eliminated*: the less relevant half of the pixels is replaced and the rest scored "
            "again. "
            f"Means over {len({row['seed'] for row in rows})} seeds."
        ),
        prose(
            f"In single runs, coupling changed agreement by {min(gains):+.3f} to {max(gains):+.3f}, and these ways to "
            f"use other pixels changed R-precision by {min(others):+.2f} to {max(others):+.2f}: the evidence of a "
            "pixel already includes what acts through others, so SOInter does without."
        ),
        table(["", *heads], lines),
    )


STUDY = Study("coupled", cases, run, page)
