"""Sequences of tokens: how they are read, by which features unseen tokens are known, and the outputs of each token."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sointer._support import cached_property, containers
from sointer._support.validation import call_function, is_integer
from sointer.errors import InputError

Tokens = list[str]
Splitter = Callable[[str], Sequence[str]]
OUTSIDE, ABSENT = 0, 1
"""Rows of the feature table: beyond the ends of a sequence, and a token that was removed."""
N_FEATURES = 11
N_SPECIAL = 2 + N_FEATURES
"""Rows before those of known features: outside, absent, and for each kind of feature one for all that are rare."""
MIN_COUNT = 2
"""How often a feature must occur in fit to be learned on its own."""
MAX_LENGTH_FEATURE = 12
MAX_TOKENS, MAX_TOKENS_IN_FIT = 10_000, 1000
"""Of one sequence."""
PIECE, MARGIN = 64, 16
"""Longer sequences are explained in parts of so many tokens, with at least so many on either side of a target."""


def read_sequences(X: Any, splitter: Splitter | None, caller: str) -> list[Tokens]:
    """Token lists as the user gave them, or strings cut by the splitter; refused where anything is no token.

    Parameters
    ----------
    X : list of lists of str, or list of str if there is a splitter.
    splitter : function str -> list of str, or None.
    caller : what to call the caller in messages.
    """
    if isinstance(X, str):
        give = "[tokens]" if splitter is None else "[text]"
        raise InputError(f"{caller}: X is one string, expected a list with one entry per sequence. Give {give}.")
    if containers.is_frame(X) or not hasattr(X, "__len__") or not hasattr(X, "__iter__"):
        give = " Give list(X)." if isinstance(X, Iterator) else ""
        give = f" Give X[{X.columns[0]!r}], or whichever column holds them." if containers.is_frame(X) else give
        raise InputError(f"{caller}: X is {containers.describe(X)}, expected a list of token lists.{give}")
    if len(X) == 0:
        raise InputError(f"{caller}: X has no sequences, expected at least one.")
    return [_read_one(sequence, number, splitter, caller) for number, sequence in enumerate(X)]


def _read_one(sequence: Any, number: int, splitter: Splitter | None, caller: str) -> Tokens:
    where = f"{caller}: sequence {number} of X"
    if isinstance(sequence, str):
        if splitter is None:
            raise InputError(
                f"{where} is the string {sequence!r:.60}, expected a list of tokens. Give X as lists of tokens (if X "
                "is one sequence, [X]), or use SequenceExplainer(model, splitter=str.split), with the function that "
                "splits your strings."
            )
        given = f"the string {sequence!r:.60}"
        signature = "(string) -> list of tokens"
        sequence = call_function(splitter, sequence, what="splitter", signature=signature, given=given)
        where += ", as splitter returns it,"
    if isinstance(sequence, str) or not hasattr(sequence, "__len__") or not hasattr(sequence, "__iter__"):
        raise InputError(f"{where} is {containers.describe(sequence)}, expected a list of tokens.")
    tokens = list(sequence)
    if not tokens:
        raise InputError(f"{where} is empty, expected at least one token. Leave empty sequences out.")
    most = MAX_TOKENS_IN_FIT if caller == "fit" else MAX_TOKENS
    if len(tokens) > most:
        raise InputError(
            f"{where} has {len(tokens):,} tokens, expected at most {most:,}. Cut it into sentences or other "
            "parts that the model reads on their own."
        )
    for place, token in enumerate(tokens):
        if not isinstance(token, str):
            raise InputError(f"{where} holds {token!r:.40} at position {place}, expected a string. {_remedy(token)}")
    return [str(token) for token in tokens]


def _remedy(token: Any) -> str:
    if containers.is_missing(token):
        return "Leave missing tokens out, or write them as a token of your own, such as '[MISSING]'."
    if isinstance(token, (bytes, list, tuple, np.ndarray)):
        return "Each sequence is a list of strings; decode bytes, and do not nest further."
    return (
        "Give ids as str(id), and let your function turn them back with int(token); for series of measured numbers see "
        "docs/how-to/sequences.md, Time series."
    )


@lru_cache(maxsize=2**16)
def token_features(token: str) -> tuple[int, ...]:
    """Hashes of what a token looks like, one for each kind of feature: word, letters, shape, ends, length, digits."""
    lower = token.lower()
    letters = re.sub(r"[\W_]+", "", lower)
    is_number = letters.isdigit()
    digits = "all" if is_number else "some" if any(map(str.isdigit, letters)) else "no"
    found = (
        "#" if is_number and len(lower) > 2 else lower,  # numbers are known by their length, but for the shortest
        "" if is_number else letters,
        shape_of(token),
        letters[:2],
        letters[:3],
        letters[-2:],
        letters[-3:],
        f"{min(len(letters), MAX_LENGTH_FEATURE)} {is_number}",
        "" if token[:1].isalnum() else token[:1],
        "" if token[-1:].isalnum() else token[-1:],
        digits,
    )
    return tuple(zlib.crc32(f"{kind} {text}".encode("utf8", "surrogatepass")) for kind, text in enumerate(found))


def shape_of(token: str) -> str:
    """Letters as A or a, digits as 9, runs of one kind as two: "St." is "Aa." and "1204B" is "99A"."""
    kinds = ("9" if c.isdigit() else ("A" if c.isupper() else "a") if c.isalpha() else c for c in token)
    return re.sub(r"(.)\1+", r"\1\1", "".join(kinds))


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The token features that fit has learned; a token is the sum of its features, so unseen ones are known too."""

    known: NDArray[np.int64]
    """Hashes of the features with a row of their own, sorted."""

    @classmethod
    def of(cls, sequences: Iterable[Tokens]) -> Vocabulary:
        """The features of tokens that occur often enough."""
        counts: Counter[int] = Counter()
        for token, n in Counter(token for tokens in sequences for token in tokens).items():
            for feature in token_features(token):
                counts[feature] += n
        return cls(np.array(sorted(f for f, n in counts.items() if n >= MIN_COUNT), dtype=np.int64))

    @property
    def n_rows(self) -> int:
        """How many rows an embedding of all features needs."""
        return N_SPECIAL + len(self.known)

    def rows(self, tokens: Sequence[str]) -> NDArray[np.int64]:
        """The rows of each token's features; first those of OUTSIDE and ABSENT: (2 + tokens, N_FEATURES)."""
        special = np.zeros((2, N_FEATURES), dtype=np.int64)
        special[ABSENT, 0] = ABSENT
        if not tokens:
            return special
        hashes = np.array([token_features(token) for token in tokens], dtype=np.int64)
        place = np.minimum(np.searchsorted(self.known, hashes), max(len(self.known) - 1, 0))
        is_known = self.known[place] == hashes if len(self.known) else np.zeros(hashes.shape, dtype=bool)
        return np.concatenate([special, np.where(is_known, N_SPECIAL + place, 2 + np.arange(N_FEATURES))])


class TokenIndex:
    """Numbers for the different tokens of some sequences, from 2 on: 0 and 1 are OUTSIDE and ABSENT."""

    def __init__(self, sequences: Iterable[Tokens] = ()) -> None:
        self.tokens: list[str] = []
        self._number: dict[str, int] = {}
        for tokens in sequences:
            self.ids(tokens)

    def ids(self, tokens: Iterable[str]) -> list[int]:
        """The numbers of tokens; new ones are added."""
        found = []
        for token in tokens:
            number = self._number.get(token)
            if number is None:
                number = self._number[token] = len(self.tokens) + 2
                self.tokens.append(token)
            found.append(number)
        return found

    def text(self, ids: Iterable[int]) -> Tokens:
        """The tokens with these numbers."""
        return [self.tokens[number - 2] for number in ids]


def resolve_positions(target: Any, sequences: Sequence[Tokens]) -> list[NDArray[np.int64]]:
    """The positions that are explained of each sequence, from 0; refused where there is no such token.

    Parameters
    ----------
    target : "all", a position, a tuple of positions, or a list (or array) with one of these for each sequence.
    sequences : token lists.
    """
    if isinstance(target, list) or (isinstance(target, np.ndarray) and target.ndim > 0):
        if len(target) != len(sequences):
            given = "a list" if isinstance(target, list) else "an array"
            raise InputError(
                f"target is {given} of {len(target)}, expected one entry for each of {len(sequences)} sequences. For "
                "several positions of every sequence give a tuple, such as target=(0, 3)."
            )
        return [_positions(one, len(tokens), i) for i, (one, tokens) in enumerate(zip(target, sequences, strict=True))]
    return [_positions(target, len(tokens), i) for i, tokens in enumerate(sequences)]


class Piece(NamedTuple):
    """A part of a sequence, and which of its tokens are targets, counted from its start."""

    sample: int
    start: int
    tokens: Tokens
    positions: NDArray[np.int64]


def cut_pieces(sequences: Sequence[Tokens], positions: Sequence[NDArray[np.int64]]) -> list[Piece]:
    """Sequences as they are, and of long ones the parts around their targets, so that time grows with their length."""
    pieces = []
    for sample, (tokens, targets) in enumerate(zip(sequences, positions, strict=True)):
        if len(tokens) <= PIECE:
            pieces.append(Piece(sample, 0, tokens, targets))
            continue
        step = PIECE - 2 * MARGIN
        starts = np.clip(targets // step * step - MARGIN, 0, len(tokens) - PIECE)
        for start in np.unique(starts).tolist():
            pieces.append(Piece(sample, start, tokens[start : start + PIECE], targets[starts == start] - start))
    return pieces


def _positions(target: Any, n: int, number: int) -> NDArray[np.int64]:
    if isinstance(target, str) and target == "all":
        return np.arange(n)
    asked = target if isinstance(target, (tuple, list, np.ndarray)) else (target,)
    found = []
    for position in asked:
        if not is_integer(position):
            raise InputError(f'target must be "all" or positions such as 3 or (0, 3), got {position!r:.40}.')
        if not -n <= position < n:
            raise InputError(
                f"target {position} is not in sequence {number}, which has {n} tokens. Give a position below {n}, or a "
                "list with one target for each sequence."
            )
        found.append(int(position) % n)
    if not found:
        raise InputError(f"target of sequence {number} is empty, expected at least one position.")
    return np.array(sorted(set(found)), dtype=np.int64)


Kind = Literal["label", "number", "probability"]
N_BINS = 8
MAX_LABELS = 200
SLACK = 0.01


@dataclass(frozen=True, eq=False)
class TokenOutputs:
    """The outputs of tokens: their kind and, as classes, their labels, or the ranges of their numbers.

    Parameters
    ----------
    kind : what the model returns for a token.
    classes : labels, in the order of their codes; of numbers the middle of each range.
    edges : of numbers, where one range ends and the next begins.
    tolerance : numbers that differ by at most this much agree.
    """

    kind: Kind
    classes: list[Any]
    edges: NDArray[np.float64]
    tolerance: float = 0.0

    @classmethod
    def infer(cls, outputs: Iterable[Sequence[Any]], tolerance: float) -> TokenOutputs:
        """What the outputs of whole and masked sequences are."""
        flat = [output for sequence in outputs for output in sequence]
        kind = kind_of(flat)
        edges = np.zeros(0)
        if kind == "number":
            numbers = np.array(flat, dtype=np.float64)
            shares = np.linspace(0, 1, N_BINS + 1)[1:-1]
            edges = np.unique(np.quantile(numbers, shares))
            code = np.searchsorted(edges, numbers, side="right")
            classes: list[Any] = [
                float(np.median(numbers[code == c])) if (code == c).any() else float(edges[max(c - 1, 0)])
                for c in range(len(edges) + 1)
            ]
            return cls(kind, classes, edges, tolerance * float(numbers.std()))
        if kind == "probability":
            classes = list(flat[0]) if isinstance(flat[0], dict) else list(range(len(flat[0])))
            if isinstance(flat[0], dict):
                classes = sorted({label for one in flat for label in one})
        else:
            classes = sorted(set(flat), key=lambda label: (str(type(label)), label))
        if len(classes) > MAX_LABELS:
            raise InputError(
                f"the model gave tokens {len(classes)} different labels, expected at most {MAX_LABELS}. If they are "
                "numbers, return them as floats; if they are words, explain another output."
            )
        return cls(kind, classes, edges)

    @property
    def n_labels(self) -> int:
        """How many labels, or bins of a number, there are."""
        return len(self.classes)

    def check(self, outputs: Iterable[Sequence[Any]]) -> None:
        """InputError where outputs are of another kind than in fit."""
        flat = [output for sequence in outputs for output in sequence]
        kind = self.kind if self.kind == "number" and all(map(_is_whole, flat)) else kind_of(flat)
        if kind != self.kind:
            raise InputError(
                f"the outputs are {_WORDS[kind]}, such as {flat[0]!r:.40}, but fit learned {_WORDS[self.kind]}. Give "
                "what the model returned in fit."
            )
        if kind == "probability" and not isinstance(flat[0], dict) and any(len(one) != self.n_labels for one in flat):
            raise InputError(f"the outputs are not probabilities of the {self.n_labels} classes that fit learned.")

    def values(self, outputs: Sequence[Any]) -> list[Any]:
        """What is explained of every token: its label, its number, or its most probable class."""
        if self.kind == "number":
            return [float(output) for output in outputs]
        if self.kind == "label":
            return list(outputs)
        return [max(p, key=lambda c: p[c]) if isinstance(p, dict) else self.classes[int(np.argmax(p))] for p in outputs]

    def codes(self, values: Sequence[Any]) -> NDArray[np.int64]:
        """Codes of values; -1 for labels that fit never saw."""
        if self.kind == "number":
            return np.searchsorted(self.edges, np.array(values, dtype=np.float64), side="right").astype(np.int64)
        number = self._number
        return np.array([number.get((type(value), value), -1) for value in values], dtype=np.int64)

    @cached_property
    def _number(self) -> dict[tuple[type, Any], int]:
        """Codes of labels; 1 and True are different ones."""
        return {(type(label), label): code for code, label in enumerate(self.classes)}

    def probabilities(self, outputs: Sequence[Any]) -> NDArray[np.float32]:
        """How probable the model holds each class: (tokens, classes); labels and numbers are certain."""
        if self.kind != "probability":
            return np.eye(self.n_labels, dtype=np.float32)[self.codes(outputs)]
        table = np.array(
            [[p.get(c, 0.0) for c in self.classes] if isinstance(p, dict) else p for p in outputs], dtype=np.float64
        )
        total = table.sum(axis=1)
        if (table < -SLACK).any() or (abs(total - 1) > SLACK).any():
            raise InputError(
                f"class probabilities of a token add up to {total[np.argmax(abs(total - 1))]:.3g}, expected 1. Return "
                "one number (a float), one label, or probabilities that add up to 1 for each token."
            )
        return np.asarray(np.clip(table, 0, None) / total[:, None], dtype=np.float32)

    def agree(self, value: Any, other: Any) -> bool:
        """Whether two values count as the same."""
        return abs(value - other) <= self.tolerance if self.kind == "number" else bool(value == other)

    def difference(self, value: Any, other: Any) -> float:
        """How far two values differ: numbers in their own unit, labels 0 or 1."""
        return float(abs(value - other)) if self.kind == "number" else float(value != other)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `from_json`."""
        edges = self.edges.tolist()
        return {"kind": self.kind, "classes": self.classes, "edges": edges, "tolerance": self.tolerance}

    @classmethod
    def from_json(cls, known: dict[str, Any]) -> TokenOutputs:
        """The inverse of `to_json`."""
        edges = np.array(known["edges"], dtype=np.float64)
        return cls(known["kind"], list(known["classes"]), edges, float(known["tolerance"]))


_WORDS: dict[Kind, str] = {"label": "labels", "number": "numbers", "probability": "class probabilities"}


def kind_of(outputs: Sequence[Any]) -> Kind:
    """Whether outputs are labels, numbers or probabilities; InputError if they are of several kinds.

    Whole numbers are labels, but among other numbers they are numbers.
    """
    kinds: set[Kind] = {
        "probability" if isinstance(one, (dict, list)) else "number" if isinstance(one, float) else "label"
        for one in outputs
    }
    if kinds == {"label", "number"} and all(isinstance(one, float) or _is_whole(one) for one in outputs):
        return "number"
    if len(kinds) > 1:
        raise InputError(f"the outputs are {' and '.join(sorted(map(_WORDS.__getitem__, kinds)))}, expected one kind.")
    return kinds.pop()


def _is_whole(output: Any) -> bool:
    return isinstance(output, int) and not isinstance(output, bool)
