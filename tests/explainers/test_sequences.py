"""SequenceExplainer on taggers whose truth is known, end to end, and on everything that can be wrong with the input."""

import copy
import itertools
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

import sointer
from sointer import SequenceExplainer
from sointer.data.sequences import TokenOutputs
from sointer.energy.chain import log_marginals
from sointer.errors import FarInputWarning, InputError, LoadError, QueryBudgetExceeded, SointerError, SointerWarning
from sointer.explainers.sequence_explanation import SequenceExplanation
from sointer.masking.conditional import Replacement
from sointer.training.sequences import MIN_STEPS
from sointer.zoo.planted_texts import PlantedChain

CHAIN = PlantedChain("carry", n_words=40, seed=3)


def exact(chain: PlantedChain, why: SequenceExplanation) -> float:
    return float(
        np.mean(
            [
                set(why.selected[i][why.selected[i] >= 0].tolist())
                == chain.truth(why.sequences[why.sample[i]], int(why.position[i]))
                for i in range(len(why))
            ]
        )
    )


@pytest.fixture(autouse=True)
def fewer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the steps that a fit takes by default."""
    monkeypatch.setattr("sointer.training.sequences.MIN_STEPS", MIN_STEPS // 4)


@pytest.fixture(
    scope="module", params=[MIN_STEPS // 2, pytest.param(MIN_STEPS, marks=pytest.mark.slow)], ids=["half", "default"]
)
def fitted(request: pytest.FixtureRequest) -> SequenceExplainer:
    with patch("sointer.training.sequences.MIN_STEPS", request.param):
        return SequenceExplainer(CHAIN, query_budget=3000, random_state=0).fit(CHAIN.sequences(500, (3, 9), seed=0))


@pytest.fixture(scope="module")
def held_out() -> list[list[str]]:
    return CHAIN.sequences(25, (1, 13), seed=9)  # also shorter and longer than any in fit


def test_tokens_behind_every_label_are_found(fitted: SequenceExplainer, held_out: list[list[str]]) -> None:
    before = fitted.n_explain_queries_
    why = fitted.explain(held_out)
    assert fitted.n_explain_queries_ - before == len(held_out)  # nothing is queried but the predictions
    assert len(why) == sum(map(len, held_out))
    assert exact(CHAIN, why) >= 0.95
    assert [list(map(str, labels)) for labels in why.labels] == CHAIN(held_out)
    assert (why.n_selected == why.mask.sum(axis=1)).all()
    far = [i for i in range(len(why)) if len(CHAIN.truth(held_out[why.sample[i]], int(why.position[i]))) >= 4]
    assert len(far) >= 5  # some labels came a long way
    check = why.verify(n_draws=5, level=0.5)
    assert check.n_queries == 5 * len(why)
    assert check.fidelity >= 0.97


def test_a_window_that_is_wide_enough_is_found() -> None:
    """Some words take their label from the word three places before; the labels between tell nothing of it."""
    rng = np.random.default_rng(5)
    X = [[str(word) for word in rng.integers(21, size=rng.integers(4, 9))] for _ in range(1000)]

    def decide(tokens: list[str], place: int) -> set[int]:
        return {place, place - 3} if place >= 3 and int(tokens[place]) % 3 == 0 else {place}

    def model(batch: list[list[str]]) -> list[list[str]]:
        return [
            [
                "AB"[int(tokens[i - 3]) % 2] if len(decide(tokens, i)) > 1 else "CD"[int(tokens[i]) % 2]
                for i in range(len(tokens))
            ]
            for tokens in batch
        ]

    explainer = SequenceExplainer(model, query_budget=1500, random_state=0).fit(X)
    assert explainer.window_ == 4
    why = explainer.explain(X[:60])
    truth = [decide(why.sequences[sample], int(place)) for sample, place in zip(why.sample, why.position, strict=True)]
    right = [set(own[own >= 0].tolist()) == found for own, found in zip(why.selected, truth, strict=True)]
    far = [len(found) > 1 for found in truth]
    assert np.mean(np.array(right)[far]) > 0.95
    assert np.mean(right) > 0.95


def test_paths_go_through_the_labels_between(fitted: SequenceExplainer, held_out: list[list[str]]) -> None:
    paths = fitted.explain(held_out).paths(n_draws=8)
    target, place = np.nonzero(np.nan_to_num(paths.total) > 0.05)
    distance = np.abs(paths.selected[target, place] - paths.position[target])
    mediated = paths.is_mediated[target, place]
    assert mediated[distance >= 1].mean() >= 0.95  # labels are carried from the left, label by label
    assert mediated[distance == 0].mean() <= 0.05
    right = np.abs(paths.right[np.isfinite(paths.right)])
    assert (right < 0.2).mean() >= 0.99  # and hardly ever from the right
    assert "through other labels" in str(paths)
    assert str(paths).endswith(f"... and {len(paths) - 20} more")
    assert len(paths.to_frame()) == (paths.selected >= 0).sum()


class LinearChain:
    """A linear chain CRF over w0 to w29: tables of the token, the one before and the one after, and transitions."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self.words = [f"w{i}" for i in range(30)]
        self.tables = rng.normal(size=(3, 30, 3)) * np.array([1.5, 0.8, 0.8])[:, None, None]
        self.moves = 1.5 * np.eye(3) + 0.5 * rng.normal(size=(3, 3))

    def potentials(self, tokens: list[str]) -> Any:
        ids = np.array([int(token[1:]) for token in tokens])
        unary = self.tables[0][ids]
        unary[1:] += self.tables[1][ids[:-1]]
        unary[:-1] += self.tables[2][ids[1:]]
        return unary

    def p(self, unary: Any) -> Any:
        moves = torch.as_tensor(self.moves).expand(*unary.shape[:2], 3, 3)
        return log_marginals(torch.as_tensor(unary), moves).exp().numpy()

    def __call__(self, batch: Any) -> list[list[str]]:
        found: dict[int, list[str]] = {}
        for n in {len(tokens) for tokens in batch}:  # those of the same length together
            own = [i for i, tokens in enumerate(batch) if len(tokens) == n]
            best = self.p(np.stack([self.potentials(batch[i]) for i in own])).argmax(2)
            found.update(zip(own, (["abc"[k] for k in row] for row in best), strict=True))
        return [found[i] for i in range(len(batch))]

    def is_mediated(self, tokens: list[str], i: int, j: int) -> tuple[float, bool]:
        """The effect of token j on label i, and whether more of it goes through other labels: over all 30 words."""
        own = self.potentials(tokens)[None]
        other = np.stack([self.potentials([*tokens[:j], word, *tokens[j + 1 :]]) for word in self.words])
        before, at = self.p(own)[0, i], (np.arange(len(tokens)) == i)[:, None]
        k = before.argmax()
        cases = other, np.where(at, other, own), np.where(at, own, other)
        total, direct, mediated = (before[k] - self.p(case)[:, i, k].mean() for case in cases)
        return total, bool(abs(mediated) > abs(direct))


@pytest.mark.parametrize("in_full", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_paths_of_a_linear_chain_are_read_from_an_energy_of_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_full: bool
) -> None:
    if in_full:
        monkeypatch.setattr("sointer.training.sequences.MIN_STEPS", MIN_STEPS // 2)
    crf, rng = LinearChain(), np.random.default_rng(0)
    X = [[crf.words[w] for w in rng.integers(0, 30, rng.integers(4, 9))] for _ in range(400)]
    explainer = SequenceExplainer(crf, query_budget=4000, window=2, random_state=0).fit(X[:380])
    assert explainer.additive_ is not None
    why = explainer.explain(X[380:390], k=9)
    paths, same = why.paths(n_draws=32), {0: [], 1: [], 2: []}
    for t, place in np.argwhere(why.selected >= 0):
        i, j = int(why.position[t]), int(why.selected[t, place])
        total, mediated = crf.is_mediated(why.sequences[why.sample[t]], i, j)
        if abs(total) > 0.05:
            same[min(abs(i - j), 2)].append(mediated == paths.is_mediated[t, place])
    assert min(map(len, same.values())) >= 5
    assert np.mean(same[0]) >= 0.95
    assert np.mean(same[1]) >= 0.8
    if in_full:  # of few tokens, and learned late
        assert np.mean(same[2]) >= 0.8
    explainer.save(tmp_path / "why")
    loaded = SequenceExplainer.load(tmp_path / "why", crf)
    np.testing.assert_array_equal(loaded.explain(X[380:390], k=9).paths(n_draws=32).direct, paths.direct)
    assert loaded._digest() == explainer._digest()


def test_a_chain_that_is_not_linear_has_one_energy_alone() -> None:
    chain = PlantedChain("xor", n_words=30, seed=3)
    explainer = SequenceExplainer(chain, query_budget=1500, random_state=0).fit(chain.sequences(200, (3, 8), seed=0))
    assert explainer.additive_ is None


@pytest.mark.parametrize("replacement", [None, lambda tokens, position, rng: "w1" if position % 2 else "w2"])
def test_paths_in_long_sequences_are_those_of_the_part_around(fitted: SequenceExplainer, replacement: Any) -> None:
    short = CHAIN.sequences(1, 60, seed=4)[0]
    long = CHAIN.sequences(1, 300, seed=5)[0]
    long[120:180] = short
    loaded = fitted if replacement is None else copy.copy(fitted)
    loaded.replacement_ = Replacement(fitted.replacement_.tokens, fitted.replacement_.pools, replacement)
    alone, inside = (
        loaded.explain([tokens], target=tuple(range(first + 25, first + 35)), k=1).paths(
            n_draws=64 if replacement is None else 4  # the same in every draw
        )
        for tokens, first in ((short, 0), (long, 120))
    )
    assert (inside.selected - 120 == alone.selected).all()
    for name in ("total", "direct", "mediated"):
        np.testing.assert_allclose(
            getattr(inside, name), getattr(alone, name), atol=0.15 if replacement is None else 1e-4
        )
    assert loaded.explain([long], target=(0, 299)).paths().total.shape[0] == 2


def test_saved_explainers_say_the_same(fitted: SequenceExplainer, held_out: list[list[str]], tmp_path: Path) -> None:
    fitted.save(tmp_path / "why")
    why, again = fitted.explain(held_out), SequenceExplainer.load(tmp_path / "why", CHAIN).explain(held_out)
    np.testing.assert_array_equal(again.selected, why.selected)
    np.testing.assert_array_equal(again.keeps, why.keeps)
    np.testing.assert_array_equal(again.paths().total, why.paths().total)
    without = SequenceExplainer.load(tmp_path / "why").explain(held_out)
    assert without.value_source == "expected"
    assert np.mean(without.value == why.value) >= 0.98
    with pytest.raises(InputError, match="no model to query"):
        without.verify()
    behind = sointer.load(tmp_path / "why", CHAIN)
    np.testing.assert_array_equal(behind.explain(held_out).selected, why.selected)
    weights = next((tmp_path / "why").glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(LoadError):
        SequenceExplainer.load(tmp_path / "why")


def test_the_same_seed_gives_the_same_explainer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sointer.training.sequences.MIN_STEPS", 50)
    X = CHAIN.sequences(100, (3, 6), seed=0)
    one, two = (
        SequenceExplainer(CHAIN, query_budget=400, window=1, random_state=4).fit(X).explain(X[:9]) for _ in "ab"
    )
    np.testing.assert_array_equal(one.keeps, two.keeps)
    np.testing.assert_array_equal(one.scores, two.scores)


def test_an_energy_that_also_learns_from_pseudo_labelled_queries_finds_the_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sointer.training import sequences as training

    for name, value in {"MIN_PSEUDO_FROM": 1000, "MIN_STEPS": 120}.items():
        monkeypatch.setattr(training, name, value)
    queried: list[int] = []

    def model(batch: list[list[str]]) -> list[list[str]]:
        queried.append(len(batch))
        return CHAIN(batch)

    explainer = SequenceExplainer(model, query_budget=3000, window=1, random_state=0)
    explainer.fit(CHAIN.sequences(500, (3, 7), seed=0))
    assert sum(queried) == explainer.n_queries_ == 3000  # what an energy answers is no query
    assert (np.diff([row["step"] for row in explainer.history_]) < 0).sum() == 2  # for paths; absent tokens
    assert exact(CHAIN, explainer.explain(CHAIN.sequences(30, 6, seed=9))) >= 0.93


def test_pseudo_labelled_queries_may_hold_tokens_that_no_query_held(monkeypatch: pytest.MonkeyPatch) -> None:
    from sointer.training import sequences as training

    for name, value in {"MIN_PSEUDO_FROM": 300, "MIN_STEPS": 20}.items():
        monkeypatch.setattr(training, name, value)
    numbers = itertools.count()
    explainer = SequenceExplainer(
        lambda batch: [["long" if len(token) > 1 else "short" for token in tokens] for tokens in batch],
        replacement=lambda tokens, position, rng: f"new{next(numbers)}" if rng.random() < 0.5 else "x",
        query_budget=400,
        window=1,
        random_state=0,
    )
    explainer.fit([["a", "bb", "c", "dd"]] * 30)
    assert explainer.explain([["a", "bb"]]).selected[:, 0].tolist() == [0, 1]


def test_targets_and_sizes(fitted: SequenceExplainer) -> None:
    X = CHAIN.sequences(3, 6, seed=1)
    why = fitted.explain(X, target=(3,), k=2)
    assert (why.position.tolist(), why.n_selected.tolist()) == ([3, 3, 3], [2, 2, 2])
    assert fitted.explain(X, target=-1).position.tolist() == [5, 5, 5]
    why = fitted.explain(X, target=[0, (1, 2), "all"])
    assert list(zip(why.sample.tolist(), why.position.tolist(), strict=True)) == [
        (0, 0), (1, 1), (1, 2), *((2, p) for p in range(6)),
    ]  # fmt: skip
    assert fitted.explain(X, target=np.array([0, -1, 2])).position.tolist() == [0, 5, 2]
    for target in (6, -7, "third", 1.5, (0, 9), [0, 1], (), np.array([0, 1]), np.array([0.0, 1.0, 2.0])):
        with pytest.raises(InputError, match="target"):
            fitted.explain(X, target=target)


def test_what_is_shown(fitted: SequenceExplainer) -> None:
    X = CHAIN.sequences(2, 4, seed=1)
    X[0][0] = CHAIN.words[0]
    why = fitted.explain(X)
    assert set(why.to_frame()["value_source"]) == {"model"}
    assert json.loads(json.dumps(why.to_dict()))[0]["sample"] == 0
    assert len(why.to_frame()) == why.n_selected.sum()
    assert X[0][0] in why._repr_html_()
    assert "because of" in str(why)
    assert "SequenceExplainer, fitted" in fitted._repr_html_()
    assert sum(map(len, why.summary().values())) > 0
    hostile = fitted.explain([["<script>alert(1)</script>", "b"]], query=False)
    assert "<script>" not in hostile._repr_html_()


def test_given_predictions_are_explained_and_nothing_is_queried(fitted: SequenceExplainer) -> None:
    X = CHAIN.sequences(4, 5, seed=1)
    before = fitted.n_explain_queries_
    why = fitted.explain(X, predicted=CHAIN(X))
    assert (why.value_source, fitted.n_explain_queries_) == ("given", before)
    np.testing.assert_array_equal(why.selected, fitted.explain(X).selected)
    assert fitted.explain(X, query=False).value_source == "expected"
    with pytest.raises(InputError, match="4 labels for the 5 tokens"):
        fitted.explain(X, predicted=[labels[1:] for labels in CHAIN(X)])
    with pytest.raises(InputError, match=r"the outputs are numbers, such as .* but fit learned labels"):
        fitted.explain(X, predicted=[[0.5] * 5] * 4)


def test_labels_never_seen_in_fit_are_shown_with_a_warning(fitted: SequenceExplainer) -> None:
    X = CHAIN.sequences(2, 5, seed=1)
    said = CHAIN(X)
    said[1][2] = "new"
    with pytest.warns(SointerWarning, match="1 tokens labels that it never gave during fit: 'new'"):
        why = fitted.explain(X, predicted=said)
    assert why.value[7] == "new"


def test_where_the_explainer_expects_another_label_it_says_so(fitted: SequenceExplainer) -> None:
    X = CHAIN.sequences(30, 5, seed=1)
    said, expected = CHAIN(X), fitted.explain(X, query=False).labels
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.explain(X)
    classes, other = fitted.outputs_.classes, [list(labels) for labels in said]
    for i in range(6):
        other[i][2] = classes[(classes.index(expected[i][2]) + 1) % len(classes)]
    with pytest.warns(FarInputWarning, match=rf"6 of 30 targets another label .* '{X[0][2]}' .*, expected"):
        why = fitted.explain(X, target=2, predicted=other)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.explain(X, target=1, predicted=other)  # of a token that is not explained, nothing is said
    nothing = replace(why.first(2), selected=np.full((2, 1), -1), keeps=np.array([0.98, 0.2], dtype=np.float32))
    shown = str(nothing).splitlines()
    assert "whatever the tokens are:" in shown[0]
    assert "for unknown reasons:" in shown[1]


def test_whole_numbers_among_other_numbers_are_numbers() -> None:
    outputs = TokenOutputs.infer([[0, 1.5, 3], [0, 0]], 0.1)
    assert outputs.kind == "number"
    outputs.check([[0, 3]])
    assert outputs.values([0, 1.5]) == [0.0, 1.5]
    assert TokenOutputs.infer([[0, 1], [2]], 0.1).kind == "label"
    for wrong in ([[True, 1.5]], [["x", 1.5]]):
        with pytest.raises(InputError, match="expected one kind"):
            TokenOutputs.infer(wrong, 0.1)
    with pytest.raises(InputError, match="the outputs are labels"):
        outputs.check([[True]])


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([], "no sequences"),
        ([["a"], []], "sequence 1 of X is empty"),
        ("a b", "one string"),
        (["a b", "c"], "SequenceExplainer.model, splitter=str.split"),
        (["a", "b"], r"is the string 'a'.*if X is one sequence, \[X\]"),
        ([["a", 1]], r"holds 1 at position 1, expected a string. Give ids as str\(id\)"),
        ([["a", None]], "holds None at position 1.*Leave missing tokens out"),
        ([["a", ["b"]]], "do not nest further"),
        (3, "expected a list of token lists"),
        (pd.DataFrame({"words": [["a"], ["b"]]}), r"expected a list of token lists. Give X\['words'\], or whichever"),
        ([3], "expected a list of tokens"),
    ],
)
def test_what_is_no_sequence_is_refused(fitted: SequenceExplainer, X: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fitted.explain(X)
    with pytest.raises(InputError, match=message):
        SequenceExplainer(CHAIN).fit(X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"splitter": lambda text: 1 / 0}, r"splitter failed: ZeroDivisionError.*here with the string 'a b'"),
        ({"splitter": lambda text: None}, "sequence 0 of X, as splitter returns it, is None, expected a list of tok"),
        ({"replacement": lambda tokens: "a"}, r"replacement failed: TypeError.*called as \(tokens, position, rng\)"),
    ],
)
def test_functions_of_the_users_that_fail_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SointerError, match=message):
        SequenceExplainer(lambda batch: batch, query_budget=200, **{"splitter": str.split, **options}).fit(
            ["a b", "c d"] * 10
        )


@pytest.mark.parametrize(
    "wrong",
    [
        {"k": 0},
        {"level": 1.5},
        {"window": -1},
        {"window": "wide"},
        {"splitter": 3},
        {"query_budget": 10},
        {"replacement": 1},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        SequenceExplainer(CHAIN, **wrong).fit([["a", "b"]])


def test_a_model_that_never_changes_its_label_is_refused() -> None:
    with pytest.raises(InputError, match="to every token"):
        SequenceExplainer(lambda batch: [["x"] * len(s) for s in batch], query_budget=300).fit([["a", "b"]])


def test_the_models_own_budget_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from sointer import BlackBox
    from sointer.blackbox.adapters.tagger import Tagger

    monkeypatch.setattr("sointer.training.sequences.MIN_STEPS", 50)
    X = CHAIN.sequences(50, 4, seed=0)
    with pytest.raises(QueryBudgetExceeded, match="at least 200"):
        SequenceExplainer(BlackBox(Tagger(CHAIN), query_budget=20)).fit(X)
    box = BlackBox(Tagger(CHAIN), query_budget=300)
    explainer = SequenceExplainer(box, window=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SointerWarning)
        explainer.fit(X)
    assert (explainer.n_queries_, box.remaining) == (300, 0)
    assert not hasattr(clone(explainer), "energy_")


def test_strings_with_a_splitter_and_a_replacement_of_ones_own(tmp_path: Path) -> None:
    words = ["red", "green", "blue", "one", "two"]
    rng = np.random.default_rng(0)
    X = [" ".join(rng.choice(words, rng.integers(2, 5))) for _ in range(100)]
    places: set[int] = set()

    def replacement(tokens: list[str], position: int, rng: np.random.Generator) -> str:
        places.add(position)
        return "blank"

    def model(batch: list[list[str]]) -> list[list[int]]:  # whether the token before is a number
        return [[int(i > 0 and s[i - 1] in ("one", "two")) for i in range(len(s))] for s in batch]

    options: dict[str, Any] = {"replacement": replacement, "splitter": str.split}
    explainer = SequenceExplainer(model, query_budget=2000, window=1, random_state=0, **options).fit(X)
    why = explainer.explain(["red two green blue"], target=2)
    assert (why.value[0], why.tokens(0)) == (1, ["two"])
    assert why.verify().confirmed.all()
    assert places
    explainer.save(tmp_path / "why")
    with pytest.raises(InputError, match="give replacement="):
        SequenceExplainer.load(tmp_path / "why", model)
    assert SequenceExplainer.load(tmp_path / "why", model, **options).explain(["one red"], 1).tokens(0) == ["one"]


@pytest.mark.parametrize("kind", ["number", "probabilities"])
def test_numbers_and_class_probabilities(kind: str) -> None:
    value = {word: i % 4 for i, word in enumerate(CHAIN.words)}

    def model(batch: list[list[str]]) -> list[Any]:  # of the token before; the first token has none
        before = [[value[s[i - 1]] if i else 0 for i in range(len(s))] for s in batch]
        if kind == "number":
            return [[10.0 * one for one in labels] for labels in before]
        return [0.3 * np.eye(4)[labels] + 0.7 / 4 for labels in before]  # none is likely, but the largest is clear

    X = CHAIN.sequences(400, (3, 6), seed=0)
    explainer = SequenceExplainer(model, query_budget=2500, window=1, random_state=0, level=0.6).fit(X)
    why = explainer.explain(CHAIN.sequences(20, 5, seed=5), target=3, k=1)
    assert (why.selected[:, 0] == 2).mean() >= 0.95
    assert why.value.tolist() == [(10.0 if kind == "number" else 1) * value[s[2]] for s in why.sequences]
    assert why.verify(n_draws=5).fidelity >= 0.9
    assert "not found" not in str(why)


def test_a_token_two_places_away_that_speaks_directly_is_called_direct() -> None:
    value = {word: i % 3 for i, word in enumerate(CHAIN.words)}

    def model(batch: list[list[str]]) -> list[list[int]]:  # labels between know nothing of it
        return [[value[s[i - 2]] if i % 2 and i > 1 else 0 for i in range(len(s))] for s in batch]

    explainer = SequenceExplainer(model, query_budget=3000, window=2, random_state=0)
    explainer.fit(CHAIN.sequences(400, (4, 7), seed=0))
    why = explainer.explain(CHAIN.sequences(20, 6, seed=5), target=3, k=1)
    assert (why.selected[:, 0] == 1).mean() >= 0.9
    paths = why.paths(n_draws=8)
    strong = np.abs(paths.total) > 0.2
    assert strong.sum() >= 5
    assert paths.is_mediated[strong].mean() <= 0.1
