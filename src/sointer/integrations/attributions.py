"""Explanations as captum, Quantus and shap want them: one number for every number of the input."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer._support.containers import as_pandas
from sointer._support.validation import is_integer
from sointer.data.targets import effects_on_output
from sointer.data.text_tables import Records, TextTableFormat
from sointer.errors import InputError, require_extra
from sointer.explainers.base import Explainer
from sointer.explainers.estimator import refuse_for_sequences

if TYPE_CHECKING:
    from sointer.explanation import Explanation
    from sointer.masking.rows import ExplainedRows


def attributions(explanation: Explanation, *, selected_only: bool = False) -> NDArray[np.float32]:
    """The effect of every feature, in the shape of the input: (rows, features), or (n, channels, height, width).

    Effects are signed and in the unit of the output; a group shares its effect evenly among its features, so that the
    sum stays. Where effects are not known, the scores are given, which have no sign: a group gives each of its
    features its score, a pixel gives it to all its channels. `selected_only` makes everything that was not selected 0.
    """
    source = explanation.source
    of_units = explanation.scores if explanation.effects is None else explanation.effects
    if selected_only:
        of_units = np.where(explanation.unit_mask, of_units, 0.0)
    units = np.asarray(source.units().unit_of_features(len(explanation)), dtype=np.int64)
    of_features = np.take_along_axis(of_units, units, axis=1).astype(np.float32)
    if explanation.effects is not None:
        n_members = np.bincount(units[0], minlength=of_units.shape[1])  # groups of tables are the same in all rows
        of_features /= n_members[units].astype(np.float32)
    image = source.input_format.image
    if image is None:
        return of_features
    pixels = of_features.reshape(len(explanation), 1, image.height, image.width)
    return np.repeat(pixels, image.channels, axis=1)


def as_rows(inputs: Any, explainer: Any) -> Any:
    """Inputs with further dimensions of a model's own, as in (n, 1, features), as the table that was fitted."""
    is_table = explainer.input_format_.image is None
    if is_table and len(inputs.shape) != 2 and int(np.prod(inputs.shape[1:])) == explainer.n_features_in_:
        return inputs.reshape(inputs.shape[0], -1)
    return inputs


class SOInterAttribution:
    """A fitted explainer with the interface of a captum attribution method; captum itself is not needed.

    Parameters
    ----------
    explainer : SOInter or baseline
        Fitted.

    Examples
    --------
    >>> attribute = SOInterAttribution(explainer).attribute  # doctest: +SKIP
    >>> captum.metrics.sensitivity_max(attribute, inputs, target=2)  # doctest: +SKIP
    """

    def __init__(self, explainer: Explainer) -> None:
        refuse_for_sequences(explainer, "captum")
        self.explainer = explainer

    def attribute(
        self,
        inputs: Tensor | tuple[Tensor, ...],
        target: Any = None,
        *,
        k: int | None = None,
        predicted: Any = None,
        query: bool = True,
        selected_only: bool = False,
    ) -> Any:
        """Return the effect of every entry of the inputs.

        Effects are signed, in the unit of the output (for images, log-odds). Where they are not available
        (preset="paper", baselines), scores are returned, which have no sign.

        Parameters
        ----------
        inputs : tensor, or tuple of one
            The samples.
        target : int, str, list or tensor, optional
            The index or name of an output for all rows; for masks a pixel (row, column); or one of these per row.
        k, predicted, query : as in `SOInter.explain`
        selected_only : bool, default False
            Whether what was not selected is 0.

        Returns
        -------
        tensor
            Of the inputs' shape; in a tuple if they came in one.

        Raises
        ------
        InputError
            If the inputs are not one tensor, or an argument does not fit.
        """
        single = inputs[0] if isinstance(inputs, tuple) else inputs
        if not isinstance(single, Tensor) or (isinstance(inputs, tuple) and len(inputs) != 1):
            got = f"{len(inputs)} of them" if isinstance(inputs, tuple) else type(inputs).__name__
            raise InputError(f"attribute: inputs must be one tensor, or a tuple of one, got {got}.")
        rows = as_rows(single.detach(), self.explainer)
        explanation = self.explainer.explain(rows, self._target(target), k=k, predicted=predicted, query=query)
        values = attributions(explanation, selected_only=selected_only).reshape(tuple(single.shape))
        dtype = single.dtype if single.dtype.is_floating_point else torch.float32
        result = torch.from_numpy(values).to(dtype=dtype, device=single.device)
        return (result,) if isinstance(inputs, tuple) else result

    def has_convergence_delta(self) -> bool:
        """Say no: effects add up to what the explainer expects of the model, not to what the model returns.

        Returns
        -------
        bool
        """
        return False

    def _target(self, target: Any) -> Any:
        """A target as `explain` takes it: captum also writes tensors, lists of tuples, and tuples of one number."""
        if isinstance(target, Tensor):
            target = target.detach().cpu().numpy()
            return int(target) if target.size == 1 else target
        if isinstance(target, tuple) and len(target) == 1 and is_integer(target[0]):
            return target[0]
        if isinstance(target, list) and target and all(isinstance(one, tuple) for one in target):
            return [one[0] for one in target] if len(target[0]) == 1 else np.array(target)
        return target


def explain_func(
    explainer: Explainer, *, k: int | None = None, query: bool = True, selected_only: bool = False
) -> Callable[..., NDArray[np.float32]]:
    """Make a function `(model, inputs, targets, **kwargs) -> attributions`, as Quantus calls it.

    Attributions are the signed effects, or the scores where effects are not available. The explainer's own model is
    explained; the model that Quantus passes, and its settings for other methods, are ignored, so metrics that change
    the model's weights are not meaningful.

    Parameters
    ----------
    explainer : SOInter or baseline
        Fitted.
    k : int, optional
        As in `SOInter.explain`.
    query : bool, default True
        With False, expected values are explained and the model is not queried.
    selected_only : bool, default False
        Whether what was not selected is 0.

    Returns
    -------
    function
        Its `targets` are outputs, one for each input; it returns an array of the inputs' shape.
    """
    refuse_for_sequences(explainer, "Quantus")

    def explain(model: Any, inputs: Any, targets: Any, **_: Any) -> NDArray[np.float32]:
        values = np.asarray(inputs)
        explanation = explainer.explain(as_rows(values, explainer), np.asarray(targets), k=k, query=query)
        return attributions(explanation, selected_only=selected_only).reshape(values.shape)

    return explain


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
