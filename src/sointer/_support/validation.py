"""Small checks of arguments, shared by every entry point."""

from __future__ import annotations

import difflib
import math
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral, Real
from typing import Any, Literal, TypeGuard

import numpy as np
import numpy.typing as npt

from sointer.errors import BlackBoxError, InputError, SointerError

IntArray = npt.NDArray[np.int64]
_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = 80


def brief(value: object) -> str:
    """A value for a message: short, and made without writing all of it where it is large."""
    return _BRIEF.repr(value)


def is_integer(value: object) -> TypeGuard[int]:
    """True for Python and numpy integers, and never for booleans."""
    return isinstance(value, Integral) and not isinstance(value, (bool, np.bool_))


def check_unique_names(names: Iterable[Any], n: int, what: str) -> list[str]:
    """Return `names` as a list of `n` different strings; `what` is the argument they came from."""
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise InputError(f"{what} must be a list of {n} strings, got {names!r}. Give one name each, in a list.")
    given = list(names)
    wrong = [name for name in given if not isinstance(name, str)]
    if wrong:
        raise InputError(
            f"{what} must be strings, got {wrong[0]!r} of type {type(wrong[0]).__name__}. Convert the names with str()."
        )
    if len(given) != n:
        raise InputError(f"{what} must hold {n} names, got {len(given)}. Give exactly one name each.")
    repeated = sorted(name for name, count in Counter(given).items() if count > 1)
    if repeated:
        raise InputError(f"{what} must be unique, got more than one of {some(repeated)}. Rename them.")
    return [str(name) for name in given]


def check_k(k: object, n: int) -> int | Literal["auto"]:
    """Return how many of `n` features to select: an int from 1 to `n`, or "auto"."""
    if isinstance(k, str) and k == "auto":
        return "auto"
    if not is_integer(k):
        raise InputError(
            f"k must be an int from 1 to {n} or 'auto', got {brief(k)} of type {type(k).__name__}. "
            "Give the number of features to select."
        )
    value = int(k)
    if not 1 <= value <= n:
        raise InputError(
            f"k must be from 1 to {n}, the number of features that can be selected, got {value}. "
            "Choose a value in that range, or 'auto'."
        )
    return int(value)


def check_positive_int(value: object, what: str, *, minimum: int = 1) -> int:
    """Return `value` as an int of at least `minimum`."""
    if not is_integer(value) or int(value) < minimum:
        raise InputError(
            f"{what} must be an int of at least {minimum}, got {value!r}. "
            f"Write it as an int, such as {max(minimum, 1000)}."
        )
    return int(value)


def check_number(value: object, what: str, *, zero: bool = False) -> None:
    """Raise unless `value` is a finite number above 0, or 0 where that is allowed."""
    fits = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not fits or value < 0 or (value == 0 and not zero):  # type: ignore[operator]
        wanted = f"{'0 or ' if zero else ''}a number above 0"
        raise InputError(f"{what} must be {wanted}, got {value!r}. Leave it out for the default.")


def resolve_targets(target: object, output_names: Sequence[str], n_rows: int) -> IntArray:
    """Return the output index to explain for each of `n_rows` rows.

    `target` is an index, a name, or a list or array with one index or name per row.
    """
    if target is None:
        raise InputError(
            "target must be an output index, an output name, or one of these per row, got None. "
            f"Choose among {some(list(output_names))}."
        )
    if isinstance(target, np.ndarray) and target.ndim == 0:
        target = target.item()
    if isinstance(target, str) or not hasattr(target, "__len__"):
        return np.full(n_rows, _target_index(target, output_names), dtype=np.int64)
    if isinstance(target, (dict, set, frozenset, bytes)) or getattr(target, "ndim", 1) != 1:
        shape = getattr(target, "shape", None)
        note = f"of shape {tuple(shape)}" if shape is not None else brief(target)
        raise InputError(
            f"target must be one index or name, or a flat list with one per row, got {type(target).__name__} "
            f"{note}. Give a list of {n_rows} indices or names."
        )
    each = list(target)  # type: ignore[call-overload]
    if len(each) != n_rows:
        raise InputError(
            f"target must hold one output per row ({n_rows}), got {len(each)}. "
            "Give one index or name for all rows, or exactly one per row."
        )
    try:
        keys = list(zip(map(type, each), each, strict=True))  # True == 1, and only one of the two is an index
        known = {key: _target_index(key[1], output_names) for key in dict.fromkeys(keys)}
        return np.fromiter(map(known.__getitem__, keys), dtype=np.int64, count=n_rows)
    except TypeError:  # arrays of no dimension, or what is no target at all
        return np.array([_target_index(one, output_names) for one in each], dtype=np.int64)


def _target_index(target: object, output_names: Sequence[str]) -> int:
    n_outputs = len(output_names)
    if isinstance(target, str):
        if target in output_names:
            return list(output_names).index(target)
        hint = did_you_mean(target, output_names, "Known outputs")
        raise InputError(f"target names an unknown output: {brief(target)} is not one of {n_outputs} outputs. {hint}")
    if hasattr(target, "item") and getattr(target, "ndim", None) == 0:
        target = target.item()
    if not is_integer(target):
        raise InputError(
            f"target must be an output index or name, got {brief(target)} of type {type(target).__name__}. "
            f"Give an int from 0 to {n_outputs - 1}, or one of the output names."
        )
    index = int(target)
    if not 0 <= index < n_outputs:
        if str(index) in output_names:  # a year or a class, which is a column's label
            return list(output_names).index(str(index))
        raise InputError(
            f"target must be from 0 to {n_outputs - 1}, got {index}. "
            "Outputs are counted from 0 and negative indices are not accepted; a name works too."
        )
    return int(index)


def did_you_mean(name: str, known: Sequence[str], what: str = "There are") -> str:
    """A hint for a name that is not known: those like it, else some of those there are."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f"Did you mean {some(close)}?" if close else f"{what}: {some(list(known))}."


def check_random_state(seed: object) -> np.random.Generator:
    """Return a generator from None, an int, a `Generator` (used as it is) or a `RandomState`."""
    if seed is None:
        return np.random.default_rng()
    if isinstance(seed, np.random.Generator):
        return seed
    if isinstance(seed, np.random.RandomState):
        return np.random.default_rng(seed.randint(0, 2**32, size=4, dtype=np.uint32))
    if is_integer(seed) and int(seed) >= 0:
        return np.random.default_rng(int(seed))
    raise InputError(
        f"random_state must be None, an int of at least 0, a numpy Generator or a RandomState, got {seed!r}. "
        "Give an int for results that repeat."
    )


def some(items: Sequence[Any], limit: int = 5) -> str:
    """The first few items in words, for messages."""
    shown = ", ".join(map(brief, items[:limit]))
    return shown if len(items) <= limit else f"{shown} and {len(items) - limit} more"


def counted(n: int, noun: str) -> str:
    """How many there are of something, in words."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def whole_percents(shares: Sequence[float]) -> list[int]:
    """Shares of a whole in per cent, rounded so that they add up as the shares do."""
    exact = [100 * share for share in shares]
    found = [math.floor(percent) for percent in exact]
    by_rest = sorted(range(len(exact)), key=lambda i: found[i] - exact[i])
    for i in by_rest[: round(sum(exact)) - sum(found)]:
        found[i] += 1
    return found


def message_of(error: BaseException, *, limit: int = 2000) -> str:
    """What an error of somebody else's code says, for a sentence of ours: on one line and without its full stop.

    If it is longer than `limit`, as where a model puts a whole reply in it, whole sentences of it, or its beginning.
    """
    try:
        text = " ".join(str(error).split())
    except Exception:
        return "(its message cannot be shown)"
    if len(text) > limit:
        end = text.rfind(". ", 0, limit + 1)
        text = text[:end] if end > 0 else text[:limit].rstrip() + " ..."
        return text
    return text.rstrip(".") or "no message"


def call_function(function: Callable[..., Any], *arguments: Any, what: str, signature: str, given: str) -> Any:
    """What a function of the user's returns; where it fails, one sentence says which, given what, and why."""
    try:
        return function(*arguments)
    except SointerError:
        raise
    except Exception as error:
        raise BlackBoxError(
            f"{what} failed: {type(error).__name__}: {message_of(error)}. It is called as {signature}, here with "
            f"{given}. Call it yourself like that to see why."
        ) from error
