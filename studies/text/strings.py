"""Texts through functions of strings: planted words, and Bibtex as strings beside counts (docs/how-to/texts.md)."""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline

from sointer import SOInter
from sointer.zoo import PlantedTexts, load_bibtex

N_TRAINING, N_EXPLAINED, N_TAGS = 3000, 200, 60


def planted(seed: int, script: str, n_words: int, n_queries: int) -> None:
    """For each output, how many of the smallest sufficient sets of held-out texts with a "yes" are found exactly."""
    problem = PlantedTexts(n_words, script=script, random_state=seed)  # type: ignore[arg-type]
    names = list(problem.output_names)
    training, held_out = problem.sample(N_TRAINING, 1000 + seed), problem.sample(N_EXPLAINED, 2000 + seed)
    started = time.process_time()
    explainer = SOInter(problem, k=5, query_budget=n_queries, output_names=names, random_state=0).fit(training)
    print(f"fit: {time.process_time() - started:.0f} s of one core, {explainer.n_queries_} queries")
    for number, name in enumerate(names):
        yes = [text for text, value in zip(held_out, problem(held_out)[:, number], strict=True) if value]
        found = explainer.explain(yes, name, k="auto")
        chosen = [frozenset(found.feature_names[unit] for unit in row if unit >= 0) for row in found.selected]
        exact = sum(one in problem.smallest(text, number) for one, text in zip(chosen, yes, strict=True))
        print(f"{name}: {exact} of {len(yes)}, fidelity {found.verify().fidelity:.3f}")


def bibtex(as_counts: bool, n_queries: int) -> None:
    """The share of given tags that the model still gives for the selected words alone."""
    data = load_bibtex()
    rng, names = np.random.default_rng(0), [f"w{i}" for i in range(data.X.shape[1])]
    texts = [" ".join(names[i] for i in rng.permutation(data.X[[row]].indices)) for row in range(data.X.shape[0])]
    train, test = np.flatnonzero(data.split == "train"), np.flatnonzero(data.split == "test")[:N_EXPLAINED]
    Y = data.Y[:, np.argsort(-data.Y[train].sum(axis=0))[:N_TAGS]]
    model = make_pipeline(CountVectorizer(binary=True), MLPClassifier((128,), max_iter=25, random_state=0))
    model.fit([texts[i] for i in train], Y[train])
    rows, targets = np.nonzero(model.predict([texts[i] for i in test]))
    fitted, explained = [texts[i] for i in train], [texts[test[i]] for i in rows]
    if as_counts:
        fitted, explained = (model[0].transform(part).astype(float) for part in (fitted, explained))
    started = time.process_time()
    black_box = model[1:] if as_counts else model
    explainer = SOInter(black_box, k=10, query_budget=n_queries, method="predict", random_state=0).fit(fitted)
    print(f"fit: {time.process_time() - started:.0f} s of one core; {len(rows)} given tags")
    for k in (1, 3, 5, 10, "auto"):
        found = explainer.explain(explained, targets, k=k)  # type: ignore[arg-type]
        print(f"k = {k}: fidelity {found.verify().fidelity:.3f}, {found.n_selected.mean():.2f} words")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", choices=["planted", "bibtex"])
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--script", choices=["latin", "cyrillic"], default="latin")
    parser.add_argument("--words", type=int, default=2000)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--counts", action="store_true", help="of Bibtex: counts as a CSR matrix, not strings")
    given = parser.parse_args()
    if given.study == "planted":
        planted(given.seed, given.script, given.words, given.queries)
    else:
        bibtex(given.counts, given.queries)
