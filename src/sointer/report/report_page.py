"""The report on tables and texts: one HTML file that needs nothing else."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from sointer.report.coupling import coupling_map, partners
from sointer.report.environment import render_template
from sointer.report.packing import pack_samples
from sointer.report.report_content import ReportContent, TargetPlaces, TargetWays
from sointer.report.shares import Share
from sointer.report.target_facts import TargetFacts, target_facts


def render_report(content: ReportContent) -> str:
    """The page as text; everything given by the user is escaped."""
    return render_template("report.html", content=content, data=report_data(content))


def report_data(content: ReportContent) -> dict[str, Any]:
    """What the page's script needs."""
    packed = pack_samples(content)
    number = packed.pop("numberOfUnit")
    output_of = {str(name): i for i, name in enumerate(content.outputs)}
    facts = [_facts(target_facts(content, target), number) for target in range(len(content.targets))]
    if content.interactions is not None:
        for name, fact in zip(content.targets, facts, strict=True):
            fact["partners"] = partners(content.interactions, output_of[str(name)])
    return {
        "kinds": list(content.kinds) or [content.kind] * len(content.targets),
        "thing": content.thing,
        "k": content.k,
        "samples": [str(name) for name in content.samples],
        "targets": [str(name) for name in content.targets],
        "outputs": [str(name) for name in content.outputs],
        "values": [str(value) for value in content.values],
        "texts": None if content.texts is None else list(content.texts),
        "valueSource": "expected" if content.is_expected else "model",
        "far": [int(sample) for sample in content.far],
        "facts": facts,
        "map": None if content.interactions is None else coupling_map(content.interactions),
        "start": None if content.pushes is None else content.pushes.start,
        "places": None if content.places is None else [_places(target, number) for target in content.places],
        "quality": None if content.quality is None else [[_rounded(one) for one in pair] for pair in content.quality],
        "ways": {str(target): _ways(ways, number) for target, ways in content.ways.items()},
        **packed,
    }


def _facts(facts: TargetFacts, number: dict[int, int]) -> dict[str, Any]:
    return {
        "usual": facts.usual,
        "confirmed": _share(facts.confirmed),
        "unusual": _share(facts.unusual),
        "failures": facts.failures,
        "values": [
            {
                "value": value.code,
                "n": value.n_samples,
                "confirmed": _share(value.confirmed),
                "features": [[number[unit], count] for unit, count in value.features],
                "examples": value.examples,
            }
            for value in facts.values
        ],
        "partners": [],
    }


def _ways(ways: TargetWays, number: dict[int, int]) -> dict[str, Any]:
    return {
        **asdict(ways),
        "ways": [
            {
                "feature": number[way.unit],
                "n": way.n_samples,
                "total": round(way.total, 4),
                "direct": round(way.direct, 4),
                "through": [[output, round(effect, 4)] for output, effect in way.through],
            }
            for way in ways.ways
        ],
    }


def _places(target: TargetPlaces, number: dict[int, int]) -> dict[str, Any]:
    return {
        "decided": target.decided,
        "places": [
            {
                "where": place.where,
                "share": round(place.share, 4),
                "features": [[number[unit], float(f"{relevance:.3g}")] for unit, relevance in place.features],
            }
            for place in target.places
        ],
    }


def _rounded(value: float) -> float | None:
    return round(float(value), 4) if np.isfinite(value) else None


def _share(share: Share | None) -> list[float] | None:
    return None if share is None else [round(value, 4) for value in share]
