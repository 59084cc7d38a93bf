"""The paper's text study, and more: how faithful is each explainer, and what does it cost? (Tables 1 and 2)"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sointer import BlackBox, SOInter
from sointer.errors import SointerError
from sointer.explainers.baselines.base import Random
from sointer.explainers.baselines.l2x import L2X
from sointer.explainers.baselines.lime_and_shap import KernelShap, Lime, ShapleySampling
from sointer.explanation import Explanation
from sointer.metrics.faithfulness import post_hoc_f1
from studies.frame.explaining import QUICK
from studies.frame.study import Case, LeftOut, Study
from studies.text.black_boxes import GENERATED, load_data, trained
from studies.text.text_page import METHODS, page

KS = (1, 3, 5, 10, 30)
MANY, SOME, FEW = 200, 60, 10
"""Documents explained per split: by methods that query nothing, by those with 1000 rows each, and by slower ones."""
PAIRS = [(data, kind) for data in ("bibtex", "enron", "wikimovies", "imdb") for kind in ("dvn", "spen", "chain")]
FULL = ("bibtex", "dvn")
ONE_TAG, ALL_TAGS = "SOInter, one tag", "SOInter, all tags"
MORE_METHODS = (
    *(f"{name}, {budget} queries" for budget in (5_000, 20_000, 100_000) for name in ("SOInter", "SOInter-1")),
    *(f"{name}, tuned, {n} samples" for n in (50, 200) for name in ("Lime", "KernelShap")),
    ONE_TAG,
    ALL_TAGS,
)


class Subject:
    """One black box, the documents that are explained, and what it says of them."""

    def __init__(self, name: str, kind: str) -> None:
        self.name, self.kind = name, kind
        self.data = load_data(name)
        self.model = trained(kind, self.data)
        self.black_box = BlackBox(self.model.predict, batch_size=4096, output_names=list(self.data.label_names))
        self.parts = {}
        for split in ("train", "test"):
            X, Y = self.data.part(split)
            chosen = np.random.default_rng(0).permutation(X.shape[0])[:MANY]
            self.parts[split] = (X[chosen], Y[chosen], np.asarray(self.model.predict(X[chosen])))

    def options(self, seed: int) -> dict[str, Any]:
        return {
            "k": max(KS),
            "removal": "zero",
            "feature_names": list(self.data.feature_names),
            "random_state": seed,
            "verbose": False,
        }

    def measure(
        self, explain: Callable[..., Explanation], n_documents: int, split: str, ks: Sequence[int] = KS
    ) -> dict[str, Any]:
        """Plain, post-hoc and relative F1 at every k, over all tags of the first n documents."""
        X, truth, said = (part[:n_documents] for part in self.parts[split])
        n, d = said.shape
        document, tag = np.repeat(np.arange(n), d), np.tile(np.arange(d), n)
        queries, started = self.black_box.n_queries, time.perf_counter()
        selected = np.concatenate(
            [
                explain(X[document[batch]], target=tag[batch], predicted=said[document[batch]]).selected
                for batch in np.array_split(np.arange(n * d), max(1, n // 10))
            ]
        )
        seconds = time.perf_counter() - started
        queries = self.black_box.n_queries - queries
        by_k = {}
        for k in ks:
            kept = self.labels_of(X, document, tag, selected[:, :k]).reshape(n, d)
            by_k[k] = {
                str(size): scores(truth[:size], said[:size], kept[:size])
                for size in sorted({FEW, SOME, MANY})
                if size <= n
            }
        return {
            "documents": n,
            "explain_seconds": round(seconds, 2),
            "queries_per_document": round(queries / n, 2),
            "k": by_k,
        }

    def labels_of(
        self, X: Any, document: NDArray[np.int64], tag: NDArray[np.int64], selected: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """What the model says of each pair's tag when only the selected words are left."""
        labels = np.empty(len(tag), dtype=np.int64)
        for part in np.array_split(np.arange(len(tag)), max(1, len(tag) // 8192)):
            row, place = np.nonzero(selected[part] >= 0)
            mask = sparse.csr_matrix(
                (np.ones(len(row), dtype=np.float32), (row, selected[part][row, place])), shape=(len(part), X.shape[1])
            )
            left = X[document[part]].multiply(mask).tocsr()
            labels[part] = np.asarray(self.model.predict(left))[np.arange(len(part)), tag[part]]
        return labels


def scores(truth: Any, said: Any, kept: Any) -> dict[str, dict[str, float]]:
    return {
        average: {name: round(value, 4) for name, value in post_hoc_f1(truth, said, kept, average)._asdict().items()}
        for average in ("macro", "micro", "example")
    }


def fitted(subject: Subject, explainer: Any) -> tuple[Any, dict[str, Any]]:
    """The explainer, and what fitting it cost."""
    X, _ = subject.data.train
    before, started = subject.black_box.n_queries, time.perf_counter()
    explainer.fit(X)
    return explainer, {
        "fit_seconds": round(time.perf_counter() - started, 2),
        "fit_queries": subject.black_box.n_queries - before,
    }


def explainer_of(subject: Subject, method: str, seed: int) -> tuple[Any, int]:
    """An explainer by its name in the table, and how many documents it explains."""
    name, *settings = method.split(", ")
    numbers = {what: int(number) for number, _, what in (one.partition(" ") for one in settings) if number.isdigit()}
    box, options = subject.black_box, subject.options(seed)
    if name in ("SOInter", "SOInter-1"):
        if subject.name == GENERATED:
            return SOInter(box, query_budget=1000, **options, **QUICK), SOME
        budget = numbers.get("queries")
        explainer = SOInter(box, structured=name == "SOInter", query_budget=budget, **options)
        return explainer, SOME if budget else MANY
    if name in ("Lime", "KernelShap"):
        n_samples = {"n_samples": numbers["samples"]} if "samples" in numbers else {}
        tuned = "tuned" in settings
        kind = {"Lime": Lime, "KernelShap": KernelShap}[name]
        return kind(box, protocol="tuned" if tuned else "package", **n_samples, **options), SOME if tuned else FEW
    kind, n = {"Random": (Random, MANY), "L2X": (L2X, MANY), "ShapleySampling": (ShapleySampling, SOME)}[name]
    return kind(box, **options), n


def variants(subject: Subject, explainer: SOInter) -> dict[str, Any]:
    """What else SOInter can do, once fitted."""

    def without_prediction(X: Any, *, target: Any, predicted: Any) -> Explanation:
        return explainer.explain(X, target=target, query=False)

    def refined(n: int, k: int) -> Callable[..., Explanation]:
        return lambda X, *, target, predicted: explainer.explain(X, target=target, predicted=predicted, k=k, refine=n)

    found: dict[str, Any] = {
        "skill": round(explainer.held_out_skill_, 4),
        "prediction not given": subject.measure(without_prediction, SOME, "test"),
        "refined": {
            f"{n} queries, k={k}": subject.measure(refined(n, k), SOME, "test", ks=(k,))
            for k in (3, 5, 10)
            for n in (1, 4, 16)
        },
    }
    if (subject.name, subject.kind) == FULL:
        found["words"] = words_by_tag(subject, explainer)
    return found


def fit_alone(subject: Subject, method: str, seed: int) -> dict[str, Any]:
    """What it costs to fit for one tag, or all."""
    explainer, _ = explainer_of(subject, method, seed)
    started = time.perf_counter()
    explainer.fit(subject.data.train.X, targets=["games"] if method == ONE_TAG else None)
    return {"fit_seconds": round(time.perf_counter() - started, 2), "fit_queries": explainer.n_queries_}


def words_by_tag(subject: Subject, explainer: SOInter, k: int = 10) -> dict[str, list[str]]:
    """Table 2: for every tag, the words most often among the k that made the model give it, in the training split."""
    X, _ = subject.data.train
    said = np.asarray(subject.model.predict(X))
    document, tag = np.nonzero(said)
    explanation = explainer.explain(X[document], target=tag, predicted=said[document], k=k)
    return {name: [word for word, _ in words] for name, words in explanation.summary(10).items()}


@lru_cache(1)
def subject_of(data: str, kind: str) -> Subject:
    try:
        return Subject(data, kind)
    except SointerError as error:
        raise LeftOut(str(error)) from error


def run(data: str, black_box: str, method: str, seed: int) -> dict[str, Any]:
    subject = subject_of(data, black_box)
    if method in (ONE_TAG, ALL_TAGS):
        return fit_alone(subject, method, seed)
    explainer, n_documents = explainer_of(subject, method, seed)
    explainer, cost = fitted(subject, explainer)
    both = {split: subject.measure(explainer.explain, n_documents, split) for split in ("train", "test")}
    return {**cost, **both, **(variants(subject, explainer) if method == "SOInter" else {})}


def cases(smoke: bool) -> Iterator[Case]:
    """Every method of Table 1 on every black box; on one of them also smaller budgets, and fits for one tag."""
    if smoke:
        for method in ("Random", "SOInter", "Lime, tuned, 50 samples"):
            yield {"data": GENERATED, "black_box": "chain", "method": method, "seed": 0}
        return
    for data, kind in PAIRS:
        for method in (*METHODS, *(MORE_METHODS if (data, kind) == FULL else ())):
            yield {"data": data, "black_box": kind, "method": method, "seed": 0}


STUDY = Study("text", cases, run, page)
