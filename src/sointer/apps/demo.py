"""The demo: a loan desk whose outputs depend on each other; then handwritten digits on a seven-segment display."""

from __future__ import annotations

import importlib.util
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.multioutput import ClassifierChain

from sointer.errors import ConstantFeatureWarning, InputError, require_extra
from sointer.explainers.novelty import unwarned
from sointer.explainers.sointer import SOInter
from sointer.explanation import Explanation
from sointer.metrics.evaluation import evaluate
from sointer.metrics.evaluation_result import Evaluation, MethodScore
from sointer.viz.report.page import render_template
from sointer.zoo.digits import load_seven_segment_digits

FEATURES = (
    "age",
    "income",
    "debt",
    "years in job",
    "missed payments",
    "amount",
    "property value",
    "savings",
    "accounts",
    "household",
    "years at address",
    "hour of day",
)
OUTPUTS = ("high risk", "weak collateral", "second look", "gold account")
TARGET = "second look"
NOISE = 0.02
KS = (1, 3, 5)
N_PEOPLE = 1000
"""Applicants to explain, for whom costs are shown."""
N_PATHS = 40
"""Applicants over whom paths are averaged."""


@dataclass(frozen=True)
class DeskSize:
    """How much work a run does."""

    n_train: int
    query_budget: int
    n_evaluated: int
    n_samples: int
    """Queries per applicant that the baseline may send."""
    n_shown: int


@dataclass(frozen=True)
class DeskResult:
    """What was measured, and where the pages are."""

    evaluation: Evaluation
    fit_seconds: float
    page: Path
    """The first screen."""
    report: Path
    """All outputs and applicants."""


def applicants(n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """People who ask for a loan; money in thousands."""
    return np.column_stack(
        [
            rng.uniform(19, 70, n).round(),
            rng.lognormal(3.6, 0.5, n).round(1),
            rng.lognormal(2.6, 0.8, n).round(1),
            rng.gamma(2, 4, n).round(1),
            rng.poisson(1.0, n),
            rng.lognormal(4.2, 0.6, n).round(),
            rng.lognormal(4.7, 0.7, n).round(),
            rng.lognormal(2, 1, n).round(1),
            rng.poisson(3, n),
            1 + rng.poisson(1.5, n),
            rng.gamma(2, 5, n).round(1),
            rng.uniform(0, 24, n).round(1),
        ]
    )


def decide(X: NDArray[np.float64]) -> NDArray[np.int64]:
    """What the desk decides; the model learns it from examples.

    Under 30 the risk is in debt against income, above in missed payments; somebody takes a second look where the two
    checks disagree, and so depends on the features of both without looking at any itself.
    """
    age, income, debt, years, missed, amount, value, savings, accounts = X[:, :9].T
    risk = np.where(age < 30, debt > 0.42 * income, (missed >= 2) | ((years < 2) & (missed >= 1)))
    weak = value < 1.35 * amount
    return np.column_stack([risk, weak, risk != weak, (savings > 10) & (accounts >= 3)]).astype(np.int64)


def train_desk(n: int, seed: int) -> tuple[ClassifierChain, NDArray[np.float64], NDArray[np.float64], float]:
    """A chain of boosted trees, its training data, unseen data, and how often it is right about the latter.

    Each output of the chain sees those before it.
    """
    rng = np.random.default_rng(seed)
    X, unseen = applicants(n, rng), applicants(400, rng)
    Y = decide(X)
    Y = np.where(rng.random(Y.shape) < NOISE, 1 - Y, Y)
    model = ClassifierChain(HistGradientBoostingClassifier(max_iter=80, random_state=seed)).fit(X, Y)
    return model, X, unseen, float((model.predict(unseen) == decide(unseen)).mean())


def run_desk(folder: Path, size: DeskSize, seed: int, say: Callable[[str], None], progress: bool | None) -> DeskResult:
    """Train the model, explain it, compare with Shapley values, and write the pages."""
    say("Training a model of a loan desk: a chain of boosted trees, 12 features -> 4 outputs ...")
    model, X, unseen, right = train_desk(size.n_train, seed)
    say(f"  On {len(unseen)} unseen applicants {right:.1%} of its outputs are right.")
    say(f"Fitting SOInter, with at most {size.query_budget:,} queries of the model ...")
    started = time.perf_counter()
    explainer = SOInter(
        model,
        feature_names=list(FEATURES),
        output_names=list(OUTPUTS),
        query_budget=size.query_budget,
        random_state=seed,
        verbose=progress,
    ).fit(X)
    fit_seconds = time.perf_counter() - started
    baseline = "KernelShap" if importlib.util.find_spec("shap") else "ShapleySampling"
    say(f"Comparing it with {baseline} and one ranking for all, on {size.n_evaluated} unseen applicants ...")
    with unwarned():
        found = evaluate(
            explainer,
            unseen,
            n_rows=size.n_evaluated,
            against=[baseline, "GlobalList"],
            ks=KS,
            n_samples=size.n_samples,
            random_state=seed,
        )
        say(f"Writing a report on {size.n_shown} unseen applicants ...")
        report = explainer.report(unseen[: size.n_shown], folder / "loan-desk.html", title="The loan desk", paths=2)
        shown = explainer.explain(unseen[:N_PATHS], target=TARGET)
        page = folder / "index.html"
        content = {
            "maps": locality_map(explainer),
            "one": one_explanation(shown, unseen),
            "methods": [costs(method, fit_seconds) for method in found.methods],
            "n": found.n_rows,
            "n_people": f"{N_PEOPLE:,}",
            "n_kept": f"{found.n_kept:.1f}",
            "ks": found.ks,
            "n_samples": f"{size.n_samples:,}",
            "right": f"{right:.1%}",
        }
        page.write_text(render_template("demo.html", **content), encoding="utf-8")
    return DeskResult(found, fit_seconds, page, report)


def locality_map(explainer: SOInter) -> dict[str, Any]:
    """One line for each locality of the first three outputs, one column for each feature that matters in any."""
    found = [(target, leaf) for target in OUTPUTS[:3] for leaf in explainer.localities(target)]
    used = [name for name in FEATURES if any(name in leaf.features for _, leaf in found)]
    lines = []
    for target, leaf in found:
        relevance = dict(zip(leaf.features, leaf.relevance, strict=True))
        largest = max([*leaf.relevance, 1e-9])
        cells = [{"value": relevance.get(name), "share": relevance.get(name, 0.0) / largest} for name in used]
        lines.append({"target": target, "where": leaf.where, "people": f"{leaf.share:.0%}", "cells": cells})
    return {"features": used, "lines": lines}


def one_explanation(explanation: Explanation, X: NDArray[np.float64]) -> dict[str, Any]:
    """An applicant on whom the two checks disagree and both carry much of the effect, feature by feature.

    `mains` are the features with the largest effect through each check.
    """
    paths = explanation.paths(n_outputs=len(OUTPUTS) - 1)
    places = [paths.outputs[0].tolist().index(OUTPUTS.index(name)) for name in OUTPUTS[:2]]
    through = np.nan_to_num(paths.through[:, :, places])
    is_yes = np.asarray(explanation.value, dtype=np.float64) >= 0.5
    row = int(np.argmax(np.where(is_yes, through.sum(axis=1).min(axis=1), -np.inf)))
    total = np.nan_to_num(paths.total[row])
    lines = [
        {
            "feature": FEATURES[paths.selected[row, place]],
            "value": f"{X[row, paths.selected[row, place]]:g}",
            "total": _rounded(total[place]),
            "share": max(total[place], 0.0) / max(total.max(), 1e-9),
            "parts": [_rounded(part) for part in (paths.direct[row, place], *through[row, place])],
        }
        for place in np.argsort(-total, kind="stable")
        if paths.selected[row, place] >= 0
    ]
    mains = []
    for place, output in enumerate(OUTPUTS[:2], start=1):
        line = max(lines, key=lambda one: one["parts"][place])
        mains.append(
            {"output": output, "feature": line["feature"], "part": line["parts"][place], "total": line["total"]}
        )
    return {
        "number": row,
        "mains": mains,
        "probability": f"{float(explanation.value[row]):.0%}",
        "lines": lines,
        "fidelity": f"{explanation.verify(rows=[row]).fidelity:.0%}",
    }


def _rounded(effect: float) -> float:
    return round(float(effect), 2) + 0.0  # never -0.0


NAMES = {
    "SOInter": "SOInter",
    "KernelShap": "KernelSHAP (shap)",
    "ShapleySampling": "Shapley values, sampled",
    "GlobalList": "one ranking for all",
}


def costs(method: MethodScore, fit_seconds: float) -> dict[str, Any]:
    """A line of the table: how faithful, and what explaining N_PEOPLE takes, training included."""
    own, free = method.name == "SOInter", method.name == "GlobalList"
    seconds = (fit_seconds if own else method.fit_seconds) + method.ms_per_row * N_PEOPLE / 1000
    return {
        "name": NAMES[method.name],
        "own": own,
        "fidelity": method.fidelity.mean,
        "sufficient": method.sufficient,
        "pairs": [f"{keep:.2f} / {delete:.2f}" for keep, delete in zip(method.keep, method.delete, strict=True)],
        "queries": "–" if free else f"{method.n_fit_queries + (1 + method.queries_per_row) * N_PEOPLE:,.0f}",
        "seconds": "–" if free else f"{seconds:,.0f}",
        "ms": "–" if free else f"{method.ms_per_row:,.1f}",
    }


K = 10
TITLE = "Which pixels decide each segment?"
BASELINES = ("Random", "GlobalList")


@dataclass(frozen=True)
class DemoSize:
    """How much work a run does."""

    desk: DeskSize
    query_budget: int
    n_trees: int
    n_train: int | None
    n_shown: int
    n_evaluated: int
    n_paths: int
    """Segments whose paths through other segments the report shows."""


FULL = DemoSize(DeskSize(4000, 6000, 40, 1000, 200), 8000, 100, n_train=None, n_shown=200, n_evaluated=60, n_paths=1)
QUICK = DemoSize(DeskSize(4000, 4000, 24, 200, 40), 1500, 30, n_train=600, n_shown=60, n_evaluated=40, n_paths=1)


@dataclass(frozen=True)
class DemoResult:
    """What was measured, and where the pages are."""

    desk: DeskResult
    digits: Evaluation
    page: Path
    """The first screen, which links to the others."""
    random_state: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "loan_desk": {**self.desk.evaluation.to_json(), "fit_seconds": round(self.desk.fit_seconds, 3)},
            "digits": self.digits.to_json(),
            "random_state": self.random_state,
            "seconds": round(self.seconds, 3),
            "page": str(self.page),
        }


def run_demo(
    out_dir: str | Path = "sointer-demo",
    random_state: int = 0,
    quick: bool = False,
    *,
    tell: Callable[[str], None] | None = None,
    progress: bool | None = None,
) -> DemoResult:
    """Explain two models, compare the explanations with baselines on unseen samples, and write pages.

    `tell` receives a line before every stage; `progress` shows or hides the progress bars, which otherwise
    appear on a terminal only.
    """
    started = time.perf_counter()
    say = tell or (lambda _: None)
    require_extra("jinja2", "demo")
    folder = make_folder(out_dir)
    size = QUICK if quick else FULL
    desk = run_desk(folder, size.desk, random_state, say, progress)
    digits = run_digits(folder, size, random_state, say, progress)
    return DemoResult(desk, digits, desk.page, random_state, time.perf_counter() - started)


def run_digits(
    folder: Path, size: DemoSize, random_state: int, say: Callable[[str], None], progress: bool | None
) -> Evaluation:
    """Train a model on digits, explain it, evaluate the explanations with unseen digits, and write a report."""
    data = load_seven_segment_digits(random_state=random_state)
    X_train, Y_train = data.X_train[: size.n_train], data.Y_train[: size.n_train]
    say(f"Training the model to explain: {size.n_trees} extra trees, 64 pixels -> 7 segments ...")
    model = ExtraTreesClassifier(size.n_trees, random_state=random_state).fit(X_train, Y_train)
    right = np.asarray(model.predict(data.X_test)) == data.Y_test
    say(
        f"  On {len(right)} unseen digits {right.mean():.1%} of the segments are right, all seven of "
        f"{right.all(axis=1).mean():.1%}."
    )
    say(f"Fitting SOInter, with at most {size.query_budget:,} queries of the model ...")
    explainer = SOInter(
        model,
        k=K,
        removal="marginal",
        feature_names=data.feature_names,
        output_names=data.output_names,
        query_budget=size.query_budget,
        random_state=random_state,
        verbose=progress,
    )
    with warnings.catch_warnings():
        # Some pixels at the edge are blank in every digit: known, and no trouble.
        warnings.simplefilter("ignore", ConstantFeatureWarning)
        explainer.fit(X_train)
    say(f"Comparing it with random pixels and one ranking for all digits, on {size.n_evaluated} unseen digits ...")
    with unwarned():  # the report says which digits are far from the training data
        evaluation = evaluate(
            explainer, data.X_test, n_rows=size.n_evaluated, against=BASELINES, random_state=random_state
        )
    say(f"Writing a report on {size.n_shown} unseen digits ...")
    explainer.report(
        data.X_test[: size.n_shown],
        folder / "digits.html",
        title=TITLE,
        paths=size.n_paths,
        sample_names=[f"a {digit} (test image {i})" for i, digit in enumerate(data.digits_test[: size.n_shown])],
    )
    return evaluation


def make_folder(out_dir: str | Path) -> Path:
    """The folder to write to, made before the long work begins."""
    folder = Path(out_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):  # not to learn only at the end that nothing can be written
            pass
    except OSError as exc:
        raise InputError(f"cannot write to {str(folder)!r} ({exc.strerror}); choose another folder.") from exc
    return folder
