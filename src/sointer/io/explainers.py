"""Saved explainers: a directory of JSON and safetensors, written atomically, versioned, never a pickle."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sointer._support.torch_state import one_thread, seeded
from sointer._support.unet import channels_last
from sointer._support.validation import is_integer
from sointer.blackbox.box import BlackBox
from sointer.config import PRESETS, Configs, DataKind, EnergyConfig, InterpreterConfig, TrainingConfig
from sointer.data.inputs import InputFormat
from sointer.data.labels import N_KNOTS
from sointer.data.outputs import Outputs
from sointer.data.texts import TextFormat
from sointer.energy.build import PaperEnergy, build_energy, build_paper_energy
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import AnyEnergy, SideBySideEnergies, TrainableEnergy
from sointer.energy.space import OutputSpace, PiecewiseLinear
from sointer.energy.texts import TextFeatures
from sointer.errors import LoadError
from sointer.explainers.sointer import SOInter
from sointer.interpreter.effects import Effects, GradientNetwork, OutputUnits
from sointer.interpreter.image import build_networks
from sointer.interpreter.networks import EliminationInterpreter, PaperInterpreter
from sointer.interpreter.paper_image import PaperImageInterpreter
from sointer.interpreter.tables import LocalityTable, TableInterpreter
from sointer.interpreter.texts import TextInterpreter
from sointer.io.checks import check_metadata, with_prefix
from sointer.io.storage import DAMAGE, Storage, check_shapes, need
from sointer.masking.groups import Groups
from sointer.masking.removal import Background, FunctionRemoval, Removal

MAX_REFERENCES, MAX_HIDDEN, MAX_NODES = 1024, 4096, 64
NO_MEMORY = torch.device("meta")
"""Where networks have a size but no weights."""


def restore_networks(
    explainer: SOInter, metadata: dict[str, Any], energy_state: dict[str, Tensor], state: dict[str, Tensor]
) -> tuple[AnyEnergy, nn.Module]:
    """The energy and the interpreter, with the weights that were saved."""
    structured = bool(metadata["parameters"]["structured"])
    if metadata["parameters"]["preset"] == "paper":
        return _paper_networks(explainer, structured, energy_state, state)
    image = explainer.input_format_.image
    if image is not None:
        n_classes = explainer.outputs_.n_classes[0]
        whole = {f"energy.{name}": tensor for name, tensor in energy_state.items()} | state
        with NO_MEMORY:
            check_shapes(build_networks(image, n_classes, explainer.config_.energy), whole)
        of_images = build_networks(image, n_classes, explainer.config_.energy)
        of_images.load_state_dict(whole)
        channels_last(of_images).requires_grad_(False).eval()
        return of_images.energy, of_images

    is_table = "encoding.column" in energy_state
    form = explainer.input_format_
    n_columns = form.n_columns if not isinstance(form, TextFormat) else _text_features(form, state["rank"]).n_columns

    def alike() -> TrainableEnergy:
        encoding = PiecewiseLinear(len(energy_state["encoding.column"])) if is_table else n_columns
        space = OutputSpace.of(explainer.outputs_)
        return build_energy(encoding, space, explainer.config_.energy, structured=structured, seed=0)

    with NO_MEMORY:
        check_shapes(alike(), energy_state)
    energy = alike()
    energy.load_state_dict(energy_state)
    energy.requires_grad_(False)
    make: Callable[..., nn.Module] = _table_interpreter if is_table else _elimination_interpreter
    make = _text_interpreter if isinstance(form, TextFormat) else make
    return energy, make(explainer, energy, state).requires_grad_(False).eval()


def _paper_networks(
    explainer: SOInter, structured: bool, energy_state: dict[str, Tensor], state: dict[str, Tensor]
) -> tuple[AnyEnergy, nn.Module]:
    n_columns, n_units = explainer.input_format_.n_columns, explainer.groups_.n_units
    image, (energy_config, config, _) = explainer.input_format_.image, explainer.config_

    def energy_of(space: OutputSpace, alone: int | None = None) -> PaperEnergy:
        return build_paper_energy(n_columns, image, space, energy_config, pixel=alone)

    def alike() -> tuple[AnyEnergy, nn.Module]:
        space = OutputSpace.of(explainer.outputs_)
        energy: AnyEnergy
        if structured:
            energy = energy_of(space)
        else:
            each = {t: energy_of(OutputSpace((space.n_classes[t],)), t) for t in explainer.targets_}
            energy = SideBySideEnergies(space, each)
        if image is None:
            return energy, PaperInterpreter(n_columns, n_units, explainer.n_outputs_, config.hidden)
        return energy, PaperImageInterpreter(image, n_units, explainer.targets_)

    with NO_MEMORY:
        for network, wanted in zip(alike(), (energy_state, state), strict=True):
            check_shapes(network, wanted)
    with seeded(0):
        energy, interpreter = alike()
    energy.load_state_dict(energy_state)
    interpreter.load_state_dict(state)
    return energy.requires_grad_(False), interpreter.requires_grad_(False).eval()


def _elimination_interpreter(
    explainer: SOInter, energy: TrainableEnergy, state: dict[str, Tensor]
) -> EliminationInterpreter:
    n_columns, n_units = explainer.input_format_.n_columns, explainer.groups_.n_units
    of_units, references = _units_of_columns(explainer), state["references"]
    need(references.ndim == 2 and references.shape == (1, n_columns), "no reference")
    need(torch.equal(state["unit_of_column"], of_units), "columns belong to other units")
    interpreter = EliminationInterpreter(
        energy,
        Likelihood.of(explainer.config_.energy),
        references,
        of_units,
        n_units,
        n_path_steps=explainer.config_.interpreter.n_path_steps,
    )
    _load(interpreter, state)
    return interpreter


def _text_features(form: TextFormat, rank: Tensor) -> TextFeatures:
    need(rank.dtype == torch.int64 and rank.shape in ((0,), (form.n_words,)), "there are other words")
    features = TextFeatures(form.n_words, rank.numpy() if len(rank) else None)
    need(bool(((rank >= -1) & (rank < features.n_ordered)).all()), "words are ordered that are none")
    return features


def _text_interpreter(explainer: SOInter, energy: TrainableEnergy, state: dict[str, Tensor]) -> TextInterpreter:
    form, of_units = explainer.input_format_, _units_of_columns(explainer)
    assert isinstance(form, TextFormat)
    need(torch.equal(state["unit_of_column"], of_units), "words belong to other units")
    interpreter = TextInterpreter(
        energy,
        Likelihood.of(explainer.config_.energy),
        of_units,
        explainer.groups_.n_units,
        form.n_words,
        state["rank"],
        n_path_steps=explainer.config_.interpreter.n_path_steps,
    )
    _load(interpreter, state)
    return interpreter


def _table_interpreter(explainer: SOInter, energy: TrainableEnergy, state: dict[str, Tensor]) -> TableInterpreter:
    n_columns, n_units = explainer.input_format_.n_columns, explainer.groups_.n_units
    n_outputs, space = explainer.n_outputs_, energy.space
    column, nodes = energy.encoding.column, state["localities.condition"]
    need(len(column) > 0 and bool(((column >= 0) & (column < n_columns)).all()), "columns that are none are encoded")
    references = state["effects.projections"]
    need(references.ndim == 2 and 0 < len(references) <= MAX_REFERENCES, "no references")
    levels = state["effects.output_units.levels"]
    need(levels.ndim == 2 and len(levels) == space.n_columns and 2 <= levels.shape[1] <= N_KNOTS, "other units")
    likelihood = Likelihood.of(explainer.config_.energy)
    units = OutputUnits(space.n_columns, levels.shape[1])
    effects = Effects(energy, likelihood, units, len(references), n_units)
    if "effects.network.first.weight" in state:
        hidden = len(state["effects.network.first.weight"])
        need(hidden <= MAX_HIDDEN, "the network for gradients is too wide")
        with seeded(0):
            effects.network = GradientNetwork(energy.projection_width, space.n_columns, hidden)
    need(nodes.ndim == 1 and 0 < len(nodes) <= MAX_NODES * n_outputs, "far too many localities")
    interpreter = TableInterpreter(energy, likelihood, effects, LocalityTable(n_outputs, n_units, len(nodes)))
    _load(interpreter, state)
    owners = _units_of_columns(explainer)[column]
    need(torch.equal(interpreter.effects.unit_of_encoded, owners), "columns belong to other units")
    interpreter.localities.check(n_columns + space.n_columns, explainer.targets_)
    return interpreter


def _load(interpreter: nn.Module, state: dict[str, Tensor]) -> None:
    """Take the saved tensors; those of the energy, which it shares, are there already."""
    shared = {name: tensor for name, tensor in interpreter.state_dict().items() if _of_energy(name)}
    whole = shared | state
    check_shapes(interpreter, whole)
    interpreter.load_state_dict(whole)


def _of_energy(name: str) -> bool:
    return name.startswith(("energy.", "effects.energy."))


def _units_of_columns(explainer: SOInter) -> Tensor:
    return torch.from_numpy(explainer.groups_.unit_of_column.astype(np.int64))


STORAGE = Storage("explainer", "explainer.json", 4, oldest=4)
SAVED_PARAMETERS = ("k", "structured", "preset", "query_budget", "batch_size", "verbose", "tolerance", "output_kind")


def save(explainer: SOInter, path: str | os.PathLike[str]) -> None:
    """Write the explainer to the directory `path`, whole or not at all.

    The weights go to a file named after their content; then explainer.json, which names that file, is put in
    place by one atomic rename. Until then an explainer saved there before stays as it was. Other files in the
    directory are left alone.
    """
    STORAGE.write(path, *_describe(explainer))


def load(path: str | os.PathLike[str], black_box: Any = None, *, removal: Any = None, splitter: Any = None) -> SOInter:
    """Read a saved explainer.

    Nothing in the files is executed, and nothing larger than the files is made from them, so also those of others can
    be loaded.

    Parameters
    ----------
    path : str or path
        The directory that `save` wrote.
    black_box : model or function, optional
        What is explained: with it, explain() explains what the model predicts, and verify() and refine= work; without
        it, what it is expected to predict.
    removal : function, optional
        Needed only if a function of yours was used in fit.
    splitter : function, optional
        Needed only if texts were split by a function of yours in fit.

    Returns
    -------
    SOInter
        Fitted.

    Raises
    ------
    LoadError
        If files are missing, damaged, or of another format.

    Examples
    --------
    >>> explainer = sointer.load("why", black_box=model)  # doctest: +SKIP
    """
    metadata, tensors = STORAGE.read(path)
    try:
        with one_thread():  # torch's threads would wait for ever in a forked process
            explainer = _restore(metadata, tensors, black_box, removal, splitter)
    except LoadError:
        raise
    except DAMAGE as error:
        raise STORAGE.damaged(Path(path), error) from error
    return explainer


def _describe(explainer: SOInter) -> tuple[dict[str, Any], dict[str, Tensor]]:
    removal_metadata, removal_arrays = explainer.removal_.state()
    background_metadata, background_arrays = explainer.background_.state()
    tensors = {f"removal.{name}": as_tensor(array) for name, array in removal_arrays.items()}
    tensors |= {f"background.{name}": as_tensor(array) for name, array in background_arrays.items()}
    tensors["shift"] = as_tensor(explainer.shift_)
    tensors["training_codes"] = as_tensor(explainer.training_codes_)
    tensors |= {f"energy.{name}": t.contiguous() for name, t in explainer.energy_.state_dict().items()}
    interpreter = explainer.interpreter_
    own = {name: t for name, t in interpreter.state_dict().items() if not _of_energy(name)}
    tensors |= {f"interpreter.{name}": t.contiguous() for name, t in own.items()}
    params = explainer.get_params(deep=False)
    metadata = {
        "parameters": {name: as_plain(params[name]) for name in SAVED_PARAMETERS},
        "method": explainer.method_,
        "random_state": int(params["random_state"]) if is_integer(params["random_state"]) else None,
        "background": background_metadata,
        "config": [asdict(config) for config in explainer.config_],
        "input_format": explainer.input_format_.to_json(),
        "groups": explainer.groups_.to_json(),
        "outputs": explainer.outputs_.to_json(),
        "removal": removal_metadata,
        "targets": explainer.targets_,
        "n_queries": explainer.n_queries_ + explainer.n_queries_replayed_,
        "held_out_agreement": explainer.held_out_agreement_,
        "held_out_skill": explainer.held_out_skill_,
        "history": explainer.history_,
        "output_agreement": explainer.output_agreement_.tolist(),
        "output_skill": [None if np.isnan(one) else float(one) for one in explainer.output_skill_],
    }
    return metadata, tensors


def _restore(
    metadata: dict[str, Any], tensors: dict[str, Tensor], black_box: Any, removal: Any, splitter: Any
) -> SOInter:
    check_metadata(metadata, tensors)
    parameters = {name: metadata["parameters"][name] for name in SAVED_PARAMETERS}
    need(len(parameters) == len(metadata["parameters"]), "there are parameters that are not known")
    need(metadata["method"] in (None, "predict", "predict_proba"), "the method is not known")
    need(parameters["preset"] in PRESETS and isinstance(parameters["structured"], bool), "a parameter is not known")
    if isinstance(black_box, BlackBox):
        parameters["batch_size"] = None  # it has its own
    explainer = SOInter(black_box, **parameters, random_state=metadata["random_state"])
    energy_metadata, interpreter_metadata, training_metadata = (_without_lists(config) for config in metadata["config"])
    explainer.input_format_ = _input_format(metadata["input_format"], splitter)
    is_sparse = "interpreter.unit_of_column" in tensors
    data: DataKind = "sparse rows" if is_sparse else "table"
    data = data if explainer.input_format_.image is None else "images"
    data = "texts" if explainer.reads_text else data
    explainer.config_ = Configs(
        EnergyConfig(**energy_metadata).resolve(parameters["preset"], data),
        InterpreterConfig(**interpreter_metadata).resolve(parameters["preset"], data),
        TrainingConfig(**training_metadata).resolve(parameters["preset"], data),
    )
    explainer.groups_ = Groups.from_json(metadata["groups"])
    explainer.outputs_ = Outputs.from_json(metadata["outputs"])
    explainer.removal_ = _removal(metadata["removal"], _arrays(tensors, "removal."), removal)
    explainer.background_ = Background.from_state(metadata["background"], _arrays(tensors, "background."))
    explainer.shift_ = tensors["shift"].numpy()
    explainer.training_codes_ = tensors["training_codes"].numpy()
    explainer.method_ = metadata["method"]
    explainer.black_box_ = None if black_box is None else explainer._black_box_again()
    explainer.targets_ = [int(t) for t in metadata["targets"]]
    explainer.n_queries_ = int(metadata["n_queries"])
    explainer.held_out_agreement_ = metadata["held_out_agreement"]
    explainer.held_out_skill_ = metadata["held_out_skill"]
    explainer.output_agreement_ = np.array(metadata["output_agreement"], dtype=np.float64)
    explainer.output_skill_ = np.array(
        [np.nan if one is None else one for one in metadata["output_skill"]], dtype=np.float64
    )
    explainer.history_ = metadata["history"]
    explainer.n_features_in_ = explainer.input_format_.n_features
    explainer.feature_names_in_ = np.array(explainer.input_format_.feature_names, dtype=object)
    explainer.n_outputs_ = explainer.outputs_.n_outputs
    explainer.output_names_ = list(explainer.outputs_.names)
    explainer.energy_, explainer.interpreter_ = restore_networks(
        explainer, metadata, with_prefix(tensors, "energy."), with_prefix(tensors, "interpreter.")
    )
    _set_parameters(explainer)
    return explainer


def _input_format(metadata: dict[str, Any], splitter: Any) -> InputFormat:
    is_text = metadata["kind"] == "text"
    return TextFormat.restored(metadata, splitter) if is_text else InputFormat.from_json(metadata)


def _set_parameters(explainer: SOInter) -> None:
    """Give the constructor's parameters the values that were fitted with, so that a clone fits the same."""
    explainer.energy, explainer.interpreter, explainer.training = explainer.config_
    explainer.removal = explainer.removal_
    explainer.feature_names = list(explainer.input_format_.feature_names)
    explainer.output_names = explainer.output_names_
    explainer.groups = explainer.groups_.spec
    form = explainer.input_format_
    if isinstance(form, TextFormat):
        explainer.feature_names = None
        explainer.removal = getattr(explainer.removal_, "token", None) or "delete"
        explainer.groups = form.split or (explainer.groups if form.by in ("words", "function") else form.by)
    if explainer.black_box_ is None or not isinstance(explainer.model, BlackBox):
        explainer.method = None if explainer.black_box_ is None else explainer.black_box_.method


def _removal(metadata: dict[str, Any], arrays: dict[str, NDArray[Any]], function: Any) -> Removal:
    removal = Removal.from_state(metadata, arrays, function=function)
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
    return {name: tensor.numpy() for name, tensor in with_prefix(tensors, prefix).items()}


def _without_lists(config: dict[str, Any]) -> dict[str, Any]:
    """JSON has no tuples; configurations have no lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in config.items()}
