"""The default recipe: energy by likelihood on masked inputs, then alternate select, query, learn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from sointer.energy.likelihood import Likelihood
from sointer.energy.space import OutputSpace
from sointer.interpreter.networks import SaliencyInterpreter
from sointer.interpreter.relaxation import hard_top_k
from sointer.outputs import Outputs
from sointer.training.energy_steps import EnergyTrainer, Quality, build_energy, fit_scaling
from sointer.training.interpreter_steps import accept_residual, choose_blend, learn_residual, relevance_of
from sointer.training.path_length import shorten_paths
from sointer.training.queries import WholeRows, are_few, ask_first, draw_pairs
from sointer.training.task import Pairs, Question, Task, Trained, concatenate, n_asked_twice, warn_if_unstable
from sointer.training.trial_scores import priors_in_chunks

MIN_STEPS_PER_EPOCH, MAX_STEPS_PER_EPOCH = 25, 100
FIRST_SELECTION, FIRST_SELECTED_ANSWERS = 0.4, 0.55
"""Shares of the energy's steps after which features are first selected, and after which it first learns from that.

Where questions are few, every one of them should be a good one: both are then the latter.
"""
ENOUGH_ANSWERS, MOST_SPARSITY = 5_000, 2.5
N_REFERENCES = 64
N_SPARSE_STEPS = (1_500, 10_000)
SHARE_OF_SMALLER_SELECTIONS = 0.75
ON_POLICY_CHUNK = 2048


def train_default(task: Task) -> Trained:
    """Steps 1 to 5 of the method; see docs/method.md."""
    replies, whole_index, ask_rest = ask_first(task)
    outputs, targets = task.describe(replies.raw)
    warn_if_unstable(task, outputs, whole_index.numpy(), replies)
    rest = ask_rest()
    pairs = Pairs.of(outputs, replies, some_held_out(task, len(replies), len(rest)))
    whole = WholeRows(task, whole_index, pairs.codes_of(slice(len(whole_index))))
    interpreter = fresh_interpreter(task, outputs)
    trainer = EnergyTrainer(
        interpreter.energy,
        interpreter.likelihood,
        pairs,
        replace(task.configs.energy, input_sparsity=input_sparsity(task)),
        number_of_steps(task),
        task.generator,
        task.history,
    )
    interrupted = False
    try:
        quality = alternate(task, interpreter, trainer, whole, torch.tensor(targets), rest)
    except KeyboardInterrupt:
        if trainer.n_done < FIRST_SELECTION * trainer.n_steps:
            raise
        interrupted = True
        task.asker.stop()
        quality = settle(task, interpreter, trainer, whole, torch.tensor(targets))
    task.history.close()
    return Trained(
        outputs,
        targets,
        interpreter.energy,
        interpreter,
        quality.agreement,
        quality.skill,
        (whole_index.numpy(), whole.codes.numpy()),
        quality.poorly_told,
        interrupted,
    )


def some_held_out(task: Task, n: int, n_later: int) -> Tensor:
    """Which of the n answers there are is held out: a random share of all n + n_later, but never none nor all."""
    share = task.configs.training.validation_share * (n + n_later) / n
    held_out = torch.rand(n, generator=task.generator) < share
    held_out[:2] = torch.tensor([True, False])[: min(2, n)]
    return held_out


def fresh_interpreter(task: Task, outputs: Outputs) -> SaliencyInterpreter:
    """An untrained energy, scaled to the data, and the interpreter that reads it."""
    config = task.configs.energy
    seed = int(task.rng.integers(2**31))
    space = OutputSpace.of(outputs)
    energy = build_energy(task.input_format.n_columns, space, config, structured=task.structured, seed=seed)
    fit_scaling(energy.scaling, task.data)
    n_path_steps = task.configs.interpreter.n_path_steps
    if not task.removal.is_random:
        n_path_steps = max(1, n_path_steps // 4)  # no averaging over references, only along the path
    interpreter = SaliencyInterpreter(
        energy,
        Likelihood.of(config),
        task.as_tensor(task.removal.references(N_REFERENCES, task.rng)),
        torch.from_numpy(task.groups.unit_of_column.astype(np.int64)),
        task.groups.n_units,
        n_path_steps=n_path_steps,
        eliminates=task.is_sparse,
    )
    if task.is_sparse:
        interpreter.signed.fill_(1.0)
        interpreter.shrinkage.fill_(0.0)
    return interpreter


def alternate(
    task: Task,
    interpreter: SaliencyInterpreter,
    trainer: EnergyTrainer,
    whole: WholeRows,
    targets: Tensor,
    asked: Question,
) -> Quality:
    """Learn the energy, in rounds of select, query, learn; then settle what the interpreter does with it.

    Returns how good the energy is in the end.

    Every round selects and asks before it takes in the answers to what was asked a round before, so that a slow
    black box always has something to answer. All that does not need the last answers is done before them. Where
    questions are few, the answers to one selection are learned from before the next, and the black box waits.
    """
    waits = are_few(task)
    n_on_policy = max(0, task.n_queries - len(trainer.pairs) - len(asked) - n_asked_twice(task))
    n_rounds = task.configs.training.n_rounds if n_on_policy else 0
    round_share = (1.0 - FIRST_SELECTED_ANSWERS) / max(n_rounds, 1)
    n_choosing = task.configs.interpreter.n_residual_steps if task.k < task.groups.n_units else 0
    task.history.stage("learning", trainer.n_steps + n_choosing)
    trainer.run_until(FIRST_SELECTED_ANSWERS if waits and n_rounds else FIRST_SELECTION, "pre-training")
    questions = [asked]
    for number in range(n_rounds):
        if not task.is_sparse:
            interpreter.relevance.copy_(relevance_of(interpreter, whole, targets, task.generator, 128))
        selected = ask_selected(task, interpreter, whole, targets, n_on_policy // n_rounds)
        take_in(trainer.pairs, [*questions, *selected] if waits else questions)
        questions = [] if waits else selected
        n_learned = number + waits
        trainer.run_until(
            FIRST_SELECTED_ANSWERS + n_learned * round_share, f"round {n_learned}" if n_learned else "pre-training"
        )
    residual = None
    if n_choosing and not waits:
        blend(task, interpreter, whole, targets)
        residual = learn_residual(task, interpreter, targets)
    take_in(trainer.pairs, questions)
    trainer.run_until(1.0, f"round {n_rounds}" if n_rounds else "pre-training")
    quality = settle(task, interpreter, trainer, whole, targets)
    if n_choosing and waits:
        residual = learn_residual(task, interpreter, targets)
    if residual is not None:
        accept_residual(task, interpreter, residual, whole, targets)
    if not interpreter.eliminates:
        shorten_paths(task, interpreter, whole, targets)
    return quality


def settle(
    task: Task, interpreter: SaliencyInterpreter, trainer: EnergyTrainer, whole: WholeRows, targets: Tensor
) -> Quality:
    """The energy as it is, the relevance and the blend that go with it, and no residual; returns how good it is."""
    quality = trainer.finish()
    interpreter.residual = None
    blend(task, interpreter, whole, targets)
    return quality


def blend(task: Task, interpreter: SaliencyInterpreter, whole: WholeRows, targets: Tensor) -> None:
    """Relevance over all rows, and how it is blended with a row's own saliency; sparse rows have neither."""
    if not task.is_sparse:
        interpreter.relevance.copy_(relevance_of(interpreter, whole, targets, task.generator, 512))
        choose_blend(task, interpreter, whole, targets)


def take_in(pairs: Pairs, questions: Iterable[Question]) -> None:
    """Wait for answers, and learn from them from now on."""
    parts = [answers for question in questions if (answers := question.answers()) is not None]
    if parts:
        pairs.add(concatenate(parts))


@torch.no_grad()
def ask_selected(
    task: Task, interpreter: SaliencyInterpreter, whole: WholeRows, targets: Tensor, n: int
) -> list[Question]:
    """Ask about rows reduced to what the interpreter selects now, for targets that matter."""
    rows, row_targets = draw_pairs(whole, targets, n, task.generator)
    sizes = selection_sizes(task, n)
    questions = []
    for chunk in torch.arange(n).split(ON_POLICY_CHUNK) if n else ():
        some, chosen = whole.pick(rows[chunk]), row_targets[chunk]
        values = some.codes.gather(1, chosen.unsqueeze(1)).squeeze(1)
        scores = priors_in_chunks(interpreter, some.points, chosen, values)
        keep = hard_top_k(scores, task.k, some.allowed, sizes[chunk])
        questions.append(task.ask(some.index.numpy(), keep.numpy()))
    return questions


def selection_sizes(task: Task, n: int) -> Tensor:
    """How many units each asked selection keeps: k; of sparse rows mostly fewer, so that short lists are right too."""
    sizes = torch.full((n,), task.k)
    if task.is_sparse:
        smaller = torch.rand(n, generator=task.generator) < SHARE_OF_SMALLER_SELECTIONS
        share = torch.rand(int(smaller.sum()), generator=task.generator)
        sizes[smaller] = (task.k**share).floor().long()
    return sizes


def input_sparsity(task: Task) -> float:
    """How strongly input columns without signal are weeded out: more where answers are few, and so easily memorised."""
    fewness = float(np.clip(ENOUGH_ANSWERS / max(task.n_queries, 1), 1.0, MOST_SPARSITY))
    return task.configs.energy.input_sparsity * fewness


def number_of_steps(task: Task) -> int:
    """n_epochs passes over all queries, within bounds that suit two cores."""
    n_batches = task.n_queries / task.configs.energy.batch_size
    if task.is_sparse:
        return int(np.clip(task.configs.training.n_epochs * n_batches, *N_SPARSE_STEPS))
    return int(task.configs.training.n_epochs * np.clip(n_batches, MIN_STEPS_PER_EPOCH, MAX_STEPS_PER_EPOCH))
