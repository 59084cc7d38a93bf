"""Rules on the horses that took no part in development: are the pixels found that decide by these?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from studies.frame.markdown import in_order, mean, number, pick, prose, sections, table
from studies.frame.study import Case, Row, Study
from studies.horses.black_boxes import Segmenter, load_images
from studies.horses.methods import CONTROLS, EXPECTED, GRADIENT, NEAREST, ORDER, OURS, title
from studies.horses.planted import case_of, measure
from studies.horses.rules import OLDER, UNSEEN, WHAT

SEEDS = (401, 402, 403)
RULES = {**UNSEEN, **OLDER}
METHODS = (OURS, *CONTROLS, GRADIENT, EXPECTED)


def cases(smoke: bool) -> Iterator[Case]:
    if smoke:
        yield from (case_of(name, method, 0, quick=True) for name in RULES for method in (OURS, NEAREST))
        return
    for seed in SEEDS:
        for name in RULES:
            yield from (case_of(name, method, seed) for method in (METHODS if seed == SEEDS[0] else (OURS,)))


def run(segmenter: str, method: str, seed: int, quick: bool = False) -> dict[str, Any]:
    data = load_images(32, quick)
    images = data.part("train", "val").images
    rule = RULES[segmenter](images)
    found = measure(Segmenter(rule, images, data.test.images, rule.as_module(), rule), method, seed, quick)
    return {name: value for name, value in found.items() if name != "example"}


def page(rows: list[Row], images: Path) -> str:
    n_seeds = len({row["seed"] for row in pick(rows, method=OURS)})
    return sections(
        "## Rules not used in development",
        prose(
            f"Rules chosen before this version of the method was run on them: {described(UNSEEN)}. R-precision on test "
            f"images; SOInter: mean over {n_seeds} seed{'' if n_seeds == 1 else 's'}."
        ),
        of_rules(rows, tuple(UNSEEN)),
        prose(
            f"Older rules, not used to develop the previous version: {described(OLDER)}. This version trains longer, "
            "because that helped on *switch*. Evidence is additive over pixels, so a patch that only chooses which "
            "other pixels count is harder to find. In *ring*, the whole ring is the truth, but SOInter ranks the "
            "parts that support the label first. (After a first look at one seed, *switch* was restricted to "
            "targets whose two windows support different labels; elsewhere, either suffices.)"
        ),
        of_rules(rows, tuple(OLDER)),
    )


def described(rules: dict[str, Any]) -> str:
    return "; ".join(f"*{name}*, {WHAT[name]}" for name in rules)


def of_rules(rows: list[Row], names: tuple[str, ...]) -> str:
    """R-precision, a line for every method."""
    found = in_order(rows, "segmenter", names)
    body = [
        [title(method)]
        + [number(mean(row["r_precision"] for row in pick(rows, segmenter=name, method=method))) for name in found]
        for method in in_order(rows, "method", ORDER)
    ]
    return table(["", *found], body)


STUDY = Study("unseen", cases, run, page)
