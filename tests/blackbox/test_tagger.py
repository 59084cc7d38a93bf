"""What a tagger may return, and one clear sentence for everything else: nothing is shifted by a position."""

from typing import Any

import numpy as np
import pytest

from sointer import BlackBox
from sointer.blackbox.adapters.tagger import Tagger, as_tagger, query_tagger
from sointer.errors import BlackBoxError, InputError, QueryBudgetExceeded

BATCH = [["a", "b", "c"], ["d"]]


def said(outputs: Any) -> list[list[Any]]:
    return query_tagger(BlackBox(Tagger(lambda batch: outputs), retries=0), BATCH)


@pytest.mark.parametrize(
    ("outputs", "read"),
    [
        ([["x", "y", "x"], ["y"]], [["x", "y", "x"], ["y"]]),
        ([np.array([1, 2, 3]), np.array([0])], [[1, 2, 3], [0]]),
        ([(0.5, 1.0, 2.5), (0.25,)], [[0.5, 1.0, 2.5], [0.25]]),
        ([[0, 1.5, 2], [3]], [[0, 1.5, 2], [3]]),
        ([[True, False, np.bool_(True)], [False]], [[True, False, True], [False]]),
        ([np.eye(3), np.eye(3)[:1]], [np.eye(3).tolist(), np.eye(3)[:1].tolist()]),
        ([[{"x": 1.0}] * 3, [{"x": 0.5, "y": 0.5}]], [[{"x": 1.0}] * 3, [{"x": 0.5, "y": 0.5}]]),
        ([["“", "ß\n", "x"], [""]], [["“", "ß\n", "x"], [""]]),
    ],
)
def test_labels_numbers_and_probabilities_are_read(outputs: Any, read: list[list[Any]]) -> None:
    assert said(outputs) == read


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ("abcd", "the string .abcd., expected a list with one list of labels for each of 2 sequences"),
        (["xyx", "y"], "the text 'xyx' for the 3 tokens .* expected a list with one label per token"),
        ([["x", "y"], ["y"]], "2 labels for the 3 tokens .* expected 3, one per token. If the model splits"),
        ([["x", "y", "x", "x"], ["y"]], "4 labels for the 3 tokens"),
        ([["x", "y", "x"]], "1 lists for 2 sequences"),
        ([[("a", "x"), ("b", "y"), ("c", "x")], [("d", "x")]], "pairs such as .* expected labels alone"),
        ([[0.5, float("nan"), 1.0], [0.5]], "nan .* expected finite numbers"),
        ([["x", 1.5, "x"], ["y"]], "labels and numbers"),
        ([[True, 1.5, 0], [0]], "labels and numbers"),
        (np.array([["x", "y", "x"], ["y", "pad", "pad"]]), "3 labels for the 1 tokens .* if it pads, leave out"),
        ([[None] * 3, [None]], "of type NoneType"),
        ([[["x", "y", "z"]] * 3, [["x", "y", "z"]]], "as a class probability"),
        (
            [[{"entity": "x", "score": 0.9}] * 3, [{"entity": "y", "score": 0.9}]],
            r"Return \[record\['entity'\] for rec",
        ),
        ([[{"x": 10**400}] * 3, [{"x": 1.0}]], "as a class probability"),
        ([[0, 10**400, -(10**400)], [0]], "a whole number of 1329 bits .* Return labels as text"),
        ([[0.0, 1e300, 1.0], [0.5]], r"1e\+300 .* expected numbers up to 1e\+30"),
        (None, "None, expected a list"),
    ],
)
def test_anything_else_is_refused_with_a_clear_sentence(outputs: Any, message: str) -> None:
    with pytest.raises(BlackBoxError, match=message):
        said(outputs)


def test_a_function_that_fails_is_tried_again_and_named() -> None:
    calls: list[int] = []

    def fails_once(batch: list[list[str]]) -> list[list[str]]:
        calls.append(len(batch))
        if len(calls) == 1:
            raise KeyError("b")
        return [["x"] * len(tokens) for tokens in batch]

    assert query_tagger(BlackBox(Tagger(fails_once), retries=1), [["a", "b"]]) == [["x", "x"]]
    calls.clear()
    with pytest.raises(BlackBoxError, match=r"fails_once raised KeyError: 'b'.* 1 token lists"):
        query_tagger(BlackBox(Tagger(fails_once), retries=0), [["a", "b"]])


def test_the_model_cannot_write_into_the_callers_tokens() -> None:
    def greedy(batch: list[list[str]]) -> list[list[str]]:
        for tokens in batch:
            tokens[0] = "changed"
        return [["x"] * len(tokens) for tokens in batch]

    sequences = [["a", "b"]]
    query_tagger(as_tagger(greedy, None), sequences)
    assert sequences == [["a", "b"]]


def test_budget_counts_sequences_and_batches_are_as_large_as_said() -> None:
    sizes: list[int] = []

    def model(batch: list[list[str]]) -> list[list[str]]:
        sizes.append(len(batch))
        return [["x"] * len(tokens) for tokens in batch]

    box = as_tagger(model, 3)
    query_tagger(box, [["a"]] * 7)
    assert (sizes, box.n_queries) == ([3, 3, 1], 7)
    with pytest.raises(QueryBudgetExceeded):
        query_tagger(BlackBox(Tagger(model), query_budget=2), [["a"]] * 3)


def test_a_black_box_of_tables_is_refused() -> None:
    with pytest.raises(InputError, match="not made for sequences"):
        as_tagger(BlackBox(lambda X: X), None)
    with pytest.raises(InputError, match="expected a function"):
        as_tagger(3, None)
