"""Brute force: how often each label stays when only a subset of the tokens is kept, for every subset."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer.masking.conditional import Replacement, place_of
from studies.frame.study import model_cache
from studies.usaddress.crf import AddressCRF, load_sentences

LEVEL, TOLERANCE = 0.95, 0.02
N_DRAWS = 256
MIN_LENGTH, MAX_LENGTH = 4, 8


@dataclass(frozen=True, eq=False)
class Truth:
    """One sentence: its tokens, and the share of draws in which each label stayed, twice: (2, subsets, n)."""

    tokens: list[str]
    kept: NDArray[np.float32]

    def size(self, i: int) -> int:
        """The smallest number of tokens that keep label i."""
        return int(subsets(len(self.tokens)).sum(1)[self.kept.mean(0)[:, i] >= LEVEL].min())


def chosen_sentences(part: str) -> list[list[str]]:
    """Different held-out sentences: 50 to choose settings on ("dev"), 100 others to report ("report")."""
    found = [s for s in load_sentences("test") if MIN_LENGTH <= len(s) <= MAX_LENGTH]
    found = [list(s) for s in dict.fromkeys(map(tuple, found))]
    order = np.random.default_rng(1).permutation(len(found))
    places = order[:100] if part == "report" else order[100:150]
    return [found[i] for i in places]


def subsets(n: int) -> NDArray[np.bool_]:
    """All subsets (2^n, n); token i is kept by bit n - 1 - i."""
    return ((np.arange(2**n)[:, None] >> np.arange(n - 1, -1, -1)) & 1).astype(bool)


def brute_force(
    crf: AddressCRF, replacement: Replacement, tokens: list[str], n_draws: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    """The share of draws in which each label stays, for every subset: (2^n, n)."""
    n = len(tokens)
    ids = np.array(crf.ids(tokens))
    pools = [replacement.pools[place_of(i, n)] for i in range(n)]
    drawn = [[replacement.tokens[t] for t in rng.choice(pool, n_draws)] for pool in pools]
    others = np.array([crf.ids(one) for one in drawn]).T
    own = crf.viterbi(ids[None])[0]
    kept = np.empty((2**n, n), dtype=np.float32)
    for code, subset in enumerate(subsets(n)):
        # With few tokens removed many draws are the same sentence.
        different, times = np.unique(np.where(subset, ids, others), axis=0, return_counts=True)
        kept[code] = times @ (crf.viterbi(different) == own) / n_draws
    return kept


@cache
def load_truth(part: str, n_draws: int = N_DRAWS, n_sentences: int | None = None) -> list[Truth]:
    """Brute force for the sentences of a part, made once and kept: a minute and a half of one core for "report"."""
    path = model_cache() / f"usaddress-{part}-{n_draws}-{n_sentences}.npz"
    if not path.exists():
        crf, replacement = AddressCRF(), Replacement.of(load_sentences("train"))
        rng = np.random.default_rng(2 if part == "dev" else 3)
        made: dict[str, Any] = {}
        for i, tokens in enumerate(chosen_sentences(part)[:n_sentences]):
            made[f"tokens{i}"] = np.array(tokens)
            made[f"kept{i}"] = np.stack([brute_force(crf, replacement, tokens, n_draws, rng) for _ in range(2)])
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, **made)
    with np.load(path, allow_pickle=False) as file:
        return [Truth(file[f"tokens{i}"].tolist(), file[f"kept{i}"]) for i in range(len(file.files) // 2)]
