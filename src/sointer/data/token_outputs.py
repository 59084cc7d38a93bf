"""What a tagger says of tokens: labels, numbers or class probabilities, as codes that the energy learns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sointer._support.caching import cached_property
from sointer.errors import InputError

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
