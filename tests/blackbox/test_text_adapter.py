"""Texts through a fitted pipeline: words are the features, and what is removed is removed from the text."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline

import sointer
from quick import TAUGHT, few_steps, quick_fit
from sointer import SOInter
from sointer.data.texts import is_text
from sointer.errors import BlackBoxError, InputError

FILLER = ["the", "a", "of", "to", "and", "in", "it", "is", "was", "for", "on", "with", "as", "by", "at", "from"]
CLUES = {"sport": ["goal", "match"], "money": ["bank", "loan"], "music": ["song", "band"]}


def documents(n: int, seed: int) -> tuple[list[str], np.ndarray]:
    """Texts of filler words, each with the clue words of the topics that it is about."""
    rng = np.random.default_rng(seed)
    labels = (rng.random((n, len(CLUES))) < 0.35).astype(int)
    texts = []
    for row in labels:
        words = list(rng.choice(FILLER, size=8))
        words += [rng.choice(clues) for clues, on in zip(CLUES.values(), row, strict=True) if on]
        rng.shuffle(words)
        texts.append(" ".join(words))
    return texts, labels


@pytest.fixture(scope="module")
def pipeline():
    texts, labels = documents(600, seed=0)
    model = make_pipeline(TfidfVectorizer(), MultiOutputClassifier(LogisticRegression(C=100.0)))
    return model.fit(texts, labels)


@pytest.fixture(scope="module")
def explainer(pipeline):
    texts, _ = documents(400, seed=1)
    with few_steps(500):
        return quick_fit(pipeline, texts, **TAUGHT | {"k": 1, "query_budget": 2000, "output_names": list(CLUES)})


def test_the_clue_word_explains_the_topic(explainer, pipeline) -> None:
    texts, _ = documents(60, seed=2)
    said = pipeline.predict(texts)
    for target, (topic, clues) in enumerate(CLUES.items()):
        about = [text for text, label in zip(texts, said[:, target], strict=True) if label]
        explanation = explainer.explain(about, target=topic)
        words = [explainer.feature_names_in_[unit] for unit in explanation.selected[:, 0]]
        assert np.mean([word in clues for word in words]) >= 0.95
        assert explanation.summary(2)[topic][0][0] in clues


def test_removing_a_word_equals_deleting_it_from_the_text(explainer, pipeline) -> None:
    texts, _ = documents(40, seed=5)
    explanation = explainer.explain(texts, target="sport")
    verified = explanation.verify()
    names = explainer.feature_names_in_
    shorter = [
        " ".join(word for word in text.split() if word in names[units[units >= 0]])
        for text, units in zip(texts, explanation.selected, strict=True)
    ]
    same = pipeline.predict(shorter)[:, 0] == pipeline.predict(texts)[:, 0]
    np.testing.assert_array_equal(verified.agreement == 1.0, same)


def test_a_saved_explainer_takes_texts_again_with_its_pipeline(explainer, pipeline, tmp_path) -> None:
    texts, _ = documents(20, seed=7)
    explainer.save(tmp_path / "explainer")
    loaded = sointer.load(tmp_path / "explainer", black_box=pipeline)
    before, after = explainer.explain(texts, target="money"), loaded.explain(texts, target="money")
    np.testing.assert_array_equal(before.selected, after.selected)
    alone = sointer.load(tmp_path / "explainer").explain(texts, target="money", predicted=pipeline.predict_proba(texts))
    np.testing.assert_array_equal(before.selected, alone.selected)
    with pytest.raises(InputError, match="no model to query"):
        alone.verify()


@pytest.mark.parametrize("vectoriser", [HashingVectorizer(n_features=2**12), TfidfVectorizer(ngram_range=(1, 2))])
def test_any_vectoriser_will_do(vectoriser) -> None:
    texts, labels = documents(600, seed=0)
    model = make_pipeline(vectoriser, MultiOutputClassifier(LogisticRegression(C=1000.0))).fit(texts, labels)
    with few_steps(500):
        settings = TAUGHT | {"k": 1, "query_budget": 2000, "output_names": list(CLUES)}
        explainer = quick_fit(model, texts[:300], **settings)
    said = model.predict(texts[:100])
    about = [text for text, label in zip(texts, said[:, 2], strict=False) if label]
    explanation = explainer.explain(about, target="music")
    words = [explainer.feature_names_in_[unit] for unit in explanation.selected[:, 0]]
    assert np.mean([word in CLUES["music"] for word in words]) >= 0.95


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ("a text", r"Give \[text\]"),
        (["a text", None], "None, at 1"),
        (["a text", float("nan"), "another"], "1 of 3 documents"),
        ([3, 4], "a list of length 2 that holds 3 of type int, but texts were fitted"),
        ("letters.csv", "the string 'letters.csv', expected the data themselves. Read the file first"),
    ],
)
def test_what_is_no_list_of_texts(explainer, X, message) -> None:
    with pytest.raises(InputError, match=message):
        explainer.explain(X, target="money")


def test_an_unfitted_pipeline() -> None:
    texts, _ = documents(50, seed=9)
    model = make_pipeline(TfidfVectorizer(min_df=15), MultiOutputClassifier(LogisticRegression()))
    with pytest.raises((BlackBoxError, InputError), match="not fitted"):
        SOInter(model).fit(texts)


def test_a_summary_of_the_reasons_for_a_topic(explainer, pipeline) -> None:
    texts, _ = documents(60, seed=10)
    explanation = explainer.explain(texts, target="music", predicted=pipeline.predict(texts))
    reasons = [word for word, _ in explanation.summary(10, value=1)["music"]]
    assert reasons == [word for word in reasons if word in CLUES["music"]]
    assert explanation.summary(value="no such value") == {}


def test_words_are_shown_with_their_effects_and_escaped(explainer) -> None:
    texts, _ = documents(5, seed=8)
    explanation = explainer.explain(texts, target="music")
    page = explanation.to_html()
    chosen = [(i, unit) for i, unit in enumerate(explanation.selected[:, 0].tolist()) if unit >= 0]
    assert len(chosen) > 1
    for i, unit in chosen:
        effect = f"{explanation.effects[i, unit]:+.3g}".replace("-", "−")
        assert f'title="{explainer.feature_names_in_[unit]}' in page
        assert f"</span> {effect}</small>" in page


@pytest.mark.parametrize(
    ("X", "expected"),
    [
        (["a text"], True),
        (np.array(["a text"], dtype=object), True),
        ([], False),
        ([["a", "b"]], False),
        ([1, 2], False),
        (np.zeros((2, 2)), False),
    ],
)
def test_what_counts_as_text(X, expected) -> None:
    assert is_text(X) is expected
