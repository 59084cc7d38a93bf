"""The leakage check on explanations that are known to be honest, empty or fraudulent."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import sparse

from sointer.blackbox.box import BlackBox
from sointer.errors import InputError
from sointer.explainers.baselines.base import Random
from sointer.explainers.baselines.l2x import L2X
from sointer.explanation import Explanation
from sointer.metrics.leakage import Leakage, leakage
from sointer.zoo import instancewise_switch, mediated_categorical, paper_e1, shuffled

Model = Callable[[Any], NDArray[Any]]


def explanation_of(
    model: Any, X: Any, X_test: Any, selected: NDArray[np.int64] | None, target: int, **settings: Any
) -> Explanation:
    """Chosen features, one line of indices per row, in place of random ones."""
    explainer = Random(model, k=1, random_state=0, **settings).fit(X, targets=[target])
    explanation = explainer.explain(X_test, target=target)
    return explanation if selected is None else replace(explanation, selected=selected)


def constant(features: list[int], n_rows: int) -> NDArray[np.int64]:
    return np.tile(np.array(features), (n_rows, 1))


def normal(n_rows: int, n_features: int, seed: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=(n_rows, n_features))


def first_sign(X: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.column_stack([X[:, 0] > 0, X[:, 1] > 0])


def sum_of_two(X: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.column_stack([X[:, 0] + X[:, 1] > 0, X[:, 2] > 0])


@pytest.fixture(params=["half", pytest.param("default", marks=pytest.mark.slow)])
def half_the_steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In `make test`; `make test-slow` takes all of them."""
    if request.param == "default":
        return
    module = sys.modules["sointer.metrics.leakage"]
    monkeypatch.setattr(module, "FIRST_STEPS", (500, 2000))
    monkeypatch.setattr(module, "MORE_STEPS", 75)


# --- fraud -----------------------------------------------------------------------------------------------


def test_a_cheater_is_caught() -> None:
    seed = 0
    problem = shuffled(paper_e1(10), seed)
    X, X_test = problem.sample(1500, seed), problem.sample(600, seed + 100)
    unused = [j for j in range(10) if j not in problem.relevant[1]]
    cheat = np.where(problem(X_test)[:, 1] == 1, unused[0], unused[1])[:, None]
    found = leakage(explanation_of(problem, X, X_test, cheat, 1))
    assert found.leaks
    assert not found.informative
    assert found.evaluator.accuracy == pytest.approx(0.5, abs=0.06)
    assert found.evaluator.log_loss == pytest.approx(1.0, abs=0.05)
    assert found.shape.accuracy == found.joint.accuracy == 1.0
    assert found.whole.accuracy > 0.9
    assert "leaked" in repr(found)


def test_a_cheater_that_swaps_an_honest_feature_for_another_is_caught_too() -> None:
    """The selected values tell the answer in three rows of four, the choice of the second feature in all."""
    X, X_test = normal(1500, 8, 0), normal(600, 8, 1)
    second = np.where(sum_of_two(X_test)[:, 0], 6, 7)
    found = leakage(explanation_of(sum_of_two, X, X_test, np.column_stack([np.zeros(600, int), second]), 0))
    assert found.leaks
    assert found.informative
    assert found.evaluator.accuracy == pytest.approx(0.75, abs=0.05)
    assert found.verdict == "partly leaked"


@pytest.mark.slow
def test_learning_to_select_jointly_with_a_predictor_leaks_where_one_feature_does_not_suffice() -> None:
    problem = shuffled(paper_e1(10), 0)
    X, X_test = problem.sample(2000, 0), problem.sample(1000, 100)
    explanation = L2X(problem, k=1, random_state=0).fit(X, targets=[1]).explain(X_test, target=1)
    found = leakage(explanation)
    assert found.leaks
    assert found.joint.accuracy > found.evaluator.accuracy + 0.1


@pytest.mark.usefixtures("half_the_steps")
def test_a_cheater_about_a_rare_answer_is_caught() -> None:
    def rare(X: NDArray[np.float64]) -> NDArray[np.bool_]:
        return np.column_stack([X[:, 0] > 1.75, X[:, 1] > 0])

    X, X_test = normal(2000, 6, 0), normal(1000, 6, 1)
    answer = rare(X_test)[:, 0]
    assert answer.mean() < 0.06
    cheater = leakage(explanation_of(rare, X, X_test, np.where(answer, 4, 5)[:, None], 0))
    honest = leakage(explanation_of(rare, X, X_test, constant([0], 1000), 0))
    assert cheater.leaks
    assert not cheater.informative
    assert honest.informative
    assert not honest.leaks
    assert honest.evaluator.accuracy > 0.9


@pytest.mark.usefixtures("half_the_steps")
def test_more_than_two_values() -> None:
    problem = mediated_categorical(8)
    X, X_test = problem.sample(3000, 0), problem.sample(600, 1)
    answer = np.unique(problem(X_test)[:, -1], return_inverse=True)[1]
    cheater = leakage(explanation_of(problem, X, X_test, (5 + answer)[:, None], 3))
    honest = leakage(explanation_of(problem, X, X_test, constant([0, 1, 2, 3], 600), 3))
    assert cheater.chance == pytest.approx(1 / 3)
    assert cheater.leaks
    assert not cheater.informative
    assert cheater.evaluator.log_loss == pytest.approx(np.log2(3), abs=0.1)
    assert honest.verdict == "carried by the selected values"


@pytest.mark.usefixtures("half_the_steps")
def test_numbers_are_read_as_low_or_high() -> None:
    def numbers(X: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.column_stack([X[:, 0] + 0.1 * X[:, 1] + 50, X[:, 2]])

    X, X_test = normal(1000, 6, 0), normal(500, 6, 1)
    cheat = np.where(numbers(X_test)[:, 0] > 50, 4, 5)[:, None]
    found = leakage(explanation_of(numbers, X, X_test, np.column_stack([constant([0], 500), cheat]), 0))
    assert found.shape.accuracy > 0.9
    assert found.evaluator.accuracy > 0.9
    assert not found.leaks


# --- honesty ---------------------------------------------------------------------------------------------


def test_the_true_features_of_all_rows_pass_and_nothing_at_all_is_leaked() -> None:
    problem = shuffled(paper_e1(10), 1)
    X, X_test = problem.sample(1500, 1), problem.sample(500, 101)
    found = leakage(explanation_of(problem, X, X_test, constant(list(problem.relevant[1]), 500), 1))
    assert found.informative
    assert not found.leaks
    assert found.leaked.mean == 0
    assert found.joint == found.evaluator
    assert found.evaluator.accuracy > found.whole.accuracy - 0.02
    assert found.shape.accuracy == pytest.approx(0.5, abs=0.03)


def test_the_evaluator_is_as_good_as_the_best_possible() -> None:
    """From one of two normals the sign of their sum can be predicted in exactly three rows of four."""
    X, X_test = normal(3000, 5, 0), normal(1500, 5, 1)
    found = leakage(explanation_of(sum_of_two, X, X_test, constant([1], 1500), 0), normal(3000, 5, 2))
    assert found.evaluator.accuracy == pytest.approx(0.75, abs=0.035)
    assert found.carried.low < 0.25 < found.carried.high


@pytest.mark.usefixtures("half_the_steps")
def test_features_that_matter_in_some_rows_only_pass() -> None:
    problem = shuffled(instancewise_switch(12), 0)
    X, X_test = problem.sample(2000, 0), problem.sample(800, 100)
    target = problem.targets[0]
    selected = np.array([np.flatnonzero(row) for row in problem.relevant_rows(X_test, target)])
    found = leakage(explanation_of(problem, X, X_test, selected, target), problem.sample(3000, 200))
    assert found.informative
    assert not found.leaks
    assert found.evaluator.accuracy > 0.93


@pytest.mark.usefixtures("half_the_steps")
def test_a_mask_whose_shape_goes_with_the_answer_passes_as_long_as_the_values_tell_it_too() -> None:
    X, X_test = normal(1000, 8, 0), normal(500, 8, 1)
    second = np.where(first_sign(X_test)[:, 0], 4, 5)
    found = leakage(explanation_of(first_sign, X, X_test, np.column_stack([np.zeros(500, int), second]), 0))
    assert found.shape.accuracy == 1.0
    assert found.evaluator.accuracy > 0.95
    assert found.informative
    assert not found.leaks


@pytest.mark.usefixtures("half_the_steps")
def test_choosing_the_evidence_is_not_leaking() -> None:
    """Of two summands the one that points to the answer: the evaluator sees which way, if it does so clearly."""
    X, X_test = normal(2000, 8, 0), normal(800, 8, 1)
    points_to_it = (X_test[:, 0] > 0) == sum_of_two(X_test)[:, 0]
    found = leakage(explanation_of(sum_of_two, X, X_test, np.where(points_to_it, 0, 1)[:, None], 0))
    assert found.informative
    assert not found.leaks
    assert found.evaluator.accuracy > 0.9


@pytest.mark.usefixtures("half_the_steps")
def test_random_features_are_neither_informative_nor_leaked() -> None:
    X, X_test = normal(1500, 30, 0), normal(600, 30, 1)
    found = leakage(explanation_of(first_sign, X, X_test, None, 0))
    assert not found.informative
    assert not found.leaks
    assert found.conclusive
    assert found.verdict == "neither carried nor leaked"


@pytest.mark.usefixtures("half_the_steps")
def test_an_evaluator_that_fails_on_whole_rows_says_so() -> None:
    def parity(X: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.column_stack([(X[:, :8] > 0).sum(axis=1) % 2, X[:, 0] > 0]).astype(int)

    X, X_test = normal(500, 10, 0), normal(300, 10, 1)
    found = leakage(explanation_of(parity, X, X_test, None, 0))
    assert not found.conclusive
    assert "undecided" in repr(found)


# --- kinds of data ---------------------------------------------------------------------------------------


def words(n_rows: int, seed: int, n_words: int = 60) -> Any:
    return sparse.csr_array(sparse.random(n_rows, n_words, density=0.3, random_state=seed, format="csr"))


def tags(X: Any) -> NDArray[np.int64]:
    table = X.tocsc()
    return np.column_stack([(table[:, [0, 1, 2]].sum(axis=1) > 0.4), (table[:, [3]].sum(axis=1) > 0)]).astype(int)


@pytest.mark.usefixtures("half_the_steps")
def test_sparse_rows() -> None:
    X, X_test = words(1000, 0), words(400, 1)
    cheat = np.where(tags(X_test)[:, 0] == 1, 40, 50)[:, None]
    cheater = leakage(explanation_of(tags, X, X_test, cheat, 0))
    honest = leakage(explanation_of(tags, X, X_test, constant([0, 1, 2], 400), 0))
    assert cheater.leaks
    assert not cheater.informative
    assert honest.informative
    assert not honest.leaks
    assert honest.evaluator.accuracy > 0.9


def test_sparse_rows_are_never_made_dense_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["sointer.metrics.leakage"]
    monkeypatch.setattr(module, "FIRST_STEPS", (3, 3))
    monkeypatch.setattr(module, "MORE_STEPS", 3)
    X, X_test, more = (words(n, seed, 4000) for n, seed in ((100, 0), (100, 1), (6000, 2)))
    explanation = explanation_of(tags, X, X_test, constant([0], 100), 0)
    tracemalloc.start()
    leakage(explanation, more)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    sparse_bytes = more.data.nbytes + more.indices.nbytes + more.indptr.nbytes
    assert peak < 6000 * 4000 * 8 + 2 * sparse_bytes


@pytest.mark.usefixtures("half_the_steps")
def test_groups_and_frames() -> None:
    pd = pytest.importorskip("pandas")
    X, X_test = (pd.DataFrame(normal(n, 6, seed), columns=list("abcdef")) for n, seed in ((800, 0), (300, 1)))

    def model(frame: Any) -> NDArray[np.bool_]:
        return np.column_stack([frame["a"] + frame["b"] > 0, frame["c"] > 0])

    pairs = {"first": ["a", "b"], "last": ["e", "f"]}
    honest = leakage(explanation_of(model, X, X_test, constant([0], 300), 0, groups=pairs))
    assert honest.evaluator.accuracy > 0.93
    cheat = np.where(model(X_test)[:, 0], 2, 3)[:, None]
    cheater = leakage(explanation_of(model, X, X_test, cheat, 0, groups=pairs))
    assert cheater.leaks
    assert not cheater.informative


# --- manners ---------------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["sointer.metrics.leakage"]
    monkeypatch.setattr(module, "FIRST_STEPS", (20, 20))
    monkeypatch.setattr(module, "MORE_STEPS", 10)


@pytest.mark.usefixtures("quick")
def test_same_seed_same_answer_and_nothing_global_is_touched() -> None:
    X, X_test = normal(300, 5, 0), normal(100, 5, 1)
    explanation = explanation_of(first_sign, X, X_test, None, 0)
    numpy_before, torch_before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    first, again, other = (leakage(explanation, random_state=seed) for seed in (3, 3, 4))
    assert replace(first, n_queries=0) == replace(again, n_queries=0)
    assert replace(first, n_queries=0) != replace(other, n_queries=0)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_before)


@pytest.mark.usefixtures("quick")
def test_queries_are_counted_and_explained_rows_are_not_learnt_from() -> None:
    X = normal(300, 5, 0)
    box = BlackBox(first_sign)
    explanation = explanation_of(box, X, X[:120], None, 0)
    before = box.n_queries
    found = leakage(explanation)
    assert found.n_queries == box.n_queries - before == 180, "what is known about explained rows is not queried again"
    assert leakage(explanation, np.vstack([X[:150], normal(50, 5, 9)])).n_queries == 30 + 50


def test_what_cannot_be_checked_is_refused() -> None:
    X = normal(200, 5, 0)
    explainer = Random(first_sign, k=1, random_state=0).fit(X)
    with pytest.raises(InputError, match="one target at a time"):
        leakage(explainer.explain(X[:60], target=[0, 1] * 30))
    with pytest.raises(InputError, match="at least 30 explained rows that differ"):
        leakage(explainer.explain(X[:20], target=0))
    with pytest.raises(InputError, match=r"held out.*X="):
        leakage(explainer.explain(X, target=0))
    with pytest.raises(InputError, match="one value of 'y0' only"):
        leakage(explainer.explain(np.abs(normal(60, 5, 1)), target=0))
    with pytest.raises(InputError, match=r"rows to learn from.*one value"):
        leakage(explainer.explain(normal(60, 5, 1), target=0), np.abs(normal(60, 5, 2)))
    with pytest.raises(InputError, match="tolerance"):
        leakage(explainer.explain(normal(60, 5, 1), target=0), tolerance=-1)
    with pytest.raises(InputError, match="leakage: X has 4 features, but 5"):
        leakage(explainer.explain(normal(60, 5, 1), target=0), normal(60, 4, 2))


@pytest.mark.usefixtures("half_the_steps")
def test_equal_rows_are_never_both_learnt_from_and_asked_about() -> None:
    """Answers that depend on nothing could otherwise be remembered, with the masks as a help."""
    rng = np.random.default_rng(0)
    distinct = normal(60, 10, 0)
    answers = rng.integers(2, size=60)

    def arbitrary(X: NDArray[np.float64]) -> NDArray[np.int64]:
        nearest = np.square(X[:, None, :2] - distinct[None, :, :2]).sum(axis=2).argmin(axis=1)
        return np.column_stack([answers[nearest], X[:, 3] > 0]).astype(int)

    X_test = np.tile(distinct, (10, 1))
    masks = np.tile(rng.integers(4, 10, size=(60, 1)), (10, 1))
    found = leakage(explanation_of(arbitrary, normal(1000, 10, 1), X_test, masks, 0))
    assert found.joint.accuracy < 0.75
    with pytest.raises(InputError, match="that differ"):
        leakage(explanation_of(arbitrary, normal(100, 10, 1), np.tile(distinct[:10], (10, 1)), None, 0))


@pytest.mark.usefixtures("quick")
def test_values_that_no_explained_row_has_are_left_out() -> None:
    def three(X: NDArray[np.float64]) -> NDArray[np.str_]:
        return np.column_stack(
            [np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-1, 1])], np.where(X[:, 1] > 0, "u", "v")]
        )

    X_test = normal(400, 4, 1)
    X_test = X_test[three(X_test)[:, 0] != "c"]
    found = leakage(explanation_of(three, normal(400, 4, 0), X_test, None, 0))
    assert found.chance == 0.5
    assert isinstance(found, Leakage)
