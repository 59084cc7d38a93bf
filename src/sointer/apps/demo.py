"""The demo: handwritten digits on a seven-segment display, and the pixels that decide each segment."""

from __future__ import annotations

import io
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier

from sointer.errors import ConstantFeatureWarning, InputError, require_extra
from sointer.explainers.sointer import SOInter
from sointer.explanation import Explanation
from sointer.metrics.segmentation import mean_interval
from sointer.viz.report.demo import BlackBoxFacts, Content, Example, Method, draw_examples, format_table, render_page
from sointer.zoo.records import SEGMENTS, SevenSegmentDigits, load_seven_segment_digits

K = 10
REMOVALS = ("marginal", "mean")  # the first is the one used in training
REMOVAL_WORDS = {"marginal": "others from another digit", "mean": "others at their mean"}
N_MISTAKES_SHOWN = 5

Tell: TypeAlias = Callable[[str], None]
Agreement: TypeAlias = dict[str, NDArray[np.float64]]
"""By removal, (segments, images): the share of draws in which the model repeated its answer."""


@dataclass(frozen=True)
class Size:
    """How much work a run does."""

    query_budget: int
    n_trees: int
    n_train: int | None = None
    n_test: int | None = None


FULL = Size(query_budget=8000, n_trees=100)
QUICK = Size(1500, 30, 600, 60)


@dataclass(frozen=True)
class DemoResult:
    """What was measured, and where it was written."""

    content: Content
    seconds: float
    figure: Path
    page: Path

    def table(self) -> str:
        """The comparison as text."""
        return format_table(self.content)

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain values."""
        facts = {"k": self.content.k, "n_test": self.content.n_test, "random_state": self.content.random_state}
        methods = [asdict(method) for method in self.content.methods]
        findings = list(self.content.findings)
        where = {"seconds": round(self.seconds, 3), "page": str(self.page), "figure": str(self.figure)}
        return {**facts, "methods": methods, "findings": findings, **where}


def run_demo(
    out_dir: str | Path = "sointer-demo",
    random_state: int = 0,
    quick: bool = False,
    *,
    tell: Tell | None = None,
    progress: bool | None = None,
) -> DemoResult:
    """Train a model on digits, explain it, compare with two simpler ways, write a picture and a page.

    `tell` receives a line before every stage; `progress` shows or hides the progress bars, which otherwise
    appear on a terminal only.
    """
    started = time.perf_counter()
    say: Tell = tell or (lambda _: None)
    require_extra("matplotlib", "demo")
    require_extra("jinja2", "demo")
    folder = make_folder(out_dir)
    size = QUICK if quick else FULL
    content = explain_digits(size, random_state, say, progress)
    say("Drawing ...")
    first_of_each = content.examples[:10]
    png = io.BytesIO()
    draw_examples(first_of_each, content.segment_names).savefig(png, format="png")
    figure, page = folder / "segments.png", folder / "index.html"
    figure.write_bytes(png.getvalue())
    page.write_text(render_page(content, png.getvalue()), encoding="utf-8")
    return DemoResult(content, time.perf_counter() - started, figure, page)


def explain_digits(size: Size, random_state: int, say: Tell, progress: bool | None) -> Content:
    """Everything but the drawing: data, model, three ways to explain it, and how they compare."""
    data = cut(load_seven_segment_digits(random_state=random_state), size)
    say(f"Training the model to explain: {size.n_trees} extra trees, 64 pixels -> 7 segments ...")
    model = ExtraTreesClassifier(size.n_trees, random_state=random_state).fit(data.X_train, data.Y_train)
    facts = judge_model(model, data, f"{size.n_trees} extra trees (scikit-learn)")
    say(f"  {describe_model(facts, len(data.X_test))}")

    explained, methods, agreements = [], [], []
    for name, structured in (("SOInter", True), ("SOInter-1", False)):
        how = "all segments together" if structured else "each segment alone"
        say(f"Fitting {name} ({how}), with at most {size.query_budget:,} rows asked of the model ...")
        explainer, seconds = fit(model, data, size, structured, random_state, progress)
        say(f"  {seconds:.0f} s. Explaining and checking {len(data.X_test)} unseen digits x 7 segments ...")
        explanations, ms = explain_all(explainer, data)
        agreement = check(explanations)
        methods.append(summarise(name, agreement, seconds, ms, explainer.n_queries_))
        explained.append((explainer, explanations))
        agreements.append(agreement)
    explainer, explanations = explained[0]
    random = choose_at_random(explanations, explainer, np.random.default_rng(random_state))
    agreements.append(check(random))
    methods.append(summarise("Random pixels", agreements[-1], 0.0, 0.0, 0))
    return Content(
        examples=pick_examples(explanations, agreements[0], data, np.asarray(model.predict(data.X_test))),
        methods=methods,
        findings=[compare(methods[0].name, agreements[0], methods[i].name, agreements[i]) for i in (2, 1)],
        black_box=facts,
        segment_names=data.output_names,
        interactions=explainer.output_interactions_.tolist(),
        n_train=len(data.X_train),
        n_test=len(data.X_test),
        k=K,
        random_state=random_state,
    )


# --- the model -------------------------------------------------------------------------------------------


def cut(data: SevenSegmentDigits, size: Size) -> SevenSegmentDigits:
    """The first rows of each split, which are in random order."""
    train, test = slice(size.n_train), slice(size.n_test)
    return replace(
        data,
        X_train=data.X_train[train],
        Y_train=data.Y_train[train],
        digits_train=data.digits_train[train],
        X_test=data.X_test[test],
        Y_test=data.Y_test[test],
        digits_test=data.digits_test[test],
    )


def judge_model(model: Any, data: SevenSegmentDigits, name: str) -> BlackBoxFacts:
    """How often the model is right, about one segment and about all seven, and shows a digit at all."""
    predicted = np.asarray(model.predict(data.X_test), dtype=np.int64)
    right = predicted == data.Y_test
    valid = (predicted[:, None, :] == SEGMENTS[None]).all(axis=2).any(axis=1)
    accuracy = [float(share) for share in right.mean(axis=0)]
    return BlackBoxFacts(name, float(right.all(axis=1).mean()), accuracy, float(valid.mean()))


def describe_model(facts: BlackBoxFacts, n_test: int) -> str:
    return (
        f"On {n_test} unseen digits it gets {facts.mean_accuracy:.1%} of the segments right "
        f"(worst segment {min(facts.segment_accuracy):.1%}), all seven at once for {facts.exact_match:.1%}."
    )


# --- explaining ------------------------------------------------------------------------------------------


def fit(
    model: Any,
    data: SevenSegmentDigits,
    size: Size,
    structured: bool,
    random_state: int,
    progress: bool | None,
) -> tuple[SOInter, float]:
    """A fitted explainer, and the seconds it took."""
    explainer = SOInter(
        model,
        k=K,
        removal=REMOVALS[0],
        structured=structured,
        feature_names=data.feature_names,
        output_names=data.output_names,
        query_budget=size.query_budget,
        random_state=random_state,
        verbose=progress,
    )
    started = time.perf_counter()
    with warnings.catch_warnings():
        # Some pixels at the edge are blank in every digit: known, and no trouble.
        warnings.simplefilter("ignore", ConstantFeatureWarning)
        explainer.fit(data.X_train)
    return explainer, time.perf_counter() - started


def explain_all(explainer: SOInter, data: SevenSegmentDigits) -> tuple[list[Explanation], float]:
    """One explanation per segment of every unseen digit, and milliseconds per 1000 of them."""
    started = time.perf_counter()
    explanations = [explainer.explain(data.X_test, target=name) for name in data.output_names]
    seconds = time.perf_counter() - started
    return explanations, 1e6 * seconds / (len(data.X_test) * len(explanations))


def choose_at_random(
    explanations: Sequence[Explanation], explainer: SOInter, rng: np.random.Generator
) -> list[Explanation]:
    """The same rows and targets with k pixels drawn at random, of those that are not always blank."""
    drawn = []
    for explanation in explanations:
        can_change = explainer.removal_.differs(explanation.source.data)
        scores = np.where(can_change, rng.random(explanation.scores.shape), -1.0).astype(np.float32)
        drawn.append(replace(explanation, scores=scores, selected=np.argsort(-scores, axis=1)[:, :K]))
    return drawn


def check(explanations: Sequence[Explanation]) -> Agreement:
    """Ask the model again on the selected pixels alone, under every removal."""
    return {
        removal: np.stack(
            [e.verify(removal=None if removal == REMOVALS[0] else removal).agreement for e in explanations]
        )
        for removal in REMOVALS
    }


# --- comparing -------------------------------------------------------------------------------------------


def summarise(name: str, agreement: Agreement, fit_seconds: float, explain_ms: float, n_queries: int) -> Method:
    fidelity = {REMOVAL_WORDS[removal]: float(values.mean()) for removal, values in agreement.items()}
    return Method(name, fidelity, fit_seconds, explain_ms, n_queries)


def compare(name: str, ours: Agreement, other_name: str, theirs: Agreement) -> str:
    """How fidelity differs, digit by digit: a sentence that claims no more than the numbers do."""
    parts = []
    for removal in REMOVALS:
        difference = mean_interval(100 * (ours[removal] - theirs[removal]).mean(axis=0))
        if difference.low > 0:
            verdict = "higher"
        elif difference.high < 0:
            verdict = "lower"
        else:
            verdict = "no clear difference"
        interval = f"95% interval {difference.low:+.2f} to {difference.high:+.2f}"
        parts.append(f"{verdict} with {REMOVAL_WORDS[removal]} ({difference.mean:+.2f} points, {interval})")
    return f"Fidelity of {name} against {other_name}: {', '.join(parts)}."


# --- showing ---------------------------------------------------------------------------------------------


def pick_examples(
    explanations: Sequence[Explanation],
    agreement: Agreement,
    data: SevenSegmentDigits,
    predicted: NDArray[Any],
) -> list[Example]:
    """The first unseen image of every digit, not chosen by hand, and then some that the model gets wrong."""
    first = [int(np.flatnonzero(data.digits_test == d)[0]) for d in range(10) if d in data.digits_test]
    wrong = np.flatnonzero((predicted != data.Y_test).any(axis=1))
    rest = [int(i) for i in wrong if i not in first][:N_MISTAKES_SHOWN]
    return [
        Example(
            title=f"a {data.digits_test[i]}",
            pixels=data.X_test[i].astype(int).reshape(data.image_shape).tolist(),
            lit=[bool(value) for value in predicted[i]],
            truth=[bool(value) for value in data.Y_test[i]],
            selected=[[int(p) for p in e.selected[i] if p >= 0] for e in explanations],
            kept=[float(share) for share in agreement[REMOVALS[0]][:, i]],
        )
        for i in first + rest
    ]


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
