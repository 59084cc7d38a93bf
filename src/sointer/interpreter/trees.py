"""Trees whose leaves are localities: their nodes, which splits are taken back, and their conditions in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from sointer._support import number_words
from sointer.data.inputs import InputFormat
from sointer.data.outputs import Outputs
from sointer.interpreter.splits import MIN_SWITCHED_OFF, BoolArray, FloatArray, IntArray
from sointer.masking.groups import Groups
from sointer.paths import Localities, Locality

if TYPE_CHECKING:
    from sointer.interpreter.tables import LocalityTable


MIN_RATE = 0.05
"""Share of the redraws of a unit that must change the target for it to leak."""


@dataclass(eq=False)
class Node:
    """A region: the samples in it, and the split that divides it further."""

    pool: IntArray
    """Samples with effects, by number among those."""
    effect: FloatArray
    """Mean effect of each unit on the energy."""
    parent: Node | None = None
    is_left: bool = False
    """Whether it lies at or below its parent's threshold."""
    condition: int = -1
    threshold: float = 0.0
    band: float = 0.0
    children: tuple[Node, Node] | None = None
    score: FloatArray = field(default_factory=lambda: np.zeros(0))
    active: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    doubtful: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """Units that count as active because too few redraws say otherwise."""
    left_out: BoolArray = field(init=False)
    """Units that change the target, but so seldom that the active ones suffice without them."""
    rate: FloatArray = field(default_factory=lambda: np.zeros(0))
    """Share of the redraws of each unit that changed the target."""
    sufficiency: float = 0.0
    """Share of the squared change by redrawing everything that does not occur while the active units are kept."""
    noise_rate: float = 0.0
    """Share of repeated queries that changed the target."""
    inert: BoolArray = field(init=False)
    """Units of which no redraw, of many, changed the target; nor do they on the energy, as compared with others."""
    idle: BoolArray = field(init=False)
    """The same, if the target is graded: units that matter show in any redraw, however little they change it."""

    def __post_init__(self) -> None:
        self.left_out, self.inert, self.idle = np.zeros((3, len(self.effect)), dtype=bool)

    def walk(self) -> Iterator[Node]:
        yield self
        for child in self.children or ():
            yield from child.walk()

    def path(self) -> list[Node]:
        """From the root to this node."""
        return [self] if self.parent is None else [*self.parent.path(), self]


def complete_node(node: Node, least: float) -> Node | None:
    """The nearest node, from here to the root, whose active units suffice."""
    for here in reversed(node.path()):
        if here.active.any() and here.sufficiency >= least:
            return here
    return None


def prune(root: Node, alike: Callable[[Node, Node], bool]) -> None:
    """Take back splits whose sides are leaves and alike, until none is left."""
    found = True
    while found:
        found = False
        for node in root.walk():
            if node.children is None or any(child.children is not None for child in node.children):
                continue
            if alike(*node.children):
                node.children, node.condition, found = None, -1, True


def prune_unconfirmed(root: Node, least: float, *, least_off: float) -> None:
    """Take back splits that, now that it is known where units suffice, switch little off.

    In a leaf whose own units do not suffice those of a node above it are needed. Where units are only lost on one side,
    and none on the other, they must hold `least_off` of the effects on the other.
    """

    def alike(left: Node, right: Node) -> bool:
        here, there = ((complete_node(leaf, least) or leaf).active for leaf in (left, right))
        if np.array_equal(here, there):
            return True
        if complete_node(left, least) is None:
            return False
        off = (
            float(leaf.score[only].sum() / max(leaf.score.sum(), 1e-12))
            for leaf, only in ((left, here & ~there), (right, there & ~here))
        )
        is_one_sided = not (here & ~there).any() or not (there & ~here).any()
        return max(off) < (least_off if is_one_sided else MIN_SWITCHED_OFF)

    prune(root, alike)


def leaves(root: Node) -> Sequence[Node]:
    """All nodes below that have no children."""
    return [node for node in root.walk() if node.children is None]


def leakiness(root: Node) -> float:
    """Share of all units that change the target in the locality of a sample at all, on average."""
    shares = [(len(leaf.pool), float((leaf.rate > MIN_RATE).mean())) for leaf in leaves(root)]
    return sum(n * share for n, share in shares) / max(len(root.pool), 1)


def mean_active(root: Node) -> float:
    """How many units are active in the locality of a sample, on average."""
    return float(sum(len(leaf.pool) * leaf.active.sum() for leaf in leaves(root)) / max(len(root.pool), 1))


def shortest(conditions: Sequence[str]) -> tuple[str, ...]:
    """The same conditions with no bound twice, and both bounds of a number as one.

    Examples
    --------
    >>> shortest(["age > 40", "debt <= 5", "age > 60", "age <= 80"])
    ('60 < age <= 80', 'debt <= 5')
    """
    bounds: dict[str, dict[str, str]] = {}
    for condition in conditions:  # the later, the tighter
        sign = " <= " if " <= " in condition else " > "
        name, _, bound = condition.rpartition(sign)
        bounds.setdefault(name or condition, {})[sign] = bound
    found = []
    for name, of in bounds.items():
        if len(of) == 2:
            found.append(f"{of[' > ']} < {name} <= {of[' <= ']}")
        else:
            found += [f"{name}{sign}{bound}" if bound != name else name for sign, bound in of.items()]
    return tuple(found)


def describe_localities(
    table: LocalityTable, target: int, input_format: InputFormat, groups: Groups, outputs: Outputs
) -> Localities:
    """The leaves of a target's tree, the largest first."""
    words = Words(input_format, outputs, table)
    found: list[Locality] = []

    def walk(node: int, conditions: tuple[str, ...]) -> None:
        condition = int(table.condition[node])
        if condition != -1:
            low, high = words.of(condition, float(table.threshold[node]))
            walk(int(table.left[node]), (*conditions, low))
            # A column of a category says more than those that it is not.
            name, _, _ = high.rpartition(" = ")
            walk(int(table.right[node]), (*(c for c in conditions if not name or f"{name} is not " not in c), high))
            return
        score, needed = table.relevance[node].numpy(), table.needed[node].numpy()
        units = [unit for unit in np.argsort(-score, kind="stable").tolist() if needed[unit]]
        names = tuple(groups.unit_names[unit] for unit in units)
        relevance = tuple(float(score[unit]) for unit in units)
        found.append(Locality(node, shortest(conditions), float(table.share[node]), names, relevance))

    walk(int(table.root[target]), ())
    leaves = sorted(found, key=lambda leaf: -leaf.share)
    decided = bool(table.is_sparse[target])
    return Localities(outputs.names[target], decided, tuple(leaves), tuple(groups.unit_names))


class Words:
    """Conditions of trees, as their readers know columns and outputs."""

    def __init__(self, input_format: InputFormat, outputs: Outputs, table: LocalityTable) -> None:
        self._input_format, self._outputs, self._table = input_format, outputs, table
        widths = [1 if n == 2 else n for n in outputs.n_classes]
        self._output_of_column = np.repeat(np.arange(outputs.n_outputs), widths)

    def of(self, condition: int, threshold: float) -> tuple[str, str]:
        """What holds at or below the threshold, and what holds above it."""
        n_columns = self._input_format.n_columns
        if condition < -1:
            return self._of_sum(-2 - condition, threshold)
        if condition < n_columns:
            return self._of_column(condition, threshold)
        return self._of_output(condition - n_columns, threshold)

    def _of_column(self, column: int, threshold: float) -> tuple[str, str]:
        form = self._input_format
        feature = int(form.column_feature[column])
        name = form.feature_names[feature]
        if column in form.missing_columns:
            return f"{name} is not missing", f"{name} = missing"
        if form.columns and (categories := form.columns[feature].categories) is not None:
            category = categories[column - int(np.searchsorted(form.column_feature, feature))]
            return f"{name} is not {category}", f"{name} = {category}"
        if form.columns and form.columns[feature].dtype.lower().startswith("bool"):
            return f"{name} = False", f"{name} = True"
        value = form.threshold_words(feature, threshold)
        return f"{name} <= {value}", f"{name} > {value}"

    def _of_sum(self, own: int, threshold: float) -> tuple[str, str]:
        form, table, words = self._input_format, self._table, ""
        for column, weight in zip(table.sum_column[own].tolist(), table.sum_weight[own].tolist(), strict=True):
            size = "" if abs(weight) == 1 else f"{abs(weight):.3g} "
            name = form.feature_names[int(form.column_feature[column])]
            words += f" {'+' if weight > 0 else '-'} {size}{name}" if weight else ""
        name, value = words.removeprefix(" + "), number_words(threshold)
        return f"{name} <= {value}", f"{name} > {value}"

    def _of_output(self, column: int, threshold: float) -> tuple[str, str]:
        outputs, output = self._outputs, int(self._output_of_column[column])
        name, known, curve = f"output {outputs.names[output]}", outputs.label_sets[output], outputs.quantiles[output]
        if curve is not None:
            number = float(curve.decode(np.array(threshold)))
            return f"{name} <= {number:.4g}", f"{name} > {number:.4g}"
        if outputs.graded[output] or known is None:
            value = next(
                text for digits in range(4, 18) if float(text := f"{threshold:.{digits}g}") < 1 or threshold >= 1
            )
            return f"{name} <= {value}", f"{name} > {value}"
        if len(known) == 2:
            return f"{name} = {known.labels[0]}", f"{name} = {known.labels[1]}"
        label = known.labels[column - int(np.searchsorted(self._output_of_column, output))]
        return f"{name} is not {label}", f"{name} = {label}"
