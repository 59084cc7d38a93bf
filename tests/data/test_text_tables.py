"""DataFrames with texts: which columns are read as text, what the model gets back, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from sointer.data.text_tables import Records, TextTableFormat, chosen_text_columns, find_text_columns
from sointer.errors import InputError, LoadError
from tickets import tickets

FRAME = tickets(40, 0)


def read(X=FRAME, columns=("text",), groups=None):
    return TextTableFormat.read_frame(X, list(columns), groups)


def test_features_are_the_words_and_the_other_columns() -> None:
    X = pd.DataFrame({"age": [31, 64], "text": ["The band played.", "the song"], "plan": ["pro", "free"]})
    form, data = read(X)
    words = ["the", "band", "played", "song", "(words not seen in fit)"]
    assert form.feature_names == [*(f"text: {word}" for word in words), "age", "plan"]
    np.testing.assert_array_equal(data.toarray(), [[1, 1, 1, 0, 0, 1, 1], [1, 0, 0, 1, 0, 1, 1]])


def test_the_model_gets_the_frame_back() -> None:
    X = FRAME.assign(plan=FRAME["plan"].astype("category"), score=FRAME["age"] / 7.0)
    X.loc[3, "score"] = np.nan
    form, data = read(X)
    pd.testing.assert_frame_equal(form.decode(data), X)
    pd.testing.assert_frame_equal(form.decode(form.encode(X[["since", "score", "plan", "text", "age"]])), X)


def test_a_removed_word_is_deleted_and_other_columns_stay() -> None:
    form, data = read(pd.DataFrame({"text": ["The band played.", "the song"], "age": [31, 64]}))
    keep = np.ones(data.shape, dtype=bool)
    keep[0, form.feature_names.index("text: band")] = False
    assert form.decode(data.masked(keep, None))["text"].tolist() == ["The played.", "the song"]
    assert form.decode(data.masked(keep, "[MASK]"))["text"].tolist() == ["The [MASK] played.", "the song"]
    assert form.decode(data.masked(keep, None))["age"].tolist() == [31, 64]


def test_several_texts_keep_their_words_apart() -> None:
    X = pd.DataFrame({"title": ["late order", "hello"], "n": [1, 2], "body": ["the order", "hello you"]})
    form, data = read(X, ["title", "body"])
    pd.testing.assert_frame_equal(form.decode(data), X)
    keep = np.ones(data.shape, dtype=bool)
    keep[:, form.feature_names.index("body: order")] = False
    assert form.decode(data.masked(keep, None)).iloc[0].tolist() == ["late order", 1, "the"]
    spans = [data.documents[0].text[slice(*span)] for span in data.documents[0].spans]
    assert spans == ["late", "order", "the", "order"]


def test_rows_are_the_same_only_if_texts_and_values_are() -> None:
    X = pd.concat([FRAME[:1], FRAME[:1].assign(age=99), FRAME[:1]])
    keys = read()[0].encode(X).keys()
    assert keys[0] == keys[2] != keys[1]


def test_rows_can_be_taken_and_stacked() -> None:
    form, data = read()
    parts = [data[5:7], data[np.array([1])], data[np.arange(40) == 9]]
    pd.testing.assert_frame_equal(form.decode(Records.stack(parts)), FRAME.iloc[[5, 6, 1, 9]].reset_index(drop=True))


@pytest.mark.parametrize("groups", [None, "sentences", "occurrences"])
def test_the_format_can_be_saved(groups) -> None:
    form, data = read(groups=groups)
    again = TextTableFormat.restored(json.loads(json.dumps(form.to_json())))
    assert again.feature_names == form.feature_names
    assert again.edges == form.edges
    pd.testing.assert_frame_equal(again.decode(again.encode(FRAME)), FRAME)
    np.testing.assert_array_equal(again.encode(FRAME).toarray(), data.toarray())


@pytest.mark.parametrize("change", [{"parts": []}, {"table": None}, {"edges": [[0.0]]}, {"feature_names": ["a"]}])
def test_a_damaged_format_is_refused(change) -> None:
    with pytest.raises(LoadError, match="damaged"):
        TextTableFormat.restored(read()[0].to_json() | change)


def test_free_text_is_found_and_nothing_else() -> None:
    n = len(FRAME)
    others = {
        "id": [f"A-{i}" for i in range(n)],
        "mail": [f"ann{i}@example.org" for i in range(n)],
        "when": [f"2024-01-05 10:00:{i:02}" for i in range(n)],
        "hash": [f"550e{i}-e29b-41d4-a716-4466{i}" for i in range(n)],
        "kind": ["a very long name", "the other long name"] * (n // 2),
    }
    assert find_text_columns(FRAME.assign(**others)) == ["text"]
    assert find_text_columns(FRAME.assign(text=[None, *FRAME["text"][1:]])) == ["text"]
    assert find_text_columns(FRAME[:10]) == []


def test_text_columns_can_be_named() -> None:
    assert chosen_text_columns(FRAME, ["plan"]) == ["plan"]
    assert chosen_text_columns(FRAME, []) == []
    with pytest.raises(InputError, match=r"write text_columns=\['text'\]"):
        chosen_text_columns(FRAME, "text")
    with pytest.raises(InputError, match="text_columns holds 'txt', but X has the columns 'text', 'age'"):
        chosen_text_columns(FRAME, ["txt"])


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (FRAME.assign(text=[None, *FRAME["text"][1:]]), r"'text' has 1 missing texts \(rows 0\).*fillna\(''\)"),
        (FRAME.assign(text=[*FRAME["text"][1:], np.nan]), r"'text' has 1 missing texts \(rows 39\)"),
        (FRAME.assign(text=[*FRAME["text"][1:], 12]), "the text column 'text' has 12 in row 39, expected strings"),
        (FRAME.drop(columns="text"), "lacks 1 of the 4 features seen in fit: 'text'"),
        (FRAME["text"].tolist(), "a DataFrame with texts in 'text' was fitted; give a DataFrame"),
        (FRAME.assign(plan="gold"), "unseen categories in column 'plan': 'gold'"),
    ],
)
def test_what_does_not_fit_is_refused(X, message) -> None:
    form, _ = read()
    with pytest.raises(InputError, match=message):
        form.encode(X, caller="explain")


def test_an_empty_text_is_a_text() -> None:
    form, _ = read()
    assert form.decode(form.encode(FRAME[:2].assign(text="")))["text"].tolist() == ["", ""]


def test_polars_frames_come_back_as_such() -> None:
    polars = pytest.importorskip("polars")
    pytest.importorskip("narwhals")
    X = polars.DataFrame(FRAME)
    form, data = read(X)
    assert form.decode(data).equals(X)
