"""How many points the paths of an explanation need: it costs in proportion to them."""

from __future__ import annotations

import torch
from torch import Tensor

from sointer.interpreter.networks import SaliencyInterpreter
from sointer.interpreter.relaxation import hard_top_k
from sointer.training.interpreter_steps import Judge
from sointer.training.queries import WholeRows, draw_pairs
from sointer.training.task import Task
from sointer.training.trial_scores import in_chunks

LENGTHS = (4, 8, 16)
N_PAIRS = 1024
LEAST_SAME = 0.995
MOST_LOST, MOST_OWN_ERROR = 0.001, 0.01
"""Log-likelihood that shorter paths may cost, where the energy's word counts: if it errs no more than this itself."""


def shorten_paths(task: Task, interpreter: SaliencyInterpreter, whole: WholeRows, targets: Tensor) -> None:
    """Keep the shortest paths that select what the full ones do or, by an energy that knows, what is as good."""
    rows, chosen = draw_pairs(whole, targets, N_PAIRS, task.generator)
    judge = Judge(task, interpreter, whole.pick(rows), chosen)
    full = selections(judge, interpreter.n_path_steps)
    worth = judge(torch.arange(N_PAIRS), full)
    knows = float(judge.own_error().mean()) <= MOST_OWN_ERROR
    for n_steps in LENGTHS:
        if n_steps >= interpreter.n_path_steps:
            return
        short = selections(judge, n_steps)
        same = float((short == full).all(dim=1).float().mean())
        lost = float((worth - judge(torch.arange(N_PAIRS), short)).mean())
        kept = same >= LEAST_SAME or (knows and lost <= MOST_LOST)
        task.history.record(stage="path length", n_path_steps=n_steps, same=same, lost=lost, kept=kept)
        if kept:
            interpreter.n_path_steps = n_steps
            return


def selections(judge: Judge, n_steps: int) -> Tensor:
    """What is selected for the judge's pairs with paths of so many points: (pairs, units)."""
    interpreter = judge.interpreter
    parts = [
        interpreter.with_residual(interpreter.prior(*part, n_steps=n_steps), part[0], part[1]).detach()
        for part in in_chunks(judge.some.points, judge.targets, judge.values)
    ]
    return hard_top_k(torch.cat(parts), judge.task.k, judge.some.allowed)
