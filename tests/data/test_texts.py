"""Texts as their words: tokens of many scripts, deletion by offsets, units."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from sointer.data.texts import UNSEEN, Documents, TextFormat, distinct_texts, word_pattern
from sointer.errors import InputError, LoadError


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't stop, l’été!", ["Don't", "stop", "l’été"]),
        ("Привет, мир", ["Привет", "мир"]),
        ("हिन्दी में नमस्ते", ["हिन्दी", "में", "नमस्ते"]),
        ("cafe\u0301 café", ["cafe\u0301", "café"]),
        ("今天 very好", ["今", "天", "very", "好"]),
        ("a_1 -- 'quoted' 3.5", ["a_1", "quoted", "3", "5"]),
        ("🙂 ... 20°C → ©", ["🙂", "20", "C"]),
        ("so👍🏽👍🏽 ❤️! ☂", ["so", "👍🏽", "👍🏽", "❤️", "☂"]),
        ("👩‍❤️‍👨 🇫🇷🇯🇵 1️⃣ ™️", ["👩‍❤️‍👨", "🇫🇷", "🇯🇵", "1️⃣"]),
    ],
)
def test_words_of_many_scripts(text, words) -> None:
    assert word_pattern().findall(text) == words


def reduced(text, kept, token=None, groups=None) -> str:
    form = TextFormat.of([text], groups)
    documents = form.encode([text])
    keep = np.isin(form.feature_names, kept)[None, :]
    return documents.masked(keep, token).texts()[0]


@pytest.mark.parametrize(
    ("text", "kept", "left"),
    [
        ("The band, played  a song.", ["the", "song"], "The , song."),
        ("The band\nplayed THE song", ["the", "song"], "The THE song"),
        ("one two three", [], ""),
        ("one two three", ["one", "two", "three"], "one two three"),
        ("  one  two ", ["two"], "two"),
        ("well-known fact", ["known"], "-known"),
        ("", [], ""),
        ("no, no: yes!", ["yes"], ", : yes!"),
    ],
)
def test_deletion_keeps_order_and_punctuation(text, kept, left) -> None:
    if not text:
        form = TextFormat.of(["x"])
        assert form.encode([text]).texts() == [""]
        return
    assert reduced(text, kept) == left


def test_emoji_are_deleted_like_words() -> None:
    form = TextFormat.of(["ok 🙂", "no 💩"])
    assert form.feature_names == ["ok", "🙂", "no", "💩", UNSEEN]
    assert reduced("ok 🙂 no 💩!", ["ok", "💩"]) == "ok 💩!"


def test_a_token_in_place_of_words() -> None:
    assert reduced("The band, played.", ["band"], "[MASK]") == "[MASK] band, [MASK]."
    assert reduced("The band.", [], "[MASK]") == "[MASK] [MASK]."


def test_whole_texts_come_back_as_they_were() -> None:
    texts = ["  Zwei  Wörter,\n\nund ... 🙂 mehr\t", "", "।।", "今天天气"]
    form = TextFormat.of(texts)
    assert form.decode(form.encode(texts)) == texts


def test_occurrences_and_sentences_are_units() -> None:
    assert reduced("good, not good", ["good [2]"], groups="occurrences") == ", good"
    assert reduced("Is it? It is. Yes", ["sentence 2"], groups="sentences") == "It is."
    form = TextFormat.of(["A b. A c."], "sentences")
    row, _, word, column = form.encode(["A c. Unseen b."]).tokens()
    assert row.tolist() == [0] * 4
    assert [[*form.words, UNSEEN][number] for number in word] == ["a", "c", UNSEEN, "b"]
    assert column.tolist() == [0, 0, 1, 1]


def test_words_are_shown_in_their_own_letters() -> None:
    texts = ["Großartig, GROSSARTIG: die Straße", "die Strasse"]
    assert TextFormat.of(texts).feature_names == ["großartig", "die", "straße", UNSEEN]
    form = TextFormat.of(texts, "occurrences")
    assert form.feature_names == ["großartig", "grossartig [2]", "die", "straße", UNSEEN]
    assert [document.columns.tolist() for document in form.encode(texts).documents] == [[0, 1, 2, 3], [2, 3]]
    saved = TextFormat.restored(
        TextFormat.of(texts).to_json() | {"feature_names": ["grossartig", "die", "strasse", UNSEEN]}
    )
    assert saved.encode(texts).documents[0].columns.tolist() == [0, 0, 1, 2]  # as earlier versions saved it


def test_the_owner_splits() -> None:
    assert reduced("ab|cd|ef", ["cd"], groups=lambda text: text.split("|")) == "|cd|"
    assert reduced("abcdef", ["cd"], groups=lambda text: [(0, 2), (2, 4), (4, 6)]) == "cd"
    with pytest.raises(InputError, match="does not stand in the text"):
        TextFormat.of(["ab cd"], lambda text: ["AB"])
    with pytest.raises(InputError, match="'sentences', 'occurrences'"):
        TextFormat.of(["ab cd"], "paragraphs")


def test_words_not_seen_are_one_unit() -> None:
    form = TextFormat.of(["one two"])
    documents = form.encode(["one Ωμέγα three"])
    assert documents.toarray().tolist() == [[1, 0, 2]]
    assert documents.masked(np.array([[False, False, True]]), None).texts() == ["Ωμέγα three"]


def test_rows_are_taken_stacked_and_pickled_with_their_texts() -> None:
    texts = ["a b", "b c", "c a"]
    documents = TextFormat.of(texts).encode(texts)
    assert documents[np.array([2, 0])].texts() == ["c a", "a b"]
    assert documents[1:].texts() == texts[1:]
    assert documents[np.array([True, False, True])].texts() == ["a b", "c a"]
    assert Documents.stack([documents[1:], documents[:1]]).texts() == ["b c", "c a", "a b"]
    assert pickle.loads(pickle.dumps(documents)).texts() == texts


def test_no_words_at_all() -> None:
    with pytest.raises(InputError, match="without any word"):
        TextFormat.of(["...", ""])
    with pytest.raises(InputError, match="a list of strings"):
        TextFormat.of(["a"]).encode(np.zeros((1, 1)))


def test_saved_formats_read_the_same_and_refuse_damage() -> None:
    texts = ["One two. Three", "two"]
    for groups in (None, "occurrences", "sentences"):
        form = TextFormat.of(texts, groups)
        again = TextFormat.restored(form.to_json())
        assert np.array_equal(again.encode(texts).toarray(), form.encode(texts).toarray())
    with pytest.raises(LoadError, match="damaged"):
        TextFormat.restored(form.to_json() | {"by": "letters"})
    own = TextFormat.of(texts, str.split)
    with pytest.raises(LoadError, match="splitter="):
        TextFormat.restored(own.to_json()).encode(texts)
    assert TextFormat.restored(own.to_json(), str.split).encode(texts).texts() == texts


def test_equal_texts_are_sent_once() -> None:
    texts, which = distinct_texts(["a", "", "a", ""])
    assert texts == ["a", ""]
    assert which.tolist() == [0, 1, 0, 1]
    assert distinct_texts(None) == (None, None)
