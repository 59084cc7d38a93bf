"""How long do 100,000 explanations of labels take, beside shap's KernelExplainer on the same function?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer import SequenceExplainer
from studies.frame.markdown import duration, prose, sections, table, times
from studies.frame.study import Case, Row, Study
from studies.usaddress.crf import load_sentences, package_tagger
from studies.usaddress.sets import QUERIES, SEEDS, fitted
from studies.usaddress.truth import chosen_sentences

N_LABELS, N_TIMED, N_BACKGROUND = 100_000, 15, 10


def cases(smoke: bool) -> Iterator[Case]:
    yield {"seed": SEEDS[0], "queries": QUERIES, "labels": N_LABELS} if not smoke else {
        "seed": 0, "queries": 600, "labels": 40, "quick": True,
    }  # fmt: skip


def run(seed: int, queries: int, labels: int, quick: bool = False) -> dict[str, Any]:
    explainer, _ = fitted(seed, queries)
    sentences, n_labels = [], 0
    source = load_sentences("test") + load_sentences("train")
    while n_labels < labels:
        sentences.append(source[len(sentences) % len(source)])
        n_labels += len(sentences[-1])
    predicted = package_tagger(sentences[:1])
    explainer.explain(sentences[:1], predicted=predicted)  # the first call takes longer
    started = time.process_time()
    explainer.explain(sentences, predicted=package_tagger(sentences))
    ours = (time.process_time() - started) / n_labels
    sample = chosen_sentences("report")[: 1 if quick else N_TIMED]
    return {
        "n_labels": n_labels,
        "ours": ours,
        "alone": kernel_seconds(explainer, sample, alone=True),
        "together": kernel_seconds(explainer, sample, alone=False),
    }


def kernel_seconds(explainer: SequenceExplainer, sample: list[list[str]], *, alone: bool) -> float:
    """Of one label, explained alone (the first three of each address), or with all others of its address."""
    import shap

    rng, started, done = np.random.default_rng(0), time.process_time(), 0
    for tokens in sample:
        own = package_tagger([tokens])[0]
        for target in range(min(len(tokens), 3)) if alone else (None,):

            def stays(masks: NDArray[Any], tokens: Any = tokens, own: Any = own, target: Any = target) -> Any:
                drawn = explainer.replacement_.draw([tokens] * len(masks), [m > 0.5 for m in masks], rng)
                same = np.array([[a == b for a, b in zip(y, own, strict=True)] for y in package_tagger(drawn)])
                return same.astype(float) if target is None else same[:, target].astype(float)

            # Ten draws of what stands in for removed tokens, as many as shap's background would have rows.
            kernel = shap.KernelExplainer(stays, np.zeros((N_BACKGROUND, len(tokens))))
            kernel.shap_values(np.ones((1, len(tokens))), silent=True)
            done += 1 if alone else len(tokens)
    return (time.process_time() - started) / done


def page(rows: list[Row], images: Path) -> str:
    row = rows[0]
    lines = [["SequenceExplainer, predictions included", duration(row["ours"]), "1"]]
    for name, key in (("one call per label", "alone"), ("one call for all labels of an address", "together")):
        lines.append([f"shap's KernelExplainer, {name}", duration(row[key]), times(row[key] / row["ours"])])
    return sections(
        "## How long it takes",
        prose(
            f"CPU time of one process for one label; {row['n_labels']:,} labels of addresses of all lengths for "
            f"SequenceExplainer, {N_TIMED} addresses for shap, with {N_BACKGROUND} background draws and its default "
            "number of samples. The model is the package's own tagger."
        ),
        table(["method", "CPU time of a label", "times"], lines),
    )


STUDY = Study("speed", cases, run, page)
