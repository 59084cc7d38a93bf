"""How models are kept: their facts as JSON, their weights as safetensors, whole or not at all."""

from __future__ import annotations

import os
from typing import Any, TypeVar

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import nn

from sointer.errors import LoadError
from sointer.io.storage import DAMAGE, Storage, check_shapes

STORAGE = Storage("model", "model.json", 2, oldest=1)

AnySaved = TypeVar("AnySaved", bound="SavedModel")


class SavedModel(BaseEstimator):
    """A model that can be saved and loaded.

    Subclasses say what else they know (`_facts`, and `_restore`, which takes it back and gives a network that waits for
    its weights), and how to make a network the one that answers (`_adopt`).
    """

    network_: nn.Module
    history_: list[dict[str, Any]]

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write the fitted model to a directory (JSON and safetensors), whole or not at all."""
        check_is_fitted(self)
        facts = {
            "model": type(self).__name__,
            "parameters": plain_parameters(self),
            **self._facts(),
            "history": self.history_,
        }
        STORAGE.write(directory, facts, dict(self.network_.state_dict()))

    @classmethod
    def load(cls: type[AnySaved], directory: str | os.PathLike[str]) -> AnySaved:
        """Read a model that `save` wrote."""
        facts, tensors = STORAGE.read(directory)
        if facts.get("model") != cls.__name__:
            raise LoadError(f"{directory} holds a {facts.get('model')}, expected a {cls.__name__}. Use its own load.")
        try:
            parameters = facts["parameters"]  # JSON has lists for tuples
            model = cls(**{name: tuple(it) if isinstance(it, list) else it for name, it in parameters.items()})
            model._check_parameters()
            model.history_ = facts["history"]
            with torch.device("meta"):  # a size, but no memory, until it is known to be that of the weights
                check_shapes(model._restore(facts), tensors)
            network = model._restore(facts)
            network.load_state_dict(tensors)
        except DAMAGE as error:
            raise LoadError(
                f"{directory} does not hold a whole {cls.__name__} ({type(error).__name__}: {error}). Save it again."
            ) from error
        model._adopt(network)
        return model

    def _check_parameters(self) -> None:
        raise NotImplementedError

    def _facts(self) -> dict[str, Any]:
        raise NotImplementedError

    def _restore(self, facts: dict[str, Any]) -> nn.Module:
        raise NotImplementedError

    def _adopt(self, network: Any) -> None:
        raise NotImplementedError


def plain_parameters(model: BaseEstimator) -> dict[str, Any]:
    """The constructor's parameters as JSON knows them; a generator given as random_state becomes None."""
    plain = {}
    for name, value in model.get_params(deep=False).items():
        value = value.item() if isinstance(value, np.generic) else value
        plain[name] = value if isinstance(value, (bool, int, float, str, tuple, list)) else None
    return plain
