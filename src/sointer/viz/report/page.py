"""The report on tables and texts: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from sointer.errors import require_extra
from sointer.paths import Localities
from sointer.viz.report.content import (
    ReportContent,
    Share,
    TargetPaths,
    TargetSummary,
    summarize_target,
    verdicts,
)
from sointer.viz.report.samples import LabelEffects, PartialEffect

TEMPLATES = Path(__file__).parent / "templates"


def render_template(name: str, **values: Any) -> str:
    """The page as text.

    Templates write data with jinja's tojson, which escapes <, >, & and all that is not ASCII: no text can end the
    script that it stands in.
    """
    jinja2 = require_extra("jinja2", "report")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    page: str = environment.get_template(name).render(**values)
    return page


AGREEMENT_STEPS, NOT_QUERIED = 250, 255
MAX_FEATURES = 12
"""Of a locality."""


def pack(array: npt.ArrayLike, dtype: str) -> str:
    """The bytes of an array, little-endian, as base64."""
    return base64.b64encode(np.ascontiguousarray(array, dtype=dtype).tobytes()).decode("ascii")


def unsigned(largest: int) -> str:
    """The smallest kind of number that counts to `largest` and leaves one over for "none"."""
    return "u1" if largest < 2**8 - 1 else "<u2" if largest < 2**16 - 1 else "<u4"


def pack_samples(content: ReportContent) -> dict[str, Any]:
    """Names, and for every sample what was selected for all targets.

    A sample's block holds its features (numbers in `features`) and their values (numbers in `words`), then per target
    and rank the position in these and the score in steps of the target's largest, then per target that largest
    score, the value explained, the agreement, and what more there is: which are needed, effects in steps of the
    largest, where they begin and end, how many are not shown, and the locality.
    """
    n_samples = len(content.samples)
    own = [_sample_units(content, sample) for sample in range(n_samples)]
    present = content.present or [np.zeros(0, dtype=np.int64)] * n_samples
    unit_of = {name: unit for unit, name in enumerate(content.units)}
    in_localities = [
        unit_of[name] for found in content.localities or () for leaf in found for name in leaf.features[:MAX_FEATURES]
    ]
    used = np.unique(np.concatenate([*own, *present, np.array(in_localities, dtype=np.int64)]))
    words: dict[str, int] = {}
    value_words = [
        [words.setdefault(content.unit_values[sample][unit], len(words)) for unit in own[sample].tolist()]
        for sample in range(n_samples)
    ]
    types = {
        "feature": unsigned(len(used)),
        "word": unsigned(len(words)),
        "position": unsigned(max((len(units) for units in own), default=0)),
        "value": unsigned(len(content.values)),
    }
    blocks = [
        {
            "features": pack(np.searchsorted(used, own[sample]), types["feature"]),
            "words": pack(value_words[sample], types["word"]),
            "positions": pack(
                _packed_positions(content.selected[:, sample], own[sample], types["position"]), types["position"]
            ),
            **_in_steps(content.scores[:, sample], content.selected[:, sample], "steps", "largest"),
            "values": pack(content.codes[:, sample], types["value"]),
            "agreement": pack(_agreement(content.agreement[:, sample]), "u1"),
            "difference": pack(content.difference[:, sample], "<f4") if "continuous" in content.kinds else None,
            "numbers": None if content.numbers is None else pack(content.numbers[:, sample], "<f4"),
            "present": None
            if content.present is None
            else pack(np.searchsorted(used, present[sample]), types["feature"]),
            "needed": None if content.needed is None else pack(content.needed[:, sample], "u1"),
            **_effects(content, sample),
            "more": None if content.n_more is None else pack(content.n_more[:, sample], "<u2"),
            "locality": None if content.locality is None else pack(content.locality[:, sample], "u1"),
        }
        for sample in range(n_samples)
    ]
    fields = list(blocks[0]) if blocks else []
    return {
        "types": types,
        "fields": fields,
        "features": [str(content.units[unit]) for unit in used.tolist()],
        "words": list(words),
        "blocks": [[block[name] for name in fields] for block in blocks],
        "numberOfUnit": {unit: number for number, unit in enumerate(used.tolist())},
    }


def _sample_units(content: ReportContent, sample: int) -> npt.NDArray[np.int64]:
    units = np.unique(content.selected[:, sample]).astype(np.int64)
    return units[units >= 0]


def _packed_positions(selected: npt.NDArray[Any], own: npt.NDArray[np.int64], dtype: str) -> npt.NDArray[Any]:
    none = np.iinfo(np.dtype(dtype)).max
    return np.where(selected >= 0, np.searchsorted(own, np.maximum(selected, 0)), none)


def _in_steps(
    numbers: npt.NDArray[Any], selected: npt.NDArray[Any], steps: str, largest: str, kind: str = "i1"
) -> dict[str, str]:
    clean = np.nan_to_num(np.where(selected >= 0, numbers, 0.0), posinf=0.0, neginf=0.0)
    most = np.abs(clean).max(axis=1, initial=0.0)
    rounded = np.rint(np.iinfo(kind).max * clean / np.where(most > 0, most, 1.0)[:, None])
    return {steps: pack(rounded, kind), largest: pack(most, "<f4")}


def _effects(content: ReportContent, sample: int) -> dict[str, str | None]:
    effects = content.effects
    if effects is None:
        return {"effectSteps": None, "largestEffect": None, "base": None, "total": None}
    return {
        **_in_steps(effects.effects[:, sample], content.selected[:, sample], "effectSteps", "largestEffect", "<i2"),
        "base": pack(effects.base[:, sample], "<f4"),
        "total": pack(effects.total[:, sample], "<f4"),
    }


def _agreement(agreement: npt.NDArray[Any]) -> npt.NDArray[Any]:
    # Rounded down, so that nothing short of full agreement looks like it.
    return np.where(np.isnan(agreement), NOT_QUERIED, np.floor(AGREEMENT_STEPS * np.nan_to_num(agreement)))


def render_report(content: ReportContent) -> str:
    """The page as text; everything given by the user is escaped."""
    return render_template("report.html", content=content, data=report_data(content))


def report_data(content: ReportContent) -> dict[str, Any]:
    """What the page's script needs."""
    packed = pack_samples(content)
    number = packed.pop("numberOfUnit")
    number_of_name = {content.units[unit]: place for unit, place in number.items()}
    output_of = {str(name): i for i, name in enumerate(content.outputs)}
    summaries = [_summary(summarize_target(content, target), number) for target in range(len(content.targets))]
    if content.interactions is not None:
        for name, summary in zip(content.targets, summaries, strict=True):
            summary["partners"] = partners(content.interactions, output_of[str(name)])
    return {
        "kinds": list(content.kinds) or [content.kind] * len(content.targets),
        "unitNoun": content.unit_noun,
        "k": content.k,
        "samples": [str(name) for name in content.samples],
        "targets": [str(name) for name in content.targets],
        "outputs": [str(name) for name in content.outputs],
        "values": [str(value) for value in content.values],
        "texts": None if content.texts is None else list(content.texts),
        "spans": None
        if content.spans is None
        else [{str(number[unit]): spans for unit, spans in own.items() if unit in number} for own in content.spans],
        "valueSource": "expected" if content.is_expected else "model",
        "far": [int(sample) for sample in content.far],
        "summaries": summaries,
        "isCoupled": content.interactions is not None and bool(np.any(content.interactions)),
        "map": None if content.interactions is None else coupling_map(content.interactions),
        "start": None if content.effects is None else content.effects.start,
        "localities": None
        if content.localities is None
        else [_localities(found, number_of_name) for found in content.localities],
        "partial": [
            {number[unit]: _partial(one) for unit, one in target.items() if unit in number}
            for target in content.partial
        ],
        "byLabel": [[_by_label(one, number) for one in target] for target in content.by_label],
        "upper": list(content.upper) or [None] * len(content.targets),
        "refutedBelow": _refuted_below(content.n_draws),
        "tolerance": content.tolerance,
        "quality": None if content.quality is None else [[_rounded(one) for one in pair] for pair in content.quality],
        "paths": {str(target): _paths(paths, number) for target, paths in content.paths.items()},
        **packed,
    }


def _summary(summaries: TargetSummary, number: dict[int, int]) -> dict[str, Any]:
    return {
        "mostCommon": summaries.most_common,
        "features": [[number[unit], count] for unit, count in summaries.features],
        "confirmed": _share(summaries.confirmed),
        "refuted": summaries.n_refuted,
        "error": None if summaries.error is None else _rounded(summaries.error),
        "failures": summaries.failures,
        "values": [
            {
                "value": value.code,
                "n": value.n_samples,
                "confirmed": _share(value.confirmed),
                "features": [[number[unit], count] for unit, count in value.features],
                "examples": value.examples,
            }
            for value in summaries.values
        ],
        "partners": [],
    }


def _paths(paths: TargetPaths, number: dict[int, int]) -> dict[str, Any]:
    return {
        **asdict(paths),
        "paths": [
            {
                "feature": number[path.unit],
                "n": path.n_samples,
                "total": round(path.total, 4),
                "margin": round(path.margin, 4),
                "direct": round(path.direct, 4),
                "through": [[output, round(effect, 4)] for output, effect in path.through],
            }
            for path in paths.paths
        ],
    }


def _localities(found: Localities, number: Mapping[str, int]) -> dict[str, Any]:
    """What matters where; `number` is that of a unit by its name."""
    return {
        "decided": found.decided,
        "localities": [
            {
                "where": leaf.where,
                "share": round(leaf.share, 4),
                "features": [
                    [number[name], float(f"{relevance:.3g}")]
                    for name, relevance in zip(leaf.features, leaf.relevance, strict=True)
                ][:MAX_FEATURES],
            }
            for leaf in found
        ],
    }


def _by_label(found: LabelEffects, number: Mapping[int, int]) -> dict[str, Any]:
    partial = {number[unit]: _partial(one) for unit, one in found.partial.items() if unit in number}
    return {"label": found.label, "n": found.n, "partial": partial}


def _partial(effect: PartialEffect) -> dict[str, Any]:
    """Values and effects with three digits, which is finer than a screen; more where values differ by little."""
    span, largest = float(np.ptp(effect.values)), float(np.abs(effect.values).max())
    digits = 3 + max(0, int(np.log10(largest / span))) if span > 0 else 6
    found: dict[str, Any] = {
        "values": [float(f"{value:.{digits}g}") for value in effect.values],
        "effects": [float(f"{value:.3g}") for value in effect.effects],
        "categories": list(effect.categories),
        "size": float(f"{effect.size:.3g}"),
        "direction": effect.direction,
    }
    if effect.missing is not None:
        found["missing"] = [float(f"{value:.3g}") for value in effect.missing]
        found["meanMissing"] = float(f"{effect.mean_missing:.3g}")
    if effect.ends is not None:
        found["ends"] = list(effect.ends)
    if effect.n_values > len(effect.categories):
        found["nValues"] = effect.n_values
    return found


def _refuted_below(n_draws: int | None) -> float:
    """The agreement below which an explanation is refuted."""
    if n_draws is None:
        return 1.0
    levels = np.arange(n_draws + 1) / n_draws
    return float(levels[~verdicts(levels, n_draws, "refuted")][0])


def _rounded(value: float) -> float | None:
    return round(float(value), 4) if np.isfinite(value) else None


def _share(share: Share | None) -> list[float] | None:
    return None if share is None else [round(value, 4) for value in share]


MAX_ON_MAP, MAX_PAIRS, MAX_PARTNERS = 40, 30, 5
CLEAR_COUPLING, FULL_COLOUR = 0.5, 2.0
"""In log-odds: the least that is shown (fits find up to 0.43 between independent outputs), and the darkest colour."""


def coupling_map(interactions: npt.NDArray[Any]) -> dict[str, Any] | None:
    """The outputs to draw, in order, how strongly each pair is coupled, and the strongest pairs; None if none is."""
    strength = _clear(interactions)
    if len(strength) < 2 or not strength.any():
        return None
    strongest = np.argsort(-strength.max(axis=1), kind="stable")[:MAX_ON_MAP]
    shown = np.sort(strongest)
    order = shown[_alike_together(strength[np.ix_(shown, shown)])]
    first, second = np.triu_indices(len(strength), 1)
    best = np.argsort(-strength[first, second], kind="stable")[:MAX_PAIRS]
    pairs = [[int(first[i]), int(second[i]), _short(strength[first[i], second[i]])] for i in best]
    return {
        "outputs": order.tolist(),
        "strength": [[_short(value) for value in row] for row in strength[np.ix_(order, order)]],
        "pairs": [pair for pair in pairs if pair[2] > 0],
        "darkest": max(FULL_COLOUR, _short(strength.max())),
    }


def partners(interactions: npt.NDArray[Any], output: int) -> list[list[float]]:
    """The outputs that one is coupled with most, and how strongly."""
    strength = _clear(interactions)[output]
    best = np.argsort(-strength, kind="stable")[:MAX_PARTNERS]
    return [[int(other), _short(strength[other])] for other in best if strength[other] > 0 and other != output]


def _clear(interactions: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    strength = np.asarray(interactions, dtype=np.float64)
    return np.where(strength >= CLEAR_COUPLING, strength, 0.0)


def _alike_together(strength: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    if len(strength) < 3:
        return np.arange(len(strength))
    apart = strength.max() - (strength + strength.T) / 2
    np.fill_diagonal(apart, 0.0)
    return np.asarray(leaves_list(linkage(squareform(apart, checks=False), "average", optimal_ordering=True)))


def _short(value: float) -> float:
    return float(f"{value:.3g}")
