"""Trained models kept on disk, so that an experiment that runs again does not train again."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from sointer._support.validation import is_integer
from sointer.errors import InputError, LoadError
from sointer.zoo.image_models import ImageModel
from sointer.zoo.model_base import StructuredModel, plain_parameters

Model = TypeVar("Model", bound=StructuredModel | ImageModel)

RECIPE = 1
"""To be raised whenever training changes: models trained by an older recipe are then trained anew."""


def fit_or_load(model: Model, X: Any, Y: Any, directory: str | os.PathLike[str]) -> Model:
    """The model fitted to X and Y: read from `directory` if it was trained there before, else trained and kept.

    A kept model is found again by its class, its parameters, the data and the version of the training recipe;
    each has a directory of its own, written atomically. A damaged one is trained again.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from sointer.zoo import DeepValueNetwork, fit_or_load
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> model = DeepValueNetwork(n_steps=20, random_state=0)
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     first = fit_or_load(model, X, X > 0, directory)
    ...     again = fit_or_load(model, X, X > 0, directory)
    >>> first is model, again is model
    (True, False)
    """
    if not is_integer(model.random_state):
        raise InputError(
            f"random_state must be an int for a model to be kept, got {model.random_state!r}: otherwise each "
            "training gives another model. Set random_state=0."
        )
    place = Path(directory) / f"{type(model).__name__}-{_key(model, X, Y)}"
    try:
        return type(model).load(place)
    except LoadError:
        model.fit(X, Y)
        model.save(place)
        return model


def _key(model: Model, X: Any, Y: Any) -> str:
    """A name for all that the trained model depends on."""
    facts, arrays = model._fingerprint(X, Y)
    parameters = {name: value for name, value in plain_parameters(model).items() if name != "verbose"}
    known = [RECIPE, type(model).__name__, parameters, *facts]
    digest = hashlib.sha256(json.dumps(known, sort_keys=True).encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:20]
