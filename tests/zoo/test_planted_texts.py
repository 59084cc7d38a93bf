"""The planted texts: their truth is what their definition says."""

from __future__ import annotations

import numpy as np
import pytest

from sointer.errors import InputError
from sointer.zoo import PlantedTexts
from sointer.zoo.planted_texts import CHAIN_KINDS, PlantedChain


@pytest.mark.parametrize("script", ["latin", "cyrillic"])
def test_every_output_is_often_yes_and_often_no(script):
    problem = PlantedTexts(200, script=script, random_state=3)
    share = problem(problem.sample(400, 0)).mean(axis=0)
    assert (share > 0.08).all()
    assert (share < 0.8).all()
    assert problem.sample(3, 5) == problem.sample(3, 5)


def test_truth_of_texts_made_by_hand():
    problem = PlantedTexts(100)
    t, no = problem.triggers, problem.negation
    text = f"{t[7].upper()} x, {no} {t[6]}; {no} {t[5]}. {t[8]} {t[0]} {t[3]} {t[5]}"
    assert problem([text])[0].tolist() == [1, 1, 1, 1, 1, 0]
    assert problem.smallest(text, 0) == [{t[0]}]
    assert problem.smallest(text, 1) == [{t[0], t[3]}]
    assert problem.smallest(text, 2) == [{t[5]}]
    assert problem.smallest(text, 3) == [{no, t[6]}]
    assert problem.smallest(text, 4) == [{t[7], t[8]}]
    assert problem.smallest(text, 5) == [frozenset()]


def test_order_counts_and_case_and_punctuation_do_not():
    problem = PlantedTexts(100)
    u, v = problem.triggers[9:]
    found = problem([f"{u} {v}", f"{v} {u}", f"{v} {u} {v}", f"{u.upper()}... {v}!", ""])
    assert np.array_equal(found[:, 5], [1, 0, 1, 1, 0])


@pytest.mark.parametrize("kind", CHAIN_KINDS)
def test_truth_is_sufficient_and_every_token_of_it_matters(kind: str) -> None:
    chain, rng = PlantedChain(kind, seed=5), np.random.default_rng(0)
    longest = 0
    for tokens in chain.sequences(30, (1, 9), seed=1):
        labels = chain([tokens])[0]
        for i in range(len(tokens)):
            truth = chain.truth(tokens, i)
            longest = max(longest, len(truth))
            for _ in range(5):
                other = [t if j in truth else str(rng.choice(chain.words)) for j, t in enumerate(tokens)]
                assert chain([other])[0][i] == labels[i]
            for j in truth:
                changed = [[*tokens[:j], word, *tokens[j + 1 :]] for word in chain.words]
                assert any(row[i] != labels[i] for row in chain(changed))
    assert longest >= 4


def test_another_kind_is_refused() -> None:
    with pytest.raises(InputError, match="kind must be one of"):
        PlantedChain("loop")  # type: ignore[arg-type]
