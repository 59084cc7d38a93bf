"""Signed effects of words: planted signs, sums, and the unit of each kind of output."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from quick import TAUGHT, quick_fit
from sointer import SOInter, TrainingConfig
from sointer.energy.likelihood import Likelihood
from sointer.energy.sparse import SparseRows
from sointer.interpreter.scoring import without_excess

N_WORDS, FOR, AGAINST = 200, 0, 1
SHARE = np.where(np.arange(N_WORDS) < 2, 0.5, 0.08)
WORDS = sp.csr_array((np.random.default_rng(0).random((300, N_WORDS)) < SHARE).astype(float))


def log_odds(X: Any) -> np.ndarray:
    dense = X.toarray()
    return np.column_stack([4 * dense[:, FOR] - 5 * dense[:, AGAINST] - 0.5, 4 * dense[:, 2] - 2])


def labels(X: Any) -> np.ndarray:
    return (log_odds(X) > 0).astype(int)


def probabilities(X: Any) -> np.ndarray:
    return 1 / (1 + np.exp(-log_odds(X)))


def fitted(model: Any, **settings: Any) -> SOInter:
    learns = {"k": 3, "query_budget": 2000, "training": TrainingConfig(n_epochs=30)}
    return quick_fit(model, WORDS, **TAUGHT | learns | settings)


@pytest.fixture(scope="module", params=[labels, probabilities], ids=["labels", "probabilities"])
def explainer(request: pytest.FixtureRequest) -> SOInter:
    return fitted(request.param)


def test_words_push_the_way_they_were_planted(explainer: SOInter) -> None:
    rows = WORDS[:80]
    explanation = explainer.explain(rows, 0)
    assert explanation.effects is not None
    there = rows.toarray() > 0
    # Of labels, effects are on the label explained; of probabilities, on the probability itself.
    towards = np.where(explanation.value == 0, -1, 1) if explainer.outputs_.kind == "binary" else np.ones(80)
    for word, sign in ((FOR, 1), (AGAINST, -1)):
        # Without the first, nothing is left to be pushed down.
        pushed = (explanation.effects[:, word] * towards)[there[:, word] & there[:, FOR]]
        assert (np.sign(pushed) == sign).mean() > 0.95
    assert (explanation.effects[~there] == 0).all(), "what is not there pushes nothing"
    assert (explanation.scores >= 0).all(), "relevance has no sign"


def test_effects_lead_from_a_text_without_words_to_what_is_expected(explainer: SOInter) -> None:
    rows = WORDS[:40]
    explanation = explainer.explain(rows, 0)
    assert explanation.effects is not None
    assert explanation.base_value is not None
    likelihood = Likelihood.of(explainer.config_.energy)
    nothing = sp.csr_array((1, N_WORDS))
    # The second label of the first output.
    low, high = (
        likelihood.log_marginals(explainer.energy_, SparseRows.of(batch)).exp()[:, 1].detach().numpy()
        for batch in (nothing, rows)
    )
    is_first = (explanation.value == 0) & (explainer.outputs_.kind == "binary")
    np.testing.assert_allclose(explanation.base_value, np.where(is_first, 1 - low, low), atol=1e-4)
    reached = explanation.base_value + explanation.effects.sum(axis=1)
    np.testing.assert_allclose(reached, np.where(is_first, 1 - high, high), atol=0.1)


@pytest.mark.parametrize("model", [labels, probabilities])
def test_effects_of_many_words_on_a_probability_fit_into_it(model: Any) -> None:
    share = np.where(np.arange(300) < 2, 0.5, 0.08)  # more words than are treated as a table
    rows = sp.csr_array((np.random.default_rng(0).random((300, 300)) < share).astype(float))
    learns = {"k": 3, "query_budget": 2000, "training": TrainingConfig(n_epochs=30)}
    explainer = quick_fit(model, rows, **TAUGHT | learns)
    explanation = explainer.explain(rows, 0)
    assert explanation.effects is not None
    assert explanation.base_value is not None
    up, down = (np.maximum(sign * explanation.effects, 0).sum(axis=1) for sign in (1, -1))
    reached = explanation.base_value + up - down
    assert (explanation.base_value + up - np.maximum(reached, 1)).max() < 1e-4, "nothing is more than certain"
    assert (down - explanation.base_value + np.minimum(reached, 0)).max() < 1e-4
    if explainer.outputs_.kind == "probability":
        led = np.isclose(reached, explanation.value.astype(float), atol=1e-3)
        assert led.mean() > 0.8, "they lead to what the model predicts"
    else:
        expected = explainer.explain(rows, 0, query=False).value == explanation.value
        assert ((reached > 0.5) == expected).all(), "they lead to what the explainer expects"


def test_effects_do_not_depend_on_the_rows_around(explainer: SOInter) -> None:
    whole, alone = explainer.explain(WORDS[:60], 0), explainer.explain(WORDS[[17]], 0)
    assert whole.effects is not None
    assert alone.effects is not None
    np.testing.assert_array_equal(whole.effects[17], alone.effects[0])


def test_of_numbers_effects_are_in_their_unit_or_not_known() -> None:
    explainer = fitted(log_odds, output_kind="continuous")
    explanation = explainer.explain(WORDS[:40], 0)
    assert (explanation.scores >= 0).all()
    assert ("effect" in explainer.known_columns) == (explanation.effects is not None)
    if explanation.effects is not None:
        there = WORDS[:40].toarray()[:, AGAINST] > 0
        assert np.median(explanation.effects[there, AGAINST]) == pytest.approx(-5, abs=1)


def test_what_does_not_fit_into_a_probability_is_taken_off_both_sides() -> None:
    effects = np.array([[1.32, 0.1, -0.42], [-0.8, -0.4, 0.7], [0.2, -0.1, 0.0], [0.5, 0.9, 0.0]], dtype=np.float32)
    base = np.array([0.0, 0.5, 0.5, 0.2], dtype=np.float32)
    found = without_excess(effects, base)
    np.testing.assert_allclose(found.sum(axis=1), effects.sum(axis=1), atol=1e-6)
    np.testing.assert_allclose(found[0], [1.32 / 1.42, 0.1 / 1.42, 0.0], atol=1e-6)
    np.testing.assert_allclose(found[1], [-0.8 / 2.4, -0.4 / 2.4, 0.0], atol=1e-6)
    np.testing.assert_array_equal(found[2:], effects[2:], "what fits, or has nothing to cancel out with, stays")
