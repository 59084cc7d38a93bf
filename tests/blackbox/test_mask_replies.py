"""Class probabilities of masks: the two most probable classes of every pixel are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sointer import BlackBox
from sointer.blackbox.journal import Journal
from sointer.blackbox.mask_replies import MAX_CLASSES, TOP_TWO, has_top_two, labels_of, top_two
from sointer.blackbox.replies import stack
from sointer.errors import BlackBoxError

SIZE = (3, 5)


def softmax(n: int, n_classes: int, seed: int = 0) -> np.ndarray:
    scores = np.random.default_rng(seed).normal(scale=2, size=(n, n_classes, *SIZE))
    return np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)


class Segmenter:
    """Probabilities of classes by an image's first channel."""

    def __init__(self, n_classes: int = 4) -> None:
        self.n_classes, self.n_rows = n_classes, 0

    def __call__(self, X: Any) -> np.ndarray:
        self.n_rows += len(X)
        scores = np.stack([np.cos(c + 3 * X[:, 0]) for c in range(self.n_classes)], axis=1)
        return np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)


def images(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((n, 1, *SIZE)).astype(np.float32)


@pytest.mark.parametrize("n_classes", [3, 7, MAX_CLASSES])
def test_the_two_most_probable_classes_are_kept(n_classes) -> None:
    probabilities = softmax(6, n_classes)
    found = top_two(probabilities)
    for place in np.ndindex(6, *SIZE):
        row, *pixel = place
        own = probabilities[(row, slice(None), *pixel)]
        first, second = np.argsort(-own)[:2]
        assert found[place]["first"] == first
        assert found[place]["second"] == second
        assert abs(found[place]["p_first"] / 255 - own[first]) <= 0.5 / 255 + 1e-6
        assert abs(found[place]["p_second"] / 255 - own[second]) <= 0.5 / 255 + 1e-6


def test_certain_classes_and_more_classes_than_can_be_kept() -> None:
    labels = np.random.default_rng(0).integers(5, size=(4, *SIZE))
    found = top_two(np.eye(5)[labels].transpose(0, 3, 1, 2))
    assert (labels_of(found) == labels).all()
    assert (found["p_first"] == 255).all()
    assert (found["p_second"] == 0).all()
    many = softmax(2, MAX_CLASSES + 1)
    assert (top_two(many) == many.argmax(axis=1)).all()


def test_a_black_box_returns_labels_and_tells_probabilities_when_asked() -> None:
    model = Segmenter()
    box = BlackBox(model, batch_size=3)
    X, heard = images(8), []
    table = box(X, on_answer=lambda rows, part: heard.append((rows, part)))
    wanted = model(X).argmax(axis=1).reshape(8, -1)
    assert table.dtype.kind == "i"
    assert (table == wanted).all()
    assert all((part == wanted[rows]).all() for rows, part in heard)
    labels, soft = box.query(X)
    assert (labels == wanted).all()
    assert soft is not None
    assert (soft.table == top_two(model(X)).reshape(8, -1)).all()
    assert box(X[:0]).shape == (0, 15)
    assert box(X[:0]).dtype.kind == "i"


def test_what_is_cached_serves_both_ways_of_asking() -> None:
    model = Segmenter()
    box = BlackBox(model, cache=True)
    X = images(8)
    labels, soft = box.query(X)
    assert (box(X) == labels).all()
    assert soft is not None
    assert (box.query(X)[1].table == soft.table).all()  # type: ignore[union-attr]
    assert model.n_rows == 8


def test_two_classes_and_labels_are_as_they_were() -> None:
    box = BlackBox(Segmenter(2))
    table, soft = box.query(images(4))
    assert soft is None
    assert table == pytest.approx(Segmenter(2)(images(4))[:, 1].reshape(4, -1))
    table, soft = BlackBox(lambda X: Segmenter()(X).argmax(axis=1)).query(images(4))
    assert soft is None
    assert table.dtype.kind == "i"


def test_labels_beside_probabilities_leave_labels() -> None:
    some, others = top_two(softmax(2, 4)).reshape(2, -1), np.zeros((3, 15), dtype=np.int64)
    assert not has_top_two(stack([some, others]))
    assert (stack([some, others])[:2] == some["first"]).all()
    assert stack([some, some]).dtype == TOP_TWO


def test_scores_that_do_not_add_up_to_one_are_refused() -> None:
    with pytest.raises(BlackBoxError, match="softmax"):
        BlackBox(lambda X: 2 * Segmenter()(X))(images(4))


def test_a_journal_keeps_probabilities(tmp_path) -> None:
    X = images(8)
    for expected in (8, 0):  # queries of the model: all, then none
        model, journal = Segmenter(), Journal(tmp_path / "journal")
        try:
            journal.begin({"fit": 1})
            labels, soft = journal.replaying(BlackBox(model, batch_size=3), None).query(X)
        finally:
            journal.close()
        assert model.n_rows == expected
        assert soft is not None
        assert (labels == Segmenter()(X).argmax(axis=1).reshape(8, -1)).all()
        assert (soft.table == top_two(Segmenter()(X)).reshape(8, -1)).all()
