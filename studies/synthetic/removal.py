"""What does "absent" mean? Which features are found when it means zero, the mean, another row, or a similar row."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis

from sointer import SOInter
from sointer.config import TrainingConfig
from sointer.data.inputs import InputFormat
from sointer.masking.build import make_removal
from sointer.metrics.ground_truth import exact_match
from sointer.zoo import correlated, mediated_xor, paper_e1, shuffled, with_decoys
from sointer.zoo.problem import Problem
from studies.frame.study import Case, Study
from studies.synthetic.removal_page import page

REMOVALS = ("zero", "mean", "marginal", "conditional")
PROBLEMS = {"e1": paper_e1, "mediated_xor": mediated_xor}
N_FEATURES = 20
N_ROWS, N_EXPLAINED = 2000, 300
N_DRAWS = 5
SEEDS = range(20, 25)
PRESENT = 0.3


SITUATIONS = (
    ("e1", "mean 3"),
    ("e1", "decoys 0.99"),
    ("presence", "present or not"),
    ("mediated_xor", "equal 0.9"),
    ("e1", "decoys 0.9"),
    ("mediated_xor", "ar1 0.9"),
    ("e1", "independent"),
    ("mediated_xor", "decoys 0.9"),
    ("e1", "equal 0.9"),
    ("mediated_xor", "decoys 0.99"),
    ("mediated_xor", "mean 3"),
    ("mediated_xor", "independent"),
    ("e1", "ar1 0.9"),
    ("mediated_xor", "equal 0.5"),
    ("e1", "equal 0.5"),
)
"""Problems and their inputs; those in which removals differ most come first."""


def cases(smoke: bool) -> Iterator[Case]:
    """What removal does to rows, which is quickly found, in all situations; then the explanations."""
    for part in ("rows", "explanations"):
        for problem, situation in [("e1", "decoys 0.9")] if smoke else SITUATIONS:
            removals = REMOVALS
            if part == "explanations" and situation not in ("mean 3", "present or not"):
                removals = ("zero", "marginal", "conditional")  # the mean is zero
            for seed in [0] if smoke else SEEDS:
                for removal in removals[-2:] if smoke else removals:
                    case = {"problem": problem, "situation": situation, "removal": removal, "seed": seed, "part": part}
                    yield case | ({"quick": True} if smoke else {})


def run(
    *, problem: str, situation: str, removal: str, seed: int, part: str, quick: bool = False
) -> dict[str, float | int]:
    """Mean values over the targets of the problem."""
    setting = make_setting(problem, situation, seed)
    if part == "rows":
        return {**what_counts(setting, removal, seed), "told_apart": round(told_apart(setting, removal, seed), 4)}
    return what_is_found(setting, removal, seed, quick)


def what_is_found(setting: Setting, removal: str, seed: int, quick: bool) -> dict[str, float | int]:
    """Fit with one removal, explain rows not seen, and ask about them under all removals."""
    X, rows = setting.problem.sample(N_ROWS, random_state=seed), setting.explained(seed)
    started = time.process_time()
    explainer = SOInter(
        setting.problem,
        k=setting.k,
        removal=removal,
        query_budget=300 if quick else None,
        training=TrainingConfig(n_epochs=3) if quick else None,
        output_names=setting.problem.output_names,
        random_state=seed,
        verbose=False,
    ).fit(X, targets=list(setting.problem.targets))
    fit_seconds = time.process_time() - started
    found: list[dict[str, float]] = []
    for target in setting.problem.targets:
        explanation = explainer.explain(rows, target=target)
        truth = setting.problem.relevant_rows(rows, target)
        fidelity = {
            f"fidelity {other}": explanation.verify(
                removal=None if other == removal else other, n_draws=N_DRAWS
            ).fidelity
            for other in REMOVALS
        }
        found.append(
            {
                "exact_match": exact_match(explanation.mask, truth),
                "n_relevant": (explanation.mask & truth).sum(axis=1).mean(),
                "n_unused": explanation.mask[:, setting.unused].sum(axis=1).mean(),
                **fidelity,
            }
        )
    return {
        **mean_of(found),
        "k": setting.k,
        "skill": round(explainer.held_out_skill_, 4),
        "n_queries": explainer.n_queries_,
        "fit_cpu_seconds": round(fit_seconds, 2),
    }


def what_counts(setting: Setting, removal: str, seed: int) -> dict[str, float]:
    """How often the black box repeats its answer when only unused features are kept, and when nothing is."""
    X, rows = setting.problem.sample(N_ROWS, random_state=seed), setting.explained(seed)
    rng = np.random.default_rng(seed)
    absent = make_removal(removal, X, InputFormat.infer(X), rng)
    said = np.tile(setting.problem(rows), (N_DRAWS, 1))
    found = {}
    for name, features in {"fidelity of unused": setting.unused, "fidelity of nothing": []}.items():
        keep = np.zeros(rows.shape, dtype=bool)
        keep[:, features] = True
        reduced = np.concatenate([absent.apply(rows, keep, rng) for _ in range(N_DRAWS)])
        same = setting.problem(reduced) == said
        found[name] = round(float(same[:, list(setting.problem.targets)].mean()), 4)
    return found


def mean_of(found: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(float(np.mean([one[name] for one in found])), 4) for name in found[0]}


@dataclass(frozen=True)
class Setting:
    """A problem on one kind of inputs."""

    problem: Problem
    k: int
    """The size of the relevant set."""
    unused: list[int]
    """As many features that the target does not depend on: copies of the relevant ones, where there are some."""

    def explained(self, seed: int) -> np.ndarray:
        """Rows that were not seen in fit, all with k relevant features."""
        pool = self.problem.sample(20 * N_EXPLAINED, random_state=10_000 + seed)
        (target, *_) = self.problem.targets
        return pool[self.problem.relevant_rows(pool, target).sum(axis=1) == self.k][:N_EXPLAINED]


def make_setting(name: str, situation: str, seed: int) -> Setting:
    """The problem's inputs as the situation says, with its features in another order for every seed."""
    kind, _, amount = situation.partition(" ")
    k = 2 if name == "presence" else 4
    problem = presence() if name == "presence" else PROBLEMS[name](N_FEATURES)
    unused = np.arange(4, 4 + k)
    if kind in ("equal", "ar1"):
        problem = correlated(problem, rho=float(amount), kind=kind)  # type: ignore[arg-type]
    elif kind == "decoys":
        problem = with_decoys(problem, n_decoys=k, rho=float(amount))
        unused = np.arange(N_FEATURES - k, N_FEATURES)
    elif kind == "mean":
        problem = moved(problem, by=float(amount))
    problem = shuffled(problem, 20_000 + seed)
    place = np.argsort(np.asarray(problem.order))
    return Setting(problem, k, place[unused].tolist())


def moved(problem: Problem, by: float) -> Problem:
    """The same problem with `by` added to all inputs, and taken off again by the black box."""
    return replace(
        problem,
        sampler=lambda n, n_features, rng: problem.sampler(n, n_features, rng) + by,
        black_box=lambda X: problem.black_box(X - by),
    )


def presence() -> Problem:
    """Features are there (1) or not (0), like words; the target says that both of one of two pairs are there.

    The reason for a target of 1 is the pair that is there. Where both are, or none is, no two features are.
    """
    pairs = [(0, 1), (2, 3)]

    def outputs(X: np.ndarray) -> np.ndarray:
        first, second = (X[:, list(pair)].all(axis=1) for pair in pairs)
        return np.column_stack([first, second, X[:, 4] > 0, X[:, 5:7].any(axis=1), first | second]).astype(np.int64)

    def reasons(X: np.ndarray, target: int) -> np.ndarray:
        mask = np.zeros(X.shape, dtype=bool)
        for pair in pairs:
            mask[:, list(pair)] = X[:, list(pair)].all(axis=1, keepdims=True)
        return mask

    return Problem(
        name="presence",
        n_features=N_FEATURES,
        n_outputs=5,
        targets=(4,),
        relevant={4: (0, 1, 2, 3)},
        output_names=("y0", "y1", "unrelated_0", "unrelated_1", "target"),
        output_kind="binary",
        black_box=outputs,
        sampler=lambda n, n_features, rng: (rng.random((n, n_features)) < PRESENT).astype(np.float64),
        row_relevance=reasons,
    )


def told_apart(setting: Setting, removal: str, seed: int) -> float:
    """How often a classifier tells rows reduced to their relevant features from whole ones; 0.5 is never."""
    X = setting.problem.sample(3 * N_ROWS, random_state=30_000 + seed)
    train, real, whole = np.split(X, 3)
    (target, *_) = setting.problem.targets
    keep = np.zeros(whole.shape, dtype=bool)
    keep[:, list(setting.problem.relevant[target])] = True
    rng = np.random.default_rng(seed)
    reduced = make_removal(removal, train, InputFormat.infer(train), rng).apply(whole, keep, rng)
    points, is_reduced = np.concatenate([real, reduced]), np.repeat([False, True], N_ROWS)
    learning = rng.random(len(points)) < 0.5
    classifier = QuadraticDiscriminantAnalysis(reg_param=1e-3).fit(points[learning], is_reduced[learning])
    return float(classifier.score(points[~learning], is_reduced[~learning]))


STUDY = Study(name="removal", cases=cases, run=run, page=page)
