"""The recipe for sequences: queries with random tokens replaced teach a chain of labels, with and without them."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sointer._support.progress import History
from sointer._support.torch_state import seeded
from sointer.data.sequences import ABSENT, N_FEATURES, TokenIndex, Tokens, Vocabulary
from sointer.data.token_outputs import TokenOutputs
from sointer.energy.chain import ChainEnergy, log_marginals, sample_labels
from sointer.masking.tokens import Replacement

WHOLE, RUNS = 0.1, 0.35
"""Shares of queries about sequences as they are, and about runs of tokens: what decides mostly stands together."""
BATCH, LR, DECAY, DROPOUT = 128, 6e-3, 1e-2, 0.1
LR_AGAIN = 4e-3
N_EPOCHS, MIN_STEPS = 5.0, 700
WARM_UP = 50
FAR, FAR_ADDITIVE = 1e-3, 1e-2
"""The price of a token speaking for a label two or more places away: what can go through the labels between shall."""
STATIC_LR = 15.0
"""In an additive energy, transitions learn so many times as fast: else tokens would have taken over what they do."""
TRIAL_SHARE = 0.3
"""Of the steps, to compare windows."""
SHARE_MIXED = 0.4
"""Share of samples in a batch that show some of the replaced tokens; of the others, half show all and half none."""
MIN_IMAGINED_FROM, SHARE_IMAGINED = 10_000, 0.5
"""From so many queries on the energy also teaches itself; share of the batches in which it does."""
MIN_BUCKET = 512
EMA = 0.995
N_CHECKS, PATIENCE = 16, 4
CHECK_SEQUENCES = 1000


def plan_queries(
    sequences: Sequence[Tokens], replacement: Replacement, n: int, rng: np.random.Generator
) -> tuple[list[Tokens], list[NDArray[np.bool_]]]:
    """Sequences of the data with a random share of their tokens replaced, and which were kept."""
    if n <= len(sequences):
        chosen = rng.permutation(len(sequences))[:n]
    else:
        chosen = rng.permutation(np.arange(n) % len(sequences))
    keep = []
    for i in chosen.tolist():
        n, kind = len(sequences[i]), rng.random()
        if kind < WHOLE:
            keep.append(np.ones(n, dtype=bool))
        elif kind < WHOLE + RUNS:
            start, stop = np.sort(rng.integers(0, n + 1, 2))
            keep.append((start <= np.arange(n)) & (np.arange(n) < stop))
        else:
            keep.append(rng.random(n) < rng.random())
    asked = replacement.draw([sequences[i] for i in chosen.tolist()], keep, rng)
    return asked, keep


@dataclass(eq=False)
class Queries:
    """Answered queries, padded: token numbers, which were kept, and the class probabilities of every token."""

    ids: Tensor
    keep: Tensor
    lengths: Tensor
    codes: Tensor
    """Codes (queries, n) or probabilities (queries, n, classes)."""
    n_labels: int

    @classmethod
    def of(
        cls,
        index: TokenIndex,
        asked: Sequence[Tokens],
        keep: Sequence[NDArray[np.bool_]],
        outputs: TokenOutputs,
        answers: Sequence[Sequence[Any]] | None,
    ) -> Queries:
        """Without answers all codes are 0."""
        lengths = np.array([len(tokens) for tokens in asked])
        n = int(lengths.max())
        ids, kept = np.zeros((len(asked), n), dtype=np.int64), np.ones((len(asked), n), dtype=bool)
        soft = outputs.kind == "probability" and answers is not None
        codes: NDArray[Any] = (
            np.zeros((len(asked), n, outputs.n_labels), np.float32) if soft else np.zeros((len(asked), n), np.int64)
        )
        for i, tokens in enumerate(asked):
            ids[i, : len(tokens)], kept[i, : len(tokens)] = index.ids(tokens), keep[i]
            if answers is not None:
                codes[i, : len(tokens)] = outputs.probabilities(answers[i]) if soft else outputs.codes(answers[i])
        as_tensor = torch.as_tensor
        return cls(as_tensor(ids), as_tensor(kept), as_tensor(lengths), as_tensor(codes), outputs.n_labels)

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Tensor) -> Queries:
        """Some queries, no longer than the longest of them."""
        lengths = self.lengths[rows]
        n = int(lengths.max())
        return Queries(self.ids[rows, :n], self.keep[rows, :n], lengths, self.codes[rows, :n], self.n_labels)

    def wanted(self) -> Tensor:
        """Probabilities of the classes, 0 beyond the end of a sequence."""
        table = self.codes if self.codes.ndim == 3 else nn.functional.one_hot(self.codes, self.n_labels).float()
        return table * (torch.arange(table.shape[1]) < self.lengths[:, None])[:, :, None]

    def masked(self) -> Tensor:
        """The tokens that were kept, and ABSENT in place of the others."""
        return torch.where(self.keep, self.ids, ABSENT)

    def buckets(self) -> list[Tensor]:
        """Queries of similar length together."""
        order = torch.argsort(self.lengths, stable=True)
        found: list[Tensor] = []
        start, ordered = 0, self.lengths[order]
        while start < len(order):
            stop = min(start + MIN_BUCKET, len(order))
            while stop < len(order) and ordered[stop] == ordered[stop - 1]:
                stop += 1
            found.append(order[start:stop])
            start = stop
        return found


def n_steps_for(n_queries: int) -> int:
    """How many steps the energy takes to learn from so many queries."""
    return max(MIN_STEPS, int(N_EPOCHS * n_queries / BATCH))


def n_imagined_for(n_queries: int) -> int:
    """How many queries the energy shall answer itself: each is seen about once."""
    return int(SHARE_IMAGINED * BATCH * n_steps_for(n_queries)) if n_queries >= MIN_IMAGINED_FROM else 0


class Learner:
    """Learns one energy from queries and keeps the weights that tell most of held-out ones.

    `imagined` are queries that an energy answered: of these only the tokens that were kept are shown. An additive
    energy is shown all tokens of queries, always.
    """

    def __init__(
        self,
        energy: ChainEnergy,
        rows: Tensor,
        queries: Queries,
        held_out: Queries,
        n_steps: int,
        generator: torch.Generator,
        *,
        imagined: Queries | None = None,
        lr: float = LR,
    ) -> None:
        self.energy, self.rows, self.generator, self.lr = energy, rows, generator, lr
        self.held_out, self.n_steps, self.n_done = held_out, n_steps, 0
        self.best_loss, self._n_worse = math.inf, 0
        self._sources = [
            (source, buckets, torch.tensor([float(len(bucket)) for bucket in buckets]))
            for source in (queries, imagined)
            if source is not None
            for buckets in (source.buckets(),)
        ]
        others = [p for name, p in energy.named_parameters() if name != "static"]
        self._optimiser = torch.optim.AdamW(
            [{"params": others, "weight_decay": DECAY}, {"params": [energy.static], "weight_decay": 0.0}], lr=lr
        )
        self._lr_scales = (1.0, STATIC_LR if energy.additive else 1.0)
        self._far = FAR_ADDITIVE if energy.additive else FAR
        self._average = self._best = self._weights_now()

    def run(self, until: int, history: History) -> None:
        """Go on until so many steps are done."""
        every = max(1, self.n_steps // N_CHECKS)
        while self.n_done < until and self._n_worse < PATIENCE:
            history.step(loss=self.step())
            if self.n_done % every == 0 or self.n_done == until:
                self._compare(history)

    def _compare(self, history: History) -> None:
        """Keep the averaged weights if they are the best so far."""
        now, best = self._weights_now(), self.best_loss
        self._load(self._average)
        quality = judge(self.energy, self.rows, self.held_out)
        if quality.loss < best:
            self.best_loss, self._best, self._n_worse = quality.loss, [part.clone() for part in self._average], 0
        else:
            self._n_worse += 1
        self._load(now)
        history.record(
            stage="learning",
            window=self.energy.window,
            step=self.n_done,
            held_out_loss=quality.loss,
            held_out_agreement=quality.agreement,
        )

    def finish(self) -> ChainEnergy:
        """The energy with its best weights."""
        self._load(self._best)
        return self.energy.requires_grad_(False).eval()

    def _weights_now(self) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self.energy.parameters()]

    def _load(self, weights: list[Tensor]) -> None:
        with torch.no_grad():
            for parameter, weight in zip(self.energy.parameters(), weights, strict=True):
                parameter.copy_(weight)

    def step(self) -> float:
        """One batch; returns its loss."""
        done, g = self.n_done / self.n_steps, self.generator
        lr = self.lr * 0.5 * (1 + math.cos(math.pi * done)) * min(1.0, (self.n_done + 1) / WARM_UP)
        for group, scale in zip(self._optimiser.param_groups, self._lr_scales, strict=True):
            group["lr"] = lr * scale
        imagines = len(self._sources) > 1 and float(torch.rand(1, generator=g)) < SHARE_IMAGINED
        queries, buckets, weights = self._sources[imagines]
        bucket = buckets[int(torch.multinomial(weights, 1, generator=g))]
        batch = queries.take(bucket[torch.randint(len(bucket), (BATCH,), generator=g)])
        shown = batch.masked() if imagines else self._shown(batch)
        different, ids = shown.unique(return_inverse=True)
        rows = self.rows[different]
        dropped = (torch.rand(rows.shape, generator=g) < DROPOUT) & (rows > ABSENT)
        rows = torch.where(dropped, 2 + torch.arange(N_FEATURES), rows)
        energy = self.energy
        loss = energy.loss(ids, energy.tokens(rows), batch.lengths, batch.wanted())
        self._optimiser.zero_grad()
        (loss + self._far * energy.far_weights()).backward()
        nn.utils.clip_grad_norm_(energy.parameters(), 5.0)
        self._optimiser.step()
        self.n_done += 1
        with torch.no_grad():
            fading = min(EMA, self.n_done / (self.n_done + 9))  # short at first, when old weights are worth little
            for average, parameter in zip(self._average, energy.parameters(), strict=True):
                average.lerp_(parameter, 1 - fading)
        return float(loss.detach())

    def _shown(self, batch: Queries) -> Tensor:
        """The tokens of queries: replaced ones ABSENT, or as they were asked, or some of them so.

        Those replaced are independent draws, so whichever of them are shown, the others are what ABSENT stands for.
        """
        if self.energy.additive:
            return batch.ids
        share = torch.rand(BATCH, 1, generator=self.generator) / SHARE_MIXED - (1 / SHARE_MIXED - 1) / 2
        shown = batch.keep | (torch.rand(batch.ids.shape, generator=self.generator) < share)
        return torch.where(shown, batch.ids, ABSENT)


@dataclass(frozen=True)
class ChainQuality:
    """How well an energy knows held-out queries, with the tokens that were asked and with ABSENT in their place."""

    loss: float
    """-log p per token, the mean of both; of an additive energy with the tokens that were asked."""
    token_loss: float
    """-log p per token, the tokens being known."""
    agreement: float
    """Share of tokens whose label is the most probable one, the tokens being known."""
    skill: float
    """Share of the errors of always guessing the usual label that are avoided."""


def judge(energy: ChainEnergy, rows: Tensor, held_out: Queries) -> ChainQuality:
    """See `ChainQuality`."""
    losses, token_losses, agreed, seen = [], [], [], []
    with torch.no_grad():
        vectors = energy.tokens(rows)
        for length in held_out.lengths.unique().tolist():
            part = held_out.take(torch.nonzero(held_out.lengths == length)[:, 0])
            wanted = part.wanted()
            for ids in (part.ids,) if energy.additive else (part.ids, part.masked()):
                unary, pairs = energy.potentials(energy.states(ids, vectors, part.lengths))
                log_p = log_marginals(unary, pairs)
                losses.append(-(wanted * log_p).sum(2).flatten())
                if ids is part.ids:
                    token_losses.append(losses[-1])
                    agreed.append((log_p.argmax(2) == wanted.argmax(2)).flatten())
                    seen.append(wanted.argmax(2).flatten())
    agreement, usual = float(torch.cat(agreed).float().mean()), torch.cat(seen).bincount().max() / len(torch.cat(seen))
    errors = 1 - float(usual)
    loss, token_loss = (float(torch.cat(parts).mean()) for parts in (losses, token_losses))
    return ChainQuality(loss, token_loss, agreement, 1 - (1 - agreement) / errors if errors else 0.0)


def answer(energy: ChainEnergy, rows: Tensor, queries: Queries, generator: torch.Generator) -> None:
    """Put labels drawn from the energy, which knows all tokens of the queries, in place of answers."""
    with torch.no_grad():
        vectors = energy.tokens(rows)
        for length in queries.lengths.unique().tolist():
            for part in torch.nonzero(queries.lengths == length)[:, 0].split(MIN_BUCKET):
                states = energy.states(queries.ids[part, :length], vectors, queries.lengths[part])
                queries.codes[part, :length] = sample_labels(*energy.potentials(states), generator)


def split(queries: Queries, share: float, rng: np.random.Generator) -> tuple[Queries, Queries]:
    """Queries to learn from, and some held out."""
    order = torch.as_tensor(rng.permutation(len(queries)))
    n = min(CHECK_SEQUENCES, max(1, int(share * len(queries))))
    return queries.take(order[n:]), queries.take(order[:n])


def learn_chain(
    vocabulary: Vocabulary,
    rows: Tensor,
    known: Queries,
    held_out: Queries,
    imagined: Queries | None,
    *,
    windows: Sequence[int],
    n_steps: int,
    seed: int,
    history: History,
) -> tuple[ChainEnergy, ChainQuality]:
    """The energy with the window that tells most of held-out queries after a part of the steps.

    What ABSENT stands for it then learns from itself too: a query's answer is one of many draws, of which an energy
    that knows the tokens can answer any number. `imagined` are such queries, without answers.
    """
    learners = {}
    for window in windows:
        with seeded(seed):
            energy = ChainEnergy(vocabulary.n_rows, known.n_labels, window=window)
        learners[window] = Learner(energy, rows, known, held_out, n_steps, torch.Generator().manual_seed(seed))
    n_trial = int(TRIAL_SHARE * n_steps) if len(windows) > 1 else 0
    for window, learner in learners.items():
        history.stage(f"learning, window {window}", n_trial)
        learner.run(n_trial, history)
    window = min(learners, key=lambda w: learners[w].best_loss)
    history.stage("learning", n_steps - n_trial)
    learner = learners[window]
    learner.run(n_steps, history)
    energy = learner.finish()
    if imagined is not None:
        generator = torch.Generator().manual_seed(seed)
        answer(energy, rows, imagined, generator)
        history.stage("learning from itself", n_steps)
        learner = Learner(
            copy.deepcopy(energy).requires_grad_(True).train(),
            rows, known, held_out, n_steps, generator, imagined=imagined, lr=LR_AGAIN,
        )  # fmt: skip
        learner.run(n_steps, history)
        energy = learner.finish()
    history.close()
    return energy, judge(energy, rows, held_out)


def learn_additive(
    vocabulary: Vocabulary,
    rows: Tensor,
    known: Queries,
    held_out: Queries,
    quality: ChainQuality,
    *,
    window: int,
    n_steps: int,
    seed: int,
    history: History,
) -> ChainEnergy | None:
    """A simpler energy, to read paths from, if it predicts held-out labels better than one of that quality.

    An energy in which all can depend on all may take what a token says for what its label says, and the other way
    round. Where tokens speak one by one and transitions are the same for all of them, there is less to confuse.
    """
    with seeded(seed):
        energy = ChainEnergy(vocabulary.n_rows, known.n_labels, window=window, additive=True)
    learner = Learner(energy, rows, known, held_out, n_steps, torch.Generator().manual_seed(seed))
    history.stage("learning paths", n_steps)
    learner.run(n_steps, history)
    history.close()
    energy = learner.finish()
    return energy if judge(energy, rows, held_out).token_loss < quality.token_loss else None
