"""Nodes of the trees that localities are the leaves of, and which splits are taken back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from sointer.interpreter.splits import MIN_SWITCHED_OFF, BoolArray, FloatArray, IntArray

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
    slight: BoolArray = field(init=False)
    """Units that surely change a graded target, but hardly."""
    rate: FloatArray = field(default_factory=lambda: np.zeros(0))
    """Share of the redraws of each unit that changed the target."""
    sufficiency: float = 0.0
    """Share of the squared change by redrawing everything that does not occur while the active units are kept."""
    noise_rate: float = 0.0
    """Share of repeated queries that changed the target."""
    inert: BoolArray = field(init=False)
    """Units of which no redraw, of many, changed the target; nor do they on the energy, as compared with others."""

    def __post_init__(self) -> None:
        self.left_out, self.slight, self.inert = np.zeros((3, len(self.effect)), dtype=bool)

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
