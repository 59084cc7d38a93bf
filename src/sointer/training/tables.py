"""The recipe for tables: samples, mixtures and one-unit redraws teach an energy; from it localities and effects."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer.data.outputs import Outputs
from sointer.data.reading import nearly_linear
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import build_energy
from sointer.energy.space import OutputSpace, PiecewiseLinear
from sointer.interpreter.effects import redraw_effects
from sointer.masking.selection import allowed_units
from sointer.training.context import (
    FitContext,
    PendingQuery,
    QueryBatch,
    QueryPool,
    Trained,
    as_codes,
    concatenate,
    n_repeated,
    repeatability,
)
from sointer.training.energy import EnergyTrainer
from sointer.training.gradient_network import references, unit_of_column
from sointer.training.queries import N_FIRST, SHARE_LATER, HeldOut, QueriedSamples, one_removed
from sointer.training.table_interpreter import (
    MAX_UNITS_REDRAWN,
    N_DRAWS,
    Interpretation,
    strongest_weights,
)

REDRAWS, MIN_REDRAWS_KEPT = (0.4, 0.2), 2_000
"""Share of the queries that redraw one unit: the first, until that is so many, then the second."""
CHECKS = 0.08
"""Share of the queries kept to confirm that what was found suffices."""
FIRST_LOOK, SECOND_LOOK = 0.25, 0.4
"""Shares of the training after which units to redraw are chosen, and redraws are first learned from.

Whoever interrupts a fit after the first gets a usable explainer."""
MIN_CANDIDATES, REDRAWS_PER_CANDIDATE, MIN_REDRAWS = 24, 100, 40
SHARE_OF_ANY = 0.1
RARE = 0.15
"""Share of the samples below which a label is rare."""
N_LOOKED_AT = 200
MIN_QUERIES, MAX_SPARSITY = 5_000, 2.5
STEPS_PER_EPOCH = 25, 100


def train_tables(context: FitContext) -> Trained:
    """See docs/concepts/how-it-works.md."""
    plan = Plan.of(context)
    whole, mixtures, kept, later = query_planned(context, plan)
    answered = concatenate([r for r in (whole, mixtures) if r is not None])
    outputs, targets = context.describe(answered.raw)
    outputs = replace(outputs, quantiles=nearly_linear(outputs.quantiles, answered.raw))
    noise = repeatability(context, outputs, plan.rows[: len(whole)], whole)
    pairs = QueryPool.of(outputs, answered, plan.held_out.among(len(whole), len(answered) - len(whole)))
    energy = build_energy(
        PiecewiseLinear.of(context.rows.samples(np.arange(context.rows.n_samples)), context.shift),
        OutputSpace.of(outputs),
        context.configs.energy,
        structured=context.structured,
        seed=int(context.rng.integers(2**31)),
    )
    likelihood = replace(Likelihood.of(context.configs.energy), is_joint=False)
    trainer = EnergyTrainer(
        energy,
        likelihood,
        pairs,
        replace(context.configs.energy, input_sparsity=input_sparsity(context)),
        number_of_steps(context),
        context,
        unit_of_column=torch.as_tensor(context.rows.groups.unit_of_column.astype(np.int64)),
    )
    more, interrupted = More(), False
    try:
        learned = plan.learned(len(whole))
        learn(context, plan, trainer, targets, rare_rows(outputs, whole, targets, learned), learned, later, more)
    except KeyboardInterrupt:
        if trainer.n_done < FIRST_LOOK * trainer.n_steps:
            raise
        interrupted = True
        context.query_worker.stop()
    quality = trainer.finish()
    queried = gather(outputs, plan, whole, [mixtures, more.mixtures], kept, more)
    made = Interpretation(context, outputs, targets, energy, likelihood, queried, noise, plan.n_checks)
    try:
        interpreter = made.make() if not interrupted else made.in_brief().make()
    except KeyboardInterrupt:
        if interrupted:
            raise
        interrupted = True
        context.query_worker.stop()
        interpreter = made.in_brief().make()
    context.history.close()
    return Trained(outputs, targets, energy, interpreter, quality, (queried.rows, queried.codes), interrupted)


@dataclass
class More:
    """What is queried while training goes on."""

    mixtures: QueryBatch | None = None
    rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """For each redraw, which of the whole samples it is of."""
    units: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    redraws: QueryBatch | None = None


def learn(
    context: FitContext,
    plan: Plan,
    trainer: EnergyTrainer,
    targets: list[int],
    rare: list[NDArray[np.int64]],
    learned: NDArray[np.int64],
    later: PendingQuery,
    more: More,
) -> None:
    """Train the energy, first on whole samples and mixtures; choose what to redraw, and learn from that as well."""
    pairs = trainer.pairs
    context.history.stage("learning", trainer.n_steps)
    trainer.run_until(FIRST_LOOK, "mixtures")
    rows, units = plan_redraws(context, plan, trainer, torch.tensor(targets), rare, learned)
    pending_redraws = context.submit(plan.rows[rows], one_removed(units, context.rows.groups.n_units))
    more.mixtures = later.wait()
    if more.mixtures is not None:
        pairs.add(more.mixtures)
    trainer.run_until(SECOND_LOOK, "mixtures")
    redraws = pending_redraws.wait()
    more.rows, more.units, more.redraws = rows, units, redraws
    if redraws is not None:
        pairs.add(redraws)
    trainer.run_until(1.0, "redraws")


@dataclass(frozen=True)
class Plan:
    """How the queries are spent."""

    rows: NDArray[np.int64]
    """Samples to query whole."""
    mixed: NDArray[np.int64]
    """For each mixture, which of them it is made from."""
    n_mixed_later: int
    held_out: HeldOut
    n_redraws: int
    n_checks: int

    @classmethod
    def of(cls, context: FitContext) -> Plan:
        n = max(4, context.n_queries - n_repeated(context))
        n_redraws = int(min(REDRAWS[0] * n, max(MIN_REDRAWS_KEPT, REDRAWS[1] * n)))
        n_checks = int(CHECKS * n)
        n_first = n - n_redraws - n_checks
        n_whole = min(context.rows.n_samples, max(1, n_first // 2))
        n_mixtures = n_first - n_whole
        n_later = int(SHARE_LATER * n_mixtures)
        held_out = HeldOut.of(context, n_whole, n_mixtures - n_later, n_later)
        learned = np.flatnonzero(~held_out.whole)
        mixed = held_out.masked_samples(np.arange(n_whole), learned)
        mixed_later = np.roll(learned, -int((~held_out.masked).sum()))  # all of them in turn
        rows = context.rng.permutation(context.rows.n_samples)[:n_whole]
        return cls(
            rows, np.concatenate([mixed, np.resize(mixed_later, n_later)]), n_later, held_out, n_redraws, n_checks
        )

    def learned(self, n_whole: int) -> NDArray[np.int64]:
        """Which of the first samples are not held out; all, if none would be left."""
        found = np.flatnonzero(~self.held_out.whole[:n_whole])
        return found if len(found) else np.arange(n_whole)


def query_planned(
    context: FitContext, plan: Plan
) -> tuple[QueryBatch, QueryBatch | None, NDArray[np.bool_], PendingQuery]:
    """Whole samples, then mixtures of them with others; a fifth of these is queried while training has begun."""
    context.history.stage("querying the model", len(plan.rows) + len(plan.mixed), unit="rows")
    # Wrong names or targets must come to light before the budget is spent.
    first = context.query(plan.rows[:N_FIRST])
    if first is not None:
        context.check(first.raw)
    rest = context.submit(plan.rows[N_FIRST:])
    kept = some_removed(context, len(plan.mixed))
    index, n_now = plan.rows[plan.mixed], len(plan.mixed) - plan.n_mixed_later
    mixtures = context.submit(index[:n_now], kept[:n_now])
    whole = concatenate([part for part in (first, rest.wait()) if part is not None])
    answered = mixtures.wait()
    return whole, answered, kept, context.submit(index[n_now:], kept[n_now:])


def some_removed(context: FitContext, n: int) -> NDArray[np.bool_]:
    """Units to keep in mixtures; never all of them, as whole samples are queried about once."""
    kept = context.random_keeps(n, context.rng)
    whole = np.flatnonzero(kept.all(axis=1))
    kept[whole, context.rng.integers(context.rows.groups.n_units, size=len(whole))] = False
    return kept


def rare_rows(
    outputs: Outputs, whole: QueryBatch, targets: list[int], learned: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    """For each label of a target that few whole samples have, those of these samples that are learned from."""
    codes = as_codes(outputs, whole.raw).numpy()
    found = []
    for target in targets:
        if not outputs.graded[target]:
            for label in np.unique(codes[:, target]):
                rows = np.flatnonzero(codes[:, target] == label)
                if len(rows) < RARE * len(codes) and np.isin(rows, learned).any():
                    found.append(np.intersect1d(rows, learned))
    return found


def plan_redraws(
    context: FitContext,
    plan: Plan,
    trainer: EnergyTrainer,
    targets: Tensor,
    rare: list[NDArray[np.int64]],
    learned: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which whole sample, and which of its units, to redraw: all units if that is affordable, else the strongest.

    Half of the samples have a rare label, if there is one: redraws of others seldom change it.
    """
    n_units, n = context.rows.groups.n_units, plan.n_redraws
    candidates = np.arange(n_units)
    if n < MIN_REDRAWS * n_units:
        strength = strengths(context, trainer, plan.rows[learned], targets)
        candidates = np.argsort(-strength, kind="stable")[: max(MIN_CANDIDATES, n // REDRAWS_PER_CANDIDATE)]
    row = np.resize(learned, n)
    if rare:
        chosen = context.rng.integers(len(rare), size=n // 2)
        row[: n // 2] = [context.rng.choice(rare[which]) for which in chosen]
    unit = candidates[context.rng.permutation(n) % len(candidates)]
    anything = context.rng.random(n) < SHARE_OF_ANY
    unit[anything] = context.rng.integers(n_units, size=int(anything.sum()))
    if not context.rows.removal.is_random:
        row, unit = distinct_pairs(context, plan.rows, row, unit)
    return row, unit


def distinct_pairs(
    context: FitContext, rows: NDArray[np.int64], row: NDArray[np.int64], unit: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where a unit removed is always the same, no pair is queried twice, nor any unit that is its reference already."""
    _, first = np.unique(row * context.rows.groups.n_units + unit, return_index=True)
    row, unit = row[np.sort(first)], unit[np.sort(first)]
    differs = np.concatenate(
        [
            allowed_units(context.rows.removal, context.rows.groups, context.rows.samples(rows[row[part]]))[
                np.arange(len(part)), unit[part]
            ]
            for part in np.array_split(np.arange(len(row)), max(1, len(row) // 1024))
        ]
    )
    return row[differs], unit[differs]


def strengths(
    context: FitContext, trainer: EnergyTrainer, rows: NDArray[np.int64], targets: Tensor
) -> NDArray[np.float64]:
    """The largest share of any target's effects that each unit has on the energy as it is: (units,)."""
    energy, curves = trainer.energy, trainer.pairs.outputs.quantiles
    units = strongest_weights(context, energy, MAX_UNITS_REDRAWN)
    x = context.as_tensor(context.rows.samples(rows[:N_LOOKED_AT]))
    drawn, owner = references(context, N_DRAWS), unit_of_column(context)
    found_effects = redraw_effects(energy, trainer.likelihood, x, drawn, owner, units, curves)
    effects = found_effects.mean(dim=0)[:, targets]
    share = effects / effects.sum(dim=0).clamp_min(1e-9)
    found = np.zeros(context.rows.groups.n_units)
    found[units.numpy()] = share.amax(dim=1).numpy()
    return found


def gather(
    outputs: Outputs,
    plan: Plan,
    whole: QueryBatch,
    mixtures: list[QueryBatch | None],
    kept: NDArray[np.bool_],
    more: More,
) -> QueriedSamples:
    """All outputs as codes; those with a label never seen before are left out."""
    codes = as_codes(outputs, whole.raw).numpy()
    parts, positions, start = [], [], 0
    for replies in mixtures:
        n = 0 if replies is None else len(replies)
        if replies is not None:
            known = outputs.knows(replies.raw)
            parts.append(as_codes(outputs, replies.raw[known]).numpy())
            positions.append(start + np.flatnonzero(known))
        start += n
    place = np.concatenate(positions) if positions else np.zeros(0, dtype=np.int64)
    answered = np.concatenate(parts) if parts else codes[:0]
    mixed = plan.mixed[place]
    inside = mixed < len(codes)
    row, unit, redrawn = more.rows, more.units, more.redraws
    known = np.zeros(0, dtype=bool) if redrawn is None else outputs.knows(redrawn.raw)
    redraw_codes = codes[:0] if redrawn is None else as_codes(outputs, redrawn.raw[known]).numpy()
    row, unit = row[: len(known)][known], unit[: len(known)][known]
    return QueriedSamples(
        plan.rows[: len(codes)],
        codes,
        mixed[inside],
        kept[place][inside],
        answered[inside],
        row,
        unit,
        redraw_codes,
    )


def input_sparsity(context: FitContext) -> float:
    """How strongly units without signal are weeded out: more where queries are few, and so easily memorised."""
    fewness = float(np.clip(MIN_QUERIES / max(context.n_queries, 1), 1.0, MAX_SPARSITY))
    return context.configs.energy.input_sparsity * fewness


def number_of_steps(context: FitContext) -> int:
    """n_epochs passes over all queries, within bounds that suit two cores."""
    n_batches = context.n_queries / context.configs.energy.batch_size
    return int(context.configs.training.n_epochs * np.clip(n_batches, *STEPS_PER_EPOCH))
