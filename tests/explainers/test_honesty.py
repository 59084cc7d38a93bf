"""Verdicts of verify() against what is known to be true, and rows that lie far from the training data."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import binom

import sointer
from quick import QUICK
from sointer import SOInter, Verification
from sointer.data.images import ImageShape
from sointer.errors import FarInputWarning, InputError
from sointer.explainers.baselines.base import Random
from sointer.explainers.novelty import Distance, FarRows
from sointer.io.stream import stream_explain
from sointer.masking.removal import Background

RNG = np.random.default_rng(0)


# --- verdicts ----------------------------------------------------------------------------------------------


def of_draws(agreed: list[int], n: int, level: float = 0.7) -> Verification:
    share = np.array(agreed) / n
    return Verification(share, 1 - share, 0, n, level)


def test_bounds_are_wrong_as_seldom_as_promised():
    """Checked exactly, over all outcomes of n draws; the bounds from their definition by the binomial distribution."""
    for n in (1, 5, 10, 44):
        bounds = of_draws(list(range(n + 1)), n).interval
        for p in np.linspace(0, 1, 101):
            chance = binom.pmf(np.arange(n + 1), n, p)
            assert chance[bounds[:, 0] > p + 1e-9].sum() <= 0.05 + 1e-9
            assert chance[bounds[:, 1] < p - 1e-9].sum() <= 0.05 + 1e-9
        for agreed, (low, high) in enumerate(bounds):
            assert low == 0 if agreed == 0 else binom.sf(agreed - 1, n, low) == pytest.approx(0.05)
            assert high == 1 if agreed == n else binom.cdf(agreed, n, high) == pytest.approx(0.05)


def test_there_are_three_verdicts():
    check = of_draws([10, 9, 5, 4, 0], 10)
    assert check.verdict.tolist() == ["confirmed", "unsure", "unsure", "refuted", "refuted"]
    assert (check.confirmed.astype(int) + check.refuted + check.unsure == 1).all()
    assert "confirmed 1 of 5 rows, unsure of 2, " in repr(check)
    assert of_draws([29, 28], 29, 0.9).verdict.tolist() == ["confirmed", "unsure"]
    assert of_draws([10], 10, 0.9).verdict.tolist() == ["unsure"], "ten draws say too little of 90 %"
    assert of_draws([3], 3).verdict.tolist() == ["unsure"]


def test_where_nothing_is_random_one_answer_tells_all():
    check = Verification(np.array([1.0, 0.0, 0.9]), np.zeros(3), 3)
    assert check.verdict.tolist() == ["confirmed", "refuted", "refuted"]
    assert np.array_equal(check.interval, np.array([[1, 1], [0, 0], [0.9, 0.9]]))


@pytest.fixture(scope="module")
def coin():
    """The target is column 0, unless column 1, which is uniform, is below `share`: agreement is known."""
    X = np.column_stack([np.where(RNG.random(400) < 0.5, 1.0, -1.0), RNG.random((400, 2))])

    def fitted(share):
        def model(X):
            return np.column_stack([np.where(X[:, 1] < share, 0, X[:, 0] > 0), X[:, 2] > 0.5])

        return Random(model, k=1, random_state=0).fit(X)

    kept = X[(X[:, 0] > 0) & (X[:, 1] > 0.9)]  # the target is 1, and stays so unless column 1 falls below the share
    return fitted, kept


@pytest.mark.parametrize("share", [0.0, 0.1, 0.4, 0.9])
def test_verdicts_are_right_where_the_truth_is_known(coin, share):
    fitted, kept = coin
    explanation = fitted(share).explain(kept, target=0)
    explanation.selected[:] = 0  # column 0 is kept, column 1 drawn anew: the target stays 1 in 1 - share of draws
    check = explanation.verify(n_draws=40)
    assert check.fidelity == pytest.approx(1 - share, abs=0.08)
    truly = 1 - share >= check.level
    wrong = check.refuted if truly else check.confirmed
    assert wrong.mean() <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / len(kept))
    if share in (0.0, 0.9):
        assert (check.confirmed if truly else check.refuted).all()


def test_fixed_removal_has_no_draws(coin):
    fitted, kept = coin
    check = fitted(0.4).explain(kept[:5], target=0).verify(removal="zero", n_draws=7)
    assert check.n_draws is None
    assert not check.unsure.any()


@pytest.mark.parametrize("level", [0, 1, 1.5, -1, float("nan")])
def test_levels_that_mean_nothing_are_refused(coin, level):
    fitted, kept = coin
    with pytest.raises(InputError, match="level must be a share"):
        fitted(0.0).explain(kept[:2], target=0).verify(level=level)
    with pytest.raises(InputError, match="n_draws"):
        fitted(0.0).explain(kept[:2], target=0).verify(n_draws=0)


# --- far from the training data ----------------------------------------------------------------------------

ZIPF = np.clip(9 / np.arange(1, 501) ** 0.9, 0, 0.6)
TABLES = {
    "normal": lambda n: RNG.normal(size=(n, 20)),
    "heavy tails": lambda n: RNG.standard_cauchy(size=(n, 10)),
    "skewed": lambda n: np.exp(2 * RNG.normal(size=(n, 10))),
    "rare categories": lambda n: (RNG.random((n, 30)) < np.linspace(0.001, 0.5, 30)).astype(float),
    "clusters": lambda n: 0.1 * RNG.normal(size=(n, 4)) + 10 * RNG.integers(0, 3, (n, 1)),
    "a few values": lambda n: RNG.integers(0, 3, (n, 2)).astype(float),
    "words": lambda n: sp.csr_array((RNG.random((n, 500)) < ZIPF).astype(float)),
}


def known(X, image=None) -> Distance:
    return Distance.of(Background.of(X, np.random.default_rng(1)), image)


@pytest.mark.parametrize("name", TABLES)
def test_rows_like_the_training_data_are_seldom_far(name):
    """At most 1 %, however the data are distributed; averaged over samples of the training data."""
    far = [(known(TABLES[name](2000))(TABLES[name](4000)) > 1).mean() for _ in range(3)]
    assert np.mean(far) <= 0.01


def test_rows_on_a_limit_are_not_far():
    """Single precision may put ratings of 5, or all values of a column that is capped, just beyond it."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        codes = rng.choice(np.sort(rng.choice(400, 6, replace=False)), 600)
        X = np.column_stack([codes, np.minimum(rng.exponential(3000, 600), 9999.99), rng.integers(1, 6, 600)])
        assert (known(X)(X) > 1).mean() <= 0.02


@pytest.mark.parametrize("n", [2, 20, 200])
def test_few_training_rows_give_wide_limits(n):
    far = [(known(RNG.normal(size=(n, 5)))(RNG.normal(size=(500, 5))) > 1).mean() for _ in range(20)]
    assert np.mean(far) <= (0.01 if n == 200 else 0.05 if n == 20 else 1.0)
    assert (known(RNG.normal(size=(n, 5)))(np.full((3, 5), 1e9)) > 1).all()


def test_odd_rows_are_far():
    X = RNG.normal(size=(3000, 20))
    distance = known(X)
    one_odd = X[:50].copy()
    one_odd[:, 3] = 6.0
    assert (distance(one_odd) > 1).all(), "one column far out"
    assert (distance(3 * RNG.normal(size=(200, 20))) > 1).mean() > 0.95, "all columns somewhat out"
    assert np.isfinite(distance(np.full((1, 20), 1e300))).all()
    between = known(0.1 * RNG.normal(size=(1000, 4)) + 10 * RNG.integers(0, 2, (1000, 1)))
    assert (between(np.full((1, 4), 5.0)) > 1).all(), "between two clusters, within the range of every column"


def test_a_column_that_never_changed_must_stay_so():
    X = np.column_stack([RNG.normal(size=(500, 2)), np.full(500, 7.0)])
    changed = X[:5].copy()
    changed[:, 2] = 8.0
    assert (known(X)(X) <= 1).mean() > 0.98
    assert (known(X)(changed) > 1).all()


def test_odd_words_are_far():
    documents = TABLES["words"](1000)
    distance = known(documents)
    in_another_language = documents[:100][:, RNG.permutation(500)]
    assert (distance(in_another_language) > 1).mean() > 0.95
    assert (distance(sp.csr_array((1, 500))) > 1).all(), "an empty document"
    assert (distance(1000 * documents[:20]) > 1).all(), "counts of another size"
    explicit = documents[:5].copy()
    explicit.data[0] = 0
    same = explicit.copy()
    same.eliminate_zeros()
    assert np.array_equal(distance(explicit), distance(same)), "zeros that are written down are still zeros"


def test_documents_seen_in_training_are_near_however_few():
    documents = sp.csr_array(np.tile(np.eye(4, 9) + np.eye(4, 9, 2), (8, 1)))
    assert (known(documents)(documents) <= 1).all()


def test_odd_images_are_far():
    def images(n):
        return np.clip(RNG.normal(0.5, 0.1, (n, 1, 1)) + RNG.normal(0, 0.1, (n, 3, 64)), 0, 1).reshape(n, -1)

    distance = known(images(600), ImageShape(3, 8, 8))
    assert (distance(images(600)) > 1).mean() <= 0.02
    for odd in (np.zeros((5, 192)), RNG.random((5, 192)), 255 * images(5)):
        assert (distance(odd) > 1).all()


@pytest.fixture(scope="module")
def explainer():
    X = np.random.default_rng(1).normal(size=(500, 4))
    return SOInter(lambda X: np.column_stack([X[:, 0] > 0, X[:, 1] > 0]), **QUICK).fit(X)


def test_explaining_far_rows_warns_once_and_says_how_many(explainer):
    rows = np.random.default_rng(2).normal(size=(50, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error", FarInputWarning)
        explanation = explainer.explain(rows, target=1)
    mixed = rows.copy()
    mixed[:7] += 50
    with pytest.warns(FarInputWarning, match="7 of 50 rows lie far") as warned:
        far = explainer.explain(mixed, target=1).far
    assert [warning.filename for warning in warned] == [__file__]
    assert far[:7].all()
    assert np.array_equal(far, explainer.distance(mixed) > 1)
    assert np.array_equal(explanation.far, explanation.distance > 1)


def test_what_chance_explains_is_not_worth_a_warning():
    one_in_a_hundred = np.r_[1.2, np.zeros(99)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FarRows().add(one_in_a_hundred).warn()
    for distance in (np.r_[1.2 * np.ones(6), np.zeros(94)], np.r_[11.0, np.zeros(999)], np.array([1.1])):
        with pytest.warns(FarInputWarning):
            FarRows().add(distance).warn()


def test_distances_do_not_change_with_saving(explainer, tmp_path):
    rows = 3 * np.random.default_rng(3).normal(size=(20, 4))
    explainer.save(tmp_path / "saved")
    assert np.array_equal(sointer.load(tmp_path / "saved").distance(rows), explainer.distance(rows))


def test_a_new_fit_knows_its_own_data():
    def model(X):
        return np.column_stack([X[:, 0] > 0, X[:, 1] > 0])

    made = Random(model, k=1, random_state=0).fit(RNG.normal(size=(300, 3)))
    elsewhere = RNG.normal(size=(300, 3)) + 100
    assert (made.distance(elsewhere) > 1).all()
    assert (made.fit(elsewhere).distance(elsewhere) > 1).mean() < 0.05


def test_streams_and_reports_say_it_once(explainer, tmp_path):
    pytest.importorskip("pyarrow")
    rows = np.random.default_rng(4).normal(size=(40, 4))
    rows[::4] += 50
    with pytest.warns(FarInputWarning, match="10 of 40 rows") as warned:
        stream_explain(explainer, rows, tmp_path / "why.parquet", target="all", chunk_rows=7)
    assert len([warning for warning in warned if warning.category is FarInputWarning]) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", FarInputWarning)
        page = explainer.report(rows, tmp_path / "why.html", paths=False).read_text()
    assert "10 of 40 samples lie far from the" in page
    assert '"far": [0, 4, 8' in page.replace('"far":[', '"far": [').replace("0,4,8", "0, 4, 8")
