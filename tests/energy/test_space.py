"""The output space against itertools: codes, labels, columns and the list of configurations."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sointer.data.outputs import Outputs
from sointer.energy.space import OutputSpace

MIXED = (2, 3, 4, 1)
class_counts = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


def slow_one_hot(codes: tuple[int, ...], n_classes: tuple[int, ...]) -> list[float]:
    return [float(code == c) for code, n in zip(codes, n_classes, strict=True) for c in range(n)]


def slow_encode(codes: tuple[int, ...], n_classes: tuple[int, ...]) -> list[float]:
    """A binary output is one number, any other is one-hot."""
    columns: list[float] = []
    for code, n in zip(codes, n_classes, strict=True):
        columns += [float(code)] if n == 2 else [float(code == c) for c in range(n)]
    return columns


def slow_log_softmax(values: list[float]) -> list[float]:
    total = math.log(sum(math.exp(v) for v in values))
    return [v - total for v in values]


@settings(max_examples=40, deadline=None)
@given(class_counts)
def test_configurations_are_the_lexicographic_product(n_classes: tuple[int, ...]) -> None:
    space = OutputSpace(n_classes)
    every = list(itertools.product(*map(range, n_classes)))
    assert [tuple(row) for row in space.configurations.tolist()] == every
    assert space.n_configurations == len(every)
    assert space.configuration_index(space.configurations).tolist() == list(range(len(every)))
    assert space.configuration_labels.tolist() == [slow_one_hot(row, n_classes) for row in every]
    assert space.configuration_columns.tolist() == [slow_encode(row, n_classes) for row in every]
    assert space.encode(space.configurations).tolist() == [slow_encode(row, n_classes) for row in every]
    assert space.most_likely(space.one_hot(space.configurations)).tolist() == [list(row) for row in every]


@settings(max_examples=30, deadline=None)
@given(class_counts, st.integers(0, 10_000))
def test_normalise_is_a_softmax_per_output(n_classes: tuple[int, ...], seed: int) -> None:
    space = OutputSpace(n_classes)
    logits = torch.from_numpy(np.random.default_rng(seed).normal(size=(3, space.n_labels)) * 3)
    expected = []
    for row in logits.tolist():
        done: list[float] = []
        for n in n_classes:
            done += slow_log_softmax(row[len(done) : len(done) + n])
        expected.append(done)
    result = space.normalise(logits)
    assert result.flatten().tolist() == pytest.approx(list(itertools.chain(*expected)), abs=1e-9)
    torch.testing.assert_close(space.normalise(result), result)  # probabilities are left as they are


def test_labels_and_columns_of_mixed_outputs() -> None:
    space = OutputSpace(MIXED)
    assert (space.n_outputs, space.n_labels, space.n_columns) == (4, 10, 9)
    assert space.first_label.tolist() == [0, 2, 5, 9]
    assert space.label_output.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2, 3]
    assert space.column_output.tolist() == [0, 1, 1, 1, 2, 2, 2, 2, 3]
    codes = torch.tensor([[1, 2, 0, 0], [0, 0, 3, 0]])
    assert space.one_hot(codes).tolist() == [[0, 1, 0, 0, 1, 1, 0, 0, 0, 1], [1, 0, 1, 0, 0, 0, 0, 0, 1, 1]]
    assert space.encode(codes).tolist() == [[1, 0, 0, 1, 1, 0, 0, 0, 1], [0, 1, 0, 0, 0, 0, 0, 1, 1]]
    assert space.configuration_index(codes).tolist() == [1 * 12 + 2 * 4, 3]


def test_uncertain_labels_give_the_mean_encoding() -> None:
    space = OutputSpace((2, 3))
    q = torch.tensor([[0.25, 0.75, 0.2, 0.3, 0.5]])
    torch.testing.assert_close(q @ space.label_columns, torch.tensor([[0.75, 0.2, 0.3, 0.5]]))


def test_most_likely_looks_at_each_output_alone() -> None:
    space = OutputSpace((3, 2))
    assert space.most_likely(torch.tensor([[0.2, 0.5, 0.3, 9.0, 8.0]])).tolist() == [[1, 0]]


def slow_probabilities(codes: list[float], n_classes: tuple[int, ...]) -> list[float]:
    """A code of an output with two labels is the probability of the second; of any other, the class itself."""
    return [
        p
        for code, n in zip(codes, n_classes, strict=True)
        for p in ([1 - code, code] if n == 2 else [float(code == c) for c in range(n)])
    ]


@settings(max_examples=40, deadline=None)
@given(class_counts, st.integers(0, 10_000))
def test_graded_codes_enter_as_probabilities(n_classes: tuple[int, ...], seed: int) -> None:
    space, draws = OutputSpace(n_classes), np.random.default_rng(seed)
    codes = [[float(draws.random() if n == 2 else draws.integers(n)) for n in n_classes] for _ in range(4)]
    expected = torch.tensor([slow_probabilities(row, n_classes) for row in codes])
    given_codes = torch.tensor(codes)
    torch.testing.assert_close(space.probabilities(given_codes), expected)
    torch.testing.assert_close(space.encode(given_codes), expected @ space.label_columns)
    labels = [[int(c > 0.5) if n == 2 else int(c) for c, n in zip(row, n_classes, strict=True)] for row in codes]
    assert space.labels(given_codes).tolist() == labels
    assert space.labels(torch.tensor(labels)).tolist() == labels


@settings(max_examples=40, deadline=None)
@given(class_counts, st.integers(0, 10_000))
def test_codes_come_back_from_their_probabilities(n_classes: tuple[int, ...], seed: int) -> None:
    space, draws = OutputSpace(n_classes), np.random.default_rng(seed)
    graded = np.array([n == 2 and bool(draws.random() < 0.5) for n in n_classes])
    codes = torch.tensor(
        [[float(draws.random() if g else draws.integers(n)) for n, g in zip(n_classes, graded, strict=True)]] * 3
    )
    back = space.codes(space.probabilities(codes).clamp_min(1e-30).log(), graded)
    assert back.dtype.is_floating_point == graded.any()
    torch.testing.assert_close(back.float(), codes, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("replies", "expected"),
    [
        ([[0, 1], [1, 0]], OutputSpace((2, 2))),
        ([["a", "u"], ["b", "v"], ["c", "u"]], OutputSpace((3, 2))),
        ([[0.1, 0.9], [0.7, 0.2]], OutputSpace((2, 2))),
        ([[0.1, 9.5], [-7.3, 0.2]], OutputSpace((2, 2))),
        ([[0, 9.5], [1, 0.2], [2, 0.3], [0, 0.1], [1, 0.1], [2, 0.1], [1, 0.3]], OutputSpace((3, 2))),
    ],
)
def test_space_follows_the_outputs(replies: list, expected: OutputSpace) -> None:
    assert OutputSpace.of(Outputs.infer(np.array(replies))) == expected


def test_many_outputs_are_counted_without_overflow() -> None:
    assert OutputSpace((2,) * 200).n_configurations == pytest.approx(2.0**200)
