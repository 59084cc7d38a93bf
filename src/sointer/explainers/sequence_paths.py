"""Paths in sequences: what a token does to a label directly, and what it does through the labels of other tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer._support import cached_property
from sointer._support.torch_state import device_of, one_thread
from sointer.data.sequences import MARGIN, PIECE, TokenIndex, Tokens, Vocabulary
from sointer.energy.chain import ChainEnergy, log_marginals
from sointer.errors import require_extra
from sointer.interpreter.sequence import ChainReader
from sointer.masking.conditional import Replacement

if TYPE_CHECKING:
    import pandas as pd

    from sointer.explainers.sequence_explanation import SequenceExplanation

MAX_NUMBERS = 2**23
N_SHOWN = 20
PART = PIECE + 2 * MARGIN
"""Of longer sequences, so many tokens around the target and the selected one are looked at."""


@dataclass(frozen=True, eq=False)
class SequencePaths:
    """The effect of every selected token on its target, and how much of it goes through other tokens' labels.

    An effect is how much less likely the value becomes, on average, when the token is replaced and all others stay. It
    is NaN where fewer tokens are selected. Parts need not add up to the total.

    Attributes
    ----------
    sequences, sample, position, value, labels
        As in the explanation.
    selected
        (targets, k) positions, as in the explanation.
    total
        (targets, k) the effect.
    direct
        (targets, k) the effect if the replacement is seen only at the target's own position.
    mediated
        (targets, k) the effect if it is seen only at all other positions: it acts through their labels.
    left, right
        (targets, k) the same, only for positions before or after the target.
    """

    sequences: list[Tokens]
    sample: NDArray[np.int64]
    position: NDArray[np.int64]
    value: NDArray[Any]
    labels: list[list[Any]]
    selected: NDArray[np.int64]
    total: NDArray[np.float64]
    direct: NDArray[np.float64]
    mediated: NDArray[np.float64]
    left: NDArray[np.float64]
    right: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.sample)

    @cached_property
    def is_mediated(self) -> NDArray[np.bool_]:
        """(targets, k) whether more of the effect goes through other labels than directly; False where it is NaN."""
        with np.errstate(invalid="ignore"):
            return np.asarray(np.abs(self.mediated) > np.abs(self.direct))

    def through(self, i: int, place: int) -> int | None:
        """Find the position whose label a mediated effect reaches the target through last.

        Parameters
        ----------
        i : int
            Index of the target.
        place : int
            Which of its selected tokens.

        Returns
        -------
        int or None
            None where the effect is direct.
        """
        if not self.is_mediated[i, place]:
            return None
        toward = 1 if abs(self.right[i, place]) > abs(self.left[i, place]) else -1
        n = len(self.sequences[self.sample[i]])
        return min(max(int(self.position[i]) + toward, 0), n - 1)

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one line per target and selected token.

        Returns
        -------
        DataFrame
        """
        pandas = require_extra("pandas", "pandas")
        i, place = np.nonzero(self.selected >= 0)
        at = self.selected[i, place]
        frame: pd.DataFrame = pandas.DataFrame(
            {
                "sample": self.sample[i],
                "position": self.position[i],
                "value": self.value[i],
                "at": at,
                "selected": [self.sequences[s][j] for s, j in zip(self.sample[i], at, strict=True)],
                "label": [self.labels[s][j] for s, j in zip(self.sample[i], at, strict=True)],
                **{name: getattr(self, name)[i, place] for name in ("total", "direct", "mediated", "left", "right")},
            }
        )
        return frame

    def __str__(self) -> str:
        lines = []
        for i in range(min(len(self), N_SHOWN)):
            tokens, labels = self.sequences[self.sample[i]], self.labels[self.sample[i]]
            lines.append(f"{tokens[self.position[i]]} (token {self.position[i]}) is {self.value[i]}:")
            for place, at in enumerate(self.selected[i].tolist()):
                if at < 0:
                    continue
                route = f"direct ({self.direct[i, place]:.2f})"
                if (beside := self.through(i, place)) is not None:
                    route = (
                        f"through other labels ({self.mediated[i, place]:.2f}), last {labels[beside]} of token {beside}"
                    )
                lines.append(f"  {tokens[at]} (token {at}, {labels[at]}): {self.total[i, place]:.2f}, {route}")
        if len(self) > N_SHOWN:
            lines.append(f"... and {len(self) - N_SHOWN} more")
        return "\n".join(lines)


def trace_paths(
    energy: ChainEnergy,
    vocabulary: Vocabulary,
    replacement: Replacement,
    explanation: SequenceExplanation,
    *,
    n_draws: int,
    seed: int,
) -> SequencePaths:
    """The paths of an explanation's selected tokens.

    Potentials of a sequence with the token replaced are put in place of its own: at all positions, at the target's, or
    at all others. Of long sequences the part around both is taken.
    """
    rng = np.random.default_rng(seed)
    effects = np.full((5, *explanation.selected.shape), np.nan)
    target, place = np.nonzero(explanation.selected >= 0)
    whole = np.array([len(tokens) for tokens in explanation.sequences])[explanation.sample[target]]
    starts = window_starts(explanation.position[target], explanation.selected[target, place], whole)
    lengths = np.minimum(whole, PART)
    with one_thread(device_of(energy)), torch.no_grad():
        for n in np.unique(lengths).tolist():
            of_length = np.flatnonzero(lengths == n)
            step = max(1, MAX_NUMBERS // (n_draws * n * max(energy.n_labels**2, energy.width)))
            for start in range(0, len(of_length), step):
                chosen = of_length[start : start + step]
                i, j, cut = target[chosen], place[chosen], starts[chosen]
                sequences = [explanation.sequences[s] for s in explanation.sample[i]]
                at = explanation.selected[i, j]
                if replacement.function is None:  # which alone may look at the whole sequence
                    sequences, at, shift = cut_at(sequences, cut, n), at - cut, np.zeros_like(cut)
                else:
                    shift = cut
                many = [s for s in sequences for _ in range(n_draws)]
                keep = [np.arange(len(s)) != one for s, one in zip(many, np.repeat(at, n_draws), strict=True)]
                redrawn = replacement.draw(many, keep, rng)
                many, redrawn = (cut_at(one, np.repeat(shift, n_draws), n) for one in (many, redrawn))
                index = TokenIndex()
                own = torch.tensor([index.ids(s) for s in many])
                other = torch.tensor([index.ids(s) for s in redrawn])
                reader = ChainReader(energy, vocabulary.rows(index.tokens))
                at_target = torch.as_tensor(np.repeat(explanation.position[i] - cut, n_draws))
                code = torch.as_tensor(np.repeat(explanation.codes[i], n_draws))
                found = _effects(reader, own, other, at_target, code)
                effects[:, i, j] = found.reshape(5, len(chosen), n_draws).mean(axis=2)
    return SequencePaths(
        explanation.sequences,
        explanation.sample,
        explanation.position,
        explanation.value,
        explanation.labels,
        explanation.selected,
        *effects,
    )


def window_starts(
    target: NDArray[np.int64], selected: NDArray[np.int64], length: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Where parts of PART tokens begin that have a target and a selected token in their middle: 0 in short sequences.

    Both were in one piece when the token was selected, so at least MARGIN tokens are on either side of them, unless
    the sequence ends there.
    """
    return np.asarray(np.clip((target + selected - PART) // 2, 0, np.maximum(length - PART, 0)))


def cut_at(sequences: list[Tokens], starts: NDArray[np.int64], n: int) -> list[Tokens]:
    """The n tokens of each sequence from its start on."""
    return [tokens[start : start + n] for tokens, start in zip(sequences, starts.tolist(), strict=True)]


def _effects(reader: ChainReader, own: Tensor, other: Tensor, target: Tensor, code: Tensor) -> NDArray[np.float64]:
    """How far p(code at target) falls: in all, directly, mediated, through the left, through the right."""
    lengths = torch.full((len(own),), own.shape[1])
    before, after = (
        reader.energy.potentials(reader.energy.states(ids, reader.vectors, lengths)) for ids in (own, other)
    )
    position = torch.arange(own.shape[1])
    at = position == target[:, None]
    left, right = position < target[:, None], position > target[:, None]

    def p(replaced: Tensor) -> Tensor:
        unary = torch.where(replaced[:, :, None], after[0], before[0])
        pairs = torch.where(replaced[:, :, None, None], after[1], before[1])
        log_p = log_marginals(unary, pairs)
        return log_p[torch.arange(len(own)), target, code].exp().double()

    whole = p(torch.zeros_like(at))
    cases = (torch.ones_like(at), at, ~at, left, right)
    return np.stack([(whole - p(replaced)).numpy() for replaced in cases])
