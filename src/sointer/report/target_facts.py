"""What a report says of one target: how often it takes which value, what decides it, typical samples, failures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sointer.report.report_content import ReportContent
from sointer.report.shares import Share, confirmed_share

MOST_VALUES, MOST_FEATURES, MOST_EXAMPLES, MOST_FAILURES = 6, 10, 4, 30


@dataclass(frozen=True)
class ValueFacts:
    """Samples for which one value of the target is explained."""

    code: int
    n_samples: int
    confirmed: Share | None
    features: list[tuple[int, int]]
    """Units, and how many of the samples need them, most first."""
    examples: list[int]
    """Samples explained by what explains most of them, confirmed ones first."""


@dataclass(frozen=True)
class TargetFacts:
    """One target over all samples."""

    values: list[ValueFacts]
    """The rarest value first, since what is unusual needs a reason."""
    usual: int
    confirmed: Share | None
    unusual: Share | None
    """Confirmed among the samples that do not have the usual value."""
    failures: list[int]
    """Samples that the model did not confirm, worst first."""


def target_facts(content: ReportContent, target: int) -> TargetFacts:
    """All about the target with this number."""
    codes = content.codes[target]
    found, counts = np.unique(codes, return_counts=True)
    usual = int(found[np.argmax(counts)])
    most_common = found[np.argsort(-counts, kind="stable")][:MOST_VALUES]
    rarest_first = most_common[::-1]
    asked, agreement = content.asked[target], content.agreement[target]
    failed = np.flatnonzero(asked & (agreement < 1))
    worst_first = failed[np.lexsort((failed, codes[failed] == usual, agreement[failed]))]
    return TargetFacts(
        [_value_facts(content, target, int(code)) for code in rarest_first],
        usual,
        confirmed_share(asked[None], content.confirmed[target][None], codes[None]),
        unusual_share(asked, content.confirmed[target], codes, usual),
        worst_first[:MOST_FAILURES].tolist(),
    )


def unusual_share(
    asked: npt.NDArray[np.bool_], confirmed: npt.NDArray[np.bool_], codes: npt.NDArray[Any], usual: int
) -> Share | None:
    """The share confirmed where a target does not have its usual value, which often needs no reason at all."""
    other = codes != usual
    return confirmed_share(asked[None, other], confirmed[None, other], codes[None, other])


def _value_facts(content: ReportContent, target: int, code: int) -> ValueFacts:
    samples = np.flatnonzero(content.codes[target] == code)
    selected = content.counted[target, samples]
    counts = np.bincount(selected[selected >= 0], minlength=len(content.units))
    best = np.argsort(-counts, kind="stable")[:MOST_FEATURES]
    asked, confirmed = content.asked[target, samples], content.confirmed[target, samples]
    return ValueFacts(
        code,
        len(samples),
        confirmed_share(asked[None], confirmed[None], np.zeros((1, len(samples)))),
        [(int(unit), int(counts[unit])) for unit in best if counts[unit]],
        samples[_most_typical(selected, counts, np.where(confirmed, 0, np.where(asked, 2, 1)))].tolist(),
    )


def _most_typical(
    selected: npt.NDArray[Any], counts: npt.NDArray[Any], standing: npt.NDArray[Any]
) -> npt.NDArray[np.int64]:
    """Samples whose selection others share most; confirmed ones first, those that failed last."""
    shared = np.where(selected >= 0, counts[np.maximum(selected, 0)], 0).sum(axis=1)
    return np.lexsort((-shared, standing))[:MOST_EXAMPLES]
