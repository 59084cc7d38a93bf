"""Texts and token sequences with planted truth: the words behind every output, or every label, are known."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from sointer.errors import InputError

WORD = re.compile(r"\w+")
CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiouöä"
CYRILLIC = str.maketrans("bdfgklmnprstvzaeiouöä", "бдфгклмнпрствзаеиоуыя")
SEPARATORS = (" ", ", ", " ", ". ", " ")
NEGATION = 3
"""The place of the word that negates the next one: a frequent word."""
OUTPUTS = ("any", "count", "negation", "bigram", "order", "second order")


@dataclass(frozen=True, eq=False)
class PlantedTexts:
    """A function of strings with six outputs, each decided by known words.

    - any: one of two words occurs;
    - count: at least two of five words occur;
    - negation: a word occurs that does not follow the negating word;
    - bigram: a word directly follows the negating word;
    - order, second order: one word occurs before another.

    Case and punctuation do not count. Calling the problem calls the function.

    Parameters
    ----------
    n_words : int
        Size of the vocabulary, at least 60.
    script : {"latin", "cyrillic"}
    random_state : int
        Which words there are, and which of them decide.

    Examples
    --------
    >>> problem = PlantedTexts(100)
    >>> texts = problem.sample(2, random_state=0)
    >>> problem(texts).shape
    (2, 6)
    """

    n_words: int = 2000
    script: Literal["latin", "cyrillic"] = "latin"
    random_state: int = 0
    words: tuple[str, ...] = field(init=False, repr=False)
    """The vocabulary."""
    triggers: tuple[str, ...] = field(init=False, repr=False)
    """Words that decide: five of the first two outputs, one each of the next two, and two pairs."""
    output_names: tuple[str, ...] = field(default=OUTPUTS, init=False, repr=False)
    """Names of the six outputs."""

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.random_state)
        words: dict[str, None] = {}
        while len(words) < self.n_words:
            n = 2 + len(words) % 3
            letters = ((rng.choice(list(CONSONANTS)), rng.choice(list(VOWELS))) for _ in range(n))
            words["".join(a + b for a, b in letters)] = None
        made = [word.translate(CYRILLIC) if self.script == "cyrillic" else word for word in words]
        places = rng.choice(np.arange(max(self.n_words // 20, NEGATION + 1), self.n_words // 2), 11, replace=False)
        object.__setattr__(self, "words", tuple(made))
        object.__setattr__(self, "triggers", tuple(made[place] for place in places))

    @property
    def negation(self) -> str:
        """The word that negates the next one."""
        return self.words[NEGATION]

    def sample(self, n_texts: int, random_state: int | np.random.Generator | None = None) -> list[str]:
        """Draw texts of 8 to 34 words.

        Parameters
        ----------
        n_texts : int
        random_state : int, optional
            The same seed gives the same texts.

        Returns
        -------
        list of str
        """
        rng = np.random.default_rng(random_state)
        weight = 1 / np.arange(5, self.n_words + 5)
        return [self._text(rng, weight / weight.sum()) for _ in range(n_texts)]

    def _text(self, rng: np.random.Generator, weight: npt.NDArray[np.float64]) -> str:
        text = [self.words[place] for place in rng.choice(self.n_words, rng.integers(6, 25), p=weight)]
        deciding = self.triggers
        for _ in range(rng.integers(2, 6)):
            place, kind = int(rng.integers(len(text) + 1)), rng.integers(6)
            if kind < 2:
                text.insert(place, deciding[rng.integers(5)])
            elif kind < 4:
                negated = [self.negation] if rng.random() < 0.5 else []
                text[place:place] = [*negated, deciding[5 + rng.integers(2)]]
            else:
                pair = deciding[7:9] if rng.random() < 0.5 else deciding[9:11]
                first, second = pair if rng.random() < 0.5 else pair[::-1]
                text.insert(place, first)
                text.insert(int(rng.integers(place + 1, len(text) + 1)), second)
        joined = "".join(word + SEPARATORS[rng.integers(len(SEPARATORS))] for word in text).rstrip(" ,.")
        return joined[:1].upper() + joined[1:] + "."

    def predict(self, texts: Sequence[str]) -> npt.NDArray[np.int64]:
        """Call the function.

        Parameters
        ----------
        texts : list of str

        Returns
        -------
        array of int (texts, outputs)
            0 and 1.
        """
        return np.array([self._outputs(WORD.findall(text.lower())) for text in texts]).reshape(len(texts), -1)

    __call__ = predict

    def _outputs(self, words: Sequence[str]) -> list[int]:
        t, there = self.triggers, set(words)
        negated = [word for before, word in pairwise(words) if before == self.negation]
        found = [
            t[0] in there or t[1] in there,
            len(there & set(t[:5])) >= 2,
            words.count(t[5]) > negated.count(t[5]),
            t[6] in negated,
            *(before(words, *pair) for pair in (t[7:9], t[9:11])),
        ]
        return [int(one) for one in found]

    def smallest(self, text: str, output: int) -> list[frozenset[str]]:
        """Find all smallest sets of words of a text that keep its output when every other word is deleted.

        Parameters
        ----------
        text : str
        output : int
            Index of the output.

        Returns
        -------
        list of frozenset of str
        """
        words = WORD.findall(text.lower())
        value = self._outputs(words)[output]
        distinct = list(dict.fromkeys(words))
        for size in range(len(distinct) + 1):
            sets = [frozenset(chosen) for chosen in combinations(distinct, size)]
            good = [s for s in sets if self._outputs([w for w in words if w in s])[output] == value]
            if good:
                return good
        raise AssertionError("all words together keep the output")


def before(words: Sequence[str], first: str, second: str) -> bool:
    """Whether one word occurs anywhere before another."""
    return first in words and second in words[words.index(first) + 1 :]


ChainKind = Literal["carry", "xor", "both"]
CHAIN_KINDS: tuple[ChainKind, ...] = ("carry", "xor", "both")
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
        """Draw random sequences.

        Parameters
        ----------
        n : int
            How many.
        length : int or (int, int)
            Length of all, or the lowest and the highest.
        seed : int
            The same seed gives the same sequences.

        Returns
        -------
        list of token lists
        """
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
        """Find the positions that decide the label of a token: it, and those it is passed on by.

        Parameters
        ----------
        tokens : list of str
        i : int
            Position of the token.

        Returns
        -------
        frozenset of int
        """
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
