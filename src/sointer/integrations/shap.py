"""To shap: explanations as `shap.Explanation`, which shap's plots draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sointer._support.frames import as_pandas
from sointer.data.text_tables import Records, TextTableFormat
from sointer.data.values import effects_on_output
from sointer.errors import require_extra
from sointer.integrations.attributions import attributions

if TYPE_CHECKING:
    from sointer.explanation import Explanation
    from sointer.masking.rows import ExplainedRows


def to_shap(explanation: Explanation, *, selected_only: bool = False) -> Any:
    """A `shap.Explanation` of effects, or scores: 2-D for tables and texts, (n, height, width, channels) for images.

    Base values are those that effects lead away from; of scores, which have none, 0. Of outputs with two labels,
    effects are on the probability of the second in every sample, also where the first is explained, so that samples
    compare. Categories of a DataFrame are shown by their names.
    """
    shap = require_extra("shap", "baselines")
    source = explanation.source
    values = attributions(explanation, selected_only=selected_only).astype(np.float64)
    targets = [explanation.output_names[target] for target in explanation.target]
    if source.input_format.image is not None:
        data = source.input_format.image.unflatten(source.rows(np.arange(len(explanation))))
        return shap.Explanation(
            values=values.transpose(0, 2, 3, 1),
            base_values=np.zeros(len(explanation)),
            data=np.asarray(data).transpose(0, 2, 3, 1),
        )
    base = np.zeros(len(explanation))
    if explanation.effects is not None and explanation.base_value is not None:
        base = explanation.base_value.astype(np.float64)
        for target in np.unique(explanation.target).tolist():
            own = np.flatnonzero(explanation.target == target)
            to_second = effects_on_output(np.ones((len(own), 1)), explanation.value[own], source.outputs, target)
            if to_second is not None:
                values[own] *= to_second
                base[own] = np.where(to_second[:, 0] < 0, 1 - base[own], base[own])
    if isinstance(source.data, Records):
        data = _cells(source)[source.sample_of_row]
    else:
        rows = as_pandas(source.input_format.decode(source.data[source.sample_of_row]))
        data = rows.toarray() if hasattr(rows, "toarray") else np.asarray(rows)
    return shap.Explanation(
        values=values,
        base_values=base,
        data=data,
        display_data=data,
        feature_names=list(source.input_format.feature_names),
        output_names=targets[0] if len(set(targets)) == 1 else None,
    )


def _cells(source: ExplainedRows) -> NDArray[Any]:
    """Of tables with texts: how often each word is there, and the values of the other columns."""
    form = source.input_format
    assert isinstance(form, TextTableFormat)
    cells = source.data.toarray().astype(object)
    if form.table is not None:
        cells[:, int(form.piece_starts[-1]) :] = form.table.decode(source.data.values).to_numpy(object)
    return np.asarray(cells)
