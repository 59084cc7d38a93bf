"""The tagger of usaddress as tables: the same labels as the package, fast enough to query about every subset of tokens.

Its potentials are sums over the token itself, the one before and the one after, so a table per token and a batched
Viterbi reproduce it (tests/studies/test_usaddress.py compares both).
"""

from __future__ import annotations

import gzip
import json
import os
import re
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from studies.frame.study import LeftOut

usaddress: Any
try:
    import usaddress
except ImportError:
    usaddress = None

ROWS = 128
"""Sequences at a time: their messages fit into a processor's cache."""


def load_sentences(split: str) -> list[list[str]]:
    """Addresses as token lists: usaddress's own training ("train") and test data ("test")."""
    path = Path(os.environ.get("SOINTER_DATA", ".")) / "usaddress.jsonl.gz"
    if usaddress is None:
        raise LeftOut("usaddress is not installed: pip install 'sointer[addresses]'")
    if not path.exists():
        raise LeftOut(f"{path.name} is not in the folder that SOINTER_DATA names")
    with gzip.open(path, "rt", encoding="utf8") as file:
        found = [json.loads(line) for line in file]
    return [one["tokens"] for one in found if one["split"] == split and all(map(_is_token, one["tokens"]))]


def _is_token(token: str) -> bool:
    try:
        usaddress.tokenFeatures(token)
    except Exception:  # the package's own features fail on tokens without letters or digits
        return False
    return True


def _dump() -> str:
    # TAGGER.info() fails on attributes that contain a line break, so the text of dump() is read instead.
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "crf.txt"
        usaddress.TAGGER.dump(str(path))
        return path.read_bytes().decode("utf8")


class AddressCRF:
    """The published model: token lists -> labels."""

    def __init__(self) -> None:
        self.labels: list[str] = list(usaddress.TAGGER.labels())
        number = {label: i for i, label in enumerate(self.labels)}
        k = len(self.labels)
        text = _dump()
        states = text[text.index("STATE_FEATURES = {") :]
        moves = text[text.index("TRANSITIONS = {") : text.index("STATE_FEATURES = {")]
        line = re.compile(r"^  \(\d\) (.+?) --> (\w+): (\S+)$", re.M | re.S)
        self._weights: dict[str, NDArray[Any]] = defaultdict(lambda: np.zeros(k, dtype=np.float32))
        for attribute, label, weight in line.findall(states):
            self._weights[attribute][number[label]] = float(weight)
        self._weights = dict(self._weights)
        self.transitions = np.zeros((k, k), dtype=np.float32)
        for before, after, weight in line.findall(moves):
            self.transitions[number[before], number[after]] = float(weight)
        self._number: dict[str, int] = {}
        self._tables: list[NDArray[Any]] = []
        self._stacked: NDArray[Any] | None = None
        names = ("address.start", "previous:address.start", "address.end", "next:address.end")
        self._ends = [self._weights.get(name, np.zeros(k, dtype=np.float32)) for name in names]

    def ids(self, tokens: list[str]) -> list[int]:
        for token in tokens:
            if token not in self._number:
                self._number[token] = len(self._tables)
                features = usaddress.tokenFeatures(token)
                self._tables.append(np.stack([self._sum(features, at) for at in ("", "previous:", "next:")]))
                self._stacked = None
        return [self._number[token] for token in tokens]

    def _sum(self, features: dict[str, Any], prefix: str) -> NDArray[Any]:
        total = np.zeros(len(self.labels), dtype=np.float32)
        for name, value in features.items():
            attribute = f"{prefix}{name}" if isinstance(value, bool) else f"{prefix}{name}:{value}"
            if value is not False and attribute in self._weights:
                total += self._weights[attribute]
        return total

    def unary(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Potentials (sequences, n, labels) of sequences of one length, given as numbers of tokens."""
        if self._stacked is None:
            self._stacked = np.stack(self._tables)
        table, n = self._stacked, ids.shape[1]
        unary = table[ids, 0].copy()
        unary[:, 1:] += table[ids[:, :-1], 1]
        unary[:, :-1] += table[ids[:, 1:], 2]
        unary[:, 0] += self._ends[0]
        unary[:, -1] += self._ends[2]
        if n > 1:
            unary[:, 1] += self._ends[1]
            unary[:, -2] += self._ends[3]
        return unary

    def viterbi(self, ids: NDArray[np.int64]) -> NDArray[np.int8]:
        """The most probable labels, as numbers: (sequences, n)."""
        result = np.empty(ids.shape, dtype=np.int8)
        for start in range(0, len(ids), ROWS):
            result[start : start + ROWS] = self._viterbi(self.unary(ids[start : start + ROWS]))
        return result

    def _viterbi(self, unary: NDArray[np.float32]) -> NDArray[np.int64]:
        best = [unary[:, 0]]
        for t in range(1, unary.shape[1]):
            # The label before comes first: the largest of whole rows is found much faster than along them.
            before = best[-1].T[:, :, None] + self.transitions[:, None, :]
            best.append(before.max(0) + unary[:, t])
        found = np.empty(unary.shape[:2], dtype=np.int64)
        found[:, -1] = best[-1].argmax(1)
        for t in range(unary.shape[1] - 2, -1, -1):
            found[:, t] = (best[t] + self.transitions.T[found[:, t + 1]]).argmax(1)
        return found

    def marginals(self, unary: NDArray[np.float32]) -> NDArray[np.float64]:
        """p of every label of every token, from potentials (sequences, n, labels)."""
        moves = np.exp(self.transitions.astype(np.float64))
        local = np.exp(unary.astype(np.float64) - unary.max(2, keepdims=True))
        forward, backward = [local[:, 0]], [np.ones_like(local[:, 0])]
        for t in range(1, unary.shape[1]):
            message = (forward[-1] @ moves) * local[:, t]
            forward.append(message / message.sum(1, keepdims=True))
        for t in range(unary.shape[1] - 1, 0, -1):
            message = (local[:, t] * backward[-1]) @ moves.T
            backward.append(message / message.sum(1, keepdims=True))
        both = np.stack(forward, 1) * np.stack(backward[::-1], 1)
        return both / both.sum(2, keepdims=True)

    def __call__(self, batch: list[list[str]]) -> list[list[str]]:
        """Labels of token lists of any lengths, as the package gives them."""
        by_length: dict[int, list[int]] = defaultdict(list)
        for i, tokens in enumerate(batch):
            by_length[len(tokens)].append(i)
        result: list[list[str]] = [[] for _ in batch]
        for rows in by_length.values():
            found = self.viterbi(np.array([self.ids(batch[i]) for i in rows]))
            for i, labels in zip(rows, found.tolist(), strict=True):
                result[i] = [self.labels[label] for label in labels]
        return result


def package_tagger(batch: list[list[str]]) -> list[list[str]]:
    """The same by the package itself."""
    return [list(usaddress.TAGGER.tag(usaddress.tokens2features(tokens))) for tokens in batch]
