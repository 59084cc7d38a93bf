"""Numbers beyond single precision are refused before the first query; all others are explained with finite scores."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from quick import TAUGHT
from sointer import SOInter
from sointer.errors import InputError, SointerWarning

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
        (changed(0, value=np.inf), "1 NaN or infinite values"),
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
