"""Raw texts through a fitted pipeline: words are the features, and what is removed is removed from the text."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline

import sointer
from sointer import SOInter
from sointer.blackbox.adapters.text import TextPipeline, is_text
from sointer.errors import InputError

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
    return SOInter(pipeline, k=1, query_budget=2000, output_names=list(CLUES), random_state=0).fit(texts)


def test_the_clue_word_explains_the_topic(explainer, pipeline) -> None:
    texts, _ = documents(60, seed=2)
    said = pipeline.predict(texts)
    for target, (topic, clues) in enumerate(CLUES.items()):
        about = [text for text, label in zip(texts, said[:, target], strict=True) if label]
        explanation = explainer.explain(about, target=topic)
        words = [explainer.feature_names_in_[unit] for unit in explanation.selected[:, 0]]
        assert np.mean([word in clues for word in words]) >= 0.95
        assert explanation.summary(2)[topic][0][0] in clues


def test_the_model_behind_the_words_says_what_the_pipeline_says(pipeline) -> None:
    texts, _ = documents(50, seed=3)
    parts = TextPipeline.of(pipeline)
    np.testing.assert_array_equal(parts.rest.predict(parts.count(texts)), pipeline.predict(texts))


@pytest.mark.parametrize("options", [{"use_idf": False}, {"sublinear_tf": True}, {"norm": None}, {"smooth_idf": False}])
def test_every_weighting_survives_the_cut(options) -> None:
    texts, labels = documents(200, seed=4)
    model = make_pipeline(TfidfVectorizer(**options), MultiOutputClassifier(LogisticRegression())).fit(texts, labels)
    parts = TextPipeline.of(model)
    weights = model[0].transform(texts).toarray()
    np.testing.assert_allclose(parts.rest[0].transform(parts.count(texts)).toarray(), weights, atol=1e-12)


def test_removing_a_word_equals_deleting_it_from_the_text(explainer, pipeline) -> None:
    texts, _ = documents(40, seed=5)
    explanation = explainer.explain(texts, target="sport")
    verified = explanation.verify()
    split = pipeline[0].build_analyzer()
    shorter = [
        " ".join(word for word in split(text) if explainer.feature_names_in_.tolist().index(word) == unit)
        for text, unit in zip(texts, explanation.selected[:, 0], strict=True)
    ]
    same = pipeline.predict(shorter)[:, 0] == pipeline.predict(texts)[:, 0]
    np.testing.assert_array_equal(verified.agreement == 1.0, same)


def test_counts_and_weights_in_two_steps_work_too() -> None:
    texts, labels = documents(200, seed=6)
    model = make_pipeline(CountVectorizer(), TfidfTransformer(), MultiOutputClassifier(LogisticRegression()))
    parts = TextPipeline.of(model.fit(texts, labels))
    np.testing.assert_array_equal(parts.rest.predict(parts.count(texts)), model.predict(texts))


def test_a_saved_explainer_takes_texts_again_with_its_pipeline(explainer, pipeline, tmp_path) -> None:
    texts, _ = documents(20, seed=7)
    explainer.save(tmp_path / "explainer")
    loaded = sointer.load(tmp_path / "explainer", black_box=pipeline)
    before, after = explainer.explain(texts, target="money"), loaded.explain(texts, target="money")
    np.testing.assert_array_equal(before.selected, after.selected)
    alone = sointer.load(tmp_path / "explainer")
    with pytest.raises(InputError, match="black_box=pipeline"):
        alone.explain(texts, target="money")


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ("a text", r"Give \[text\]"),
        (["a text", None], "None, at 1"),
        (["a text", float("nan"), "another"], "1 of 3 documents"),
    ],
)
def test_what_is_no_list_of_texts(explainer, X, message) -> None:
    with pytest.raises(InputError, match=message):
        explainer.explain(X, target="money")


def test_an_unfitted_pipeline_and_another_vocabulary(explainer, tmp_path) -> None:
    texts, labels = documents(50, seed=9)
    model = make_pipeline(TfidfVectorizer(min_df=15), MultiOutputClassifier(LogisticRegression()))
    with pytest.raises(InputError, match="not fitted"):
        SOInter(model).fit(texts)
    explainer.save(tmp_path / "explainer")
    with pytest.raises(InputError, match="give the pipeline that was explained"):
        sointer.load(tmp_path / "explainer", black_box=model.fit(texts, labels))
    with pytest.raises(InputError, match="CountVectorizer or TfidfVectorizer"):
        sointer.load(tmp_path / "explainer", black_box=model[-1])


def test_a_summary_of_the_reasons_for_a_topic(explainer, pipeline) -> None:
    texts, _ = documents(60, seed=10)
    explanation = explainer.explain(texts, target="music", predicted=pipeline.predict(texts))
    reasons = [word for word, _ in explanation.summary(10, value=1)["music"]]
    assert reasons == [word for word in reasons if word in CLUES["music"]]
    assert explanation.summary(value="no such value") == {}


def test_texts_need_a_pipeline_that_begins_with_a_vectoriser() -> None:
    with pytest.raises(InputError, match="CountVectorizer or TfidfVectorizer"):
        SOInter(lambda X: np.zeros((len(X), 2))).fit(["one text", "another"])


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
