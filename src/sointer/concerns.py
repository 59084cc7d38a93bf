"""What explainers refuse or warn of when they see the data and the answers: outputs, features and rows that mislead."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer.containers import is_sparse
from sointer.distance import FarRows
from sointer.errors import ConstantFeatureWarning, ConstantOutputWarning, InputError, SointerWarning
from sointer.explanation import Explanation
from sointer.inputs import InputFormat
from sointer.outputs import MOST_CLASSES, Outputs


def refuse_mixed_outputs(outputs: Outputs) -> None:
    for name, n_classes in zip(outputs.names, outputs.n_classes, strict=True):
        if outputs.kind == "categorical" and n_classes > MOST_CLASSES:
            raise InputError(
                f"output {name!r} has {n_classes} different values, too many for classes (at most {MOST_CLASSES}); "
                "all outputs must be of one kind. Give a function that returns only the labels, or only the numbers."
            )


def warn_about_outputs(outputs: Outputs, raw: NDArray[Any], *, stacklevel: int) -> None:
    """Say which outputs never changed, and which look like labels among numbers; stacklevel as for a direct warning."""
    if outputs.shape is not None:
        _warn_about_masks(outputs, raw, stacklevel=stacklevel + 1)
        return
    if outputs.constant.any():
        constant = [outputs.names[i] for i in np.flatnonzero(outputs.constant)]
        warnings.warn(
            f"{len(constant)} of {outputs.n_outputs} outputs never changed in {len(raw)} answers: "
            f"{', '.join(constant[:5])}{' ...' if len(constant) > 5 else ''}. Their explanations mean little: "
            "no feature decided them. Give data on which they vary.",
            ConstantOutputWarning,
            stacklevel=stacklevel + 1,
        )
    if outputs.kind != "continuous":
        return
    n_values = np.array([len(np.unique(raw[:, i])) for i in range(raw.shape[1])])
    like_labels = (n_values == 2) & (n_values.max() > 2)
    if like_labels.any():
        names = [outputs.names[i] for i in np.flatnonzero(like_labels)]
        warnings.warn(
            f"outputs {', '.join(names[:5])} have two values only, beside others that are numbers; all are treated as "
            "numbers. For labels, give a function that returns only those, and explain the numbers separately.",
            SointerWarning,
            stacklevel=stacklevel + 1,
        )


def _warn_about_masks(outputs: Outputs, raw: NDArray[Any], *, stacklevel: int) -> None:
    """That some pixels never change is usual, such as the corners of pictures; that none does is not."""
    if outputs.constant.all():
        warnings.warn(
            f"no pixel of the masks ever changed in {len(raw)} answers. Explanations mean little: nothing decided "
            "them. Give images on which the masks vary.",
            ConstantOutputWarning,
            stacklevel=stacklevel + 1,
        )


def warn_about_constant_features(data: Any, input_format: InputFormat) -> None:
    low, high = data.min(axis=0), data.max(axis=0)
    if is_sparse(data):
        low, high = low.toarray().ravel(), high.toarray().ravel()
    varies = np.bincount(input_format.column_feature, weights=(low != high).astype(float)) > 0
    if input_format.image is not None and varies.any():
        return  # the corners of pictures are often all alike
    if not varies.all():
        names = [input_format.feature_names[i] for i in np.flatnonzero(~varies)]
        warnings.warn(
            f"{len(names)} of {input_format.n_features} features are constant in X and can never be selected: "
            f"{', '.join(names[:5])}{' ...' if len(names) > 5 else ''}. Drop them, or give data on which they vary.",
            ConstantFeatureWarning,
            stacklevel=4,
        )


def warn_about_far_rows(explanation: Any, *, stacklevel: int) -> None:
    """Say how many rows are unlike the training data; of the lazy tables of dask collections nothing is known yet."""
    if isinstance(explanation, Explanation) and explanation.distance is not None:
        FarRows().add(explanation.distance).warn(stacklevel=stacklevel + 1)
