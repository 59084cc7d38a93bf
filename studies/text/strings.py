"""Texts through functions of strings: planted words, and Bibtex as strings beside word counts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline

from sointer import SOInter
from sointer.errors import SointerError
from sointer.explainers.baselines.base import Random
from sointer.explainers.baselines.lime_and_shap import KernelShap, Lime, ShapleySampling
from sointer.explanation import Explanation
from sointer.zoo import PlantedTexts, load_bibtex
from studies.frame.markdown import mean, number, pick, prose, sections, table
from studies.frame.study import Case, LeftOut, Row, Study

OURS, BIBTEX = "SOInter", "Bibtex"
PER_TEXT: dict[str, Any] = {"Lime": Lime, "KernelShap": KernelShap, "ShapleySampling": ShapleySampling}
METHODS = (OURS, *PER_TEXT, "Random")
SCRIPTS = ("latin", "cyrillic")
SEEDS = (21, 22, 23)
"""Seeds that took no part in development."""
N_TRAINING, N_EXPLAINED, N_EXPLAINED_SLOWLY = 3000, 200, 40
QUERIES, PER_TEXT_QUERIES = 100_000, 1000
BAR = 0.98
N_TAGS = 60
SIZES = (1, 3, 5, 10, "auto")


def cases(smoke: bool) -> Iterator[Case]:
    if smoke:
        for method in (OURS, "Lime", "Random"):
            yield {"problem": "latin", "method": method, "seed": 0, "quick": True}
        return
    for script, seed, method in product(SCRIPTS, SEEDS, METHODS):
        yield {"problem": script, "method": method, "seed": seed}
    for shown in ("strings", "counts"):
        yield {"problem": BIBTEX, "method": OURS, "shown": shown, "seed": 0}


def run(problem: str, method: str, seed: int, shown: str = "strings", quick: bool = False) -> dict[str, Any]:
    return bibtex(shown == "counts") if problem == BIBTEX else planted(problem, method, seed, quick)


def explainer_of(model: Any, method: str, seed: int, quick: bool, **options: Any) -> Any:
    options |= {"random_state": seed, "verbose": False}
    if method == OURS:
        return SOInter(model, query_budget=4000 if quick else QUERIES, **options)
    if method == "Random":
        return Random(model, **options)
    return PER_TEXT[method](model, n_samples=100 if quick else PER_TEXT_QUERIES, **options)


def planted(script: Any, method: str, seed: int, quick: bool) -> dict[str, Any]:
    """How many of the smallest sufficient sets of held-out texts with a "yes" are found, output by output."""
    texts = PlantedTexts(100 if quick else 2000, script=script, random_state=seed)
    names = list(texts.output_names)
    n_held_out = N_EXPLAINED if method in (OURS, "Random") else N_EXPLAINED_SLOWLY
    training = texts.sample(300 if quick else N_TRAINING, 1000 + seed)
    held_out = texts.sample(10 if quick else n_held_out, 2000 + seed)
    started = time.process_time()
    explainer = explainer_of(texts, method, seed, quick, k=5, output_names=names).fit(training)
    seconds = time.process_time() - started
    n_fit, n_before = explainer.n_queries_, explainer.n_explain_queries_
    found: dict[str, Any] = {}
    values = texts(held_out)
    for number_, name in enumerate(names):
        yes = [text for text, value in zip(held_out, values[:, number_], strict=True) if value]
        if not yes:
            continue
        smallest = [texts.smallest(text, number_) for text in yes]
        ranked = explainer.explain(yes, name, k=5)
        sizes = [min(map(len, sets)) for sets in smallest]
        found[name] = {"n": len(yes), "given": n_right(words_of(ranked, sizes), smallest)}
        if method == OURS:
            own = explainer.explain(yes, name, k="auto")
            found[name]["own"] = n_right(words_of(own), smallest)
    n_explained = sum(one["n"] for one in found.values()) * (2 if method == OURS else 1)
    return {
        "fit_cpu_seconds": round(seconds, 1),
        "fit_queries": n_fit,
        "queries_per_text": round((explainer.n_explain_queries_ - n_before) / max(n_explained, 1), 1),
        "exact": {
            size: round(share({"outputs": found}, size), 4)
            for size in ("own", "given")
            if method == OURS or size == "given"
        },
        "outputs": found,
    }


def words_of(explanation: Explanation, sizes: Sequence[int] | None = None) -> list[frozenset[str]]:
    """The selected words of each text; with sizes, its best so many."""
    rows = (
        explanation.selected if sizes is None else [row[:n] for row, n in zip(explanation.selected, sizes, strict=True)]
    )
    return [frozenset(str(explanation.feature_names[unit]) for unit in row if unit >= 0) for row in rows]


def n_right(chosen: Sequence[frozenset[str]], smallest: Sequence[Any]) -> int:
    return sum(one in sets for one, sets in zip(chosen, smallest, strict=True))


def bibtex(as_counts: bool) -> dict[str, Any]:
    """The share of given tags that the model still gives for the selected words alone, by the number of words."""
    try:
        data = load_bibtex()
    except SointerError as error:
        raise LeftOut(str(error)) from error
    rng, names = np.random.default_rng(0), [f"w{i}" for i in range(data.X.shape[1])]
    texts = [" ".join(names[i] for i in rng.permutation(data.X[[row]].indices)) for row in range(data.X.shape[0])]
    train, test = np.flatnonzero(data.split == "train"), np.flatnonzero(data.split == "test")[:N_EXPLAINED]
    Y = data.Y[:, np.argsort(-data.Y[train].sum(axis=0))[:N_TAGS]]
    model = make_pipeline(CountVectorizer(binary=True), MLPClassifier((128,), max_iter=25, random_state=0))
    model.fit([texts[i] for i in train], Y[train])
    rows, targets = np.nonzero(model.predict([texts[i] for i in test]))
    fitted: Any = [texts[i] for i in train]
    explained: Any = [texts[test[i]] for i in rows]
    if as_counts:
        fitted, explained = (model[0].transform(part).astype(float) for part in (fitted, explained))
    options: dict[str, Any] = {"k": 10, "query_budget": QUERIES, "method": "predict", "random_state": 0}
    started = time.process_time()
    explainer = SOInter(model[1:] if as_counts else model, verbose=False, **options).fit(fitted)
    seconds = time.process_time() - started
    found = {}
    for k in SIZES:
        explanation = explainer.explain(explained, targets, k=k)  # type: ignore[arg-type]
        fidelity, n_words = explanation.verify().fidelity, float(explanation.n_selected.mean())
        found[str(k)] = {"fidelity": round(float(fidelity), 4), "n_words": round(n_words, 2)}
    return {"fit_cpu_seconds": round(seconds, 1), "n_tags": len(rows), "k": found}


# --- the page --------------------------------------------------------------------------------------------


def share(row: Row, size: str, output: str | None = None) -> float:
    """Share of the texts with a "yes" whose set is found exactly: of one output, or of all."""
    chosen = [one for name, one in row["outputs"].items() if output in (None, name) and size in one]
    return sum(one[size] for one in chosen) / sum(one["n"] for one in chosen) if chosen else float("nan")


def page(rows: list[Row], images: Path) -> str:
    found = [row for row in rows if row["problem"] != BIBTEX]
    return sections(opening(found), *of_planted(found), of_bibtex(pick(rows, problem=BIBTEX)))


def opening(rows: list[Row]) -> str:
    ours = pick(rows, method=OURS)
    worst = min((share(row, "own") for row in ours), default=float("nan"))
    others = min((share(row, "given") for row in rows if row["method"] in PER_TEXT), default=float("nan"))
    reached = "reached" if worst >= BAR else "**not reached**"
    return "# Functions of strings\n\n" + prose(
        "A function reads strings and returns six planted outputs (`PlantedTexts`): *any* of two words, a *count* of "
        "at least two of five words, a word without a *negation* before it, a *bigram*, and one word before another "
        "(*order*, *second order*). The truth is the smallest set of words that keeps the output when all others are "
        'deleted. Only texts with output "yes" count, because for "no" the empty text suffices. SOInter selects '
        f"exactly such a set in {100 * worst:.1f} % of these texts in its worst run (bar: {100 * BAR:.0f} %, "
        f"{reached}). The other methods are given its size; those that query the function for every text then find "
        f"at least {100 * others:.1f} %. Generated by `python -m studies run text/strings`."
    )


def of_planted(rows: list[Row]) -> Iterator[str]:
    head = ["script", "method", "seeds", "exact, own size", "exact, size given", "queries in fit", "per text"]
    lines = []
    for script, method in product(SCRIPTS, METHODS):
        if own := pick(rows, problem=script, method=method):
            shares = [number(mean(share(row, size) for row in own), 3) for size in ("own", "given")]
            costs = [f"{mean(row[cost] for row in own):,.0f}" for cost in ("fit_queries", "queries_per_text")]
            lines.append([script, method, str(len(own)), *shares, *costs])
    n_words, n_texts = "2,000 different words", f"{N_EXPLAINED:,} ({N_EXPLAINED_SLOWLY} with 1,000 queries each)"
    yield "## The smallest sufficient words"
    yield prose(f"{N_TRAINING:,} training texts of 8 to 34 words, {n_words}; {n_texts} held-out texts.")
    yield table(head, lines)
    names = list(dict.fromkeys(name for row in rows for name in row["outputs"]))
    by_output = []
    for method in METHODS:
        if own := pick(rows, method=method):
            size = "own" if method == OURS else "given"
            by_output.append([method, *(number(mean(share(row, size, name) for row in own), 3) for name in names)])
    yield prose("By output; SOInter with its own size, the others with the size given. Mean over scripts and seeds.")
    yield table(["method", *names], by_output)
    if ours := pick(rows, method=OURS):
        yield prose(
            f"A fit takes {mean(row['fit_cpu_seconds'] for row in ours):.0f} CPU seconds, the function included."
        )


def of_bibtex(rows: list[Row]) -> str:
    if not rows:
        return ""
    lines = [
        [row["shown"], *(number(row["k"][str(k)]["fidelity"], 3) for k in SIZES), number(row["k"]["auto"]["n_words"])]
        for row in rows
    ]
    text = (
        f"A network reads Bibtex's documents as strings or as counts of words. Of {rows[0]['n_tags']} tags given to "
        f"test documents ({N_TAGS} different ones, one seed), the share still given for the k selected words alone:"
    )
    head = ["shown as", *(f"k = {k}" for k in SIZES), "words, k = auto"]
    return sections("## Strings or counts?", prose(text), table(head, lines)).rstrip()


STUDY = Study("strings", cases, run, page)
