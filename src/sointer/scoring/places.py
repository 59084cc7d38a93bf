"""Localities in words: the tree of a target as conditions on features and on other outputs."""

from __future__ import annotations

import numpy as np

from sointer.data.inputs import InputFormat
from sointer.data.outputs import Outputs
from sointer.interpreter.tables import LocalityTable
from sointer.localities import Localities, Locality
from sointer.masking.groups import Groups


def describe_localities(
    table: LocalityTable, target: int, input_format: InputFormat, groups: Groups, outputs: Outputs
) -> Localities:
    """The leaves of a target's tree, the largest first."""
    words = Words(input_format, outputs)
    found: list[Locality] = []

    def walk(node: int, conditions: tuple[str, ...]) -> None:
        condition = int(table.condition[node])
        if condition >= 0:
            low, high = words.of(condition, float(table.threshold[node]))
            walk(int(table.left[node]), (*conditions, low))
            # A column of a category says more than those that it is not.
            name, _, _ = high.rpartition(" = ")
            walk(int(table.right[node]), (*(c for c in conditions if not name or f"{name} is not " not in c), high))
            return
        score, needed = table.score[node].numpy(), table.needed[node].numpy()
        units = [unit for unit in np.argsort(-score, kind="stable").tolist() if needed[unit]]
        names = tuple(groups.unit_names[unit] for unit in units)
        relevance = tuple(float(score[unit]) for unit in units)
        found.append(Locality(node, conditions, float(table.share[node]), names, relevance))

    walk(int(table.root[target]), ())
    leaves = sorted(found, key=lambda leaf: -leaf.share)
    decided = bool(table.is_sparse[target])
    return Localities(outputs.names[target], decided, tuple(leaves), tuple(groups.unit_names))


class Words:
    """Conditions of trees, as their readers know columns and outputs."""

    def __init__(self, input_format: InputFormat, outputs: Outputs) -> None:
        self._input_format, self._outputs = input_format, outputs
        widths = [1 if n == 2 else n for n in outputs.n_classes]
        self._output_of_column = np.repeat(np.arange(outputs.n_outputs), widths)

    def of(self, condition: int, threshold: float) -> tuple[str, str]:
        """What holds at or below the threshold, and what holds above it."""
        n_columns = self._input_format.n_columns
        if condition < n_columns:
            return self._of_column(condition, threshold)
        return self._of_output(condition - n_columns, threshold)

    def _of_column(self, column: int, threshold: float) -> tuple[str, str]:
        form = self._input_format
        feature = int(form.column_feature[column])
        name = form.feature_names[feature]
        if form.columns and (categories := form.columns[feature].categories) is not None:
            category = categories[column - int(np.searchsorted(form.column_feature, feature))]
            return f"{name} is not {category}", f"{name} = {category}"
        return f"{name} <= {threshold:.4g}", f"{name} > {threshold:.4g}"

    def _of_output(self, column: int, threshold: float) -> tuple[str, str]:
        outputs, output = self._outputs, int(self._output_of_column[column])
        name, known, curve = f"output {outputs.names[output]}", outputs.label_sets[output], outputs.quantiles[output]
        if curve is not None:
            number = float(curve.decode(np.array(threshold)))
            return f"{name} <= {number:.4g}", f"{name} > {number:.4g}"
        if outputs.graded[output] or known is None:
            return f"{name} <= {threshold:.4g}", f"{name} > {threshold:.4g}"
        if len(known) == 2:
            return f"{name} = {known.labels[0]}", f"{name} = {known.labels[1]}"
        label = known.labels[column - int(np.searchsorted(self._output_of_column, output))]
        return f"{name} is not {label}", f"{name} = {label}"
