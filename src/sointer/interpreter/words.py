"""Localities in the words of columns and outputs, as people read them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sointer._support import number_words
from sointer.data.inputs import InputFormat
from sointer.data.outputs import Outputs
from sointer.interpreter.tables import LocalityTable
from sointer.masking.groups import Groups
from sointer.paths import Localities, Locality


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
