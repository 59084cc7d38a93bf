"""The default recipe: energy by likelihood on masked inputs, then alternate select, query, learn."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sointer.energy.likelihood import Likelihood
from sointer.energy.space import OutputSpace
from sointer.interpreter.networks import SaliencyInterpreter
from sointer.interpreter.relaxation import hard_top_k
from sointer.outputs import Outputs
from sointer.training.energy_steps import EnergyTrainer, Quality, build_energy, fit_scaling
from sointer.training.interpreter_steps import choose_blend, learn_residual, priors_in_chunks, relevance_of
from sointer.training.queries import WholeRows, ask_first, draw_pairs
from sointer.training.task import Pairs, Replies, Task, Trained, concatenate, n_asked_twice, warn_if_unstable

MIN_STEPS_PER_EPOCH, MAX_STEPS_PER_EPOCH = 25, 100
PRETRAINING_STEPS_SHARE = 0.55
N_REFERENCES = 64
N_SPARSE_STEPS = (1_500, 10_000)
SHARE_OF_SMALLER_SELECTIONS = 0.75
ON_POLICY_CHUNK = 2048


def train_default(task: Task) -> Trained:
    """Steps 1 to 5 of the method; see docs/method.md."""
    replies, whole_index = ask_first(task)
    outputs, targets = task.describe(replies.raw)
    warn_if_unstable(task, outputs, whole_index.numpy(), replies)
    pairs = Pairs.of(outputs, replies, some_held_out(task, len(replies)))
    whole = WholeRows(task, whole_index, pairs.codes[: len(whole_index)])
    interpreter = fresh_interpreter(task, outputs)
    quality = alternate(task, interpreter, pairs, whole, torch.tensor(targets))
    fit_interpreter(task, interpreter, whole, torch.tensor(targets))
    asked_whole = (whole_index.numpy(), whole.codes.numpy())
    return Trained(
        outputs,
        targets,
        interpreter.energy,
        interpreter,
        quality.agreement,
        quality.skill,
        asked_whole,
        quality.poorly_told,
    )


def some_held_out(task: Task, n: int) -> Tensor:
    """Which answers are held out: a random share, and of two or more answers at least one, but not all."""
    held_out = torch.rand(n, generator=task.generator) < task.configs.training.validation_share
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


def alternate(task: Task, interpreter: SaliencyInterpreter, pairs: Pairs, whole: WholeRows, targets: Tensor) -> Quality:
    """Pre-train the energy, then rounds of select, query, learn; returns its quality on held-out answers."""
    n_steps = number_of_steps(task)
    n_on_policy = max(0, task.n_queries - len(pairs) - n_asked_twice(task))
    n_rounds = task.configs.training.n_rounds if n_on_policy else 0
    trainer = EnergyTrainer(
        interpreter.energy, interpreter.likelihood, pairs, task.configs.energy, n_steps, task.generator, task.history
    )
    task.history.stage("learning how inputs and outputs hang together", n_steps)
    trainer.run(int(n_steps * (PRETRAINING_STEPS_SHARE if n_rounds else 1.0)), "pre-training")
    for round_number in range(n_rounds):
        if not task.is_sparse:
            interpreter.relevance.copy_(relevance_of(interpreter, whole, targets, task.generator, 128))
        answers = ask_selected(task, interpreter, whole, targets, n_on_policy // n_rounds)
        if answers is not None:
            pairs.add(answers)
        trainer.run((n_steps - trainer.n_done) // (n_rounds - round_number), f"round {round_number + 1}")
    trainer.finish()
    return trainer.held_out_quality()


def fit_interpreter(task: Task, interpreter: SaliencyInterpreter, whole: WholeRows, targets: Tensor) -> None:
    """With the energy fixed: relevance over all rows, the blend, and the residual."""
    n_residual_steps = task.configs.interpreter.n_residual_steps
    task.history.stage("learning to choose features", 1 + n_residual_steps)
    if not task.is_sparse:
        interpreter.relevance.copy_(relevance_of(interpreter, whole, targets, task.generator, 512))
        choose_blend(task, interpreter, whole, targets)
    task.history.step()
    if n_residual_steps and task.k < task.groups.n_units:
        learn_residual(task, interpreter, whole, targets)
    task.history.close()


def ask_selected(
    task: Task, interpreter: SaliencyInterpreter, whole: WholeRows, targets: Tensor, n: int
) -> Replies | None:
    """Rows reduced to what the interpreter selects now, for targets that matter."""
    if n == 0:
        return None
    rows, row_targets = draw_pairs(whole, targets, n, task.generator)
    sizes = selection_sizes(task, n)
    parts = []
    for chunk in torch.arange(n).split(ON_POLICY_CHUNK):
        some, chosen = whole.pick(rows[chunk]), row_targets[chunk]
        values = some.codes.gather(1, chosen.unsqueeze(1)).squeeze(1)
        scores = priors_in_chunks(interpreter, some.points, chosen, values)
        keep = hard_top_k(scores, task.k, some.allowed, sizes[chunk])
        parts.append(task.query(some.index.numpy(), keep.numpy()))
    answered = [part for part in parts if part is not None]
    return concatenate(answered) if answered else None


def selection_sizes(task: Task, n: int) -> Tensor:
    """How many units each asked selection keeps: k; of sparse rows mostly fewer, so that short lists are right too."""
    sizes = torch.full((n,), task.k)
    if task.is_sparse:
        smaller = torch.rand(n, generator=task.generator) < SHARE_OF_SMALLER_SELECTIONS
        share = torch.rand(int(smaller.sum()), generator=task.generator)
        sizes[smaller] = (task.k**share).floor().long()
    return sizes


def number_of_steps(task: Task) -> int:
    """n_epochs passes over all queries, within bounds that suit two cores."""
    n_batches = task.n_queries / task.configs.energy.batch_size
    if task.is_sparse:
        return int(np.clip(task.configs.training.n_epochs * n_batches, *N_SPARSE_STEPS))
    return int(task.configs.training.n_epochs * np.clip(n_batches, MIN_STEPS_PER_EPOCH, MAX_STEPS_PER_EPOCH))
