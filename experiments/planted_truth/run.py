"""Does SOInter find the planted features? Every case of the table in docs/results/planted-truth.md.

    python experiments/planted_truth/run.py                 # everything, about 40 minutes on one core
    python experiments/planted_truth/run.py --only e1 --seeds 1
    python experiments/planted_truth/run.py --tables        # only make the tables from the results there are

Results go to results.jsonl beside this file as they come. A run starts afresh unless --resume is given, which
skips the cases that are there already. Features are shuffled in every case, so that no method is right by
preferring low indices.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

import sointer
from sointer import SOInter
from sointer.datasets import ALL_PROBLEMS, shuffled
from sointer.metrics import exact_match, median_rank
from sointer.training.threads import LARGEST_FOR_ONE_THREAD

HERE = Path(__file__).parent
RESULTS = HERE / "results.jsonl"
N_TRAINING_ROWS = {1000: 5000, 500: 5000, 100: 5000}
N_TEST_ROWS = 1000


@dataclass(frozen=True)
class Case:
    """One fit: a problem, its size, a seed, and how SOInter is set."""

    problem: str
    n_features: int
    seed: int
    preset: str = "default"
    structured: bool = True
    query_budget: int | None = None

    @property
    def method(self) -> str:
        name = "SOInter" if self.structured else "SOInter-1"
        return name if self.preset == "default" else f"{name}, paper preset"


def cases(seeds: range) -> Iterator[Case]:
    """All that the table shows, cheap ones first."""
    paper_sizes = (5, 10, 15, 20)
    for seed in seeds:
        for n in (*paper_sizes, 100):
            yield Case("e1", n, seed)
            yield Case("e2", n, seed)
    for seed in seeds:
        for budget in (1000, 2000):
            yield Case("mediated_xor", 20, seed, query_budget=budget)
            yield Case("mediated_xor", 20, seed, query_budget=budget, structured=False)
    for seed in seeds:
        for name in ALL_PROBLEMS:
            if name not in ("e1", "e2"):
                yield Case(name, 20, seed)
    for seed in seeds:
        for n in (500, 1000):
            yield Case("e1", n, seed)
        for n in paper_sizes:
            for problem in ("e1", "e2"):
                yield Case(problem, n, seed, preset="paper")


def run(case: Case) -> dict[str, object]:
    """Fit once, explain held-out rows for every planted target, and measure."""
    problem = shuffled(ALL_PROBLEMS[case.problem](case.n_features), 20_000 + case.seed)
    order = np.asarray(problem.order)
    X = problem.sample(N_TRAINING_ROWS.get(case.n_features, 2000), random_state=case.seed)
    X_test = problem.sample(N_TEST_ROWS, random_state=10_000 + case.seed)
    per_row = [int(problem.relevant_rows(X_test[:1], t).sum()) for t in problem.targets]
    k = per_row[0]
    started = time.perf_counter()
    explainer = SOInter(
        problem,
        k=k,
        random_state=case.seed,
        preset=case.preset,
        structured=case.structured,
        query_budget=case.query_budget,
        verbose=False,
    ).fit(X, targets=list(problem.targets))
    fit_seconds = time.perf_counter() - started
    targets = {}
    for target in problem.targets:
        explanation = explainer.explain(X_test, target=target)
        one_more = explainer.explain(X_test, target=target, k=min(k + 1, case.n_features))
        found = {
            "exact_match": exact_match(explanation.mask, problem.relevant_rows(X_test, target)),
            "median_rank": median_rank(order[explanation.selected]),
            "fidelity": explanation.verify(n_draws=3).fidelity,
            "fidelity_one_more": one_more.verify(n_draws=3).fidelity,
        }
        if problem.paper_relevant is not None:
            wider = explainer.explain(X_test, target=target, k=len(problem.paper_relevant[target]))
            found["exact_match_paper_set"] = exact_match(wider.mask, problem.paper_relevant[target])
        targets[problem.output_names[target]] = {name: round(float(value), 4) for name, value in found.items()}
    return {
        **asdict(case),
        "method": case.method,
        "k": k,
        "fit_seconds": round(fit_seconds, 2),
        "n_threads": 1 if case.n_features <= LARGEST_FOR_ONE_THREAD else torch.get_num_threads(),
        "n_queries": explainer.n_queries_,
        "held_out_agreement": round(explainer.held_out_agreement_, 4),
        "targets": targets,
        "sointer": sointer.__version__,
        "torch": torch.__version__.split("+")[0],
        "numpy": np.__version__,
    }


def done_already() -> set[Case]:
    names = Case.__dataclass_fields__
    return {Case(**{name: row[name] for name in names}) for row in read()}


def read() -> list[dict[str, object]]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=5)
    parser.add_argument("--only", help="run only this problem")
    parser.add_argument("--resume", action="store_true", help="keep the results there are and run the rest")
    parser.add_argument("--shard", default="0/1", help="i/n: run every n-th case from the i-th, into a file of its own")
    parser.add_argument("--tables", action="store_true", help="run nothing, only make the tables")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", sointer.errors.SointerWarning)
    shard, n_shards = (int(part) for part in arguments.shard.split("/"))
    results = RESULTS if n_shards == 1 else HERE / f"results-{shard}.jsonl"
    if not (arguments.tables or arguments.resume):
        results.unlink(missing_ok=True)
    done = done_already()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    todo = [case for case in cases(seeds) if arguments.only in (None, case.problem)]
    for case in [] if arguments.tables else todo[shard::n_shards]:
        if case in done:
            continue
        row = run(case)
        with results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        matches = ", ".join(f"{name} {found['exact_match']:.3f}" for name, found in row["targets"].items())
        print(f"{case.method}: {case.problem} n={case.n_features} seed {case.seed}: {matches}", flush=True)
    if n_shards == 1:
        from tables import write_tables

        write_tables(read())


if __name__ == "__main__":
    main()
