"""From a learned energy, and what the black box was queried, to the interpreter: localities, effects, sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer.data.inputs import InputFormat
from sointer.data.outputs import Outputs
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import TrainableEnergy
from sointer.interpreter.effects import redraw_effects
from sointer.interpreter.localities import TargetData
from sointer.interpreter.splits import MIN_BOTH_OFF, MIN_SWITCHED_OFF, Mixtures, Redraws, WeightedSum, noise_floor
from sointer.interpreter.tables import ALL_ACTIVE, LocalityTable, TableInterpreter, conditions_of, own_columns, suffices
from sointer.interpreter.trees import Node, complete_node, leakiness, leaves, mean_active, prune_unconfirmed
from sointer.training.context import FitContext, as_codes
from sointer.training.gradient_network import make_effects, references, teach_gradients, unit_of_column
from sointer.training.queries import QueriedSamples, one_removed

N_POOL, N_DRAWS, MAX_UNITS_REDRAWN = 1_000, 8, 256
N_CHECKED = 40
"""Queries to learn whether the units of one locality suffice."""
MAX_ACTIVE, MAX_ACTIVE_SHARE, MAX_ACTIVE_OF_MANY, MAX_ACTIVE_OF_FEW = 8, 0.1, 16, 4
MAX_SHARE = 0.65
"""Few units decide if on average at most the first number of them is active (with many units in all, up to the third),
and no larger share of all; where there are few in all, the last number may be active."""
MIN_RELATIVE, STANDS_OUT = 0.03, 0.25
"""Graded outputs change a little by nearly everything: a unit counts if its effect is this share of the largest; the
second where that leaves too many, as in forests, whose every feature matters a little everywhere."""
SUFFICES, SUFFICES_GRADED, SUFFICES_LABELS, SUFFICES_NOISY = 0.98, 0.98, 0.9, 0.7
"""What must stay as it is for the units of a locality to suffice, and for those of all localities together."""
MOSTLY_SUFFICES, SUFFICES_LEAKY = 0.85, 0.95
"""The same where a few units stand out everywhere, and all others together change the target little; the second for
numbers, and where other units stand out in other localities."""
LEAKY = 0.8
"""Share of all units that must change the target in a locality at all, for that to be no reason to need them."""
SHARES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
MIN_FIDELITY = 0.9
N_SIZED, MIN_CHECKED = 128, 10


@dataclass
class Interpretation:
    """Makes the interpreter; may spend `n_checks` more queries."""

    context: FitContext
    outputs: Outputs
    targets: list[int]
    energy: TrainableEnergy
    likelihood: Likelihood
    queried: QueriedSamples
    noise: tuple[NDArray[np.float64], NDArray[np.float64]]
    n_checks: int
    is_brief: bool = False
    """Whether nothing more is queried or taught: effects then take some points on paths, not one pass."""

    def in_brief(self) -> Interpretation:
        return replace(self, n_checks=0, is_brief=True)

    def make(self) -> TableInterpreter:
        self._coarse: set[int] = set()
        context, space = self.context, self.energy.space
        context.history.stage("finding localities", len(self.targets), unit="outputs")
        self._rows = context.rows.samples(self.queried.rows)
        encoded = space.encode(torch.as_tensor(self.queried.codes)).numpy().astype(np.float64)
        self._conditions = conditions_of(self._rows, encoded)
        self._effects = self._redraw_effects()
        self._sums: dict[int, list[WeightedSum]] = {target: [] for target in self.targets}
        trees = {}
        for target in self.targets:
            trees[target] = self._data(target).grow()
            context.history.step()
        constant = {target for target in self.targets if self._never_changes(target)}
        for target in constant:  # few redraws of a unit may leave it in doubt, but there is nothing to decide
            for node in trees[target].walk():
                node.active[:] = False
                node.doubtful[:] = False
        self._resolve_doubts(trees)
        self._check(trees)
        for target, root in trees.items():
            graded = self.outputs.graded[target]
            prune_unconfirmed(root, SUFFICES, least_off=MIN_SWITCHED_OFF if graded else MIN_BOTH_OFF)
        sparse = {target: target in constant or self._is_sparse(target, root) for target, root in trees.items()}
        least = dict.fromkeys(trees, SUFFICES)
        for target in self.targets:
            # Where nearly every unit matters a little, those that stand out may do as well.
            if sparse[target] and not (self.outputs.graded[target] and leakiness(trees[target]) >= LEAKY):
                continue
            mostly = MOSTLY_SUFFICES if self.outputs.kinds[target] != "continuous" else SUFFICES_LEAKY
            local = self._of_those_that_stand_out(target)
            if local is not None:
                trees[target], sparse[target], least[target] = local, True, SUFFICES_LEAKY
            elif not sparse[target] and self._mostly_decided(target, trees[target], mostly):
                sparse[target], least[target] = True, MOSTLY_SUFFICES
        n_conditions = self._conditions.shape[1]
        table = LocalityTable.of(trees, self.outputs.n_outputs, least, sparse, self._sums, n_conditions)
        effects = make_effects(context, self.outputs, self.energy, self.likelihood, self.queried.codes)
        if not self.is_brief:
            teach_gradients(context, effects)
        interpreter = TableInterpreter(self.energy, self.likelihood, effects, table)
        diffuse = [target for target in self.targets if not sparse[target]]
        for n_left, target in zip(range(len(diffuse), 0, -1), diffuse, strict=True):
            active, n_queries = trees[target].active, self.n_checks // n_left
            table.evidence_share[target] = self._share_that_suffices(interpreter, target, active, n_queries)
        return interpreter

    # --- localities ----------------------------------------------------------------------------------------

    def _redraw_effects(self) -> NDArray[np.float64]:
        """On the energy: (pool, units, targets)."""
        context, units = self.context, strongest_weights(self.context, self.energy, MAX_UNITS_REDRAWN)
        x, owner = context.as_tensor(self._rows[:N_POOL]), unit_of_column(context)
        drawn, curves = references(context, N_DRAWS), self.outputs.quantiles
        found = redraw_effects(self.energy, self.likelihood, x, drawn, owner, units, curves)
        effects = np.zeros((len(x), context.rows.groups.n_units, len(self.targets)))
        effects[:, units.numpy()] = found[:, :, torch.tensor(self.targets)].numpy()
        return effects

    def _data(self, target: int) -> TargetData:
        space, queried, n_columns = self.energy.space, self.queried, self._rows.shape[1]
        conditions = self._conditions.copy()
        # What never varies is never split on. Without structure a target is explained without other outputs.
        own = own_columns(space.column_output.tolist(), target, n_columns)
        conditions[:, own if self.energy.coupling is not None else slice(n_columns, None)] = 0.0
        square, rate = (float(part[target]) for part in self.noise)
        graded = bool(self.outputs.graded[target])
        effects = self._effects[:, :, self.targets.index(target)]
        redraw_changes = self._change(target, queried.redraw_codes, queried.codes[queried.redrawn])
        mixture_changes = self._change(target, queried.mixture_codes, queried.codes[queried.mixed])
        if not graded:
            floor = noise_floor(queried.unit, redraw_changes, effects.mean(axis=0))
            square, rate = max(square, floor), max(rate, floor)
        return TargetData(
            effects,
            conditions[: len(effects)],
            conditions,
            self.context.rows.groups.unit_of_column.astype(np.int64),
            Redraws(queried.redrawn, queried.unit, redraw_changes),
            Mixtures(queried.mixed, queried.kept, mixture_changes),
            max(1e-6, 3 * square**0.5) if graded else 0.5,
            square,
            rate,
            STANDS_OUT if target in self._coarse else MIN_RELATIVE if graded else 0.0,
            plain_numbers(self.context.rows.input_format),
            self._sums[target],
        )

    def _never_changes(self, target: int) -> bool:
        """Whether all outputs had the same value."""
        queried = self.queried
        parts = (queried.codes, queried.mixture_codes, queried.redraw_codes)
        return len(np.unique(np.concatenate([part[:, target] for part in parts]))) == 1

    def _change(self, target: int, after: NDArray[Any], before: NDArray[Any]) -> NDArray[np.float64]:
        a, b = (part[:, target].astype(np.float64) for part in (after, before))
        if (curve := self.outputs.quantiles[target]) is not None:
            a, b = curve.rank(a), curve.rank(b)
        return np.abs(a - b) if self.energy.space.n_classes[target] == 2 else (a != b).astype(np.float64)

    def _resolve_doubts(self, trees: dict[int, Node]) -> None:
        """Redraw units of which it is not known whether they matter in a locality, as they do around it."""
        doubts = [
            (target, leaf, unit)
            for target, root in trees.items()
            for leaf in leaves(root)
            for unit in np.flatnonzero(leaf.doubtful).tolist()
        ]
        n_each = min(N_CHECKED, self.n_checks // 2 // max(len(doubts), 1))
        if not doubts or n_each < MIN_CHECKED:
            return
        data = {target: self._data(target) for target in {target for target, _, _ in doubts}}
        chosen = [np.flatnonzero(data[target].rows_in(leaf)) for target, leaf, _ in doubts]
        row = np.concatenate([self.context.rng.choice(inside, n_each) for inside in chosen if len(inside)])
        unit = np.repeat([unit for (_, _, unit), inside in zip(doubts, chosen, strict=True) if len(inside)], n_each)
        keep = one_removed(unit, self.context.rows.groups.n_units)
        replies = self.context.query(self.queried.rows[row], keep)
        if replies is None:
            return
        self.n_checks -= len(replies)
        n, known = len(replies), self.outputs.knows(replies.raw)
        codes = as_codes(self.outputs, replies.raw[known]).numpy()
        self.queried = self.queried.with_redraws(row[:n][known], unit[:n][known], codes)
        for target in data:
            self._data(target).describe_all(trees[target])

    def _check(self, trees: dict[int, Node]) -> None:
        """Query whether units suffice in localities of which too few mixtures happened to keep them all."""
        most = max_active(self.context.rows.groups.n_units)
        unknown = [
            (target, node)
            for target, root in trees.items()
            if mean_active(root) <= most
            for node in root.walk()
            if np.isnan(node.sufficiency) and node.active.any()
        ]
        together = share_checks(unknown, self.context.rows.groups.n_units // 3)
        n_each = min(N_CHECKED, self.n_checks // (len(together) + 1))
        data = {target: self._data(target) for target in {target for target, _, _ in together}}
        rows, kept = [], []
        for target, node, units in together:
            inside = np.flatnonzero(data[target].rows_in(node))
            if n_each and len(inside):
                rows.append(self.context.rng.choice(inside, n_each))
                kept.append(np.repeat(units[None], n_each, axis=0))
        if rows and self._query(np.concatenate(rows), np.concatenate(kept)):
            for target, node in unknown:
                self._data(target).describe(node)

    def _query(self, rows: NDArray[np.int64], kept: NDArray[np.bool_]) -> int:
        """Query whole samples with other units than these redrawn; how many more mixtures there are then."""
        replies = self.context.query(self.queried.rows[rows], kept)
        if replies is None:
            return 0
        n, known = len(replies), self.outputs.knows(replies.raw)
        self.n_checks -= n
        codes = as_codes(self.outputs, replies.raw[known]).numpy()
        self.queried = self.queried.with_mixtures(rows[:n][known], kept[:n][known], codes)
        return len(codes)

    def _is_sparse(self, target: int, root: Node) -> bool:
        """Whether few units decide a target everywhere, which the black box confirms."""
        least = SUFFICES_GRADED if self.outputs.graded[target] else SUFFICES_LABELS
        if self._data(target).noise_rate > 0:
            least = SUFFICES_NOISY
        is_small = mean_active(root) <= max_active(self.context.rows.groups.n_units)
        if not root.active.any() or not is_small:
            return False
        if np.isnan(root.sufficiency):  # too few queries were left to learn it
            return self._data(target).seem_to_suffice(root, root.active, least)
        return bool(root.sufficiency >= least)

    def _of_those_that_stand_out(self, target: int) -> Node | None:
        """The tree of the units that stand out, if it has localities in each of which few of them suffice."""
        self._coarse.add(target)
        root = self._data(target).grow()
        if root.children is not None:
            self._check({target: root})
            prune_unconfirmed(root, SUFFICES_LEAKY, least_off=MIN_SWITCHED_OFF)
        is_small = mean_active(root) <= max_active(self.context.rows.groups.n_units)
        if root.children is not None and is_small and all(complete_node(leaf, SUFFICES_LEAKY) for leaf in leaves(root)):
            return root
        self._coarse.discard(target)
        return None

    def _mostly_decided(self, target: int, root: Node, least: float) -> bool:
        """Whether few units nearly suffice everywhere, as queries say: they alone are active then, in one locality."""
        rows = self.context.rng.choice(len(self._rows), min(N_SIZED, len(self._rows)), replace=False)
        x, order = self.context.as_tensor(self._rows[rows]), np.argsort(-root.score, kind="stable")
        is_number = self.outputs.kinds[target] == "continuous"
        for size in range(1, int(max_active(len(order))) + 1):
            units = np.zeros(len(order), dtype=bool)
            units[order[:size]] = True
            keep = np.repeat(units[None], len(rows), axis=0)
            seems = self._data(target).seem_to_suffice(root, units, least)
            if not seems and self._sufficiency_of_energy(x, keep, target) < least:
                continue
            n = min(N_CHECKED, self.n_checks, len(rows))
            added = self._query(rows[:n], keep[:n]) if n >= MIN_CHECKED else 0
            sufficiency = least if seems else 0.0
            if added and is_number:  # what explains most of a number need not keep it
                sufficiency = self._fidelity(target, added)
            elif added:
                queried = self.queried
                lost = self._change(target, queried.mixture_codes[-added:], queried.codes[queried.mixed[-added:]])
                sufficiency = self._data(target).share_kept(lost, np.ones(len(queried.mixed), dtype=bool))
            if sufficiency < (MIN_FIDELITY if is_number else least):
                if seems or is_number:  # only chance, or the energy, spoke for so few
                    continue
                return False
            root.active, root.sufficiency, root.children, root.condition = units, sufficiency, None, -1
            return True
        return False

    def _sufficiency_of_energy(self, x: Tensor, keep: NDArray[np.bool_], target: int) -> float:
        """How much of the change by redrawing everything is avoided, on the energy, while these units are kept.

        Of samples that are expected to have one value, and of those that are not, the less: what keeps a common label
        says nothing of a rare one.
        """
        columns = torch.as_tensor(self.context.rows.groups.to_columns(keep))
        own = self.energy.space.label_output == target

        def expected(points: Tensor) -> Tensor:
            return self.likelihood.log_marginals(self.energy, points).exp()[:, own]

        with torch.no_grad():
            before = expected(x)
            lost, everything = torch.zeros(len(x)), torch.zeros(len(x))
            for drawn in references(self.context, N_DRAWS):
                lost += (expected(torch.where(columns, x, drawn)) - before).square().sum(dim=1)
                everything += (expected(drawn.expand_as(x)) - before).square().sum(dim=1)
        value = before.argmax(dim=1)
        parts = [value == each for each in value.unique()]
        return min(1 - float(lost[rows].sum() / everything[rows].sum().clamp_min(1e-12)) for rows in parts)

    # --- sizes where many units decide ---------------------------------------------------------------------

    def _share_that_suffices(
        self, interpreter: TableInterpreter, target: int, active: NDArray[np.bool_], n_queries: int
    ) -> float:
        """The least share of the evidence for a value that keeps it, by the energy and then by the black box.

        What speaks for a value may not be enough, as where features are counted: then it is all active units.
        """
        rows = self.context.rng.choice(len(self._rows), min(N_SIZED, len(self._rows)), replace=False)
        x, codes = self.context.as_tensor(self._rows[rows]), self.queried.codes[rows]
        evidence = interpreter.evidence(x, target, codes[:, target], self.outputs)
        tried = [(share, suffices(evidence, share).numpy()) for share in SHARES]
        if active.any():
            tried.append((ALL_ACTIVE, np.repeat(active[None], len(rows), axis=0)))
            tried[-2:] = sorted(tried[-2:], key=lambda each: int(each[1].sum()))
        for share, keep in tried:
            if self._fidelity_of_energy(x, keep, target, tolerant=True) >= MIN_FIDELITY:
                n = min(N_CHECKED, n_queries)
                added = self._query(rows[:n], keep[:n]) if n >= MIN_CHECKED and not keep.all() else 0
                n_queries -= added
                stays = self._fidelity(target, added) if added else self._fidelity_of_energy(x, keep, target)
                if stays >= MIN_FIDELITY:
                    return share
        return 1.0

    def _fidelity_of_energy(self, x: Tensor, keep: NDArray[np.bool_], target: int, *, tolerant: bool = False) -> float:
        """How much of what the energy expects stays while these units are kept."""
        columns = torch.as_tensor(self.context.rows.groups.to_columns(keep))
        drawn = references(self.context, N_DRAWS)

        def expected(points: Tensor) -> NDArray[np.float32]:
            log_p = self.likelihood.log_marginals(self.energy, points)
            return self.energy.space.codes(log_p, self.outputs.graded).float().numpy()

        with torch.no_grad():
            before = expected(x)
            after = [expected(torch.where(columns, x, one)) for one in drawn]
        return float(np.mean([self._stays(target, each, before, tolerant=tolerant) for each in after]))

    def _fidelity(self, target: int, n_last: int) -> float:
        """How much of what the black box predicted stayed in the last so many mixtures."""
        queried = self.queried
        return self._stays(target, queried.mixture_codes[-n_last:], queried.codes[queried.mixed[-n_last:]])

    def _stays(self, target: int, after: NDArray[Any], before: NDArray[Any], *, tolerant: bool = False) -> float:
        """The share of values that stay: numbers within the tolerance of `verify()`, or of their variance."""
        a, b, curve = after[:, target], before[:, target], self.outputs.quantiles[target]
        if curve is None:
            return float(((a > 0.5) == (b > 0.5)).mean() if self.outputs.graded[target] else (a == b).mean())
        if tolerant or self.outputs.tolerance is None:
            spread = float(np.var(self.queried.codes[:, target]))
            return 1 - float(((a - b) ** 2).mean()) / max(2 * spread, 1e-12)
        off = np.abs(curve.decode(a) - curve.decode(b))
        return float((off <= self.outputs.tolerance * curve.deviation).mean())


Check: TypeAlias = tuple[int, Node, NDArray[np.bool_]]
"""A target, a region of its tree, and the units to keep there."""


def share_checks(nodes: list[tuple[int, Node]], n_together: int) -> list[Check]:
    """What to check: whole spaces of several targets at once, up to so many units together, other regions alone."""
    found: list[Check] = []
    for target, node in sorted(nodes, key=lambda pair: -int(pair[1].active.sum())):
        for place, (first, other, units) in enumerate(found):
            if node.parent is None and other.parent is None and (units | node.active).sum() <= n_together:
                found[place] = first, other, units | node.active
                break
        else:
            found.append((target, node, node.active))
    return found


def max_active(n_units: int) -> float:
    """How many units may be active, on average, for few to decide."""
    most = max(MAX_ACTIVE, min(MAX_ACTIVE_OF_MANY, MAX_ACTIVE_SHARE * n_units))
    return max(min(MAX_SHARE * n_units, most), min(n_units, MAX_ACTIVE_OF_FEW))


def strongest_weights(context: FitContext, energy: TrainableEnergy, n: int) -> Tensor:
    """The units whose weights in the first layer are not zero, or the n strongest of them, in their order."""
    length = energy.projection_weight.detach().square().sum(dim=0)
    owner = unit_of_column(context)[energy.encoding.column]
    of_unit = torch.zeros(context.rows.groups.n_units).index_add_(0, owner, length)
    best = of_unit.argsort(descending=True, stable=True)[:n]
    kept = best[of_unit[best] > 0]
    return (kept if len(kept) else best[:1]).sort().values


def plain_numbers(input_format: InputFormat) -> NDArray[np.int64]:
    """The columns that hold plain numbers: no categories, no truth values, no dates."""
    values = input_format.values
    plain = [
        column.categories is None and column.time is None and not column.dtype.lower().startswith("bool")
        for column in input_format.columns
    ]
    return values[np.array(plain)[input_format.column_feature[values]]] if plain else values
