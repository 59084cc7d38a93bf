"""What becomes of a token that is removed: another token from the same kind of place, or what a function says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer.config import Rows
from sointer.data.sequences import TokenIndex, Tokens
from sointer.errors import InputError

ReplacementFunction = Callable[[Tokens, int, np.random.Generator], str]
N_NEAR_END = 2
"""Places are distinguished up to this distance from either end."""


def place_of(position: int, length: int) -> int:
    """The kind of place a token stands at: how near it is to the beginning and to the end."""
    return (N_NEAR_END + 1) * min(position, N_NEAR_END) + min(length - 1 - position, N_NEAR_END)


N_PLACES = (N_NEAR_END + 1) ** 2


@dataclass(frozen=True, eq=False)
class Replacement:
    """Draws what stands in for removed tokens.

    Parameters
    ----------
    tokens : the different tokens of the training data; none if they were not saved.
    pools : for each kind of place, numbers into `tokens`, each as often as it stood there in the training data.
    function : of the user, (tokens, position, rng) -> token; it replaces the draws.
    """

    tokens: list[str]
    pools: list[NDArray[np.int64]]
    function: ReplacementFunction | None = None

    @property
    def name(self) -> str:
        """As records and verifications call it: that of the user's function, or "same place"."""
        return "same place" if self.function is None else str(getattr(self.function, "__name__", "function"))

    @classmethod
    def of(cls, sequences: Sequence[Tokens], function: Any = None) -> Replacement:
        """The replacement learned from sequences, or the function given for it."""
        if function is not None and not callable(function):
            raise InputError(
                f"replacement must be a function (tokens, position, rng) -> token, or None for other tokens of the "
                f"data at the same kind of place, got {function!r:.60}."
            )
        index = TokenIndex()
        pools: list[list[int]] = [[] for _ in range(N_PLACES)]
        for tokens in sequences:
            for position, number in enumerate(index.ids(tokens)):
                pools[place_of(position, len(tokens))].append(number - 2)
        every = [number for pool in pools for number in pool]
        # A kind of place that the data do not have, such as a sequence of one token: any token may stand there.
        return cls(index.tokens, [np.array(pool or every, dtype=np.int64) for pool in pools], function)

    def saved(self, rows: Rows) -> Replacement:
        """What is saved: all, the tokens of each place in the order of their numbers, or nothing."""
        if rows == "none":
            return Replacement([], [np.zeros(0, dtype=np.int64) for _ in self.pools], self.function)
        # In the order of the data, the first tokens of all sequences beside the second ones are these sequences.
        return self if rows == "keep" else replace(self, pools=[np.sort(pool) for pool in self.pools])

    def draw(
        self, sequences: Sequence[Tokens], keep: Sequence[NDArray[np.bool_]], rng: np.random.Generator
    ) -> list[Tokens]:
        """The sequences with every token that is not kept replaced; `keep` has one mask for each of them."""
        lengths = np.array([len(tokens) for tokens in sequences])
        owner = np.repeat(np.arange(len(sequences)), lengths)
        position = np.concatenate([np.arange(n) for n in lengths]) if len(lengths) else np.zeros(0, dtype=np.int64)
        removed = np.flatnonzero(~np.concatenate(list(keep)))
        result = [list(tokens) for tokens in sequences]
        if self.function is not None:
            for i in removed.tolist():
                tokens, place = sequences[owner[i]], int(position[i])
                token = self.function(list(tokens), place, rng)
                if not isinstance(token, str):
                    raise InputError(
                        f"replacement returned {token!r:.40} for position {place} of {tokens!r:.80}, expected a "
                        "string: the token to put there."
                    )
                result[owner[i]][place] = token
            return result
        if len(removed) and not self.tokens:
            raise InputError(
                "This explainer was saved with rows='none': it holds no tokens of the training data, which verify and "
                "paths put in the place of what is removed. Save it with rows='synthetic' or rows='keep'."
            )
        after = lengths[owner[removed]] - 1 - position[removed]
        place = (N_NEAR_END + 1) * np.minimum(position[removed], N_NEAR_END) + np.minimum(after, N_NEAR_END)
        chance = rng.random(len(removed))
        sizes = np.array([len(pool) for pool in self.pools])
        chosen = (chance * sizes[place]).astype(np.int64)
        for kind in np.unique(place):
            of_kind = np.flatnonzero(place == kind)
            numbers = self.pools[kind][chosen[of_kind]]
            for i, number in zip(removed[of_kind].tolist(), numbers.tolist(), strict=True):
                result[owner[i]][position[i]] = self.tokens[number]
        return result
