"""The demo: a loan desk whose outputs depend on each other; then handwritten digits on a seven-segment display."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier

from sointer.apps.demo_desk import DeskResult, DeskSize, run_desk
from sointer.errors import ConstantFeatureWarning, InputError, require_extra
from sointer.explainers.novelty import unwarned
from sointer.explainers.sointer import SOInter
from sointer.metrics.evaluation import evaluate
from sointer.metrics.evaluation_result import Evaluation
from sointer.zoo.records import load_seven_segment_digits

K = 10
TITLE = "Which pixels decide each segment?"
BASELINES = ("Random", "GlobalList")


@dataclass(frozen=True)
class Size:
    """How much work a run does."""

    desk: DeskSize
    query_budget: int
    n_trees: int
    n_train: int | None
    n_shown: int
    n_evaluated: int
    n_paths: int
    """Segments whose paths through other segments the report shows."""


FULL = Size(DeskSize(4000, 6000, 40, 1000, 200), 8000, 100, n_train=None, n_shown=200, n_evaluated=60, n_paths=1)
QUICK = Size(DeskSize(4000, 4000, 24, 200, 40), 1500, 30, n_train=600, n_shown=60, n_evaluated=40, n_paths=1)


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
    folder: Path, size: Size, random_state: int, say: Callable[[str], None], progress: bool | None
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
