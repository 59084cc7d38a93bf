"""Taggers with planted truth: labels follow words or neighbouring labels, so the tokens behind each are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from sointer.errors import InputError

ChainKind = Literal["carry", "xor", "both"]
CHAIN_KINDS: tuple[ChainKind, ...] = ("carry", "xor", "both")
CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiouöä"
OWN, LEFT, RIGHT = 0, 1, 2
SHARES = {"carry": (0.45, 0.55, 0.0), "xor": (0.4, 0.6, 0.0), "both": (0.45, 0.28, 0.27)}
UNKNOWN = "?"


class PlantedChain:
    """A tagger whose labels depend on words or on the labels beside them.

    Parameters
    ----------
    kind : "carry" (a word has a label of its own, or takes the one of the word before it), "xor" (a bit of its own, or
        its bit xor the one before it) or "both" (its own label, or that of the word before or after it).
    n_words : different words.
    seed : draws the words and what they do.

    Examples
    --------
    >>> chain = PlantedChain("carry", seed=1)
    >>> sequence = chain.sequences(1, 5, seed=0)[0]
    >>> len(chain([sequence])[0]), sorted(chain.truth(sequence, 0))
    (5, [0])
    """

    def __init__(self, kind: ChainKind = "carry", *, n_words: int = 120, seed: int = 0) -> None:
        if kind not in CHAIN_KINDS:
            raise InputError(f"kind must be one of {', '.join(map(repr, CHAIN_KINDS))}, got {kind!r}.")
        rng = np.random.default_rng(seed)
        words: dict[str, None] = {}
        while len(words) < n_words:
            syllables = rng.integers(2, 4)
            words[
                "".join(str(rng.choice(list(CONSONANTS))) + str(rng.choice(list(VOWELS))) for _ in range(syllables))
            ] = None
        self.kind = kind
        self.words = list(words)
        does = rng.choice(3, n_words, p=SHARES[kind]).tolist()
        value = rng.integers(0, 2 if kind == "xor" else 3, n_words).tolist()
        self._does = dict(zip(self.words, does, strict=True))
        self._value = dict(zip(self.words, value, strict=True))

    def sequences(self, n: int, length: int | tuple[int, int], *, seed: int) -> list[list[str]]:
        """Random sequences of one length, or of lengths from low to high."""
        rng = np.random.default_rng(seed)
        low, high = (length, length) if isinstance(length, int) else length
        return [
            [self.words[w] for w in rng.integers(0, len(self.words), rng.integers(low, high + 1))] for _ in range(n)
        ]

    def __call__(self, batch: Sequence[Sequence[str]]) -> list[list[str]]:
        """The labels of every token."""
        return [[self._label(tokens, i) for i in range(len(tokens))] for tokens in batch]

    def _label(self, tokens: Sequence[str], i: int) -> str:
        chain, closed = self._chain(tokens, i)
        if self.kind == "xor":
            return str(sum(self._value[tokens[j]] for j in chain) % 2)
        return str(self._value[tokens[chain[-1]]]) if closed else UNKNOWN

    def truth(self, tokens: Sequence[str], i: int) -> frozenset[int]:
        """The positions that decide the label of token i: it, and those it is passed on by."""
        return frozenset(self._chain(tokens, i)[0])

    def _chain(self, tokens: Sequence[str], i: int) -> tuple[list[int], bool]:
        """Positions from i to the word that has its own label, and whether there is one."""
        chain = [i]
        while self._does[tokens[chain[-1]]] != OWN:
            following = chain[-1] + (-1 if self._does[tokens[chain[-1]]] == LEFT else 1)
            if not 0 <= following < len(tokens) or following in chain:
                return chain, False
            chain.append(following)
        return chain, True
