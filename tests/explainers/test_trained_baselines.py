"""Hide&Seek and INVASE: planted truth, slow twins of their equations, budgets, their own size, and bad input."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from sointer import BlackBox
from sointer.data.outputs import Outputs
from sointer.errors import InputError, MissingExtraError, QueryBudgetExceeded
from sointer.explainers.baselines.invase import Invase, PackageSelector, selector_loss
from sointer.explainers.baselines.trained import HideAndSeek, graded, hide, losses, mixed_rows, size_penalty
from sointer.masking.build import make_groups
from sointer.metrics.ground_truth import exact_match

pytestmark = pytest.mark.usefixtures("global_random_state_is_left_alone")

X = np.random.default_rng(0).normal(size=(400, 6))
ROWS = np.random.default_rng(1).normal(size=(200, 6))


def one_column_each(X):
    return np.column_stack([X[:, 4] > 0, X[:, 2] > 0.3]).astype(int)


def syn1(X):
    """Only the product of two features counts: neither tells anything alone."""
    return 1 / (1 + np.exp(X[:, :1] * X[:, 1:2]))


# --- planted truth ------------------------------------------------------------------------------------------

QUICK = {
    "HideAndSeek": (HideAndSeek, {"n_epochs": 150}),
    "Invase, paper": (Invase, {"protocol": "paper", "n_steps": 200, "learning_rate": 2e-3}),
    "Invase, package": (Invase, {"n_steps": 20}),
}


@pytest.fixture(params=list(QUICK))
def quick(request, monkeypatch):
    kind, settings = QUICK[request.param]
    if request.param == "Invase, package":
        pytest.importorskip("invase")
        monkeypatch.setattr("sointer.explainers.baselines.invase.ESTIMATOR_STEPS", 300)
    return lambda model, **more: kind(model, **{"random_state": 0, "k": 1, **settings, **more})


def test_the_column_that_decides_ranks_first(quick):
    explainer = quick(one_column_each).fit(X)
    assert explainer.n_queries_ == len(X)
    for target, feature in ((0, 4), (1, 2)):
        explanation = explainer.explain(ROWS, target, query=False)
        assert np.mean(explanation.selected == feature) >= 0.95
        assert np.mean(explanation.value == one_column_each(ROWS)[:, target]) >= 0.9
    assert explainer.n_explain_queries_ == 0


@pytest.mark.parametrize(
    "quick", ["HideAndSeek", "Invase, package", pytest.param("Invase, paper", marks=pytest.mark.slow)], indirect=True
)
def test_the_column_that_decides_a_number_ranks_first(quick):
    explainer = quick(lambda X: np.column_stack([100 + 10 * X[:, 1] ** 2, X[:, 0]])).fit(X)
    assert np.mean(explainer.explain(ROWS[:50], 0).selected == 1) >= 0.9


def test_hide_and_seek_finds_a_product_and_its_size():
    data = np.random.default_rng(0).normal(size=(1500, 11))
    rows = np.random.default_rng(1).normal(size=(300, 11))
    explainer = HideAndSeek(syn1, k="auto", random_state=0).fit(data)
    explanation = explainer.explain(rows)
    assert exact_match(explanation.mask, [0, 1]) >= 0.95
    assert explainer.n_explain_queries_ == len(rows), "one query for each value, none for the size"
    sizes = [row["size"] for row in explainer.history_]
    assert sizes[-1] < 4 < sizes[0]


@pytest.mark.slow
def test_invase_as_in_its_paper_finds_a_product():
    data = np.random.default_rng(0).normal(size=(1500, 6))
    explainer = Invase(syn1, k=2, protocol="paper", n_steps=500, learning_rate=2e-3, random_state=0).fit(data)
    assert exact_match(explainer.explain(ROWS).mask, [0, 1]) >= 0.95


def test_the_size_is_its_own_unless_it_is_told():
    explainer = HideAndSeek(one_column_each, k="auto", n_epochs=150, random_state=0).fit(X)
    own = explainer.explain(ROWS, 0)
    wanted = np.maximum(1, (own.scores >= 0.5).sum(axis=1))
    assert own.n_selected.tolist() == wanted.tolist()
    assert own.selected.shape[1] == wanted.max()
    assert (explainer.explain(ROWS, 0, k=4).n_selected == 4).all()


# --- slow twins ---------------------------------------------------------------------------------------------


def test_hidden_values_are_drawn_unit_by_unit():
    x = torch.arange(12.0).reshape(4, 3)
    unit_of_column = torch.tensor([0, 1, 1])
    kept = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.25, 0.5], [0.0, 0.0]])
    seen = hide(x, kept, unit_of_column, torch.Generator().manual_seed(0)).numpy()
    rows = torch.randint(4, (4, 2), generator=torch.Generator().manual_seed(0)).numpy()
    for i in range(4):
        for j in range(3):
            m = kept[i, unit_of_column[j]].item()
            drawn = x[rows[i, unit_of_column[j]], j].item()
            assert seen[i, j] == pytest.approx(m * x[i, j].item() + (1 - m) * drawn)


def test_the_penalties_by_definition():
    kept = torch.tensor([[0.5, 0.1, 0.9], [0.2, 0.3, 0.4]])
    by_hand = np.mean([0.7 * (30 / 50) ** 2 / 3 * row.abs().sum().item() for row in kept])
    assert size_penalty(kept, 0.7, 30 / 50).item() == pytest.approx(by_hand)
    drawn, gain = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]]), torch.tensor([0.5, -2.0])
    total = 0.0
    for p, s, g in zip(kept.numpy(), drawn.numpy(), gain.numpy(), strict=True):
        log = sum(np.log(p[j]) if s[j] else np.log(1 - p[j]) for j in range(3))
        total += (-g * log + 0.1 * p.sum() / 3) / 2
    assert selector_loss(kept, drawn, gain, 0.1).item() == pytest.approx(total, rel=1e-5)


def test_losses_by_definition():
    logits, truth = torch.tensor([[0.3, -1.0], [2.0, 0.5]]), torch.tensor([[0.25, 0.75], [1.0, 0.0]])
    p = np.exp(logits.numpy()) / np.exp(logits.numpy()).sum(axis=1, keepdims=True)
    assert losses(logits, truth).numpy() == pytest.approx(-(truth.numpy() * np.log(p)).sum(axis=1), rel=1e-5)


def test_probabilities_stay_graded():
    p = np.array([[0.2], [0.9]])
    assert graded(p, Outputs.infer(p), 0).numpy() == pytest.approx(np.array([[0.8, 0.2], [0.1, 0.9]]))
    labels = np.array([["a"], ["c"], ["b"]])
    assert graded(labels, Outputs.infer(labels), 0).tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]
    numbers = np.array([[1.5], [3.5], [2.5], [7.1]])
    outputs = Outputs.infer(numbers)
    low, high = graded(numbers, outputs, 0).numpy().T
    assert high == pytest.approx(outputs.encode(numbers)[:, 0])
    assert low == pytest.approx(1 - high)
    assert np.argsort(high).tolist() == [0, 2, 1, 3]
    assert 0 < high.min() < 0.1 < 0.9 < high.max() < 1


def test_a_unit_counts_as_much_as_its_largest_column():
    columns = torch.tensor([[0.1, 0.7, 0.4]])
    selector = PackageSelector([torch.nn.Identity(), torch.nn.Identity()], torch.tensor([0, 0, 1]), 2)
    assert selector(columns).numpy() == pytest.approx(np.array([[0.7, 0.4]]))


# --- what is queried ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [50, 400, 700])
def test_as_many_rows_are_queried_as_the_budget_says(budget):
    seen = []

    def model(X):
        seen.append(X)
        return one_column_each(X)

    explainer = HideAndSeek(model, k=1, query_budget=budget, n_epochs=2, random_state=0).fit(X)
    points = np.concatenate(seen)
    assert explainer.n_queries_ == len(points) == budget
    known = {row.tobytes() for row in X}
    assert sum(row.tobytes() in known for row in points[:400]) == min(budget, 400)
    values = [set(column) for column in X.T]
    assert all(value in values[j] for row in points[400:] for j, value in enumerate(row))


def test_mixed_rows_take_units_whole():
    groups = make_groups({"pair": [0, 1]}, list("abcdef"), np.arange(6))
    rows = mixed_rows(X, 300, groups, np.random.default_rng(0))
    pairs = {tuple(row[:2]) for row in X}
    assert all(tuple(row[:2]) in pairs for row in rows)
    assert sum(row.tobytes() not in {one.tobytes() for one in X} for row in rows) > 10


def test_a_budget_of_the_black_box_is_kept():
    box = BlackBox(one_column_each, query_budget=100)
    with pytest.raises(QueryBudgetExceeded):
        HideAndSeek(box, k=1, n_epochs=2, random_state=0).fit(X)
    assert box.remaining >= 0


# --- bad input ----------------------------------------------------------------------------------------------

BAD_SETTINGS = [
    (HideAndSeek, {"n_epochs": 0}, "n_epochs must be an int of at least 1"),
    (HideAndSeek, {"penalty": -1}, "penalty must be a number above 0"),
    (HideAndSeek, {"query_budget": 3}, "query_budget must be an int of at least 16"),
    (Invase, {"protocol": "best"}, "protocol must be one of 'package', 'paper'"),
    (Invase, {"penalty": 0.2}, "penalty=0.2 was given with protocol='package'"),
    (Invase, {"protocol": "paper", "n_folds": 2}, "n_folds=2 was given with protocol='paper'"),
    (Invase, {"protocol": "paper", "learning_rate": True}, "learning_rate must be a number above 0"),
    (Invase, {"n_steps": 0}, "n_steps must be an int of at least 1"),
]


@pytest.mark.parametrize(("kind", "settings", "message"), BAD_SETTINGS)
def test_bad_settings_are_refused_before_the_model_is_queried(kind, settings, message):
    box = BlackBox(one_column_each)
    with pytest.raises(InputError, match=message):
        kind(box, k=1, **settings).fit(X)
    assert box.n_queries == 0


def test_images_and_too_large_tables_are_refused():
    images = np.random.default_rng(0).random((20, 1, 3, 3))
    for kind in (HideAndSeek, Invase):
        with pytest.raises(InputError, match=f"{kind.__name__} is for tables"):
            kind(lambda X: X[:, 0] > 0.5, k=1, **({"protocol": "paper"} if kind is Invase else {})).fit(images)
    with pytest.raises(InputError, match="set query_budget to 22,369,621 or less"):
        HideAndSeek(one_column_each, k=1, query_budget=30_000_000).fit(X)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "invase", None)
    with pytest.raises(MissingExtraError, match=r"sointer\[baselines\]"):
        Invase(one_column_each, k=1).fit(X)
    Invase(one_column_each, k=1, protocol="paper", n_steps=2).fit(X)
