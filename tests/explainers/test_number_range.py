"""Numbers beyond single precision are refused, of X before the first query; others are explained with finite scores."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp

import sointer
from quick import TAUGHT
from sointer import SOInter
from sointer.errors import BlackBoxError, InputError, SointerWarning

X = np.random.default_rng(0).normal(size=(300, 5))


class Model:
    """Decides by columns 3 and 2, whatever their unit; counts what it is asked."""

    def __init__(self, unit=1.0):
        self.unit, self.n_queried = unit, 0

    def __call__(self, batch):
        self.n_queried += batch.shape[0]
        batch = (batch.toarray() if sp.issparse(batch) else np.asarray(batch)) / self.unit
        return np.column_stack([batch[:, 3] > 0, batch[:, 3] * batch[:, 2] > 0])


def fit(model, data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SointerWarning)
        return SOInter(model, **TAUGHT | {"query_budget": 600}).fit(data)


def changed(column, factor=None, value=None):
    data = X.copy()
    if value is not None:
        data[7, column] = value
    if factor is not None:
        data[:, column] *= factor
    return data


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (changed(0, value=-np.finfo(np.float64).max), r"1 values beyond 1e\+37, in rows 7 and columns 'x0'.*missing"),
        (changed(0, value=np.finfo(np.float32).min), r"1 values beyond 1e\+37"),
        (sp.csr_array(changed(0, value=1e300)), r"1 values beyond 1e\+37, in rows 7 and columns 'x0'"),
        (changed(0, factor=1e38), r"values beyond 1e\+37.*'x0'"),
        (changed(0, factor=1e-38), "1 of 5 features vary by less than 3e-36.*'x0'"),
        (X * 1e-40, "5 of 5 features vary by less than 3e-36"),
        (changed(0, value=np.inf), "1 infinite values"),
    ],
)
def test_what_single_precision_cannot_hold_is_refused_before_the_first_query(data, words):
    model = Model()
    with pytest.raises(InputError, match=words):
        fit(model, data)
    assert model.n_queried == 0


@pytest.mark.parametrize("unit", [1e-35, 1e35])
def test_units_at_the_edge_are_explained_like_others(unit):
    explainer = fit(Model(unit), X * unit)
    found = explainer.explain(X[:50] * unit, 1)
    assert np.isfinite(found.scores).all()
    assert np.mean([set(row) == {2, 3} for row in found.selected]) > 0.9


def test_bins_too_narrow_for_single_precision_are_left_out():
    data = X.copy()
    data[:200, 0] *= 1e-38  # most of a column, while all of it is wide enough
    data[200:, 0] *= 1e-33
    found = fit(Model(), data).explain(data[:20], 1)
    assert np.isfinite(found.scores).all()


def test_explain_refuses_what_fit_does_and_explains_the_rest():
    explainer = fit(Model(), X)
    for value in (1e38, -np.finfo(np.float64).max):
        with pytest.raises(InputError, match=r"explain: X has 1 values beyond 1e\+37, in rows 0 and columns 'x3'"):
            explainer.explain(np.array([[0.1, 0.2, 0.3, value, 0.5]]), 1)
    for value in (9.9e36, -9.9e36, 1e30):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SointerWarning)
            found = explainer.explain(np.array([[0.1, 0.2, 0.3, value, 0.5]]), 0)
        assert np.isfinite(found.scores).all()
        assert found.far.all()
        assert explainer.explain(np.array([[0.1, 0.2, 0.3, value, 0.5]]), 0, query=False).value[0] == (value > 0)


class Numbers:
    """Two numbers in units of any size: columns 3 and 2 make up the first, all columns the second."""

    def __init__(self, unit):
        self.unit, self.n_queried = unit, 0

    def __call__(self, batch):
        self.n_queried += len(batch)
        batch = np.asarray(batch)
        return self.unit * np.column_stack(
            [2 * batch[:, 3] + batch[:, 2], batch.sum(axis=1) + batch[:, 0] * batch[:, 1]]
        )


@cache
def ordinary_numbers():
    return numbers_explained(Numbers(1.0))


def numbers_explained(model):
    """Of both outputs, with a RuntimeWarning as an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SointerWarning)
        warnings.simplefilter("error", RuntimeWarning)
        explainer = SOInter(model, **TAUGHT | {"query_budget": 600}).fit(X)
        return explainer, [explainer.explain(X[:50], target) for target in (0, 1)]


@pytest.mark.parametrize("unit", [1e-300, 1e-40, 1e-12, 1e17, 1e19, -1e25, 1e28])
def test_outputs_of_any_size_are_explained_like_others(unit, tmp_path):
    explainer, found = numbers_explained(Numbers(unit))
    cosine, ordinary_cosine = (
        next(entry["cosine"] for entry in one.history_ if entry.get("stage") == "one pass")
        for one in (explainer, ordinary_numbers()[0])
    )
    assert cosine == pytest.approx(ordinary_cosine, abs=0.1)
    np.testing.assert_allclose(explainer.outputs_.scale / abs(unit), ordinary_numbers()[0].outputs_.scale, rtol=1e-6)
    for own, ordinary in zip(found, ordinary_numbers()[1], strict=True):
        assert np.isfinite(own.scores).all()
        for name in ("effects", "base_value"):
            shown = getattr(own, name)
            assert shown.dtype == np.float32
            assert np.isfinite(shown).all()
            if abs(unit) >= 1e-30:  # what is smaller is zero in single precision
                # Trained on codes that differ in their last digits, networks differ a little.
                np.testing.assert_allclose(shown / unit, getattr(ordinary, name), atol=0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        explainer.report(X[:20], tmp_path / "report.html")
    explainer.save(tmp_path / "saved")
    again = sointer.load(tmp_path / "saved", Numbers(unit)).explain(X[:50], 1)
    np.testing.assert_array_equal(again.effects, found[1].effects)


@pytest.mark.parametrize("unit", [1e31, 1e37, -1e50, 1e100])
def test_larger_outputs_are_refused_at_the_first_batch(unit):
    model = Numbers(unit)
    with pytest.raises(
        BlackBoxError, match=r"numbers beyond 1e\+30 \(first at row \d, output 0\), expected smaller ones"
    ):
        fit(model, X)
    assert model.n_queried <= len(X)
