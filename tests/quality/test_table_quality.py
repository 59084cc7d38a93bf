"""Is the explanation right about this sample? Planted truth that differs from sample to sample, with fresh seeds.

Quality bars of the default recipe. Problems are shuffled, and all is left at its default but the number of queries.
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.neural_network import MLPClassifier

from sointer import SOInter, TrainingConfig
from sointer.apps.demo import FEATURES, OUTPUTS, train_desk
from sointer.metrics.ground_truth import false_discovery_rates, sign_accuracy, true_positive_rates
from sointer.zoo import ALL_PROBLEMS, shuffled
from sointer.zoo.instancewise import INSTANCEWISE_PROBLEMS, switching, syn, syn_model
from sointer.zoo.published import PUBLISHED_PROBLEMS
from sointer.zoo.regression import REGRESSION_PROBLEMS, logistic_regressions

pytestmark = pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning")
N_TEST = 500


def fitted(problem, seed, n_queries, n_rows=10_000, **more):
    explainer = SOInter(problem, query_budget=n_queries, random_state=seed, verbose=False, **more)
    return explainer.fit(problem.sample(n_rows, random_state=seed))


def judge(problem, explainer, target, seed):
    """Exact match where the size is given; mean rates of what is found and of what is wrong where it is not."""
    X = problem.sample(N_TEST, random_state=10_000 + seed)
    truth = problem.relevant_rows(X, target)
    order = explainer.explain(X, target, k=problem.n_features).selected
    ranks = np.argsort(order, axis=1)
    exact = ((ranks < truth.sum(axis=1, keepdims=True)) == truth).all(axis=1).mean()
    own = explainer.explain(X, target).mask
    return exact, true_positive_rates(own, truth).mean(), false_discovery_rates(own, truth).mean()


BARS = {"probability": (0.99, 0.99, 0.01), "binary": (0.98, 0.97, 0.03)}


def check(problem, explainer, targets, seed, kind):
    for target in targets:
        exact, found, wrong = judge(problem, explainer, target, seed)
        least_exact, least_found, most_wrong = BARS[kind]
        assert exact >= least_exact, (problem.name, target, exact)
        assert found >= least_found, (problem.name, target, found)
        assert wrong <= most_wrong, (problem.name, target, wrong)


def test_one_of_the_problems_quickly():
    problem = shuffled(syn(4), 31)
    check(problem, fitted(problem, 31, 3000), [0], 31, "probability")


@pytest.mark.parametrize(
    ("seed", "n_epochs"), [(41, 20), *(pytest.param(seed, 60, marks=pytest.mark.slow) for seed in (41, 42, 43))]
)
def test_the_structure_of_a_loan_table_is_found_in_a_forest(seed, n_epochs):
    """A forest trained on labels uses every feature a little; what it has learned is found all the same."""
    rng = np.random.default_rng(seed)
    names = ["income", "debt", "age", "children", "tenure", "rooms", "visits", "score"]
    n = 3000
    X = np.column_stack(
        [
            rng.normal(60, 20, n).clip(8),
            rng.gamma(2, 2200, n),
            rng.integers(18, 80, n),
            rng.integers(0, 5, n),
            rng.integers(0, 30, n),
            rng.integers(1, 8, n),
            rng.poisson(4, n),
            rng.normal(size=n),
        ]
    )
    income, debt, age, _, tenure, rooms = X.T[:6]
    risky = np.where(age < 45, debt > 75 * income, tenure < 6)
    owner = (rooms > 4) & (income > 50)
    forest = RandomForestClassifier(60, random_state=seed, n_jobs=1).fit(X, np.column_stack([risky, owner]))
    settings = {"feature_names": names, "output_names": ["risky", "owner"], "query_budget": 6000}
    training = TrainingConfig(n_epochs=n_epochs)  # 60 is the default
    explainer = SOInter(forest, **settings, training=training, random_state=seed).fit(X[:2000])
    found = {locality.where: set(locality.features) for locality in explainer.localities("risky")}
    young = next(features for where, features in found.items() if where.startswith("age <="))
    old = next(features for where, features in found.items() if where.startswith("age >"))
    assert young - {"age"} == {"income", "debt"}
    assert old - {"age"} == {"tenure"}
    assert all(40 < float(where.split()[-1]) < 50 for where in found)
    assert {feature for one in explainer.localities("owner") for feature in one.features} == {"income", "rooms"}
    explanation = explainer.explain(X[2000:2300], "risky")
    assert explanation.n_selected.mean() < 3
    assert explanation.verify().confirmed.mean() > 0.85


def loan_desk_structure(seed):
    """Whether localities of "high risk" and of "second look" begin with age near 30, and whether "gold account" lists
    nothing but its two features."""
    model, X, _, _ = train_desk(4000, seed)
    explainer = SOInter(
        model, feature_names=list(FEATURES), output_names=list(OUTPUTS), query_budget=6000, random_state=seed
    ).fit(X)
    found = []
    for target in ("high risk", "second look"):
        first = [one.where.split(" and ")[0].split() for one in explainer.localities(target)]
        found.append(all(where[0] == "age" and 27 < float(where[-1]) < 33 for where in first))
    listed = {feature for one in explainer.localities("gold account") for feature in one.features}
    return [*found, listed <= {"savings", "accounts"}]


@pytest.mark.slow
def test_the_structure_of_the_loan_desk_is_mostly_found_in_a_chain_of_boosted_trees():
    """Seeds that nobody looked at while the method was changed for seeds 0 to 3: found were 9, 8 and 7 of 10."""
    risk, second_look, gold = np.sum([loan_desk_structure(seed) for seed in range(11, 21)], axis=0)
    assert risk >= 8
    assert second_look >= 7
    assert gold >= 6


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["probability", "binary"])
@pytest.mark.parametrize("seed", [32, 33])
def test_all_as_one_model(kind, seed):
    problem = shuffled(syn_model(11, kind), seed)
    check(problem, fitted(problem, seed, 5000), range(7), seed, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["probability", "binary"])
@pytest.mark.parametrize("number", [4, 5, 6])
def test_each_alone(kind, number):
    problem = shuffled(syn(number, 11, kind), 34 + number)
    check(problem, fitted(problem, 34, 5000), [0], 34, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["probability", "binary"])
def test_a_hundred_features(kind):
    problem = shuffled(syn_model(100, kind), 35)
    check(problem, fitted(problem, 35, 20_000), (4, 5, 6), 35, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["probability", "binary"])
@pytest.mark.parametrize("switch", ["oblique", "parity", "nested", "category"])
def test_harder_switches_among_the_outputs(switch, kind):
    problem = shuffled(switching(switch, output_kind=kind), 36)
    explainer = fitted(problem, 36, 5000)
    assert judge(problem, explainer, problem.targets[-1], 36)[0] >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["probability", "binary"])
def test_strongly_correlated_features(kind):
    problem = shuffled(INSTANCEWISE_PROBLEMS["syn_model_correlated"](output_kind=kind), 37)
    explainer = fitted(problem, 37, 5000)
    for target in (4, 5, 6):
        assert judge(problem, explainer, target, 37)[0] >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("seed", [44, 45])
def test_weak_features_count_where_few_decide_in_each_locality(seed):
    """Nine of ten features matter somewhere, but five in each locality, some of these a little only.

    The absolute value of a feature beside a sine a hundred times as large changes the probability by about 2 % of what
    the sine does, so it may be not needed; but it comes before features that never change it.
    """
    problem = shuffled(PUBLISHED_PROBLEMS["l2x_switch"](), seed)
    exact, found, wrong = judge(problem, fitted(problem, seed, 5000), 0, seed)
    assert exact >= 0.99
    assert found >= 0.89
    assert wrong <= 0.01


@pytest.mark.slow
def test_switch_from_two_thousand_queries():
    problem = shuffled(ALL_PROBLEMS["switch"](20), 38)
    explainer = fitted(problem, 38, 2000, n_rows=2000)
    assert judge(problem, explainer, problem.targets[0], 38)[0] >= 0.99


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(REGRESSION_PROBLEMS))
def test_numbers_are_learned_better_with_more_queries(name):
    problem = shuffled(REGRESSION_PROBLEMS[name](), 39)
    few, many = (fitted(problem, 39, n) for n in (5_000, 20_000))
    assert np.nanmin(many.output_skill_) > 0.9
    assert np.nanmean(many.output_skill_) >= np.nanmean(few.output_skill_) - 0.005
    for target in problem.targets:
        assert judge(problem, many, target, 39)[0] >= 0.95, target


@pytest.mark.slow
def test_signs_of_strong_contributions_are_right():
    problem = shuffled(logistic_regressions(), 40)
    explainer = fitted(problem, 40, 5000)
    X = problem.sample(N_TEST, random_state=10_040)
    for target in problem.targets:
        effects = explainer.explain(X, target).effects
        assert sign_accuracy(effects, problem.contributions(X, target)) >= 0.95, target


@pytest.mark.slow
def test_each_output_alone_is_learned_too():
    problem = shuffled(syn_model(11, "binary"), 41)
    explainer = fitted(problem, 41, 5000, structured=False)
    assert explainer.held_out_agreement_ >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("seed", [42, 43])
def test_a_rare_label_needs_all_that_makes_it(seed):
    """One feature keeps the common label in most samples; the rare one, in 4 %, takes four."""

    def outputs(X):
        first, second = X[:, 0] + X[:, 1] > 1.2, X[:, 2] - X[:, 3] > 1.2
        return np.column_stack([first, second, first & second]).astype(int)

    X = np.random.default_rng(seed).normal(size=(5_000, 20))
    explainer = SOInter(outputs, query_budget=2_000, random_state=seed, verbose=False).fit(X)
    rare = X[outputs(X)[:, 2] == 1]
    assert explainer.explain(rare, 2).mask[:, :4].all(axis=1).mean() >= 0.99


@pytest.mark.slow
@pytest.mark.parametrize(("name", "n_queries"), [("mediated_xor", 500), ("mediated_majority", 1_000)])
@pytest.mark.parametrize("seed", [44, 45, 46, 47])
def test_few_queries_suffice_for_all_outputs_at_once(name, n_queries, seed):
    problem = shuffled(ALL_PROBLEMS[name](20), seed)
    explainer = fitted(problem, seed, n_queries, n_rows=2_000)
    assert judge(problem, explainer, problem.targets[0], seed)[0] == 1.0


@pytest.mark.slow
def test_few_queries_about_a_model_that_many_features_decide_give_evidence():
    """The control of the test above: what seems to suffice by a few queries must not, where many features decide."""
    images, digits = load_digits(return_X_y=True)
    labels = np.eye(10, dtype=int)[digits]
    model = MLPClassifier((50,), max_iter=200, random_state=0).fit(images[:1200], labels[:1200])
    explainer = SOInter(model.predict, query_budget=2_000, random_state=44, verbose=False).fit(images[:1200])
    assert explainer.interpreter_.localities.is_sparse.sum() <= 3


@pytest.mark.parametrize("threshold", [1.5, pytest.param(0.0, marks=pytest.mark.slow)])
def test_effects_through_a_number_that_exceeds_a_threshold_are_mediated_and_others_direct(threshold: float) -> None:
    """Wherever the threshold lies: at the median of the number, or where few exceed it."""
    X = np.random.default_rng(5).normal(size=(1500, 6))

    def model(X: np.ndarray) -> np.ndarray:
        height = X[:, 0] + X[:, 1]
        return np.column_stack([height, X[:, 2] - X[:, 3], height > threshold, X[:, 2] > 0.5])

    names = ["height", "width", "alarm", "wide"]
    explainer = SOInter(model, output_names=names, query_budget=3000, random_state=0, verbose=False).fit(X)
    through = explainer.explain(X[:200], target="alarm").paths().summary()["alarm"]
    assert {one.feature for one in through} == {"x0", "x1"}
    for one in through:
        assert one.total > 0.1
        assert abs(one.direct) < 0.4 * one.total  # it was 0.8 before graded outputs had bins
        assert one.output == "height"
    alone = explainer.explain(X[:200], target="wide").paths().summary()["wide"][0]  # which width says something of
    assert alone.feature == "x2"
    assert alone.direct > 0.8 * alone.total


def linear(weights):
    return lambda X: np.column_stack([X @ weights, X[:, 0]])


@pytest.mark.parametrize(
    ("n_features", "model", "relevant"),
    [
        (2, lambda X: np.column_stack([X[:, 0] * X[:, 1] > 0, X[:, 0] > 0]).astype(int), 2),
        (3, linear([3.0, 2.0, 1.0]), 3),
        (6, linear([6.0, 5.0, 4.0, 3.0, 2.0, 1.0]), 6),
        (8, lambda X: np.column_stack([(X[:, :6] > 0).sum(axis=1), X[:, 7] > 0]), 6),
        (10, linear([3.0, -2.0, 1.0] + [0.0] * 7), 3),
    ],
    ids=["xor of both", "number of all three", "number of all six", "count of six of eight", "number of three of ten"],
)
def test_where_most_features_decide_all_of_these_are_selected_and_the_model_confirms_it(n_features, model, relevant):
    """What explains most of a number, or speaks for a label, does not keep it: the truth is every relevant feature."""
    rng = np.random.default_rng(11)
    X = rng.normal(size=(1_000, n_features))
    explainer = SOInter(model, query_budget=3_000, random_state=0, verbose=False).fit(X)
    explanation = explainer.explain(rng.normal(size=(100, n_features)), target=0)
    truth = np.arange(n_features) < relevant
    assert (explanation.mask == truth).all(axis=1).mean() > 0.95
    verification = explanation.verify()
    assert verification.fidelity > 0.98
    assert not verification.refuted.any()
