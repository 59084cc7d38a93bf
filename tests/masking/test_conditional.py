"""Conditional removal: what is removed comes from a row that is like this one in what is kept."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import sointer
from sointer import SOInter
from sointer.config import TrainingConfig
from sointer.data.inputs import InputFormat
from sointer.errors import InputError, LoadError
from sointer.explainers.baselines.lime_and_shap import KernelShap, ShapleySampling
from sointer.masking.build import make_removal, restore_removal
from sointer.masking.conditional import N_NEAREST, row_hashes
from sointer.masking.removal import MAX_BACKGROUND_ROWS, Removal

QUICK = {"training": TrainingConfig(n_epochs=3)}


def gaussian(n: int, rho: float = 0.9, n_columns: int = 4, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.sqrt(rho) * rng.normal(size=(n, 1)) + np.sqrt(1 - rho) * rng.normal(size=(n, n_columns))


def conditional(data, input_format: InputFormat | None = None) -> Removal:
    return make_removal("conditional", data, input_format or InputFormat.infer(data), np.random.default_rng(0))


def mixed_frame(n: int = 300, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    size = rng.normal(size=n)
    return pd.DataFrame(
        {
            "size": 1000 * size + 5e6,
            "noise": rng.normal(size=n),
            "kind": np.array(["small", "middle", "large"])[np.digitize(size, [-0.4, 0.4])],
        }
    )


def possible_donors(row, keep, background, features) -> set[int]:
    """The slow twin: which background rows may stand in, by loops over rows and features."""
    spreads = {columns[0]: sum(float(np.var(background[:, c])) for c in columns) for columns in features}
    distances = []
    for other in background:
        total = 0.0
        for columns in features:
            spread = spreads[columns[0]]
            if spread > 0 and all(keep[c] for c in columns):
                total += sum((row[c] - other[c]) ** 2 for c in columns) / spread
        distances.append(total)
    copies = [i for i, other in enumerate(background) if np.array_equal(other, row)]
    if copies:
        distances[copies[0]] = np.inf
    n_nearest = max(1, min(N_NEAREST, len(background) // 10))
    last = sorted(distances)[n_nearest - 1]
    return {i for i, distance in enumerate(distances) if distance <= last + 1e-9}


@pytest.mark.parametrize("kind", ["numbers", "mixed", "zeros and ones", "csr"])
def test_slow_twin(kind: str) -> None:
    rng = np.random.default_rng(3)
    if kind == "mixed":
        frame = mixed_frame(150)
        input_format = InputFormat.infer(frame)
        data = input_format.encode(frame)
        features = [[0], [1], [2, 3, 4]]
    else:
        data = gaussian(150, 0.5) if kind == "numbers" else (rng.random((150, 6)) < 0.3).astype(float)
        data[:, 1] = 2.0  # a constant says nothing about who is near
        features = [[c] for c in range(data.shape[1])]
        given = sparse.csr_array(data) if kind == "csr" else data
        input_format = InputFormat.infer(given)
    removal = conditional(input_format.encode(given) if kind == "csr" else data, input_format)
    Z = np.vstack([data[:6], data[6:12] + (0.5 if kind == "numbers" else 0.0)])
    keep = np.zeros(Z.shape, dtype=bool)
    for columns in features:
        keep[:, columns] = rng.random((len(Z), 1)) < 0.5
    keep[0] = False
    draws = [removal.apply(Z, keep, rng) for _ in range(200)]
    for i, row in enumerate(Z):
        allowed = possible_donors(row, keep[i], data, features)
        values = {tuple(data[j][~keep[i]]) for j in allowed}
        seen = {tuple(out[i][~keep[i]]) for out in draws}
        assert seen <= values
        if len(allowed) <= 20:  # often enough drawn that each of them must have come
            assert seen == values


def test_kept_entries_stay_and_the_rest_comes_from_one_real_row() -> None:
    data = gaussian(400)
    removal = conditional(data)
    rng = np.random.default_rng(1)
    Z = gaussian(100, seed=5)
    keep = rng.random(Z.shape) < 0.5
    before = Z.copy()
    out = removal.apply(Z, keep, rng)
    np.testing.assert_array_equal(Z, before)
    np.testing.assert_array_equal(out[keep], Z[keep])
    for row, kept in zip(out, keep, strict=True):
        assert (data[:, ~kept] == row[~kept]).all(axis=1).any()
    np.testing.assert_array_equal(removal.apply(Z, np.ones_like(keep), rng), Z)
    known = {tuple(row) for row in data}
    assert {tuple(row) for row in removal.references(9, rng)} <= known


def test_draws_follow_the_kept_feature_where_marginal_ones_do_not() -> None:
    rho = 0.8
    data, Z = gaussian(2000, rho, n_columns=3), gaussian(1500, rho, n_columns=3, seed=9)
    keep = np.tile([True, False, True], (len(Z), 1))
    # The mean of one of three given the two others, each pair of correlation rho.
    ideal = rho / (1 + rho) * (Z[:, 0] + Z[:, 2])
    slopes = {}
    for name in ("conditional", "marginal"):
        removal = make_removal(name, data, InputFormat.infer(data), np.random.default_rng(0))
        drawn = removal.apply(Z, keep, np.random.default_rng(1))[:, 1]
        slopes[name] = np.polyfit(ideal, drawn, 1)[0]
        if name == "conditional":
            left = np.var(drawn - ideal)
    assert slopes["conditional"] == pytest.approx(1.0, abs=0.08)
    assert slopes["marginal"] == pytest.approx(0.0, abs=0.12)
    assert left == pytest.approx(1 - 2 * rho**2 / (1 + rho), rel=0.25)  # as varied as it should be, not a mean


def test_nothing_kept_is_a_marginal_draw() -> None:
    data = gaussian(60)
    removal = conditional(data)
    out = removal.apply(np.zeros((6000, 4)), np.zeros((6000, 4), bool), np.random.default_rng(0))
    rows, counts = np.unique(out, axis=0, return_counts=True)
    assert len(rows) == 60
    assert counts.min() > 60  # 100 are expected of each
    assert counts.max() < 145


def test_a_training_row_is_not_its_own_donor_but_its_twin_may_be() -> None:
    data = gaussian(200)
    keep = np.tile([True, True, False, False], (200, 1))
    removal = conditional(data)
    for _ in range(20):
        out = removal.apply(data, keep, np.random.default_rng(_))
        assert not (out == data).all(axis=1).any()
    twice = np.vstack([data, data])
    out = np.stack([conditional(twice).apply(data, keep, np.random.default_rng(s)) for s in range(40)])
    share = (out == data).all(axis=2).mean()
    assert share == pytest.approx(1 / N_NEAREST, abs=0.03)
    new = gaussian(1, seed=8)
    alone = conditional(new)
    np.testing.assert_array_equal(alone.apply(new, np.zeros((1, 4), bool), np.random.default_rng(0)), new)


def test_ties_are_broken_at_random() -> None:
    data = np.column_stack([np.repeat([0.0, 1.0], 100), np.arange(200.0)])
    out = conditional(data).apply(
        np.tile([1.0, 0.0], (3000, 1)), np.tile([True, False], (3000, 1)), np.random.default_rng(0)
    )
    assert set(out[:, 1]) == set(range(100, 200))


def test_one_hot_blocks_stay_valid_and_categories_follow() -> None:
    frame = mixed_frame()
    input_format = InputFormat.infer(frame)
    Z = input_format.encode(frame)
    removal = conditional(Z, input_format)
    keep = np.tile([True, False, False, False, False], (len(Z), 1))
    drawn = removal.apply(Z, keep, np.random.default_rng(0))
    np.testing.assert_array_equal(drawn[:, 2:].sum(axis=1), 1)
    same = (input_format.decode(drawn)["kind"].to_numpy() == frame["kind"].to_numpy()).mean()
    assert same > 0.9  # the kind follows from the size, whatever the size's unit
    keep = ~keep
    keep[:, 1] = False  # only the category is kept
    size = removal.apply(Z, keep, np.random.default_rng(0))[:, 0]
    by_kind = pd.Series(size).groupby(frame["kind"].to_numpy()).mean()
    assert by_kind["small"] < by_kind["middle"] < by_kind["large"]


def test_a_wide_category_weighs_as_much_as_a_number() -> None:
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrst"))
    frame = pd.DataFrame({"number": rng.normal(size=400), "letter": letters[rng.integers(20, size=400)]})
    input_format = InputFormat.infer(frame)
    Z = input_format.encode(frame)
    scale = conditional(Z, input_format).scale  # type: ignore[attr-defined]
    pairs = rng.integers(400, size=(2, 20_000))
    contributions = ((Z[pairs[0]] - Z[pairs[1]]) * scale) ** 2
    assert contributions[:, 0].mean() == pytest.approx(2.0, rel=0.1)
    assert contributions[:, 1:].sum(axis=1).mean() == pytest.approx(2.0, rel=0.1)


def test_a_row_does_not_depend_on_the_rows_around_it() -> None:
    data, Z = gaussian(800, n_columns=7), gaussian(300, n_columns=7, seed=4)
    Z[:50] = data[:50]
    keep = np.random.default_rng(2).random(Z.shape) < 0.4
    removal = conditional(data)
    together = list(removal.draws(Z, keep, 3, np.random.default_rng(7)))
    assert len(together) == 3
    assert not np.array_equal(together[0], together[1])
    for subset in ([17], [299, 3, 120], list(range(40, 90))):
        alone = list(removal.draws(Z[subset], keep[subset], 3, np.random.default_rng(7)))
        for whole, part in zip(together, alone, strict=True):
            np.testing.assert_array_equal(whole[subset], part)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    data, Z = gaussian(500), gaussian(100, seed=4)
    keep = np.random.default_rng(2).random(Z.shape) < 0.4
    whole = conditional(data).apply(Z, keep, np.random.default_rng(7))
    monkeypatch.setattr("sointer.masking.conditional.CHUNK_ENTRIES", 2000)
    np.testing.assert_array_equal(conditional(data).apply(Z, keep, np.random.default_rng(7)), whole)
    np.testing.assert_array_equal(conditional(data).apply(Z[:0], keep[:0], np.random.default_rng(7)), Z[:0])


def test_dense_and_sparse_backgrounds_agree() -> None:
    data = np.random.default_rng(0).poisson(0.4, size=(300, 8)).astype(float)
    Z, keep = data[:40], np.random.default_rng(2).random((40, 8)) < 0.5
    rows = sparse.csr_array(data)
    of_sparse = conditional(rows)
    assert sparse.issparse(of_sparse.background.rows)  # type: ignore[attr-defined]
    a, b = (removal.apply(Z, keep, np.random.default_rng(0)) for removal in (conditional(data), of_sparse))
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(of_sparse.reduce(rows[:40], keep, np.random.default_rng(0)), a)


def test_the_same_seed_gives_the_same_and_the_global_state_is_left_alone() -> None:
    data = gaussian(3000)
    first, again, other = (
        make_removal("conditional", data, InputFormat.infer(data), np.random.default_rng(seed)) for seed in (0, 0, 1)
    )
    assert len(first.state()[1]["rows"]) == MAX_BACKGROUND_ROWS
    keep = np.tile([True, False, False, True], (50, 1))
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    outs = [removal.apply(data[:50], keep, np.random.default_rng(5)) for removal in (first, again, other)]
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    np.testing.assert_array_equal(outs[0], outs[1])
    assert not np.array_equal(outs[0], outs[2])


def test_nearly_constant_columns_do_not_decide_who_is_near() -> None:
    data = gaussian(500, 0.95, n_columns=3)
    data[:, 2] = 0.1 + 0.2  # equal numbers, whose mean may differ from them in the last digit
    Z = data[:100].copy()
    Z[:, 2] += 5.0
    keep = np.tile([True, False, True], (100, 1))
    drawn = conditional(data).apply(Z, keep, np.random.default_rng(0))
    assert np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1] > 0.85


def test_numbers_far_from_zero_are_told_apart() -> None:
    data = gaussian(500, 0.95, n_columns=2) + 1.7e9  # seconds since 1970
    keep = np.tile([True, False], (100, 1))
    drawn = conditional(data).apply(data[:100], keep, np.random.default_rng(0))
    assert np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1] > 0.85


def test_equal_rows_have_equal_hashes_and_others_do_not() -> None:
    ones = (np.random.default_rng(0).random((4000, 20)) < 0.5).astype(float)
    assert len(np.unique(row_hashes(ones))) == len(np.unique(ones, axis=0))
    numbers = np.random.default_rng(0).normal(size=(4000, 5))
    assert len(np.unique(row_hashes(numbers))) == 4000
    assert len(np.unique(row_hashes(np.array([[1.0, 2.0], [2.0, 1.0], [0.0, 3.0], [3.0, 0.0]])))) == 4
    np.testing.assert_array_equal(row_hashes(np.array([[0.0, -0.0]])), row_hashes(np.array([[-0.0, 0.0]])))
    np.testing.assert_array_equal(row_hashes(np.asfortranarray(numbers)), row_hashes(numbers))


def model(X) -> np.ndarray:
    X = np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=float)
    return np.column_stack([X[:, 0] > X[:, 1], X[:, 2] > 0.5]).astype(int)


@pytest.fixture(scope="module")
def fitted() -> SOInter:
    X = gaussian(600, 0.7)
    return SOInter(model, k=2, removal="conditional", query_budget=600, random_state=0, **QUICK).fit(X)


def test_fit_explain_verify_refine_and_auto(fitted: SOInter) -> None:
    assert fitted.removal_.name == "conditional"
    X = gaussian(30, 0.7, seed=6)
    explanation = fitted.explain(X, target=0)
    own, named = explanation.verify(), explanation.verify(removal="conditional")
    assert own.n_queries == 300  # ten draws of each
    assert 0.5 <= own.fidelity <= 1.0
    assert named.fidelity == pytest.approx(own.fidelity, abs=0.15)
    assert fitted.explain(X, target=0, refine=20).selected.shape == (30, 2)
    sizes = fitted.explain(X, target=0, k="auto").n_selected
    assert ((sizes >= 1) & (sizes <= 4)).all()
    one = fitted.explain(X[3:4], target=0, k="auto")
    np.testing.assert_array_equal(one.selected[0][one.selected[0] >= 0], _selected(fitted, X, 3))


def _selected(explainer: SOInter, X: np.ndarray, row: int) -> np.ndarray:
    found = explainer.explain(X, target=0, k="auto").selected[row]
    return found[found >= 0]


def test_marginal_explanations_can_be_verified_conditionally() -> None:
    X = gaussian(600, 0.95)
    explainer = SOInter(model, k=1, removal="marginal", query_budget=600, random_state=0, **QUICK).fit(X, targets=[1])
    unused = explainer.explain(X[:200], target=1)
    unused.selected[:] = 3  # not used by the model, but it tells what the third feature is
    marginal, conditionally = (unused.verify(removal=name).fidelity for name in ("marginal", "conditional"))
    assert conditionally > marginal + 0.15


def test_save_and_load(fitted: SOInter, tmp_path) -> None:
    fitted.save(tmp_path / "why")
    again = sointer.load(tmp_path / "why", black_box=model)
    assert again.removal_.name == "conditional"
    X = gaussian(40, 0.7, seed=6)
    a, b = (explainer.explain(X, target=0) for explainer in (fitted, again))
    np.testing.assert_array_equal(a.selected, b.selected)
    np.testing.assert_array_equal(a.verify().agreement, b.verify().agreement)
    with pytest.raises(LoadError, match="'conditional'"):
        sointer.load(tmp_path / "why", removal=lambda x, keep, rng: x)


@pytest.mark.parametrize("kind", ["csr", "frame", "groups"])
def test_other_inputs(kind: str) -> None:
    if kind == "frame":
        X = mixed_frame()

        def black_box(frame: pd.DataFrame) -> np.ndarray:
            assert set(frame["kind"]) <= {"small", "middle", "large"}
            return np.column_stack([frame["noise"] > 0, frame["kind"] == "large"]).astype(int)

        explainer = SOInter(black_box, k=1, removal="conditional", query_budget=300, random_state=0, **QUICK)
    else:
        X = np.random.default_rng(0).poisson(0.5, size=(300, 6)).astype(float)
        X = sparse.csr_array(X) if kind == "csr" else X
        groups = {"both": [0, 1]} if kind == "groups" else None
        explainer = SOInter(model, k=1, removal="conditional", groups=groups, query_budget=300, random_state=0, **QUICK)
    explanation = explainer.fit(X).explain(X[:20], target=0)
    assert 0.0 <= explanation.verify(n_draws=2).fidelity <= 1.0
    assert (explanation.selected >= 0).all()


@pytest.mark.parametrize("baseline", [KernelShap, ShapleySampling])
def test_baselines_take_it_too(baseline: type) -> None:
    X = np.random.default_rng(0).normal(size=(400, 5))
    explanation = (
        baseline(model, k=2, removal="conditional", n_samples=600, random_state=0).fit(X).explain(X[:10], target=0)
    )
    assert explanation.mask[:, :2].mean() > 0.75  # the two that decide it; two of five would be 0.4
    assert explanation.verify().fidelity > 0.75


def test_bad_input() -> None:
    data = gaussian(50)
    removal = conditional(data)
    rng = np.random.default_rng(0)
    for spoilt in (np.ones(data.shape), np.ones((1, 4), bool)):
        with pytest.raises(InputError, match="booleans"):
            removal.apply(data, spoilt, rng)
    with pytest.raises(InputError, match="dense"):
        removal.apply(data[:, :3], np.ones((50, 3), bool), rng)
    with pytest.raises(InputError, match="booleans"):
        list(removal.draws(data, np.ones(data.shape), 2, rng))
    with pytest.raises(InputError, match="'marginal', 'conditional', 'nan', 'blur'"):
        make_removal("neighbours", data, InputFormat.infer(data))
    meta, arrays = removal.state()
    back = restore_removal(json.loads(json.dumps(meta)), arrays)
    keep = rng.random(data.shape) < 0.5
    a, b = (one.apply(data, keep, np.random.default_rng(1)) for one in (removal, back))
    np.testing.assert_array_equal(a, b)
    del arrays["scale"]
    with pytest.raises(LoadError, match="scale"):
        restore_removal(meta, arrays)
