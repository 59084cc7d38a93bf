"""Training the default interpreter: relevance, the blend of local and global, and the learned residual."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sointer.interpreter.networks import Blend, ResidualNetwork, SaliencyInterpreter, row_scale
from sointer.interpreter.relaxation import hard_top_k, soft_top_k
from sointer.randomness import seeded
from sointer.training.optim import Adam, Group
from sointer.training.queries import Rows, WholeRows, draw_pairs, imagined_rows
from sointer.training.search import improve_by_swaps
from sointer.training.task import Task
from sointer.training.trial_scores import (
    N_PATH_STEPS_OF_MANY,
    has_many_outputs,
    in_chunks,
    n_steps_of_trials,
    priors_in_chunks,
    saliency_in_chunks,
)

N_RELEVANCE_PAIRS = 20_000
RELEVANCE_CHUNK = 2048
N_RELEVANCE_PAIRS_OF_MANY = 4096
N_BLEND_PAIRS = 1024
MIN_PAIRS_FOR_OWN_BLEND = 256
N_RESIDUAL_PAIRS = 4096
N_DRAWS = 4
N_SWEEPS = 3
SWAP_MARGIN = 0.05  # nats, for one row
SEARCH_EFFORT = 300_000_000
MOST_OUTPUTS_AT_ONCE = 2**20
WIDTH_OF_AN_OUTPUT = 4
"""What an output that is found by mean-field steps costs, in input columns."""

# From the least to the most local; an earlier one is kept unless a later one is clearly better.
BLENDS = (
    Blend(signed=0.0, shrinkage=10.0),
    Blend(signed=0.0, shrinkage=3.0),
    Blend(signed=0.5, shrinkage=3.0),
    Blend(signed=0.0, shrinkage=1.0),
    Blend(signed=0.5, shrinkage=1.0),
    Blend(signed=1.0, shrinkage=1.0),
    Blend(signed=0.0, shrinkage=0.0),
    Blend(signed=0.5, shrinkage=0.0),
    Blend(signed=1.0, shrinkage=0.0),
)


@torch.no_grad()
def relevance_of(
    interpreter: SaliencyInterpreter,
    whole: WholeRows,
    targets: Tensor,
    generator: torch.Generator,
    n_per_target: int,
) -> Tensor:
    """Mean size of saliency for every target and unit, over rows where the unit differs: (outputs, units)."""
    many = has_many_outputs(interpreter)
    n_steps = N_PATH_STEPS_OF_MANY if many else interpreter.n_path_steps
    n = min(N_RELEVANCE_PAIRS_OF_MANY if many else N_RELEVANCE_PAIRS, n_per_target * len(targets))
    rows, chosen = draw_pairs(whole, targets, n, generator)
    total, count = torch.zeros_like(interpreter.relevance), torch.zeros_like(interpreter.relevance)
    for chunk in torch.arange(n).split(RELEVANCE_CHUNK):
        some, targets = whole.pick(rows[chunk]), chosen[chunk]
        values = some.codes.gather(1, targets.unsqueeze(1)).squeeze(1)
        size = saliency_in_chunks(interpreter, some.points, targets, values, n_steps, rolling=many).size
        total.index_add_(0, targets, size * some.allowed)
        count.index_add_(0, targets, some.allowed.float())
    return total / count.clamp_min(1.0)


@torch.no_grad()
def choose_blend(task: Task, interpreter: SaliencyInterpreter, whole: WholeRows, targets: Tensor) -> None:
    """For all targets together, and for each that is seen often enough, the least local blend that suffices."""
    n = int(np.clip(N_BLEND_PAIRS * len(targets) // 2, N_BLEND_PAIRS, 4 * N_BLEND_PAIRS))
    n = N_BLEND_PAIRS if has_many_outputs(interpreter) else n
    rows, chosen = draw_pairs(whole, targets, n, task.generator)
    judge = Judge(task, interpreter, whole.pick(rows), chosen)
    saliency = saliency_in_chunks(interpreter, judge.some.points, chosen, judge.values, n_steps_of_trials(interpreter))
    relevance = interpreter.relevance[chosen]
    quality = torch.stack([judge.of_scores(blend(saliency, relevance)) for blend in BLENDS])
    own_error = judge.own_error()
    shared = least_local(quality, float(own_error.mean()))
    for output in range(len(interpreter.signed)):
        own = chosen == output
        kept = shared
        if int(own.sum()) >= MIN_PAIRS_FOR_OWN_BLEND:
            kept = least_local(quality[:, own], float(own_error[own].mean()))
        interpreter.signed[output], interpreter.shrinkage[output] = (
            BLENDS[kept].signed,
            BLENDS[kept].shrinkage,
        )
    task.history.record(
        stage="blend",
        signed=float(interpreter.signed[targets].mean()),
        shrinkage=float(interpreter.shrinkage[targets].mean()),
        log_likelihood=float(quality[shared].mean()),
        best_log_likelihood=float(quality.mean(dim=1).max()),
    )


def least_local(quality: Tensor, own_error: float) -> int:
    """The first blend that the best one does not clearly beat, pair by pair."""
    best = int(quality.mean(dim=1).argmax())
    return next(i for i in range(len(quality)) if not clearly_positive(quality[best] - quality[i], own_error))


def learn_residual(task: Task, interpreter: SaliencyInterpreter, targets: Tensor) -> ResidualNetwork:
    """A residual that was taught the selections that a search over swaps finds better."""
    config = task.configs.interpreter
    n_candidates = min(task.groups.n_units, max(20, 2 * task.k))
    imagined = imagined_rows(task, interpreter.energy, interpreter.likelihood, N_RESIDUAL_PAIRS)
    rows, chosen = draw_pairs(imagined, targets, n_search_pairs(task, interpreter, n_candidates), task.generator)
    judge = Judge(task, interpreter, imagined.pick(rows), chosen)
    some, scores = judge.some, judge.prior()
    better = improve_by_swaps(
        judge,
        scores,
        some.allowed,
        task.k,
        n_candidates=n_candidates,
        n_sweeps=N_SWEEPS,
        margin=SWAP_MARGIN,
    )
    changed = (better != hard_top_k(scores, task.k, some.allowed)).any(dim=1).float().mean()
    task.history.record(stage="search", n_pairs=len(rows), changed=float(changed))
    prior = (scores / row_scale(scores)).masked_fill(~some.allowed, -10.0)
    wanted = better.float()
    with seeded(int(task.rng.integers(2**31))):
        residual = ResidualNetwork(
            interpreter.energy.scaling,
            some.points.shape[1],
            interpreter.energy.space.n_outputs,
            prior.shape[1],
            config.hidden,
        )
    optimiser = Adam([Group(list(residual.parameters()), config.learning_rate)])
    for _ in range(config.n_residual_steps):
        batch = torch.randint(len(prior), (config.batch_size,), generator=task.generator)
        logits = prior[batch] + residual(some.points[batch], chosen[batch])
        share = soft_top_k(logits, task.k, config.temperature).clamp(1e-6, 1 - 1e-6)
        loss = F.binary_cross_entropy(share, wanted[batch], weight=some.allowed[batch].float())
        task.history.step(loss=optimiser.step(loss))
    return residual.requires_grad_(False)


def n_search_pairs(task: Task, interpreter: SaliencyInterpreter, n_candidates: int) -> int:
    """As many pairs as the search can afford on inputs of this width."""
    n_draws = N_DRAWS if task.removal.is_random else 1
    width = task.input_format.n_columns + 100
    if interpreter.likelihood.is_exact(interpreter.energy):
        width += int(interpreter.energy.space.n_configurations)
    elif interpreter.energy.coupling is not None:
        width += WIDTH_OF_AN_OUTPUT * interpreter.energy.space.n_outputs
    per_pair = (n_candidates + task.k) * n_draws * N_SWEEPS * width
    return int(np.clip(SEARCH_EFFORT // per_pair, 256, N_RESIDUAL_PAIRS))


@torch.no_grad()
def accept_residual(
    task: Task,
    interpreter: SaliencyInterpreter,
    residual: ResidualNetwork,
    whole: WholeRows,
    targets: Tensor,
) -> None:
    """Keep the residual for the targets that it clearly helps, each alone where it is seen often enough."""
    n = int(np.clip(N_BLEND_PAIRS * len(targets) // 2, 2 * N_BLEND_PAIRS, 4 * N_BLEND_PAIRS))
    n = N_BLEND_PAIRS if has_many_outputs(interpreter) else n
    rows, chosen = draw_pairs(whole, targets, n, task.generator)
    judge = Judge(task, interpreter, whole.pick(rows), chosen)
    scores = judge.prior()
    without = judge.of_scores(scores)
    interpreter.residual = residual
    interpreter.residual_share.fill_(1.0)
    gain = judge.of_scores(interpreter.with_residual(scores, judge.some.points, chosen)) - without
    own_error = judge.own_error()
    shared = clearly_positive(gain, float(own_error.mean()))
    for output in range(len(interpreter.residual_share)):
        own = chosen == output
        helps = shared
        if int(own.sum()) >= MIN_PAIRS_FOR_OWN_BLEND:
            helps = clearly_positive(gain[own], float(own_error[own].mean()))
        interpreter.residual_share[output] = float(helps)
    n_helped = int(interpreter.residual_share[targets].sum())
    if n_helped == 0:
        interpreter.residual = None
    task.history.record(
        stage="residual",
        targets_helped=n_helped,
        log_likelihood=float(without.mean()),
        gain=float((gain * interpreter.residual_share[chosen]).mean()),
    )


def clearly_positive(gain: Tensor, own_error: float) -> bool:
    """Whether the mean gain exceeds both two standard errors and the energy's own error on whole rows.

    A selection cannot make the target more certain than the whole row does, except by the energy's mistakes.
    """
    return bool(gain.mean() > max(own_error, 2 * float(gain.std()) / len(gain) ** 0.5))


class Judge:
    """Values selections by the target's likelihood under the energy, on fixed pairs and fixed draws."""

    def __init__(self, task: Task, interpreter: SaliencyInterpreter, some: Rows, targets: Tensor) -> None:
        self.task, self.interpreter, self.some, self.targets = task, interpreter, some, targets
        self.values = some.codes.gather(1, targets.unsqueeze(1)).squeeze(1)
        n_draws = N_DRAWS if task.removal.is_random else 1
        nothing = np.zeros((len(some), task.input_format.n_columns), dtype=bool)
        self.absent = [task.as_tensor(task.removal.apply(some.raw, nothing, task.rng)) for _ in range(n_draws)]

    def prior(self) -> Tensor:
        """The interpreter's scores of the pairs: (pairs, units)."""
        if self.interpreter.eliminates:
            parts = in_chunks(self.some.points, self.targets, self.values)
            return torch.cat([self.interpreter(*part) for part in parts]).detach()
        return priors_in_chunks(self.interpreter, self.some.points, self.targets, self.values)

    def own_error(self) -> Tensor:
        """-log p_E(y_t = f(x)_t | x) of the whole rows: what the energy gets wrong with nothing removed."""
        everything = torch.ones(len(self.some), self.interpreter.relevance.shape[1], dtype=torch.bool)
        return -self(torch.arange(len(self.some)), everything)

    def of_scores(self, scores: Tensor) -> Tensor:
        """Value of selecting the k best scores, for every pair."""
        return self(torch.arange(len(self.some)), hard_top_k(scores, self.task.k, self.some.allowed))

    def __call__(self, rows: Tensor, keep_units: Tensor) -> Tensor:
        """Mean log p_E(y_t = f(x)_t | x~) over draws, for the given pairs reduced to the given units."""
        size = max(128, min(8192, MOST_OUTPUTS_AT_ONCE // self.interpreter.energy.space.n_outputs))
        parts = [self._of_chunk(r, k) for r, k in zip(rows.split(size), keep_units.split(size), strict=True)]
        return torch.cat(parts) if parts else torch.zeros(0)

    def _of_chunk(self, rows: Tensor, keep_units: Tensor) -> Tensor:
        keep = keep_units[:, self.interpreter.unit_of_column]
        x, targets, values = self.some.points[rows], self.targets[rows], self.values[rows]
        likelihood, energy = self.interpreter.likelihood, self.interpreter.energy
        with torch.no_grad():
            draws = [
                likelihood.target_log_likelihood(energy, torch.where(keep, x, absent[rows]), targets, values)
                for absent in self.absent
            ]
        return torch.stack(draws).mean(dim=0)
