"""The interpreter of tables: what matters is looked up by locality; which way it pushes is one pass of networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sointer.data.outputs import Outputs
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import TrainableEnergy
from sointer.interpreter.effects import Effects, FirstLayer
from sointer.interpreter.localities import MAX_DEPTH
from sointer.interpreter.splits import MAX_SUMMED, BoolArray, FloatArray, IntArray, WeightedSum
from sointer.interpreter.trees import Node, complete_node

PARENT_WEIGHT = 0.05
CLEARLY_NEEDED = 0.35
"""Share of the largest score at which the order of needed units is left to each sample."""
OPEN = 0.249
"""How far the evidence of a sample can move the key of a unit: not beyond its level."""


ALL_ACTIVE = 2.0
"""In place of a share of the evidence: all units that matter anywhere, whether they speak for the value or not."""


class LocalityTable(nn.Module):
    """The trees of all targets as arrays: one row per node."""

    root: Tensor
    condition: Tensor
    """(nodes,) the column a node splits on; -1 where it does not, -2, -3, ... for the first, second, ... sum."""
    sum_column: Tensor
    """(sums, columns) the columns of each weighted sum; places that are left over have weight 0."""
    sum_weight: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    share: Tensor
    """Share of the training samples that lie in each node."""
    key: Tensor
    """(nodes, units) what units are ranked by where few decide."""
    open: Tensor
    """(nodes, units) 1 where the evidence of each sample decides the order, else 0."""
    span: Tensor
    """(nodes, units) by how much the evidence of a sample can raise the score, at most twice."""
    relevance: Tensor
    """(nodes, units) root mean square change of the target when the unit is redrawn."""
    score: Tensor
    """(nodes, units) relevance where the order is that of the locality; else the least of those in question."""
    needed: Tensor
    """(nodes, units) units that matter there."""
    inert: Tensor
    """(outputs, units) where few decide, units that were never seen to change the target: they have no effect on it."""
    is_sparse: Tensor
    """(outputs,) targets that few units decide, which the black box has confirmed."""
    evidence_share: Tensor
    """(outputs,) of the other targets: the share of the evidence for a value that units kept must hold to suffice, or
    ALL_ACTIVE."""

    def __init__(self, n_outputs: int, n_units: int, n_nodes: int, n_sums: int = 0) -> None:
        super().__init__()
        whole = {"root": n_outputs, "condition": n_nodes, "left": n_nodes, "right": n_nodes}
        for name, size in whole.items():
            self.register_buffer(name, torch.full((size,), -1, dtype=torch.long))
        self.register_buffer("sum_column", torch.zeros(n_sums, MAX_SUMMED, dtype=torch.long))
        self.register_buffer("sum_weight", torch.zeros(n_sums, MAX_SUMMED, dtype=torch.float64))
        for name in ("threshold", "share"):
            self.register_buffer(name, torch.zeros(n_nodes, dtype=torch.float64))
        for name in ("key", "open", "relevance", "score", "span"):
            self.register_buffer(name, torch.zeros(n_nodes, n_units))
        self.register_buffer("needed", torch.zeros(n_nodes, n_units, dtype=torch.bool))
        self.register_buffer("inert", torch.zeros(n_outputs, n_units, dtype=torch.bool))
        self.register_buffer("is_sparse", torch.zeros(n_outputs, dtype=torch.bool))
        self.register_buffer("evidence_share", torch.ones(n_outputs))

    @classmethod
    def of(
        cls,
        trees: Mapping[int, Node],
        n_outputs: int,
        least: Mapping[int, float],
        is_sparse: Mapping[int, bool],
        sums: Mapping[int, Sequence[WeightedSum]],
        n_single: int,
    ) -> LocalityTable:
        """From a tree for each target; `least` is how much of the target must stay for units to suffice.

        The conditions of a tree are `n_single` columns, followed by the sums of its target.
        """
        nodes = [(target, node) for target, root in trees.items() for node in root.walk()]
        n_units = len(nodes[0][1].effect)
        place = {id(node): i for i, (_, node) in enumerate(nodes)}
        own_sums = {(target, node.condition - n_single) for target, node in nodes}
        used = sorted((target, own) for target, own in own_sums if own >= 0)
        made = cls(n_outputs, n_units, len(nodes), len(used))
        for i, (target, own) in enumerate(used):
            one = sums[target][own]
            made.sum_column[i, : len(one.columns)] = torch.as_tensor(one.columns)
            made.sum_weight[i, : len(one.columns)] = torch.as_tensor(one.weights)
        n_pool = {target: len(root.pool) for target, root in trees.items()}
        for i, (target, node) in enumerate(nodes):
            order = leaf_order(node, least[target])
            made.key[i] = torch.as_tensor(order.key)
            made.open[i] = torch.as_tensor(order.open)
            made.needed[i] = torch.as_tensor(order.needed)
            made.relevance[i] = torch.as_tensor(below_needed(node.score, order.needed))
            made.score[i], made.span[i] = torch.as_tensor(order.score), torch.as_tensor(order.span)
            made.share[i] = len(node.pool) / max(n_pool[target], 1)
            if node.parent is None:
                made.root[target] = i
                # Where many contribute a little, that no redraw of one alone changed a label says nothing.
                made.inert[target] = torch.as_tensor(node.inert & is_sparse[target])
            if node.children is not None:
                own = node.condition - n_single
                made.condition[i] = node.condition if own < 0 else -2 - used.index((target, own))
                made.threshold[i] = node.threshold
                made.left[i], made.right[i] = (place[id(child)] for child in node.children)
        for target, sparse in is_sparse.items():
            made.is_sparse[target] = sparse
        return made

    def check(self, n_columns: int, n_conditions: int, targets: Sequence[int]) -> None:
        """ValueError unless every path from a target's root ends at a leaf, and looks at what is there."""
        n_nodes = len(self.condition)
        split = self.condition != -1
        for child in (self.left, self.right):
            inside = (child > torch.arange(n_nodes)) & (child < n_nodes)  # children come later: no path is endless
            if not bool(torch.where(split, inside, child == -1).all()):
                raise ValueError("localities are no trees")
        roots = self.root[torch.tensor(targets, dtype=torch.long)]
        unknown = (self.condition >= n_conditions) | (self.condition < -1 - len(self.sum_column))
        if not bool(((roots >= 0) & (roots < n_nodes)).all()) or bool(unknown.any()):
            raise ValueError("localities look at what is not there")
        if not bool(((self.sum_column >= 0) & (self.sum_column < n_columns)).all()):
            raise ValueError("localities add up what is not there")

    def find(self, targets: IntArray, conditions: FloatArray, sample: IntArray) -> IntArray:
        """The leaf of each row, which is about one of the samples whose conditions are given: (rows,)."""
        condition, threshold = self.condition.numpy(), self.threshold.numpy()
        left, right, node = self.left.numpy(), self.right.numpy(), self.root.numpy()[targets]
        columns, weights = self.sum_column.numpy(), self.sum_weight.numpy()
        for _ in range(MAX_DEPTH):
            at = conditions[sample, np.maximum(condition[node], 0)]
            if len(columns):
                rows = np.flatnonzero(condition[node] < -1)
                own = -2 - condition[node[rows]]
                at[rows] = (conditions[sample[rows, None], columns[own]] * weights[own]).sum(axis=1)
            child = np.where(at <= threshold[node], left[node], right[node])
            node = np.where(condition[node] != -1, child, node)
        return np.asarray(node)

    def looks_at(self, targets: IntArray) -> IntArray:
        """The conditions that the trees of these targets look at."""
        found: set[int] = set()
        for target in np.unique(targets).tolist():
            nodes = [int(self.root[target])]
            while nodes:
                node = nodes.pop()
                if node >= 0 and int(self.condition[node]) != -1:
                    found.add(int(self.condition[node]))
                    nodes += [int(self.left[node]), int(self.right[node])]
        return np.array(sorted(found), dtype=np.int64)


def below_needed(score: FloatArray, needed: NDArray[np.bool_]) -> FloatArray:
    """Scores of which none that is not needed exceeds one that is."""
    if not needed.any():
        return score
    return np.where(needed, score, np.minimum(score, 0.99 * score[needed].min()))


class Scores(NamedTuple):
    """What is said of the units of rows: all (rows, units)."""

    key: Tensor
    """Units are ranked by it, larger first."""
    relevance: Tensor
    effects: Tensor
    needed: Tensor


class Shown(NamedTuple):
    """The value of each row's target, as effects see it."""

    columns: Tensor
    """The encoded output column that effects are effects on."""
    is_first: Tensor
    """Whether the value is the first of two labels, which has no column of its own."""
    towards: Tensor
    """1 where a rise of the column speaks for the value, -1 where a fall does, 0 of numbers, which have no opposite."""
    base: Tensor
    """What the output is on average, as a multiple of its unit."""
    unit: Tensor
    """What the output and the effects on it are multiples of."""


class TableInterpreter(nn.Module):
    """Relevance where few units are confirmed to decide, signed evidence elsewhere."""

    def __init__(
        self, energy: TrainableEnergy, likelihood: Likelihood, effects: Effects, localities: LocalityTable
    ) -> None:
        super().__init__()
        self.energy, self.likelihood = energy, likelihood
        self.effects, self.localities = effects, localities

    def forward(self, first: FirstLayer, sample: Tensor | None, targets: Tensor, shown: Shown, nodes: Tensor) -> Scores:
        """Of rows about samples that have passed the first layer, given their values and the leaves they lie in.

        Without `sample`, each row is about one of the samples, in their order.
        """
        n, columns = len(targets), shown.columns
        n_missing = max(0, len(first.encoded) - n)
        if n_missing:  # always of as many rows as samples, so that none of them depends on the others
            columns = torch.cat([columns, columns[:1].expand(n_missing)])
            sample = None if sample is None else torch.cat([sample, sample[:1].expand(n_missing)])
        effects = self.effects.behind(first, sample, columns)[:n]
        if bool(shown.is_first.any()):
            effects = torch.where(shown.is_first.unsqueeze(1), -effects, effects)
        evidence = evidence_of(effects, shown.towards)
        by_locality = self.localities.is_sparse[targets]
        key, score = self._of_sample(nodes, evidence)
        inert = self.localities.inert.index_select(0, targets)
        effects = effects.masked_fill(inert, 0.0)
        looked_up = Scores(key, score, effects, self.localities.needed.index_select(0, nodes))
        if bool(by_locality.all()):  # then nothing has to be sorted
            return looked_up
        share = self.localities.evidence_share[targets].unsqueeze(1)
        active = self.localities.needed[self.localities.root[targets]] & (share == ALL_ACTIVE)
        enough = torch.where(share == ALL_ACTIVE, active, suffices(evidence, share))
        ranked = torch.where(active, evidence + 2 * evidence.abs().amax(1, keepdim=True), evidence)
        relevance = torch.where(enough | (share != ALL_ACTIVE), evidence.clamp_min(0.0), 0.0)
        by_evidence = Scores(ranked, relevance, effects, enough)
        chosen = by_locality.unsqueeze(1)
        return Scores(*(torch.where(chosen, a, b) for a, b in zip(looked_up, by_evidence, strict=True)))

    def _of_sample(self, nodes: Tensor, evidence: Tensor) -> tuple[Tensor, Tensor]:
        """Key and relevance in each locality: of what clearly decides, what speaks most for the value comes first."""
        table = self.localities
        names = ("open", "score", "span", "key")
        is_open, score, span, key = (getattr(table, name).index_select(0, nodes) for name in names)
        own = is_open * evidence
        own = own / own.abs().amax(1, keepdim=True).clamp_min(1e-30)
        return key + OPEN * own, (score + span * (1 + own)).clamp_min(0.0)

    def shown(self, targets: NDArray[np.int64], values: NDArray[Any], outputs: Outputs) -> Shown:
        """What effects are effects on, given the encoded value of each row's target."""
        space = self.energy.space
        graded, two = outputs.graded[targets], np.array(space.n_classes)[targets] == 2
        labels = np.where(graded, values > 0.5, values).astype(np.int64)
        # Of two labels only the second has a column; the first has what that one has not.
        columns = np.searchsorted(space.column_output.numpy(), targets) + np.where(two, 0, labels)
        is_first = two & ~graded & (labels == 0)
        base, unit = self.effects.base.numpy()[columns], self.effects.output_units.unit.numpy()[columns]
        base = np.where(is_first, 1 - base, base)
        is_number = self.effects.output_units.is_number.numpy()[columns]
        towards = np.where(is_number, 0.0, np.where(graded & (values <= 0.5), -1.0, 1.0))
        parts = (columns, is_first, towards.astype(np.float32), base.astype(np.float32), unit)
        return Shown(*(torch.as_tensor(np.ascontiguousarray(part)) for part in parts))

    @torch.no_grad()
    def evidence(self, x: Tensor, target: int, values: NDArray[Any], outputs: Outputs) -> Tensor:
        """Evidence of units for the values of one target: (rows, units)."""
        shown = self.shown(np.full(len(x), target), values, outputs)
        effects = self.effects(x, shown.columns)
        return evidence_of(torch.where(shown.is_first.unsqueeze(1), -effects, effects), shown.towards)


def evidence_of(effects: Tensor, towards: Tensor) -> Tensor:
    """What speaks for the value shown; for a number, whatever moves it, up or down."""
    towards = towards.unsqueeze(1)
    return torch.where(towards == 0, effects.abs(), effects * towards)


def suffices(evidence: Tensor, share: Tensor | float) -> Tensor:
    """The strongest units that together hold this share of all evidence for a value: (rows, units)."""
    ranked, order = evidence.clamp_min(0.0).sort(dim=1, descending=True, stable=True)
    before = ranked.cumsum(dim=1) - ranked
    kept = (before < share * ranked.sum(dim=1, keepdim=True)) & (ranked > 0)
    return torch.zeros_like(evidence, dtype=torch.bool).scatter_(1, order, kept)


def conditions_of(columns: FloatArray, encoded_outputs: FloatArray) -> FloatArray:
    """What splits look at: input columns, then encoded columns of all outputs."""
    return np.concatenate([columns, encoded_outputs], axis=1)


def own_columns(column_output: Sequence[int], target: int, n_input_columns: int) -> IntArray:
    """The conditions that a target's own tree may not look at: its own columns."""
    return n_input_columns + np.flatnonzero(np.asarray(column_output) == target)


@dataclass(frozen=True, eq=False)
class Order:
    """For a leaf: what its units are ranked by, whose whole part counts first, which are needed, and their scores."""

    key: FloatArray
    open: BoolArray
    """Needed units that clearly matter, units that may matter, and those that do nowhere around: among each of these,
    the evidence of the sample at hand decides the order."""
    needed: BoolArray
    score: FloatArray
    span: FloatArray
    """Units that are open have scores from score to score + 2 span, but none below 0: needed ones, from the lowest to
    the highest of theirs."""


def leaf_order(node: Node, least: float) -> Order:
    """Needed are the units that are active in the nearest complete node.

    Where the black box is noisy, needed units may be some too many, and none is open.
    """
    path = node.path()
    mix = np.asarray(sum(here.score * PARENT_WEIGHT**distance for distance, here in enumerate(reversed(path))))
    relative = mix / max(float(np.max(mix)), 1e-12)
    complete = complete_node(node, least)
    level = np.zeros(len(node.active))
    if complete is not None:
        for depth, here in enumerate(complete.path()):
            # What was left out comes next: it may matter, as where it changes a label in one of fifty redraws.
            level = np.maximum(level, np.where(here.active, 2 * depth + 2, np.where(here.left_out, 2 * depth + 1, 0)))
    needed = (node.active if complete is None else complete.active).copy()
    if complete is not None:  # last comes what was seen not to matter here, even if it does around
        level[~needed & (node.idle | (level == 0) & np.any([here.idle for here in path], axis=0))] = -1
    clear = needed & (relative >= CLEARLY_NEEDED * relative[needed].max(initial=0.0))
    if complete is None or node.noise_rate > 0:
        clear[:] = False
        return Order(level + 0.999 * relative, clear, needed, below_needed(node.score, needed), np.zeros(len(clear)))
    score, span, highest, rest = node.score.astype(np.float64), np.zeros(len(clear)), np.inf, level <= 0
    for own in sorted(set(level.tolist()), reverse=True):
        for units in (clear & (level == own), ~clear & (level == own)):
            if units.any():
                score[units] = np.minimum(score[units], highest)
                highest = 0.99 * float(score[units].min())
        units = clear & (level == own)
        if units.any():
            low, high = float(score[units].min()), float(score[units].max())
            score[units], span[units] = low, (high - low) / 2
    high = float(score[rest].max(initial=0.0))
    score[rest], span[rest] = -high, high  # together 0 without evidence
    # Units that are not open lie below those of the same level that are.
    key = level + np.where(clear, 0.75, np.where(rest, 0.25, 0.499 * relative))
    return Order(key, clear | rest, needed, score, span)
