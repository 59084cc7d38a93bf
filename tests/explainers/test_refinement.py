"""Spending questions on a row: what they find, what they cost, and that they make nothing worse."""

from __future__ import annotations

import warnings
from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp

import sointer
from sointer import EnergyConfig, SOInter, TrainingConfig
from sointer.errors import InputError
from sointer.explainers.baselines.base import Random
from sointer.masking.selection import N_DRAWS, first_units, refine_ranking

pytestmark = [
    pytest.mark.usefixtures("global_random_state_is_left_alone"),
    pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning"),
]


class Confirming:
    """Confirms selections that hold all of some units, and keeps a record of what each row was asked."""

    def __init__(self, *needed: int) -> None:
        self.needed = list(needed)
        self.queried: dict[int, list[tuple[int, ...]]] = {}
        self.n_draws: list[int] = []

    def agreement(self, keep_units, targets, *, rows, n_draws, seed):
        assert len(keep_units) == len(targets) == len(rows) == len(set(rows.tolist()))
        self.n_draws.append(n_draws)
        for row, keep in zip(rows.tolist(), keep_units, strict=True):
            self.queried.setdefault(row, []).append(tuple(np.flatnonzero(keep)))
        return keep_units[:, self.needed].all(axis=1).astype(float)


def no_idea(rows, keep):
    return np.zeros(len(rows))


def refined(source, ranking, *, likely=no_idea, k=2, n_queries=10, n_draws=1, seed=0, scores=None):
    if scores is None:
        scores = np.zeros(ranking.shape, dtype=np.float32)
        for i, order in enumerate(ranking):
            allowed = order[order >= 0]
            scores[i, allowed] = np.linspace(1.0, 0.0, len(allowed))
    targets = np.zeros(len(ranking), dtype=np.int64)
    return refine_ranking(source, likely, ranking, scores, targets, k, n_queries=n_queries, n_draws=n_draws, seed=seed)


IN_ORDER = np.tile(np.arange(8), (5, 1))


# --- one row at a time, with a planted truth ---------------------------------------------------------------


def test_confirmed_rankings_stay_and_cost_one_question():
    source = Confirming(0, 1)
    assert np.array_equal(refined(source, IN_ORDER), IN_ORDER)
    assert {row: queried for row, queried in source.queried.items()} == {row: [(0, 1)] for row in range(5)}


def test_a_planted_better_selection_is_found():
    source = Confirming(3)
    found = refined(source, IN_ORDER, n_queries=30)
    assert (found[:, :2] == 3).any(axis=1).all()
    assert all(len(queried) <= 30 for queried in source.queried.values())
    for row, order in enumerate(found):
        assert sorted(order) == list(range(8))
        assert source.queried[row][-1] == tuple(sorted(order[:2]))
        assert all(3 not in earlier for earlier in source.queried[row][:-1])


def test_what_the_energy_finds_likely_is_asked_first():
    asked_of_energy = []

    def knows(rows, keep):
        asked_of_energy.append(len(keep))
        assert (keep.sum(axis=1) == 2).all()
        return keep[:, 5].astype(float)

    source = Confirming(5)
    found = refined(source, IN_ORDER, likely=knows, n_queries=2)
    reached = (found[:, :2] == 5).any(axis=1)
    assert reached.sum() >= 3  # only if no variation held unit 5 was it not asked about
    assert len(asked_of_energy) == 5
    assert all(len(queried) == 2 for queried in source.queried.values())


def test_what_cannot_be_confirmed_stays_as_it_was():
    source = Confirming(0, 1, 2)  # of two units, never
    found = refined(source, IN_ORDER, n_queries=7)
    assert np.array_equal(found, IN_ORDER)
    assert all(1 < len(queried) <= 7 for queried in source.queried.values())


def test_only_unconfirmed_rows_are_asked_again():
    ranking = IN_ORDER.copy()
    ranking[2] = ranking[2, ::-1]
    source = Confirming(7)
    found = refined(source, ranking, n_queries=4)
    assert len(source.queried[2]) == 1
    assert np.array_equal(found[2], ranking[2])
    assert all(1 < len(source.queried[row]) <= 4 for row in (0, 1, 3, 4))


@pytest.mark.parametrize(("n_queries", "n_rounds"), [(4, 0), (5, 1), (9, 1), (10, 2), (24, 4)])
def test_random_removal_takes_several_questions_at_a_time(n_queries, n_rounds):
    source = Confirming(0, 1, 2)
    refined(source, IN_ORDER, n_queries=n_queries, n_draws=5)
    assert source.n_draws == [5] * n_rounds
    assert all(5 * len(queried) <= n_queries for queried in source.queried.values())


def test_units_that_cannot_be_chosen_are_never_proposed():
    ranking = np.array([[4, 1, 6, -1, -1, -1, -1, -1], [2, -1, -1, -1, -1, -1, -1, -1]])
    source = Confirming(0)
    found = refined(source, ranking, n_queries=20)
    assert np.array_equal(found, ranking)
    assert set().union(*source.queried[0]) <= {1, 4, 6}
    assert set(source.queried[1]) == {(2,)}
    better = refined(Confirming(6), ranking[:1], n_queries=20)
    assert 6 in better[0, :2]
    assert sorted(better[0, :3]) == [1, 4, 6]
    assert (better[0, 3:] == -1).all()


def test_the_same_seed_asks_the_same_questions():
    sources = [Confirming(6, 7) for _ in range(2)]
    found = [refined(source, IN_ORDER, n_queries=9, seed=1) for source in sources]
    assert np.array_equal(found[0], found[1])
    assert sources[0].queried == sources[1].queried


def test_no_selection_is_asked_about_twice():
    source = Confirming(0, 1, 2)
    refined(source, IN_ORDER, likely=lambda rows, keep: keep[:, 0] + 0.5 * keep[:, 1], n_queries=6)
    assert all(len(set(queried)) == len(queried) for queried in source.queried.values())


def test_a_row_with_nothing_to_choose_from():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = refined(Confirming(0), np.full((1, 8), -1), n_queries=3)
    assert (found == -1).all()


# --- through explain ---------------------------------------------------------------------------------------

N_WORDS = 300


class Tags:
    """Tag 0 is set by both of two words, or by two others; tag 1 by a word; counts what it is asked."""

    def __init__(self) -> None:
        self.n_rows = 0
        self.seen: Counter[bytes] = Counter()

    def __call__(self, X):
        dense = X.toarray()
        self.n_rows += len(dense)
        self.seen.update(row.tobytes() for row in dense)
        has = dense > 0
        return np.column_stack([has[:, 0] & has[:, 1] | has[:, 2] & has[:, 3], has[:, 4]]).astype(int)


def documents(n, seed=0):
    rng = np.random.default_rng(seed)
    share = np.full(N_WORDS, 0.03)
    share[:5] = 0.4
    return sp.csr_array((rng.random((n, N_WORDS)) < share).astype(float))


POOR = {
    "query_budget": 150,
    "energy": EnergyConfig(hidden=(8,), coupling_units=2, batch_size=32, learning_rate=1e-4),
    "training": TrainingConfig(n_rounds=0),
}


@pytest.fixture(scope="module")
def poor():
    """An explainer that has learned next to nothing: much is left to refine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SOInter(Tags(), k=2, random_state=0, **POOR).fit(documents(300))


def positive_rows(n=40, seed=3):
    X = documents(400, seed)
    return X[Tags()(X)[:, 0] == 1][:n]


def test_refinement_confirms_more_and_loses_nothing(poor):
    X = positive_rows()
    said = Tags()(X)
    plain = poor.explain(X, target=0, predicted=said)
    before = plain.verify().confirmed
    shares = [before.mean()]
    for refine in (1, 8, 40):
        explanation = poor.explain(X, target=0, predicted=said, refine=refine)
        confirmed = explanation.verify().confirmed
        assert (confirmed >= before).all()
        assert np.array_equal(explanation.selected[before], plain.selected[before])
        shares.append(confirmed.mean())
    assert shares[0] == shares[1] < 0.7
    assert shares == sorted(shares)
    assert shares[-1] > shares[0] + 0.15


@pytest.mark.parametrize("is_given", [True, False])
@pytest.mark.parametrize("refine", [1, 2, 6])
def test_questions_are_counted_and_limited(poor, is_given, refine):
    X = positive_rows(12)
    model = poor.model
    predicted = Tags()(X) if is_given else None
    total = 0
    for i in range(X.shape[0]):
        before, counted_before = model.n_rows, poor.n_explain_queries_
        poor.explain(X[[i]], target=0, predicted=predicted[[i]] if is_given else None, refine=refine)
        queried = model.n_rows - before
        assert 1 <= queried - (not is_given) <= refine  # one more for what the model predicts, unless it was given
        assert poor.n_explain_queries_ - counted_before == queried
        total += queried
    before = model.n_rows
    explanation = poor.explain(X, target=0, predicted=predicted, refine=refine)
    assert model.n_rows - before <= 12 * (refine + (not is_given))
    if refine <= 2:
        assert model.n_rows - before == total
    assert total > 12 or refine == 1
    before = model.n_rows
    assert explanation.verify().n_queries == model.n_rows - before == 12  # whole rows are known by then


def test_no_refinement_asks_nothing(poor):
    before = poor.model.n_rows
    plain = poor.explain(positive_rows(), target=0, query=False)
    same = poor.explain(positive_rows(), target=0, query=False, refine=0)
    assert np.array_equal(plain.selected, same.selected)
    assert poor.model.n_rows == before


def test_asking_tells_what_is_explained(poor):
    X = documents(60, seed=8)
    explanation = poor.explain(X, target=1, refine=1)
    assert np.array_equal(explanation.value, Tags()(X)[:, 1])
    mixed = np.arange(60) % 2
    explanation = poor.explain(X, target=mixed, refine=3)
    assert np.array_equal(explanation.value, Tags()(X)[np.arange(60), mixed])


def test_the_same_question_twice_gives_the_same_answer(poor):
    X = positive_rows()
    one, other = (poor.explain(X, target=0, refine=6) for _ in range(2))
    assert np.array_equal(one.selected, other.selected)


@pytest.mark.parametrize("bad", [-1, 1.5, True, "3", None, np.nan, [2]])
def test_bad_values(poor, bad):
    before = poor.model.n_rows
    with pytest.raises(InputError, match=r"refine must be a whole number.*0 or more"):
        poor.explain(positive_rows(3), target=0, refine=bad)
    assert poor.model.n_rows == before


def test_numpy_numbers_are_whole_numbers_too(poor):
    assert poor.explain(positive_rows(3), target=0, refine=np.int64(2)).selected.shape == (3, 2)


def test_automatic_k_is_refused(poor):
    before = poor.model.n_rows
    with pytest.raises(InputError, match="give k="):
        poor.explain(positive_rows(3), target=0, k="auto", refine=2)
    assert poor.model.n_rows == before


def test_automatic_k_of_the_constructor_is_refused_too(poor):
    automatic = sointer.SOInter(Tags(), k="auto", random_state=0, **POOR)
    automatic.__dict__.update({name: value for name, value in vars(poor).items() if name.endswith("_")})
    assert automatic.explain(positive_rows(3), target=0, k=2, refine=2).selected.shape == (3, 2)
    with pytest.raises(InputError, match="give k="):
        automatic.explain(positive_rows(3), target=0, refine=2)


def test_a_loaded_explainer_without_its_model_says_so(poor, tmp_path):
    poor.save(tmp_path / "explainer")
    X = positive_rows(5)
    with pytest.raises(InputError, match="black_box=model"):
        sointer.load(tmp_path / "explainer").explain(X, target=0, refine=3)
    loaded = sointer.load(tmp_path / "explainer", black_box=Tags())
    expected = poor.explain(X, target=0, refine=6)
    assert np.array_equal(loaded.explain(X, target=0, refine=6).selected, expected.selected)


def test_other_explainers_do_not_take_it():
    explainer = Random(Tags(), k=2, random_state=0).fit(documents(30))
    with pytest.raises(InputError, match="refine=3 is for SOInter; Random cannot"):
        explainer.explain(documents(2), target=0, refine=3)


# --- where removal is random -------------------------------------------------------------------------------


class Sign:
    def __init__(self) -> None:
        self.n_rows = 0

    def __call__(self, X):
        self.n_rows += len(X)
        return (X[:, [0, 1]] > 0).astype(int)


@pytest.fixture(scope="module")
def marginal():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SOInter(
            Sign(),
            k=1,
            random_state=0,
            removal="marginal",
            query_budget=10,
            energy=EnergyConfig(hidden=(4,), coupling_units=2),
            training=TrainingConfig(n_epochs=1),
        ).fit(np.random.default_rng(0).normal(size=(80, 6)))


@pytest.mark.parametrize(("refine", "is_given", "most"), [(3, False, 1), (6, False, 6), (5, True, 5), (32, True, 30)])
def test_random_removal_is_limited_too(marginal, refine, is_given, most):
    X = np.random.default_rng(1).normal(size=(20, 6))
    for i in range(20):
        before = marginal.model.n_rows
        marginal.explain(X[[i]], target=0, predicted=Sign()(X[[i]]) if is_given else None, refine=refine)
        queried = marginal.model.n_rows - before
        assert queried <= most <= refine
        assert (queried - (not is_given)) % N_DRAWS == 0


def test_random_removal_finds_what_decides(marginal):
    X = np.random.default_rng(2).normal(size=(60, 6))
    rows = np.arange(60)

    def confirmed(explanation):
        keep = first_units(explanation.selected, np.ones(60, dtype=np.int64), 6)
        source, targets = explanation.source, np.zeros(60, dtype=np.int64)
        return source.agreement(keep, targets, rows=rows, n_draws=N_DRAWS, seed=0) == 1.0

    plain = marginal.explain(X, target=0, k=1, predicted=Sign()(X))
    better = marginal.explain(X, target=0, k=1, predicted=Sign()(X), refine=100)
    before, after = confirmed(plain), confirmed(better)
    assert (after >= before).all()
    assert before.sum() < 45
    assert after.sum() > before.sum()
    gained = after & ~before
    assert (better.selected[gained, 0] == 0).mean() > 0.5  # feature 0 alone decides
    assert np.array_equal(plain.selected[before], better.selected[before])
