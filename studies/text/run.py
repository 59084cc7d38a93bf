"""The paper's text study, and more: how faithful is each explainer, and what does it cost? (Tables 1 and 2)

    python -m studies.text.run                                    # everything: hours on two cores
    python -m studies.text.run --only bibtex/dvn --methods SOInter
    python -m studies.text.run --tables                           # only make the page from the results there are

Every result is one line of results.jsonl, written as soon as it is there; cases that are there already are skipped
unless --again is given. --shard i/n runs every n-th black box from the i-th.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

import sointer
from sointer import BlackBox, SOInter
from sointer.explainers.baselines.base import Random
from sointer.explainers.baselines.l2x import L2X
from sointer.explainers.baselines.lime import Lime
from sointer.explainers.baselines.shapley import KernelShap, ShapleySampling
from sointer.explanation import Explanation
from sointer.metrics.faithfulness import post_hoc_f1
from studies.text.black_boxes import load_data, trained

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "text" / "text.jsonl"
KS = (1, 3, 5, 10, 30)
MANY, SOME, FEW = 200, 60, 10
"""Documents explained per split: by methods that ask nothing, by those that ask 1000 rows each, and by slower ones."""
PAIRS = [(data, kind) for data in ("bibtex", "enron", "wikimovies", "imdb") for kind in ("dvn", "spen", "chain")]


class Study:
    """One black box, the documents that are explained, and what it says of them."""

    def __init__(self, name: str, kind: str) -> None:
        self.name, self.kind = name, kind
        self.data = load_data(name)
        self.model = trained(kind, self.data)
        self.black_box = BlackBox(self.model.predict, batch_size=4096, output_names=list(self.data.label_names))
        self.parts = {}
        for split in ("train", "test"):
            X, Y = self.data.part(split)
            some = np.random.default_rng(0).permutation(X.shape[0])[:MANY]
            self.parts[split] = (X[some], Y[some], np.asarray(self.model.predict(X[some])))

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
                explain(X[document[some]], target=tag[some], predicted=said[document[some]]).selected
                for some in np.array_split(np.arange(n * d), max(1, n // 10))
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
        for some in np.array_split(np.arange(len(tag)), max(1, len(tag) // 8192)):
            row, place = np.nonzero(selected[some] >= 0)
            mask = sparse.csr_matrix(
                (np.ones(len(row), dtype=np.float32), (row, selected[some][row, place])), shape=(len(some), X.shape[1])
            )
            left = X[document[some]].multiply(mask).tocsr()
            labels[some] = np.asarray(self.model.predict(left))[np.arange(len(some)), tag[some]]
        return labels


def scores(truth: Any, said: Any, kept: Any) -> dict[str, dict[str, float]]:
    return {
        average: {name: round(value, 4) for name, value in post_hoc_f1(truth, said, kept, average)._asdict().items()}
        for average in ("macro", "micro", "example")
    }


def fitted(study: Study, explainer: Any) -> tuple[Any, dict[str, Any]]:
    """The explainer, and what fitting it cost."""
    X, _ = study.data.train
    before, started = study.black_box.n_queries, time.perf_counter()
    explainer.fit(X)
    return explainer, {
        "fit_seconds": round(time.perf_counter() - started, 2),
        "fit_queries": study.black_box.n_queries - before,
    }


def soi(study: Study, seed: int, **settings: Any) -> SOInter:
    return SOInter(study.black_box, **study.options(seed), **settings)


def without_prediction(explainer: Any) -> Callable[..., Explanation]:
    def explain(X: Any, *, target: Any, predicted: Any) -> Explanation:
        return explainer.explain(X, target=target, query=False)

    return explain


def refined(explainer: Any, n: int, k: int) -> Callable[..., Explanation]:
    def explain(X: Any, *, target: Any, predicted: Any) -> Explanation:
        return explainer.explain(X, target=target, predicted=predicted, k=k, refine=n)

    return explain


def methods(study: Study, seed: int) -> dict[str, Callable[[], dict[str, Any]]]:
    """Every method of Table 1, each as something to run."""

    def both_splits(explain: Callable[..., Explanation], n: int) -> dict[str, Any]:
        return {split: study.measure(explain, n, split) for split in ("train", "test")}

    def run(explainer: Any, n: int) -> dict[str, Any]:
        explainer, cost = fitted(study, explainer)
        return {**cost, **both_splits(explainer.explain, n)}

    def sointer_and_variants() -> dict[str, Any]:
        explainer, cost = fitted(study, soi(study, seed))
        result = {**cost, **both_splits(explainer.explain, MANY)}
        result["skill"] = round(explainer.held_out_skill_, 4)
        result["prediction not given"] = study.measure(without_prediction(explainer), SOME, "test")
        result["refined"] = {
            f"{n} queries, k={k}": study.measure(refined(explainer, n, k), SOME, "test", ks=(k,))
            for k in (3, 5, 10)
            for n in (1, 4, 16)
        }
        if study.name == "bibtex" and study.kind == "dvn":
            result["words"] = words_by_tag(study, explainer)
        return result

    def with_budget(budget: int, structured: bool) -> Callable[[], dict[str, Any]]:
        return lambda: run(soi(study, seed, query_budget=budget, structured=structured), SOME)

    options, box = study.options(seed), study.black_box
    table: dict[str, Callable[[], dict[str, Any]]] = {
        "Random": lambda: run(Random(box, **options), MANY),
        "SOInter": sointer_and_variants,
        "Lime, done well": lambda: run(Lime(box, setting="well", **options), SOME),
        "KernelShap, done well": lambda: run(KernelShap(box, setting="well", **options), SOME),
        "ShapleySampling": lambda: run(ShapleySampling(box, **options), SOME),
        "L2X": lambda: run(L2X(box, **options), MANY),
        "SOInter-1": lambda: run(soi(study, seed, structured=False), MANY),
        "Lime": lambda: run(Lime(box, setting="paper", **options), FEW),
    }
    if (study.name, study.kind) == ("bibtex", "dvn"):
        for budget in (5_000, 20_000, 100_000):
            table[f"SOInter, {budget} queries"] = with_budget(budget, True)
            table[f"SOInter-1, {budget} queries"] = with_budget(budget, False)
        for n in (50, 200):
            table[f"Lime, done well, {n} samples"] = lambda n=n: run(
                Lime(box, setting="well", n_samples=n, **options), SOME
            )
            table[f"KernelShap, done well, {n} samples"] = lambda n=n: run(
                KernelShap(box, setting="well", n_samples=n, **options), SOME
            )
        table["SOInter, one tag"] = lambda: fit_alone(study, seed, ["games"])
        table["SOInter, all tags"] = lambda: fit_alone(study, seed, None)
    return table


def fit_alone(study: Study, seed: int, targets: list[str] | None) -> dict[str, Any]:
    """What it costs to fit for some tags, or all."""
    explainer = soi(study, seed)
    started = time.perf_counter()
    explainer.fit(study.data.train.X, targets=targets)
    return {"fit_seconds": round(time.perf_counter() - started, 2), "fit_queries": explainer.n_queries_}


def words_by_tag(study: Study, explainer: SOInter, k: int = 10) -> dict[str, list[str]]:
    """Table 2: for every tag, the words most often among the k that made the model give it, in the training split."""
    X, _ = study.data.train
    said = np.asarray(study.model.predict(X))
    document, tag = np.nonzero(said)
    explanation = explainer.explain(X[document], target=tag, predicted=said[document], k=k)
    return {name: [word for word, _ in words] for name, words in explanation.summary(10).items()}


def read() -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for file in sorted(RESULTS.parent.glob("text*.jsonl"))
        for line in file.read_text().splitlines()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", help="black boxes such as bibtex/dvn")
    parser.add_argument("--methods", nargs="*", help="methods by their name in the table")
    parser.add_argument("--again", action="store_true", help="run cases that are there already")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file to add results to")
    parser.add_argument("--shard", default="0/1", help="i/n: run every n-th black box from the i-th")
    parser.add_argument("--tables", action="store_true", help="run nothing, only make the page")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", sointer.errors.SointerWarning)
    if not arguments.tables:
        run_all(arguments)
    from studies.text.tables import write_page

    write_page(read())


def run_all(arguments: argparse.Namespace) -> None:
    shard, n_shards = (int(part) for part in arguments.shard.split("/"))
    done = set() if arguments.again else {(r["data"], r["black_box"], r["method"], r["seed"]) for r in read()}
    wanted = [pair for pair in PAIRS if not arguments.only or "/".join(pair) in arguments.only]
    for name, kind in wanted[shard::n_shards]:
        try:
            study = Study(name, kind)
        except sointer.errors.SointerError as error:
            print(f"{name}/{kind} is left out: {error}")
            continue
        for method, run in methods(study, arguments.seed).items():
            if (name, kind, method, arguments.seed) in done or method not in (arguments.methods or [method]):
                continue
            started = time.perf_counter()
            try:
                result = run()
            except sointer.errors.SointerError as error:
                print(f"{name}/{kind} {method} failed: {error}", flush=True)
                continue
            row = {
                "data": name,
                "black_box": kind,
                "method": method,
                "seed": arguments.seed,
                **result,
                "seconds": round(time.perf_counter() - started, 1),
                "n_threads": torch.get_num_threads(),
                "sointer": sointer.__version__,
                "torch": torch.__version__.split("+")[0],
                "numpy": np.__version__,
            }
            with arguments.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{name}/{kind} {method}: {row['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
