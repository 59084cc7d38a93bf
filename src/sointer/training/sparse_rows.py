"""The recipe for rows that are mostly zero, such as words: an energy of masked rows; then select, query, learn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from sointer.data.outputs import Outputs
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import build_energy
from sointer.energy.space import OutputSpace
from sointer.interpreter.elimination import EliminationInterpreter, hard_top_k, whole_rows
from sointer.training.context import (
    FitContext,
    PendingQuery,
    QueryPool,
    Trained,
    concatenate,
    n_repeated,
    repeatability,
)
from sointer.training.energy import EnergyTrainer, Quality, fit_scaling
from sointer.training.queries import UnmaskedRows, are_few, draw_pairs, query_first

FIRST_SELECTION, FIRST_SELECTED_LEARNED = 0.4, 0.55
"""Shares of the energy's steps after which features are first selected, and after which it first learns from that.

Where queries are few, every one of them should be a good one: both are then the latter.
"""
N_STEPS = (1_500, 10_000)
SHARE_OF_SMALLER_SELECTIONS = 0.75
ON_POLICY_CHUNK = 2048
SCORED_AT_ONCE = 256


def train_sparse_rows(context: FitContext) -> Trained:
    """See docs/concepts/how-it-works.md."""
    replies, whole_index, held_out, submit_rest = query_first(context)
    outputs, targets = context.describe(replies.raw)
    repeatability(context, outputs, whole_index.numpy(), replies)
    rest = submit_rest()
    pairs = QueryPool.of(outputs, replies, held_out)
    whole = UnmaskedRows(context, whole_index, pairs.codes_of(slice(len(whole_index))))
    interpreter = fresh_interpreter(context, outputs)
    learned = whole.learned(held_out)
    select = partial(
        submit_selected, context, learned, torch.tensor(targets), partial(score_rows, interpreter, learned)
    )
    return train_energy(
        context, outputs, targets, interpreter, whole, pairs, lambda trainer: alternate(context, trainer, rest, select)
    )


def train_energy(
    context: FitContext,
    outputs: Outputs,
    targets: list[int],
    interpreter: EliminationInterpreter,
    whole: UnmaskedRows,
    pairs: QueryPool,
    learn: Callable[[EnergyTrainer], None],
) -> Trained:
    """Learn the energy; an interrupt ends the training, but before features were first selected the whole fit."""
    energy, n_steps = interpreter.energy, number_of_steps(context)
    trainer = EnergyTrainer(energy, interpreter.likelihood, pairs, context.configs.energy, n_steps, context)
    interrupted = False
    try:
        context.history.stage("learning", trainer.n_steps)
        learn(trainer)
    except KeyboardInterrupt:
        if trainer.n_done < FIRST_SELECTION * trainer.n_steps:
            raise
        interrupted = True
        context.query_worker.stop()
    quality: Quality = trainer.finish()
    context.history.close()
    queried = whole.index.numpy(), whole.codes.numpy()
    return Trained(outputs, targets, energy, interpreter, quality, queried, interrupted)


def fresh_interpreter(context: FitContext, outputs: Outputs) -> EliminationInterpreter:
    """An untrained energy, scaled to the data, and the interpreter that reads it."""
    config = context.configs.energy
    seed = int(context.rng.integers(2**31))
    space = OutputSpace.of(outputs)
    energy = build_energy(context.rows.input_format.n_columns, space, config, structured=context.structured, seed=seed)
    fit_scaling(energy, context.rows.data)
    return EliminationInterpreter(
        energy,
        Likelihood.of(config),
        context.as_tensor(context.rows.removal.references(1, context.rng)),
        torch.as_tensor(context.rows.groups.unit_of_column.astype(np.int64)),
        context.rows.groups.n_units,
        n_path_steps=context.configs.interpreter.n_path_steps,
    )


def alternate(
    context: FitContext,
    trainer: EnergyTrainer,
    queried: PendingQuery,
    select: Callable[[int], list[PendingQuery]],
) -> None:
    """Learn the energy, in rounds of select, query, learn; `select` sends so many queries.

    Every round selects and queries before it takes in the outputs of what was queried a round before, so that a slow
    model always has something to do. All that does not need the last outputs is done before them. Where queries are
    few, the outputs of one selection are learned from before the next, and the model waits.
    """
    waits = are_few(context)
    n_spent = len(trainer.pairs) + len(queried) + n_repeated(context) + context.n_extra
    n_on_policy = max(0, context.n_queries - n_spent)
    n_rounds = context.configs.training.n_rounds if n_on_policy else 0
    round_share = (1.0 - FIRST_SELECTED_LEARNED) / max(n_rounds, 1)
    trainer.run_until(FIRST_SELECTED_LEARNED if waits and n_rounds else FIRST_SELECTION, "pre-training")
    pending = [queried]
    for number in range(n_rounds):
        selected = select(n_on_policy // n_rounds)
        take_in(trainer.pairs, [*pending, *selected] if waits else pending)
        pending = [] if waits else selected
        n_learned = number + waits
        trainer.run_until(
            FIRST_SELECTED_LEARNED + n_learned * round_share, f"round {n_learned}" if n_learned else "pre-training"
        )
    take_in(trainer.pairs, pending)
    trainer.run_until(1.0, f"round {n_rounds}" if n_rounds else "pre-training")


def take_in(pairs: QueryPool, pending: Iterable[PendingQuery]) -> None:
    """Wait for outputs, and learn from them from now on."""
    parts = [replies for query in pending if (replies := query.wait()) is not None]
    if parts:
        pairs.add(concatenate(parts))


Score = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""From whole rows and their targets to scores of the units, and which of these can be chosen: (rows, units)."""


@torch.no_grad()
def submit_selected(
    context: FitContext, whole: UnmaskedRows, targets: Tensor, score: Score, n: int
) -> list[PendingQuery]:
    """Query n rows reduced to what has the highest scores now, for targets that matter."""
    rows, row_targets = draw_pairs(whole, targets, n, context.generator)
    sizes = selection_sizes(context, n)
    pending = []
    for chunk in torch.arange(n).split(ON_POLICY_CHUNK) if n else ():
        scores, allowed = score(rows[chunk], row_targets[chunk])
        keep = hard_top_k(scores, context.k, allowed, sizes[chunk])
        pending.append(context.submit(whole.index[rows[chunk]].numpy(), keep.numpy()))
    return pending


def score_rows(
    interpreter: EliminationInterpreter, whole: UnmaskedRows, rows: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor]:
    """The evidence of the units of whole rows, and which of them can be chosen."""
    batch = whole.pick(rows)
    labels = labels_of(interpreter, batch.codes, targets)
    parts = zip(*(part.split(SCORED_AT_ONCE) for part in (batch.points, targets, labels)), strict=True)
    return torch.cat([whole_rows(interpreter, *part).evidence for part in parts]), batch.allowed


def labels_of(interpreter: EliminationInterpreter, codes: Tensor, targets: Tensor) -> Tensor:
    """The labels of the targets of rows with these codes."""
    return interpreter.energy.space.labels(codes).gather(1, targets.unsqueeze(1)).squeeze(1)


def selection_sizes(context: FitContext, n: int) -> Tensor:
    """How many units each queried selection keeps: k, but mostly fewer, so that short lists are right too."""
    sizes = torch.full((n,), context.k)
    smaller = torch.rand(n, generator=context.generator) < SHARE_OF_SMALLER_SELECTIONS
    share = torch.rand(int(smaller.sum()), generator=context.generator)
    sizes[smaller] = (context.k**share).floor().long()
    return sizes


def number_of_steps(context: FitContext) -> int:
    """n_epochs passes over all queries, within bounds that suit two cores."""
    n_batches = context.n_queries / context.configs.energy.batch_size
    return int(np.clip(context.configs.training.n_epochs * n_batches, *N_STEPS))
