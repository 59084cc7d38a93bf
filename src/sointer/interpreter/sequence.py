"""Which tokens keep a label: the best set of every size, on the view where removed tokens are ABSENT."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer.data.sequences import ABSENT
from sointer.energy.chain import ChainEnergy, end_codes, log_marginals

MAX_TABLE = 10
"""Sequences of at most so many tokens are looked at with every subset of their tokens."""
SEGMENT, NEAR_SHARE = 9, 0.98
"""Of longer ones, with those of so many tokens around the target, if all of these keep its label nearly as well."""
MAX_CANDIDATES = 9
"""Else with so many tokens that seem to matter most; the others go at once."""
CAUTION = 0.7
"""Of the doubt that is allowed, the share that the energy may have; chosen on addresses that are not reported."""
MAX_NUMBERS = 2**23
TINY = 1e-30


@dataclass(frozen=True, eq=False)
class Selected:
    """For every target, its tokens in their order, how many of the first are selected, and what keeps its label.

    ranking : (targets, n) positions: the selected ones first, those that matter most before others.
    sizes : (targets,) how many are selected.
    probability : (targets, n + 1) that the label stays with the first 0, 1, ... n of them.
    scores : (targets, n) by position: the most that taking a token away cost, it or any that went before it.
    """

    ranking: NDArray[np.int64]
    sizes: NDArray[np.int64]
    probability: NDArray[np.float32]
    scores: NDArray[np.float32]

    @classmethod
    def of_path(
        cls, ranking: NDArray[np.int64], sizes: NDArray[np.int64], probability: NDArray[np.float32]
    ) -> Selected:
        cost = np.maximum(probability[:, 1:] - probability[:, :-1], 0)  # of the token at each rank
        cost = np.maximum.accumulate(cost[:, ::-1], axis=1)[:, ::-1]
        scores = np.empty_like(cost)
        np.put_along_axis(scores, ranking, cost, axis=1)
        return cls(ranking, sizes, probability, scores)


@dataclass(frozen=True)
class SelectionSize:
    """How many tokens to select: k of them, or as few as keep the label with a probability."""

    level: float = 0.95
    k: int | None = None

    def of(self, probability: NDArray[np.float32]) -> NDArray[np.int64]:
        """The number for every target, from the probability (targets, sizes) that the set of each size keeps its label.

        The best of many sets looks better than it is, so the energy must say a little more. Where it does not for any
        set, being unsure of the label or of another opinion than the model, it must say this share of the most that it
        says: measured by what it says for all tokens, none at all could seem to suffice.
        """
        if self.k is not None:
            return np.full(len(probability), min(self.k, probability.shape[1] - 1))
        level = 1 - CAUTION * (1 - self.level)
        most = probability.max(axis=1, keepdims=True)
        enough = probability >= np.where(most >= level, level, level * most)
        return np.asarray(enough.argmax(axis=1))


class ChainReader:
    """An energy and the tokens of some sequences, ready to be looked at with some of them absent.

    Parameters
    ----------
    energy : what fit learned.
    rows : features of the tokens, as `Vocabulary.rows` gives them.
    """

    def __init__(self, energy: ChainEnergy, rows: NDArray[np.int64]) -> None:
        self.energy = energy
        with torch.no_grad():
            self.vectors = energy.tokens(torch.as_tensor(rows))
            self.projected = energy.project(self.vectors)

    def log_marginals(self, ids: Tensor) -> Tensor:
        """log p of all labels of all tokens of sequences of one length: (sequences, n, labels)."""
        lengths = torch.full((len(ids),), ids.shape[1])
        return log_marginals(*self.energy.potentials(self.energy.states(ids, self.vectors, lengths)))

    def expected(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The most probable label of every token: (sequences, n)."""
        with torch.no_grad():
            return np.asarray(self.log_marginals(torch.as_tensor(ids)).argmax(2).numpy())

    def select(self, ids: NDArray[np.int64], codes: NDArray[np.int64], size: SelectionSize) -> Selected:
        """The tokens that keep each label of sequences of one length: targets are (sequences x n)."""
        n = ids.shape[1]
        with torch.no_grad():
            step = max(1, MAX_NUMBERS // (2 ** min(n, MAX_TABLE) * n * self.energy.n_labels))
            parts = []
            for start in range(0, len(ids), step):
                part = ids[start : start + step], codes[start : start + step]
                parts.append(
                    self._select_long(*part, size) if n > MAX_TABLE else best_path(self.keep_table(*part), size)
                )
        return Selected.of_path(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    # --- short sequences: every subset -----------------------------------------------------------------------

    def keep_table(
        self, ids: NDArray[np.int64], codes: NDArray[np.int64], free: tuple[int, int] | None = None
    ) -> NDArray[np.float32]:
        """How probable each label is with every subset of tokens: (sequences, n, 2^n); bit n - 1 - i keeps token i.

        With `free`, subsets are those of the tokens from the first to before the second place; all others are absent.
        What a position knows depends on the subset of its window only, so hidden layers are computed once for each of
        these, and messages between positions are products with one matrix for all subsets that share it.
        """
        n_sequences, n = ids.shape
        start, stop = (0, n) if free is None else free
        local = self._local(torch.as_tensor(ids), start, stop)
        n_labels, n_subsets = self.energy.n_labels, 2 ** (stop - start)
        grown = []  # exp of unary and transitions, by subset of the window
        for i, states in enumerate(local):
            unary, pairs = self.energy.potentials(states)
            unary, pairs = unary.sub_(unary.amax(-1, keepdim=True)).exp_(), pairs.sub_(pairs.max()).exp_()
            low, high = self._span(i, start, stop)
            grown.append((unary, pairs, 2 ** (low - start), 2 ** (high - low), 2 ** (stop - high)))

        def with_unary(message: Tensor, i: int) -> Tensor:
            unary, _, before, inside, after = grown[i]
            by_window = message.view(n_sequences, before, inside, after, n_labels)
            return (by_window * unary[:, None, :, None]).view(n_sequences, n_subsets, n_labels)

        def moved(message: Tensor, i: int, *, back: bool = False) -> Tensor:
            _, pairs, before, inside, after = grown[i]
            by_window = message.view(n_sequences, before, inside, after, n_labels).transpose(1, 2)
            flat = by_window.reshape(n_sequences * inside, before * after, n_labels)
            matrix = pairs.flatten(0, 1)
            result = torch.bmm(flat, matrix.transpose(1, 2) if back else matrix)
            result = result.view(n_sequences, inside, before, after, n_labels).transpose(1, 2)
            return _normalised(result.reshape(n_sequences, n_subsets, n_labels))

        nothing = torch.ones(n_sequences, n_subsets, n_labels)
        alpha = [with_unary(nothing, 0)]
        for i in range(1, n):
            alpha.append(with_unary(moved(alpha[-1], i), i))
        table, beta = torch.empty(n_sequences, n, n_subsets), nothing
        wanted = torch.as_tensor(codes)
        for i in range(n - 1, -1, -1):
            both = alpha[i] * beta
            own = both.gather(2, wanted[:, i, None, None].expand(-1, n_subsets, 1))[:, :, 0]
            table[:, i] = own / both.sum(2).clamp_min(TINY)
            if i:
                beta = moved(with_unary(beta, i), i, back=True)
        return table.numpy()

    def _span(self, i: int, start: int, stop: int) -> tuple[int, int]:
        """The free tokens in the window of position i: from the first to before the second place."""
        low = min(max(start, i - self.energy.window), stop)
        return low, max(low, min(stop, i + self.energy.window + 1))

    def _local(self, ids: Tensor, start: int, stop: int) -> list[Tensor]:
        """For each position, the hidden layer with every subset of its window: (sequences, subsets, width)."""
        energy, n = self.energy, ids.shape[1]
        lengths = torch.tensor([n])
        places = energy.project(energy.ends)[end_codes(n, lengths)[0]] + self.projected[ABSENT]
        outside = energy.project(energy.outside[None])[0]
        gain = self.projected[ids] - self.projected[ABSENT]
        result = []
        for i in range(n):
            nothing: Tensor = energy.hidden.bias
            for slot in range(energy.n_slots):
                at = i + slot - energy.window
                nothing = nothing + (places[at, slot] if 0 <= at < n else outside[slot])
            low, high = self._span(i, start, stop)
            window = torch.arange(low, high)
            added = gain[:, window, window - i + energy.window]  # (sequences, free tokens of the window, width)
            count = high - low
            bits = (torch.arange(2**count)[:, None] >> torch.arange(count - 1, -1, -1)) & 1
            result.append(energy.activate(nothing + torch.einsum("pt,stw->spw", bits.float(), added)))
        return result

    # --- long sequences: the likeliest tokens ----------------------------------------------------------------

    def _kept(self, ids: NDArray[np.int64], keep: NDArray[np.bool_], codes: NDArray[np.int64]) -> NDArray[np.float32]:
        """How probable each label of one sequence is with only some tokens kept: masks (m, n) to (m, n)."""
        n = len(ids)
        step = max(1, MAX_NUMBERS // (n * max(self.energy.n_labels**2, self.energy.width)))
        parts = []
        for start in range(0, len(keep), step):
            masked = torch.as_tensor(np.where(keep[start : start + step], ids, ABSENT))
            log_p = self.log_marginals(masked)
            parts.append(log_p[:, torch.arange(n), torch.as_tensor(codes)].exp().numpy())
        return np.concatenate(parts)

    def _select_long(self, ids: NDArray[np.int64], codes: NDArray[np.int64], size: SelectionSize) -> Path:
        """With every subset of a segment around the target; where that does not keep the label, of the best tokens."""
        (n_sequences, n), place = ids.shape, np.arange(ids.shape[1])
        log_p = self.log_marginals(torch.as_tensor(ids))
        whole = log_p.gather(2, torch.as_tensor(codes)[:, :, None])[:, :, 0].exp().numpy()
        starts = np.unique(np.minimum(np.arange(0, n, SEGMENT // 3), n - SEGMENT))
        segment = np.abs(starts + SEGMENT // 2 - place[:, None]).argmin(axis=1)
        ranking = np.empty((n_sequences, n, n), dtype=np.int64)
        sizes = np.empty((n_sequences, n), dtype=np.int64)
        probability = np.repeat(whole[:, :, None], n + 1, axis=2)
        for number, start in enumerate(starts.tolist()):
            targets = np.flatnonzero(segment == number)
            inside = np.arange(start, start + SEGMENT)
            others = np.setdiff1d(place, inside)
            table = self.keep_table(ids, codes, (start, start + SEGMENT))[:, targets]
            first, chosen, p = best_path(table, size)
            sizes[:, targets] = chosen.reshape(n_sequences, -1)
            for t, target in enumerate(targets):
                order = others[np.argsort(np.abs(others - target), kind="stable")]
                ranking[:, target] = np.concatenate(
                    [start + first[t :: len(targets)], np.tile(order, (n_sequences, 1))], axis=1
                )
                probability[:, target, : SEGMENT + 1] = p[t :: len(targets)]
        for i in range(n_sequences):
            far = np.flatnonzero(probability[i, :, SEGMENT] < NEAR_SHARE * whole[i])
            if len(far):
                ranking[i, far], probability[i, far] = self._eliminate_best(ids[i], codes[i], far, whole[i])
                sizes[i, far] = size.of(probability[i, far])
        if size.k is not None:
            sizes[:] = min(size.k, n)
        return ranking.reshape(-1, n), sizes.ravel(), probability.reshape(-1, n + 1)

    def _eliminate_best(
        self, ids: NDArray[np.int64], codes: NDArray[np.int64], targets: NDArray[np.int64], whole: NDArray[np.float32]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """For some targets of one sequence, of the tokens that seem to matter most."""
        n, rows = len(ids), np.arange(len(targets))
        one = np.eye(n, dtype=bool)
        without = self._kept(ids, ~one, codes)[:, targets].T
        beside = np.stack([self._kept(ids, one | one[target], codes)[:, target] for target in targets])
        relevance = _log_odds(whole[targets])[:, None] - _log_odds(without)
        relevance = relevance + _log_odds(beside) - _log_odds(beside[rows, targets])[:, None]
        relevance[rows, targets] = np.inf
        ranking = np.argsort(-relevance, axis=1, kind="stable")
        probability = np.repeat(whole[targets][:, None], n + 1, axis=1)
        keep = np.zeros((len(targets), n), dtype=bool)
        np.put_along_axis(keep, ranking[:, :MAX_CANDIDATES], True, axis=1)
        probability[:, MAX_CANDIDATES] = self._kept(ids, keep, codes)[rows, targets]
        for size in range(MAX_CANDIDATES, 0, -1):  # from so many tokens to one fewer
            kept = np.argsort(~keep, axis=1, kind="stable")[:, :size]
            trials = np.repeat(keep[:, None], size, axis=1)
            np.put_along_axis(trials, kept[:, :, None], False, axis=2)
            p = self._kept(ids, trials.reshape(-1, n), codes).reshape(len(targets), size, n)[rows, :, targets]
            best = p.argmax(axis=1)
            gone = kept[rows, best]
            ranking[:, size - 1], probability[:, size - 1] = gone, p[rows, best]
            keep[rows, gone] = False
        return ranking, probability


Path = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]
"""The ranking of every target, how many of the first are selected, and the probability with the first 0, 1, ... n."""


def best_path(table: NDArray[np.float32], size: SelectionSize) -> Path:
    """The best set of the wanted size, from (sequences, targets, 2^tokens), and the order of tokens that it implies.

    Tokens are taken away from it one by one, always the one that costs least, and others are added to it, always the
    one that gains most.
    """
    flat = table.reshape(-1, table.shape[-1])
    n, rows = table.shape[-1].bit_length() - 1, np.arange(len(flat))
    bit = 1 << np.arange(n - 1, -1, -1)
    n_kept = ((np.arange(2**n)[:, None] & bit) != 0).sum(axis=1)
    best = np.empty((len(flat), n + 1), dtype=np.int64)
    for count in range(n + 1):
        codes = np.flatnonzero(n_kept == count)
        best[:, count] = codes[flat[:, codes].argmax(axis=1)]
    sizes = size.of(flat[rows[:, None], best])
    chosen = best[rows, sizes]
    ranking, probability = np.empty((len(flat), n), dtype=np.int64), np.empty((len(flat), n + 1), dtype=np.float32)
    probability[rows, sizes] = flat[rows, chosen]
    for taken in (True, False):
        code = chosen.copy()
        for step in range(n):
            moving = np.flatnonzero(sizes > step if taken else sizes + step < n)
            now = code[moving, None]
            p = np.where(((now & bit) != 0) == taken, flat[moving[:, None], now ^ bit], -1)
            moved = p.argmax(axis=1)
            code[moving] ^= bit[moved]
            rank = sizes[moving] - step - 1 if taken else sizes[moving] + step
            ranking[moving, rank] = moved
            probability[moving, rank if taken else rank + 1] = p[np.arange(len(moving)), moved]
    return ranking, sizes, probability


def _normalised(message: Tensor) -> Tensor:
    return message / message.amax(-1, keepdim=True).clamp_min(TINY)


def _log_odds(p: NDArray[np.float32]) -> NDArray[np.float32]:
    p = np.clip(p, 1e-6, 1 - 1e-6)
    return np.asarray(np.log(p) - np.log1p(-p))
