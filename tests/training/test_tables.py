"""The recipe for tables: how queries are spent, what happens if they are few or noisy, and when it is interrupted."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from quick import TAUGHT, quick_fit
from sointer import BlackBox, SOInter, TrainingConfig
from sointer.errors import InterruptedFitWarning, UnstableBlackBoxWarning
from sointer.interpreter.trees import leaves
from sointer.training import table_interpreter
from sointer.training.energy import EnergyTrainer
from sointer.training.table_interpreter import Interpretation
from sointer.training.tables import FIRST_LOOK

X = np.random.default_rng(0).normal(size=(400, 6))
SHORT = {**TAUGHT, "k": "auto", "query_budget": 600, "training": TrainingConfig(n_epochs=4)}


def switch(rows: np.ndarray) -> np.ndarray:
    """Two outputs, the first switched by feature 0, and a constant."""
    first = np.where(rows[:, 0] <= 0, rows[:, 1] > 0, rows[:, 2] > 0)
    return np.column_stack([first, rows[:, 3] > 0, np.zeros(len(rows))]).astype(int)


class Recorded:
    """A model that keeps what it was sent."""

    def __init__(self, model=switch) -> None:
        self.model, self.rows = model, []

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        self.rows.append(np.array(rows))
        return self.model(rows)

    @property
    def sent(self) -> np.ndarray:
        return np.concatenate(self.rows)


def fit(model=switch, *, data=X, n_epochs=2, **settings) -> SOInter:
    settings = TAUGHT | {"k": "auto", "query_budget": 600, "training": TrainingConfig(n_epochs=n_epochs)} | settings
    return quick_fit(model, data, **settings)


def is_usable(explainer: SOInter, data: np.ndarray = X) -> None:
    explanation = explainer.explain(data[:20], target=0, k=2)
    assert explanation.selected.shape == (20, 2)
    assert np.isfinite(explanation.scores).all()
    assert np.isfinite(explanation.effects).all()
    assert len(explainer.localities(0)) >= 1
    assert explainer.explain(data[:20], target=0, k="auto").n_selected.max() <= data.shape[1]


# --- queries -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [1, 5, 17, 40, 100, 333, 1000])
@pytest.mark.parametrize("removal", ["marginal", "mean"])
def test_the_budget_is_kept_exactly(budget: int, removal: str) -> None:
    recorded = Recorded()
    explainer = fit(recorded, query_budget=budget, removal=removal, n_epochs=1)
    assert explainer.n_queries_ == len(recorded.sent) <= budget
    assert explainer.n_queries_ >= 0.8 * budget or removal == "mean"
    is_usable(explainer)


def whole_rows(sent: np.ndarray) -> list[int]:
    """For each row sent, which row of the data it is, or -1."""
    place = {row.tobytes(): i for i, row in enumerate(X)}
    return [place.get(np.ascontiguousarray(row).tobytes(), -1) for row in sent]


@pytest.mark.parametrize(("removal", "n_more"), [("mean", 0), ("marginal", 40)])  # all removed: another whole sample
def test_no_whole_sample_is_asked_twice_but_to_learn_whether_answers_repeat(removal: str, n_more: int) -> None:
    recorded = Recorded()
    fit(recorded, query_budget=640, removal=removal)
    sent = recorded.sent
    found = np.array(whole_rows(sent))
    counts = np.bincount(found[found >= 0])
    n_twice = 640 // 20
    assert (counts > 1).sum() <= n_twice + n_more
    assert counts.max() <= 3
    assert (counts == 1).sum() > 100


def test_where_removal_is_fixed_no_redraw_is_asked_twice() -> None:
    """One feature at the mean: always the same sample, and no news if it lies there already."""
    recorded = Recorded()
    data = X.copy()
    data[:, 5] = 1.0  # constant: always at its mean
    fit(recorded, data=data, query_budget=2000, removal="mean")
    mean = data.mean(axis=0)
    redraws = []
    place = {row.tobytes(): i for i, row in enumerate(data)}
    for row in recorded.sent:
        at_mean = [j for j in range(5) if row[j] == mean[j]]
        if len(at_mean) == 1:
            redraws.append(row.tobytes())
        assert row[5] == 1.0
    assert len(place) == len(data)
    # A few random masks remove exactly one unit; redraws themselves are never the same.
    assert len(redraws) - len(set(redraws)) <= 0.1 * len(redraws)
    assert len(redraws) > 300


def test_a_budget_too_small_for_redraws_still_explains() -> None:
    explainer = fit(query_budget=12, n_epochs=1)
    assert explainer.n_queries_ <= 12
    is_usable(explainer)


def test_more_features_than_redraws_are_affordable_for() -> None:
    wide = np.random.default_rng(1).normal(size=(300, 60))
    recorded = Recorded()
    explainer = fit(recorded, data=wide, query_budget=900, n_epochs=20)
    assert explainer.n_queries_ == len(recorded.sent) <= 900
    is_usable(explainer, wide)
    explanation = explainer.explain(wide[:100], target=1, k=1)
    assert (explanation.selected[:, 0] == 3).mean() > 0.9


# --- what is learned -------------------------------------------------------------------------------------------


def test_a_switch_is_found_end_to_end() -> None:
    explainer = fit(query_budget=3000, n_epochs=20, data=np.random.default_rng(3).normal(size=(1500, 6)))
    where = explainer.localities(0)
    assert where.decided
    assert len(where) == 2
    features = {leaf.features for leaf in where}
    assert {frozenset(names) - {"x0"} for names in features} == {frozenset({"x1"}), frozenset({"x2"})}
    explanation = explainer.explain(X, target=0)
    needed = explanation.needed
    below = X[:, 0] < -0.15
    above = X[:, 0] > 0.15
    assert needed[below, 1].all()
    assert not needed[below, 2].any()
    assert needed[above, 2].all()
    assert not needed[above, 1].any()
    assert not needed[:, 3:].any()


def test_what_speaks_most_for_this_prediction_comes_first() -> None:
    """Of the features that decide, which is the strongest differs from sample to sample."""

    def sums(rows: np.ndarray) -> np.ndarray:
        return (rows[:, :2].sum(axis=1) > 0).astype(int)[:, None]

    explainer = fit(sums, n_epochs=20, query_budget=1500)
    explanation = explainer.explain(X, target=0, k=2)
    assert explainer.localities(0).decided
    assert (np.sort(explanation.selected, axis=1) == [0, 1]).all()
    pushes = X[:, :2] * np.where(sums(X) > 0, 1, -1)
    clear = np.abs(pushes[:, 0] - pushes[:, 1]) > 0.5
    assert (explanation.selected[:, 0] == pushes.argmax(axis=1))[clear].mean() > 0.95


def test_a_constant_output_needs_no_features() -> None:
    explainer = fit(query_budget=1500, n_epochs=10)
    explanation = explainer.explain(X[:50], target=2)
    assert not explanation.needed.any()
    assert (explanation.n_selected == 0).all()
    assert [leaf.features for leaf in explainer.localities(2)] == [()]
    assert np.abs(explanation.effects).max() < 0.05


def test_the_same_seed_gives_the_same_explainer() -> None:
    one, two, other = fit(), fit(), fit(random_state=1)
    state = one.interpreter_.state_dict()
    assert all((value == two.interpreter_.state_dict()[name]).all() for name, value in state.items())
    a, b = one.explain(X[:50], target=0), two.explain(X[:50], target=0)
    for name in ("scores", "effects", "needed", "locality", "selected"):
        assert np.array_equal(getattr(a, name), getattr(b, name))
    assert not np.array_equal(other.explain(X[:50], target=0).effects, a.effects)


# --- noise -----------------------------------------------------------------------------------------------------


def test_a_model_that_answers_at_random_is_told_of_and_has_no_localities() -> None:
    rng = np.random.default_rng(0)
    explainer = SOInter(
        lambda rows: (rng.random((len(rows), 2)) < 0.5).astype(int),
        **TAUGHT | {"query_budget": 1200},
    )
    with pytest.warns(UnstableBlackBoxWarning, match="predicted something else"), warnings.catch_warnings():
        explainer.fit(X)
    for target in (0, 1):
        assert len(explainer.localities(target)) == 1, "noise was split"
        assert not explainer.localities(target).decided


def test_noisy_labels_do_not_make_localities() -> None:
    rng = np.random.default_rng(0)

    def noisy(rows: np.ndarray) -> np.ndarray:
        right = np.column_stack([rows[:, 0] + rows[:, 1] > 0, rows[:, 3] > 0])
        return (right ^ (rng.random(right.shape) < 0.05)).astype(int)

    explainer = fit(noisy, query_budget=2000, n_epochs=10)
    for target in (0, 1):
        assert len(explainer.localities(target)) == 1


# --- interrupts ------------------------------------------------------------------------------------------------


def interrupted_at(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C when so much of the training is done."""
    step = EnergyTrainer._step

    def maybe(trainer, batch):
        if trainer.n_done == int(share * trainer.n_steps):
            raise KeyboardInterrupt
        return step(trainer, batch)

    monkeypatch.setattr(EnergyTrainer, "_step", maybe)


@pytest.mark.parametrize("share", [FIRST_LOOK + 0.02, 0.5, 0.95])
def test_an_interrupt_after_enough_was_learned_gives_a_usable_explainer(share: float, monkeypatch) -> None:
    interrupted_at(share, monkeypatch)
    recorded = Recorded()
    box = BlackBox(recorded)
    explainer = SOInter(box, **SHORT)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        explainer.fit(X)
    (warned,) = [one for one in caught if issubclass(one.category, InterruptedFitWarning)]
    assert f"{explainer.n_queries_} of 600 planned" in str(warned.message)
    assert warned.filename == __file__
    assert explainer.n_queries_ == len(recorded.sent) <= 600
    is_usable(explainer)
    n = len(recorded.sent)
    explainer.explain(X[:5], target=0, query=False)
    assert len(recorded.sent) == n


def test_an_interrupt_too_early_is_raised(monkeypatch) -> None:
    interrupted_at(0.1, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        fit(n_epochs=4)


def test_an_interrupt_after_training_loses_nothing_of_it(monkeypatch) -> None:
    whole = fit(n_epochs=4)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(table_interpreter, "teach_gradients", interrupt)
    with pytest.warns(InterruptedFitWarning):
        explainer = SOInter(switch, **SHORT).fit(X)
    is_usable(explainer)
    state = explainer.energy_.state_dict()
    assert all((value == state[name]).all() for name, value in whole.energy_.state_dict().items())


def test_an_interrupted_explainer_can_be_saved(monkeypatch, tmp_path) -> None:
    import sointer

    interrupted_at(0.6, monkeypatch)
    explainer = fit(n_epochs=4)
    explainer.save(tmp_path / "why")
    loaded = sointer.load(tmp_path / "why", black_box=switch)
    a, b = explainer.explain(X[:20], target=0), loaded.explain(X[:20], target=0)
    assert np.array_equal(a.effects, b.effects)
    assert np.array_equal(a.needed, b.needed)


# --- outliers ------------------------------------------------------------------------------------------------


def test_a_huge_outlier_leaves_the_other_numbers_their_digits() -> None:
    data = X.copy()
    data[7, 3] = 1e9
    explainer = fit(data=data, n_epochs=10, query_budget=1000)
    assert explainer.output_skill_[1] > 0.9
    assert (explainer.explain(data[20:120], target=1, k=1).selected == 3).mean() > 0.95


def test_an_output_explained_on_its_own_is_never_told_apart_by_other_outputs():
    """One output switches another; SOInter-1 must not know."""
    X = np.random.default_rng(0).normal(size=(2_000, 8))

    def model(rows):
        switch = rows[:, 0] * rows[:, 1] > 0
        return np.column_stack([switch, np.where(switch, rows[:, 2] > 0, rows[:, 3] > 0)]).astype(int)

    where = {}
    for structured in (True, False):
        explainer = fit(model, data=X, n_epochs=20, energy=None, structured=structured, query_budget=2_000)
        where[structured] = set(explainer.localities(1).to_frame()["where"])
    assert where[True] == {"output y0 = 0", "output y0 = 1"}
    assert not any("output" in text for text in where[False])


def test_units_are_checked_in_their_own_locality_also_where_the_first_output_cuts_it(monkeypatch):
    X = np.random.default_rng(0).normal(size=(1_000, 6))

    def model(rows):
        switch = rows[:, 0] * rows[:, 1] > 0
        return np.column_stack([switch, np.where(switch, rows[:, 2] > 0, rows[:, 3] > 0)]).astype(int)

    check, ask, asked = Interpretation._check, Interpretation._query, []

    def check_leaves(self, trees):
        for leaf in leaves(trees[1]):
            leaf.sufficiency = float("nan")
        check(self, trees)

    def query_and_note(self, rows, kept):
        asked.append((self.queried.codes[rows, 0], kept))
        return ask(self, rows, kept)

    monkeypatch.setattr(Interpretation, "_check", check_leaves)
    monkeypatch.setattr(Interpretation, "_query", query_and_note)
    fit(model, data=X, n_epochs=20, energy=None, query_budget=2_000)
    switched, kept = (np.concatenate(part) for part in zip(*asked, strict=True))
    for value, own, other in ((1, 2, 3), (0, 3, 2)):
        of_leaf = switched[kept[:, own] & ~kept[:, other]]
        assert len(of_leaf) >= 20
        assert (of_leaf == value).all()
