"""Saved explainers: a directory of JSON and safetensors, written atomically, versioned, never a pickle."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer._support.validation import is_integer
from sointer.blackbox.adapters.text import TextPipeline
from sointer.blackbox.box import BlackBox
from sointer.config import PRESETS, DataKind, EnergyConfig, InterpreterConfig, TrainingConfig
from sointer.data.inputs import InputFormat
from sointer.data.outputs import Outputs
from sointer.errors import InputError, LoadError
from sointer.explainers.sointer import SOInter
from sointer.masking.groups import Groups
from sointer.masking.removal import Background, FunctionRemoval, Removal
from sointer.persistence.checks import check_facts
from sointer.persistence.networks import restore_networks
from sointer.storage import DAMAGE, Storage
from sointer.storage.weights import need
from sointer.training.context import Configs

STORAGE = Storage("explainer", "explainer.json", 4, oldest=4)
SAVED_PARAMETERS = ("k", "structured", "preset", "query_budget", "batch_size", "verbose", "tolerance", "output_kind")


def save(explainer: SOInter, path: str | os.PathLike[str]) -> None:
    """Write the explainer to the directory `path`, whole or not at all.

    The weights go to a file named after their content; then explainer.json, which names that file, is put in
    place by one atomic rename. Until then an explainer saved there before stays as it was. Other files in the
    directory are left alone.
    """
    STORAGE.write(path, *_describe(explainer))


def load(path: str | os.PathLike[str], black_box: Any = None, *, removal: Any = None) -> SOInter:
    """Read a saved explainer.

    `black_box` is the model or function that is explained: with it, explain() explains what the model predicts, and
    verify() and refine= work; without it, what it is expected to predict. `removal` is needed only if a function of
    yours was used.

    Nothing in the files is executed, and nothing larger than the files is made from them, so also those of others can
    be loaded.
    """
    facts, tensors = STORAGE.read(path)
    takes_text = facts.get("takes_text") is True and black_box is not None and not isinstance(black_box, BlackBox)
    text = TextPipeline.of(black_box) if takes_text else None
    try:
        explainer = _restore(facts, tensors, black_box, removal, text)
    except LoadError:
        raise
    except DAMAGE as error:
        raise STORAGE.damaged(Path(path), error) from error
    if text is not None and text.words != explainer.input_format_.feature_names:
        raise InputError(
            f"the pipeline given as black_box knows {len(text.words)} words, which are not the "
            f"{len(explainer.input_format_.feature_names)} that the explainer was fitted with; give the pipeline that "
            "was explained."
        )
    return explainer


def _describe(explainer: SOInter) -> tuple[dict[str, Any], dict[str, Tensor]]:
    removal_facts, removal_arrays = explainer.removal_.state()
    background_facts, background_arrays = explainer.background_.state()
    tensors = {f"removal.{name}": as_tensor(array) for name, array in removal_arrays.items()}
    tensors |= {f"background.{name}": as_tensor(array) for name, array in background_arrays.items()}
    tensors["shift"] = as_tensor(explainer.shift_)
    tensors["training_codes"] = as_tensor(explainer.training_codes_)
    tensors |= {f"energy.{name}": t.contiguous() for name, t in explainer.energy_.state_dict().items()}
    interpreter = explainer.interpreter_
    shared = ("energy.", "effects.energy.")
    own = {name: t for name, t in interpreter.state_dict().items() if not name.startswith(shared)}
    tensors |= {f"interpreter.{name}": t.contiguous() for name, t in own.items()}
    params = explainer.get_params(deep=False)
    facts = {
        "parameters": {name: as_plain(params[name]) for name in SAVED_PARAMETERS},
        "method": explainer.method_,
        "random_state": int(params["random_state"]) if is_integer(params["random_state"]) else None,
        "background": background_facts,
        "config": [asdict(config) for config in explainer.config_],
        "input_format": explainer.input_format_.to_json(),
        "groups": explainer.groups_.to_json(),
        "outputs": explainer.outputs_.to_json(),
        "removal": removal_facts,
        "takes_text": explainer.text_ is not None,
        "targets": explainer.targets_,
        "n_queries": explainer.n_queries_ + explainer.n_queries_replayed_,
        "held_out_agreement": explainer.held_out_agreement_,
        "held_out_skill": explainer.held_out_skill_,
        "history": explainer.history_,
        "output_agreement": explainer.output_agreement_.tolist(),
        "output_skill": [None if np.isnan(one) else float(one) for one in explainer.output_skill_],
    }
    return facts, tensors


def _restore(
    facts: dict[str, Any], tensors: dict[str, Tensor], black_box: Any, removal: Any, text: TextPipeline | None
) -> SOInter:
    check_facts(facts, tensors)
    parameters = {name: facts["parameters"][name] for name in SAVED_PARAMETERS}
    need(len(parameters) == len(facts["parameters"]), "there are parameters that are not known")
    need(facts["method"] in (None, "predict", "predict_proba"), "the method is not known")
    need(parameters["preset"] in PRESETS and isinstance(parameters["structured"], bool), "a parameter is not known")
    if isinstance(black_box, BlackBox):
        parameters["batch_size"] = None  # it has its own
    explainer = SOInter(black_box, **parameters, random_state=facts["random_state"])
    energy_facts, interpreter_facts, training_facts = (_without_lists(config) for config in facts["config"])
    explainer.input_format_ = InputFormat.from_json(facts["input_format"])
    is_sparse = "interpreter.unit_of_column" in tensors
    data: DataKind = "sparse rows" if is_sparse else "table"
    data = data if explainer.input_format_.image is None else "images"
    explainer.config_ = Configs(
        EnergyConfig(**energy_facts).resolve(parameters["preset"], data),
        InterpreterConfig(**interpreter_facts).resolve(parameters["preset"], data),
        TrainingConfig(**training_facts).resolve(parameters["preset"], data),
    )
    explainer.groups_ = Groups.from_json(facts["groups"])
    explainer.outputs_ = Outputs.from_json(facts["outputs"])
    explainer.removal_ = _removal(facts["removal"], _arrays(tensors, "removal."), removal)
    explainer.background_ = Background.from_state(facts["background"], _arrays(tensors, "background."))
    explainer.shift_ = tensors["shift"].numpy()
    explainer.training_codes_ = tensors["training_codes"].numpy()
    explainer.text_ = text
    explainer.method_ = facts["method"]
    explainer.black_box_ = None if black_box is None else explainer._black_box_again()
    explainer.targets_ = [int(t) for t in facts["targets"]]
    explainer.n_queries_ = int(facts["n_queries"])
    explainer.held_out_agreement_ = facts["held_out_agreement"]
    explainer.held_out_skill_ = facts["held_out_skill"]
    explainer.output_agreement_ = np.array(facts["output_agreement"], dtype=np.float64)
    explainer.output_skill_ = np.array(
        [np.nan if one is None else one for one in facts["output_skill"]], dtype=np.float64
    )
    explainer.history_ = facts["history"]
    explainer.n_features_in_ = explainer.input_format_.n_features
    explainer.feature_names_in_ = np.array(explainer.input_format_.feature_names, dtype=object)
    explainer.n_outputs_ = explainer.outputs_.n_outputs
    explainer.output_names_ = list(explainer.outputs_.names)
    explainer.energy_, explainer.interpreter_ = restore_networks(
        explainer, facts, _part(tensors, "energy."), _part(tensors, "interpreter.")
    )
    _set_parameters(explainer)
    return explainer


def _set_parameters(explainer: SOInter) -> None:
    """Give the constructor's parameters the values that were fitted with, so that a clone fits the same."""
    explainer.energy, explainer.interpreter, explainer.training = explainer.config_
    explainer.removal = explainer.removal_
    explainer.feature_names = list(explainer.input_format_.feature_names)
    explainer.output_names = explainer.output_names_
    explainer.groups = explainer.groups_.spec
    if explainer.black_box_ is None or not isinstance(explainer.model, BlackBox):
        explainer.method = None if explainer.black_box_ is None else explainer.black_box_.method


def _removal(facts: dict[str, Any], arrays: dict[str, NDArray[Any]], function: Any) -> Removal:
    removal = Removal.from_state(facts, arrays, function=function)
    if function is not None and not isinstance(removal, FunctionRemoval):
        raise LoadError(
            f"removal was given, but the explainer was fitted with removal={removal.name!r} and keeps it; leave "
            "removal out."
        )
    return removal


def as_tensor(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


def as_plain(value: Any) -> Any:
    """numpy numbers as Python's, which JSON knows."""
    return value.item() if isinstance(value, np.generic) else value


def _arrays(tensors: dict[str, Tensor], prefix: str) -> dict[str, NDArray[Any]]:
    return {name: tensor.numpy() for name, tensor in _part(tensors, prefix).items()}


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _without_lists(config: dict[str, Any]) -> dict[str, Any]:
    """JSON has no tuples; configurations have no lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in config.items()}
