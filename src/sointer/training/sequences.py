"""The recipe for sequences: queries with random tokens replaced teach a chain of labels, with and without them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import torch
from torch import Tensor, nn

from sointer._support.progress import History
from sointer._support.torch_state import seeded
from sointer.data.sequences import ABSENT, N_FEATURES, Vocabulary
from sointer.energy.chain import ChainEnergy, log_marginals, sample_labels
from sointer.training.optim import cosine, torch_state_of
from sointer.training.sequence_queries import MIN_BUCKET, Buckets, PseudoQueries, Queries
from sointer.training.snapshots import Snapshots

BATCH, LR, DECAY, DROPOUT = 128, 6e-3, 1e-2, 0.1
LR_AGAIN = 4e-3
N_EPOCHS, MIN_STEPS = 5.0, 700
WARM_UP = 50
FAR, FAR_ADDITIVE = 1e-3, 1e-2
"""The price of a token speaking for a label two or more places away: what can go through the labels between shall."""
STATIC_LR = 15.0
"""In an additive energy, transitions learn so many times as fast: else tokens would have taken over what they do."""
TRIAL_SHARE, MIN_GAIN = 0.3, 0.02
"""Of the steps, to compare windows; the share of the held-out loss by which a wider one must be better."""
SHARE_MIXED = 0.4
"""Share of samples in a batch that show some of the replaced tokens; of the others, half show all and half none."""
MIN_PSEUDO_FROM, SHARE_PSEUDO = 10_000, 0.8
"""From so many queries on the energy also learns from pseudo-labelled ones; share of the batches in which it does."""
STEPS_AGAIN, N_PARTS = 2, 8
"""How many times as many steps it then takes, and in how many parts these queries are made, each of them seen about
once."""
EMA = 0.995
N_CHECKS = 16


def n_steps_for(n_queries: int) -> int:
    """How many steps the energy takes to learn from so many queries."""
    return max(MIN_STEPS, int(N_EPOCHS * n_queries / BATCH))


class Learner:
    """Learns one energy from queries and keeps the weights that tell most of held-out ones.

    Of pseudo-labelled queries only the tokens that were kept are shown. An additive energy is always shown all tokens
    of queries.
    """

    def __init__(
        self,
        energy: ChainEnergy,
        rows: Tensor,
        queries: Queries,
        held_out: Queries,
        n_steps: int,
        generator: torch.Generator,
        snapshots: Snapshots,
        *,
        lr: float = LR,
        judged_by: Callable[[ChainQuality], float] = lambda quality: quality.loss,
    ) -> None:
        self.energy, self.rows, self.generator, self.lr = energy, rows, generator, lr
        self.snapshots = snapshots
        self._judged_by = judged_by
        self.held_out, self.n_steps, self.n_done = held_out, n_steps, 0
        self.best_loss = math.inf
        self._queried = Buckets.of(queries)
        self._pseudo: Buckets | None = None
        others = [p for name, p in energy.named_parameters() if name != "static"]
        self._optimiser = torch.optim.AdamW(
            [{"params": others, "weight_decay": DECAY}, {"params": [energy.static], "weight_decay": 0.0}], lr=lr
        )
        self._lr_scales = (1.0, STATIC_LR if energy.additive else 1.0)
        self._far = FAR_ADDITIVE if energy.additive else FAR
        self._average, self._best = self._weights_now(), self._weights_now()

    def learn_pseudo(self, queries: Queries, rows: Tensor) -> None:
        """From now on learn from these queries too, which an energy labelled, and no longer from those before."""
        self._pseudo, self.rows = Buckets.of(queries), rows

    def run(self, until: int, history: History) -> None:
        """Go on until so many steps are done, without stopping early: much is learned last, at the lowest rates."""
        every, n_before = max(1, self.n_steps // N_CHECKS), self.n_done
        progress = torch.zeros(1, dtype=torch.float64, device="cpu")
        state = self._state(progress)
        stage = self.snapshots.stage(state, until, history)
        if stage.n_done:
            self.n_done, self.best_loss = stage.n_done, float(progress)
            self.generator.set_state(state["draws"])
            history.step(self.n_done - n_before)
        while self.n_done < until:
            history.step(loss=self.step())
            if self.n_done % every == 0 or self.n_done == until:
                self._compare(history)
            progress[0] = self.best_loss
            state["draws"].copy_(self.generator.get_state())
            stage.keep(self.n_done)

    def _state(self, progress: Tensor) -> dict[str, Tensor]:
        """All that steps change."""
        own = {f"average.{i}": part for i, part in enumerate(self._average)}
        own |= {f"best.{i}": part for i, part in enumerate(self._best)}
        own |= {"progress": progress, "draws": self.generator.get_state()}
        return torch_state_of(self.energy, self._optimiser) | own

    def _compare(self, history: History) -> None:
        """Keep the averaged weights if they are the best so far."""
        now, best = self._weights_now(), self.best_loss
        self._load(self._average)
        quality = judge(self.energy, self.rows, self.held_out)
        loss = self._judged_by(quality)
        if loss < best:
            self.best_loss = loss
            for part, average in zip(self._best, self._average, strict=True):
                part.copy_(average)
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
        self._load(self._best if self.best_loss < math.inf else self._average)
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
        lr = self.lr * cosine(done) * min(1.0, (self.n_done + 1) / WARM_UP)
        for group, scale in zip(self._optimiser.param_groups, self._lr_scales, strict=True):
            group["lr"] = lr * scale
        if self._pseudo is not None and float(torch.rand(1, generator=g)) < SHARE_PSEUDO:
            batch = self._pseudo.batch(BATCH, g)
            shown = batch.masked()
        else:
            batch = self._queried.batch(BATCH, g)
            shown = self._shown(batch)
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
        """The tokens of queries: replaced ones ABSENT, or as they were sent, or some of them so.

        Those replaced are independent draws, so whichever of them are shown, the others are what ABSENT stands for.
        """
        if self.energy.additive:
            return batch.ids
        share = torch.rand(BATCH, 1, generator=self.generator) / SHARE_MIXED - (1 / SHARE_MIXED - 1) / 2
        shown = batch.keep | (torch.rand(batch.ids.shape, generator=self.generator) < share)
        return torch.where(shown, batch.ids, ABSENT)


@dataclass(frozen=True)
class ChainQuality:
    """How well an energy knows held-out queries, with the tokens that were sent and with ABSENT in their place."""

    loss: float
    """-log p per token, the mean of both; of an additive energy with the tokens that were sent."""
    token_loss: float
    """-log p per token, the tokens being known."""
    agreement: float
    """Share of tokens whose label is the most probable one, the tokens being known."""
    skill: float
    """Share of the errors of always guessing the usual label that are avoided."""

    @property
    def absent_loss(self) -> float:
        """-log p per token, those that were replaced being ABSENT."""
        return 2 * self.loss - self.token_loss


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


def pseudo_label(energy: ChainEnergy, rows: Tensor, queries: Queries, generator: torch.Generator) -> None:
    """Put labels drawn from the energy, which knows all tokens of the queries, in place of outputs."""
    with torch.no_grad():
        vectors = energy.tokens(rows)
        for length in queries.lengths.unique().tolist():
            for part in torch.nonzero(queries.lengths == length)[:, 0].split(MIN_BUCKET):
                states = energy.states(queries.ids[part, :length], vectors, queries.lengths[part])
                queries.codes[part, :length] = sample_labels(*energy.potentials(states), generator)


def learn_chain(
    vocabulary: Vocabulary,
    rows: Tensor,
    known: Queries,
    held_out: Queries,
    pseudo: PseudoQueries | None,
    *,
    windows: Sequence[int],
    n_steps: int,
    seed: int,
    history: History,
    snapshots: Snapshots,
) -> tuple[ChainEnergy, ChainEnergy | None, ChainQuality]:
    """The energy with the window that is worth its width after a part of the steps, and its quality.

    Between them a simpler energy, to read paths from, if it predicts held-out labels better.
    """
    learners = {}
    for window in windows:
        with seeded(seed):
            energy = ChainEnergy(vocabulary.n_rows, known.n_labels, window=window)
        learners[window] = Learner(
            energy, rows, known, held_out, n_steps, torch.Generator().manual_seed(seed), snapshots
        )
    n_trial = int(TRIAL_SHARE * n_steps) if len(windows) > 1 else 0
    for window, learner in learners.items():
        history.stage(f"learning, window {window}", n_trial)
        learner.run(n_trial, history)
    window = windows[0]
    for wider in windows[1:]:
        if learners[wider].best_loss < (1 - MIN_GAIN) * learners[window].best_loss:
            window = wider
    history.stage("learning", n_steps - n_trial)
    learner = learners[window]
    learner.run(n_steps, history)
    energy = learner.finish()
    simpler = learn_additive(
        vocabulary,
        rows,
        known,
        held_out,
        window=window,
        n_steps=n_steps,
        seed=seed,
        history=history,
        snapshots=snapshots,
    )
    token_loss = judge(simpler, rows, held_out).token_loss
    if pseudo is not None:
        teacher = simpler if token_loss < judge(energy, rows, held_out).token_loss else energy
        energy = learn_absent(energy, teacher, rows, known, held_out, pseudo, n_steps, seed, history, snapshots)
    history.close()
    quality = judge(energy, rows, held_out)
    return energy, simpler if token_loss < quality.token_loss else None, quality


def learn_absent(
    energy: ChainEnergy,
    teacher: ChainEnergy,
    rows: Tensor,
    known: Queries,
    held_out: Queries,
    pseudo: PseudoQueries,
    n_steps: int,
    seed: int,
    history: History,
    snapshots: Snapshots,
) -> ChainEnergy:
    """What ABSENT stands for, learned from a teacher too, which knows the tokens.

    The model's output for a query is that of one of many draws, of which the teacher can label any number.
    """
    part = N_CHECKS // N_PARTS * -(-STEPS_AGAIN * n_steps // N_CHECKS)
    generator = torch.Generator().manual_seed(seed)
    student = copy.deepcopy(energy).requires_grad_(True).train()
    learner = Learner(
        student,
        rows,
        known,
        held_out,
        N_PARTS * part,
        generator,
        snapshots,
        lr=LR_AGAIN,
        judged_by=attrgetter("absent_loss"),
    )
    history.stage("learning absent tokens", learner.n_steps)
    for until in range(part, learner.n_steps + 1, part):
        queries, rows = pseudo.queries(int(SHARE_PSEUDO * BATCH * part))
        pseudo_label(teacher, rows, queries, generator)
        learner.learn_pseudo(queries, rows)
        learner.run(until, history)
    return learner.finish()


def learn_additive(
    vocabulary: Vocabulary,
    rows: Tensor,
    known: Queries,
    held_out: Queries,
    *,
    window: int,
    n_steps: int,
    seed: int,
    history: History,
    snapshots: Snapshots,
) -> ChainEnergy:
    """A simpler energy.

    An energy in which all can depend on all may take what a token says for what its label says, and the other way
    round. Where tokens speak one by one and transitions are the same for all of them, there is less to confuse.
    """
    with seeded(seed):
        energy = ChainEnergy(vocabulary.n_rows, known.n_labels, window=window, additive=True)
    learner = Learner(energy, rows, known, held_out, n_steps, torch.Generator().manual_seed(seed), snapshots)
    history.stage("learning paths", n_steps)
    learner.run(n_steps, history)
    return learner.finish()
