"""What every explainer promises, for sequences: SOInter on token lists, and what must be refused or said."""

from __future__ import annotations

import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import sointer
from quick import QUICK, SENTENCES, TABLE, TEXTS, labels, quick_explainer, quick_fit, weather
from sointer import BlackBox, EnergyConfig, SequenceExplainer, SOInter
from sointer.blackbox.adapters.tagger import Tagger
from sointer.data.sequences import MAX_TOKENS, MAX_TOKENS_IN_FIT
from sointer.errors import BlackBoxError, CheckpointError, CheckpointWarning, InputError, SointerWarning
from sointer.explainers.sequence_base import as_sointer, holds_token_lists
from sointer.explainers.sequence_explanation import SequenceExplanation

pytestmark = [
    pytest.mark.usefixtures("global_random_state_is_left_alone"),
    pytest.mark.filterwarnings("ignore::sointer.errors.PoorFitWarning"),
]
X = [["sun", "rain", "warm", "wet"], ["rain", "rain"], ["dry"], ["snow", "rain", "unheard-of"]]


@pytest.fixture(autouse=True)
def quick_steps() -> Any:
    with patch("sointer.training.sequences.MIN_STEPS", 30):
        yield


@pytest.fixture(scope="module")
def fitted() -> SOInter:
    return quick_explainer("sequences")


def small(model: Any = weather, **settings: Any) -> SOInter:
    return SOInter(model, query_budget=200, random_state=0, **settings)


# --- one entry point -------------------------------------------------------------------------------------


def test_token_lists_are_explained_by_sointer_itself(fitted: SOInter) -> None:
    why = fitted.explain(X[:2], target=(1,))
    assert why.value.tolist() == ["dry", "after rain"]
    every = fitted.explain(X)  # all tokens are the default
    assert isinstance(every, SequenceExplanation)
    assert isinstance(why, SequenceExplanation)
    assert len(every) == sum(map(len, X)) == len(fitted.explain(X, target="all"))
    place = [i for i in range(len(every)) if every.value[i] == "after rain"]
    assert [every.tokens(i) for i in place] == [["rain"]] * 3
    assert isinstance(fitted.sequences_, SequenceExplainer)
    assert fitted.score(X) >= 0.8
    assert fitted.outputs_ is fitted.sequences_.outputs_


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ([["a"], ["b", "c"]], True),
        ((("a", "b"), ("c", "d")), True),
        (pd.Series([["a"], ["b", "c"]]), True),
        (pd.Series([np.array(["a"]), np.array(["b", "c"])]), True),
        ([["a"], []], True),
        (["a b", "c"], False),
        ([[1, 2], [3]], False),
        ([[]], False),
        ([], False),
        (TABLE, False),
        (TABLE.tolist(), False),
        (pd.Series(TEXTS), False),
    ],
)
def test_what_counts_as_token_lists(data: Any, expected: bool) -> None:
    assert holds_token_lists(data) is expected


def test_settings_that_sequences_do_not_have_are_refused_before_any_query() -> None:
    def never(batch: Any) -> Any:
        raise AssertionError

    for wrong in (
        {"structured": False},
        {"preset": "paper"},
        {"removal": "zero"},
        {"groups": "sentences"},
        {"feature_names": ["a"]},
        {"energy": EnergyConfig()},
    ):
        with pytest.raises(InputError, match=f"X holds token lists, for which {next(iter(wrong))} cannot be set"):
            small(never, **wrong).fit(SENTENCES)
    with pytest.raises(InputError, match="targets cannot be set"):
        small(never).fit(SENTENCES, targets=[0])


def test_what_only_rows_have_is_refused_with_what_helps(fitted: SOInter) -> None:
    for call in (
        fitted.transform,
        fitted.distance,
        lambda _: fitted.localities(),
        lambda _: fitted.plot_interactions(),
        lambda _: fitted.get_feature_names_out(),
    ):
        with pytest.raises(InputError, match="was fitted on sequences"):
            call(X)
    with pytest.raises(InputError, match="refine=5 is not for sequences"):
        fitted.explain(X, refine=5)
    with pytest.raises(InputError, match="expected a list of token lists"):
        fitted.explain(pd.DataFrame(TABLE))


def test_what_takes_tables_refuses_sequences_in_one_sentence(fitted: SOInter, tmp_path: Path) -> None:
    from sointer.integrations.attributions import SOInterAttribution, explain_func
    from sointer.integrations.hub import save_pretrained
    from sointer.io.stream import stream_explain
    from sointer.metrics import evaluate

    calls: list[Any] = [
        lambda explainer: save_pretrained(explainer, tmp_path / "hub"),
        lambda explainer: stream_explain(explainer, SENTENCES, tmp_path / "why.parquet"),
        lambda explainer: evaluate(explainer, SENTENCES),
        SOInterAttribution,
        explain_func,
    ]
    with suppress(ImportError):
        import mlflow  # noqa: F401

        from sointer.integrations.mlflow import log_model, save_model

        calls += [lambda explainer: save_model(explainer, tmp_path / "mlflow"), log_model]
    with suppress(ImportError):
        import dask.dataframe  # noqa: F401

        from sointer.integrations.dask import explain

        calls.append(lambda explainer: explain(explainer, SENTENCES))
    for call in calls:
        for explainer in (fitted, fitted.sequences_):
            with pytest.raises(InputError, match="but this explainer was fitted on sequences, where every token"):
                call(explainer)
    assert list(tmp_path.iterdir()) == []


def test_the_model_is_queried_through_joblib_too() -> None:
    alone = small().fit(SENTENCES)
    with joblib.parallel_config("threading"):
        together = small(BlackBox(Tagger(weather), n_jobs=2, batch_size=40)).fit(SENTENCES)
    assert together.n_queries_ == alone.n_queries_
    assert together.explain(X).to_dict() == alone.explain(X).to_dict()


def test_a_refit_on_another_kind_of_data_leaves_nothing_behind() -> None:
    explainer = small(lambda X: weather(X) if isinstance(X, list) else labels(X))
    explainer.fit(SENTENCES)
    assert explainer.explain(X).value_source == "model"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SointerWarning)
        explainer.set_params(energy=QUICK["energy"], training=QUICK["training"]).fit(TABLE)
        assert explainer.sequences_ is None
        assert len(explainer.explain(TABLE[:3], target=0)) == 3
    explainer.set_params(energy=None, training=None).fit(SENTENCES)
    assert not hasattr(explainer, "interpreter_")
    assert len(explainer.explain(X[:1])) == 4


# --- the contract ----------------------------------------------------------------------------------------


def test_a_sequence_is_explained_the_same_alone_shuffled_and_in_any_company(fitted: SOInter) -> None:
    whole = fitted.explain(SENTENCES[:30])
    order = np.random.default_rng(0).permutation(30)
    shuffled = fitted.explain([SENTENCES[i] for i in order])
    alone = fitted.explain([SENTENCES[int(order[3])]])
    for i, one in enumerate(alone.keeps):
        assert shuffled.keeps[np.flatnonzero(shuffled.sample == 3)[i]] == pytest.approx(one, abs=1e-5)
        assert whole.keeps[np.flatnonzero(whole.sample == order[3])[i]] == pytest.approx(one, abs=1e-5)


def test_queries_are_counted_and_given_predictions_cost_none() -> None:
    sent: list[int] = []

    def counting(batch: Any) -> Any:
        sent.append(len(batch))
        return weather(batch)

    explainer = small(counting).fit(SENTENCES)
    assert sum(sent) == explainer.n_queries_ == 200
    explainer.explain([*X, X[0]])
    assert explainer.n_explain_queries_ == len(X)  # equal sequences are sent once
    explainer.explain(X, predicted=weather(X))
    explainer.explain(X, query=False)
    assert explainer.n_explain_queries_ == len(X)
    assert sum(sent) == 200 + len(X)


def test_an_unfitted_explainer_says_so_and_clones_are_unfitted(fitted: SOInter, tmp_path: Path) -> None:
    copy = clone(fitted)
    assert copy.sequences_ is None
    assert copy.get_params()["query_budget"] == fitted.query_budget
    for one in (copy, SequenceExplainer(weather)):
        with pytest.raises(NotFittedError):
            one.explain(X)
        with pytest.raises(NotFittedError):
            one.save(tmp_path / "why")
        with pytest.raises(NotFittedError):
            one.report(X, tmp_path / "why.html")


def test_the_same_seed_gives_the_same_explainer() -> None:
    one, two = (small().fit(SENTENCES).explain(X) for _ in "ab")
    np.testing.assert_array_equal(one.keeps, two.keeps)


def test_saved_and_loaded_by_one_name(fitted: SOInter, tmp_path: Path) -> None:
    fitted.save(tmp_path / "why")
    again = sointer.load(tmp_path / "why", weather)
    assert isinstance(again, SOInter)
    np.testing.assert_array_equal(again.explain(X).keeps, fitted.explain(X).keeps)
    assert again.n_queries_ == fitted.n_queries_
    behind = SequenceExplainer.load(tmp_path / "why", weather)
    np.testing.assert_array_equal(behind.explain(X).keeps, fitted.explain(X).keeps)
    assert sointer.load(tmp_path / "why").explain(X).value_source == "expected"


# --- checkpoints -----------------------------------------------------------------------------------------


class Stops:
    """A tagger that is stopped after some sequences."""

    def __init__(self, after: int) -> None:
        self.after, self.n_sent = after, 0

    def __call__(self, batch: Any) -> Any:
        self.n_sent += len(batch)
        if self.n_sent > self.after:
            raise KeyboardInterrupt
        return weather(batch)


@pytest.mark.parametrize("random_state", [0, None])
def test_a_stopped_fit_goes_on_and_gives_the_same_explainer(tmp_path: Path, random_state: Any) -> None:
    def make(model: Any) -> SOInter:
        return SOInter(BlackBox(Tagger(model), batch_size=16), query_budget=200, random_state=random_state)

    with pytest.raises(KeyboardInterrupt):
        make(Stops(100)).fit(SENTENCES, checkpoint=tmp_path / "fit")
    counted = Stops(10**6)
    resumed = make(counted).fit(SENTENCES, checkpoint=tmp_path / "fit")
    assert 90 <= resumed.n_queries_replayed_ <= 100
    assert resumed.n_queries_ == counted.n_sent == 200 - resumed.n_queries_replayed_
    if random_state == 0:
        np.testing.assert_array_equal(make(weather).fit(SENTENCES).explain(X).keeps, resumed.explain(X).keeps)
    finished = make(Stops(0)).fit(SENTENCES, checkpoint=tmp_path / "fit")  # nothing is queried or learned again
    np.testing.assert_array_equal(finished.explain(X, query=False).keeps, resumed.explain(X, query=False).keeps)
    assert (finished.n_queries_, finished.n_queries_replayed_) == (0, 200)


def test_a_checkpoint_of_another_fit_is_refused_and_a_damaged_explainer_fitted_again(tmp_path: Path) -> None:
    small().fit(SENTENCES, checkpoint=tmp_path / "fit")
    with pytest.raises(CheckpointError, match="data differ"):
        small().fit(SENTENCES[1:], checkpoint=tmp_path / "fit")
    with pytest.raises(CheckpointError, match="query_budget was 200, is 250"):
        SOInter(weather, query_budget=250, random_state=0).fit(SENTENCES, checkpoint=tmp_path / "fit")
    with pytest.raises(CheckpointError, match="another fit"):
        quick_fit(labels, TABLE).fit(TABLE, checkpoint=tmp_path / "fit")
    weights = next((tmp_path / "fit" / "explainer").glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.warns(CheckpointWarning, match="fitted again"):
        again = small(Stops(0)).fit(SENTENCES, checkpoint=tmp_path / "fit")
    assert (again.n_queries_, again.n_queries_replayed_) == (0, 200)


# --- bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tagger", "message"),
    [
        (lambda batch: [one[1:] for one in weather(batch)], "expected .*, one per token"),
        (lambda batch: [[label for label in one for _ in "ab"] for one in weather(batch)], "splits or cuts its input"),
        (lambda batch: [one[:2] for one in weather(batch)], "no longer than it reads"),
        (lambda batch: [" ".join(one) for one in weather(batch)], "the text 'dry"),
        (
            lambda batch: [one[0] for one in weather(batch)],
            "one label per sequence is explained as one of texts",
        ),
        (lambda batch: "dry rain", "expected a list with one list of labels"),
        (lambda batch: weather(batch)[0], "expected one for each|the text"),
        (lambda batch: [list(zip(s, one)) for s, one in zip(batch, weather(batch))], "expected labels alone"),  # noqa: B905
        (lambda batch: [[None for _ in s] for s in batch], "expected a label"),
    ],
)
def test_outputs_that_do_not_fit_the_tokens_are_refused_and_nothing_is_shifted(tagger: Any, message: str) -> None:
    with pytest.raises(BlackBoxError, match=message):
        small(tagger).fit(SENTENCES)


def test_a_tagger_that_cuts_long_sequences_is_found_out_when_explaining(fitted: SOInter) -> None:
    explainer = as_sointer(clone_with(fitted, lambda batch: [one[:6] for one in weather(batch)]))
    assert len(explainer.explain([["dry"] * 6])) == 6
    with pytest.raises(BlackBoxError, match="6 labels for the 7 tokens"):
        explainer.explain([["dry"] * 7])


def clone_with(fitted: SOInter, tagger: Any) -> SequenceExplainer:
    """The same, with another model."""
    from copy import copy

    from sointer.blackbox.adapters.tagger import as_tagger

    assert fitted.sequences_ is not None
    other = copy(fitted.sequences_)
    other.black_box_ = as_tagger(tagger, None)
    return other


def test_labels_never_seen_in_fit_are_shown_with_a_warning(fitted: SOInter) -> None:
    with pytest.warns(SointerWarning, match="labels that it never gave during fit: 'fog'"):
        why = fitted.explain([["sun", "sun"]], predicted=[["dry", "fog"]])
    assert why.value.tolist() == ["dry", "fog"]


def test_numbers_as_text_are_labels_until_there_are_too_many() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match="If they are numbers, return them as floats"):
        small(lambda batch: [[f"{rng.random():.6f}" for _ in s] for s in batch]).fit(SENTENCES)


def test_very_long_sequences_are_refused_in_one_sentence(fitted: SOInter) -> None:
    for most, call in ((MAX_TOKENS_IN_FIT, small().fit), (MAX_TOKENS, fitted.explain)):
        with pytest.raises(InputError, match=rf"has {most + 1:,} tokens, expected at most {most:,}\. Cut it"):
            call([*SENTENCES, ["sun"] * (most + 1)])
    with pytest.raises(InputError, match="do not fit into memory; explain fewer"):
        fitted.explain([["sun"] * MAX_TOKENS] * 2, query=False)


def test_a_long_sequence_is_explained_by_the_tokens_around_each_target(fitted: SOInter) -> None:
    tokens = ["sun", "rain", "warm", "wet"] * (MAX_TOKENS // 4)
    places = (1, 2, 47, 48, 5002, MAX_TOKENS - 2)
    for query in (True, False):
        why = fitted.explain([tokens, tokens[:4]], target=[places, "all"], query=query)
        assert why.position.tolist() == [*places, 0, 1, 2, 3]
        assert why.labels == weather([tokens, tokens[:4]])
        after = [i for i, place in enumerate(why.position.tolist()) if place % 4 == 2]
        assert [why.selected[i][why.selected[i] >= 0].tolist() for i in after] == [
            [int(why.position[i]) - 1] for i in after
        ]
    assert why.scores.shape == (10, MAX_TOKENS)


def test_tokens_in_another_script_and_odd_ones_are_explained(fitted: SOInter) -> None:
    why = fitted.explain([["雨", "дождь", "", " ", "\u200b", "🌧️", "rain", "sun"]])
    assert why.value[-1] == "after rain"
    assert len(why) == 8
