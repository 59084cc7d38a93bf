"""Checks of arguments and the family of errors."""

from __future__ import annotations

import numpy as np
import pytest

from sointer import errors
from sointer._support.validation import (
    call_function,
    check_k,
    check_positive_int,
    check_random_state,
    check_unique_names,
    message_of,
    resolve_targets,
)
from sointer.errors import BlackBoxError, InputError, MissingExtraError, require_extra

NAMES = ["sports", "games", "music"]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (1, [1, 1, 1]),
        (np.int64(2), [2, 2, 2]),
        (np.array(2), [2, 2, 2]),
        ("games", [1, 1, 1]),
        (np.str_("games"), [1, 1, 1]),
        ([0, 1, 2], [0, 1, 2]),
        (["music", 0, np.int8(1)], [2, 0, 1]),
        (np.array(["games", "music", "games"]), [1, 2, 1]),
        (np.array([2, 2, 0], dtype=np.uint8), [2, 2, 0]),
    ],
)
def test_targets(target: object, expected: list[int]) -> None:
    found = resolve_targets(target, NAMES, 3)
    assert found.dtype == np.int64
    assert found.tolist() == expected


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("gmaes", "'gmaes'.*Did you mean 'games'"),
        ("zzz", "Known outputs: 'sports'"),
        (3, "from 0 to 2, got 3"),
        (-1, "from 0 to 2, got -1.*negative"),
        (True, "True of type bool"),
        (1.0, "1.0 of type float"),
        (None, "None"),
        ([0, 1], r"one output per row \(3\), got 2"),
        ([0, 1, 9], "got 9"),
        ([0, 1, True], "True"),
        ([1, 1, [0]], "list"),
        (np.zeros((3, 1), int), r"shape \(3, 1\)"),
        ({"games": 1}, "dict"),
        (np.array([0.0, 1.0, 2.0]), "0.0"),
    ],
)
def test_bad_targets(target: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        resolve_targets(target, NAMES, 3)


@pytest.mark.parametrize("k", [1, 5, np.int32(3), "auto"])
def test_k(k: object) -> None:
    assert check_k(k, 5) == k
    assert type(check_k(k, 5)) in (int, str)


@pytest.mark.parametrize("k", [0, 6, -1, 2.0, True, "all", None])
def test_bad_k(k: object) -> None:
    with pytest.raises(InputError, match="k must be"):
        check_k(k, 5)


def test_names() -> None:
    assert check_unique_names(np.array(["a", "b"]), 2, "names") == ["a", "b"]
    assert type(check_unique_names(np.array(["a"]), 1, "names")[0]) is str
    for names, words in [
        (["a", "b", "a", "b"], "'a', 'b'"),
        (["a"], "4 names, got 1"),
        (["a", "b", "c", 4], "4 of type int"),
        ("abcd", "list of 4"),
        (None, "list of 4"),
    ]:
        with pytest.raises(InputError, match=words):
            check_unique_names(names, 4, "feature_names")


def test_positive_int() -> None:
    assert check_positive_int(np.int64(3), "n") == 3
    for bad in (0, -1, 1.5, "3", None, True):
        with pytest.raises(InputError, match="n must be an int of at least 1"):
            check_positive_int(bad, "n")


def test_random_state() -> None:
    assert check_random_state(3).integers(10**9) == np.random.default_rng(3).integers(10**9)
    generator = np.random.default_rng(0)
    assert check_random_state(generator) is generator
    a, b = (check_random_state(np.random.RandomState(1)).integers(10**9) for _ in range(2))
    assert a == b
    assert check_random_state(None).integers(10**9) != check_random_state(None).integers(10**9)
    before = np.random.get_state()[1].copy()  # type: ignore[index, union-attr]  # noqa: NPY002
    check_random_state(None)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # type: ignore[index]  # noqa: NPY002
    for bad in (-1, 1.5, "0", True):
        with pytest.raises(InputError, match="random_state"):
            check_random_state(bad)


def test_extras_and_the_family_of_errors() -> None:
    assert require_extra("json", "x") is __import__("json")
    with pytest.raises(MissingExtraError, match=r'pip install "sointer\[plot\]"') as info:
        require_extra("no_such_package.sub", "plot")
    assert isinstance(info.value, ImportError)
    for name, builtin in [
        ("InputError", ValueError),
        ("BlackBoxError", RuntimeError),
        ("LoadError", ValueError),
    ]:
        assert issubclass(getattr(errors, name), (errors.SointerError,))
        assert issubclass(getattr(errors, name), builtin)
    for name in ("ConstantOutput", "ConstantFeature", "UnstableBlackBox", "Budget", "PoorFit"):
        assert issubclass(getattr(errors, f"{name}Warning"), errors.SointerWarning)


@pytest.mark.parametrize(
    ("said", "limit", "expected"),
    [
        ("broken", 2000, "broken"),
        ("two\nlines.", 2000, "two lines"),
        ("", 2000, "no message"),
        ("One thing. Another thing. A third", 28, "One thing. Another thing"),
        ("one very long thing", 8, "one very ..."),
    ],
)
def test_errors_of_others_are_quoted_on_one_line(said: str, limit: int, expected: str) -> None:
    assert message_of(ValueError(said), limit=limit) == expected


def test_a_function_of_the_users_that_fails_is_named() -> None:
    about = {"what": "splitter", "signature": "(text) -> tokens", "given": "the text 'a b'"}
    assert call_function(str.split, "a b", **about) == ["a", "b"]
    with pytest.raises(BlackBoxError, match=r"splitter failed: ZeroDivisionError: .* as \(text\) -> tokens, here with"):
        call_function(lambda text: 1 / 0, "a b", **about)
    with pytest.raises(InputError, match="ours"):
        call_function(_ours, "a b", **about)


def _ours(text: str) -> None:
    raise InputError("ours")
