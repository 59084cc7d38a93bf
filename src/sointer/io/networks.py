"""The networks of a saved explainer, made again with the weights that were saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sointer._support.torch_state import seeded
from sointer._support.unet import channels_last
from sointer.data.labels import N_KNOTS
from sointer.data.texts import TextFormat
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import (
    AnyEnergy,
    PaperEnergy,
    SideBySideEnergies,
    TrainableEnergy,
    build_energy,
    build_paper_energy,
)
from sointer.energy.space import OutputSpace, PiecewiseLinear
from sointer.energy.texts import TextFeatures
from sointer.explainers.sointer import SOInter
from sointer.interpreter.effects import Effects, GradientNetwork, OutputUnits
from sointer.interpreter.elimination import EliminationInterpreter
from sointer.interpreter.image import build_networks
from sointer.interpreter.paper import PaperImageInterpreter, PaperInterpreter
from sointer.interpreter.tables import LocalityTable, TableInterpreter
from sointer.interpreter.texts import TextInterpreter
from sointer.io.storage import check_shapes, need

MAX_REFERENCES, MAX_HIDDEN, MAX_NODES, MAX_UNIT = 1024, 4096, 64, 1e37
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
    features = TextFeatures.of(form, rank)
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
        form,
        state["rank"],
        n_path_steps=explainer.config_.interpreter.n_path_steps,
    )
    _load(interpreter, state)
    return interpreter


def _as_of_now(state: dict[str, Tensor], n_columns: int, hidden: int | None) -> None:
    state["effects.encodings"] = state.pop("effects.mean_encoding").unsqueeze(0)
    if hidden is not None:
        state["effects.network.held_weight"] = torch.zeros(n_columns, 0, hidden)
        state["effects.network.held_mean"] = torch.zeros(n_columns, 0)
        state["effects.network.held_size"] = torch.ones(n_columns)


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
    need(nodes.ndim == 1 and 0 < len(nodes) <= MAX_NODES * n_outputs, "far too many localities")
    hidden = len(state["effects.network.first.weight"]) if "effects.network.first.weight" in state else None
    if "effects.mean_encoding" in state:  # of earlier versions: references are taken for their mean
        _as_of_now(state, space.n_columns, hidden)
    n_encodings = len(state["effects.encodings"])
    none = LocalityTable(n_outputs, n_units, 1)
    for name in ("sum_column", "sum_weight", "inert"):  # earlier versions had none
        state.setdefault(f"localities.{name}", getattr(none, name))
    sums = state["localities.sum_column"]
    need(sums.ndim == 2 and len(sums) <= len(nodes), "far too many sums")
    state.setdefault("effects.center", state["effects.encodings"].mean(dim=0))
    unit = state.setdefault("effects.output_units.unit", torch.ones(space.n_columns, dtype=torch.float64))
    need(bool(((unit > 0) & (unit <= MAX_UNIT)).all()), "units are no positive numbers")
    need(n_encodings in (1, len(references)), "other references are encoded")
    need(hidden is None or hidden <= MAX_HIDDEN, "the network for gradients is too wide")

    def alike() -> TableInterpreter:
        units = OutputUnits(space.n_columns, levels.shape[1])
        effects = Effects(energy, likelihood, units, len(references), n_units, n_encodings)
        if hidden is not None:
            with seeded(0):
                n_held = n_units if n_encodings > 1 else 0
                effects.network = GradientNetwork(energy.projection_width, space.n_columns, hidden, n_held)
        return TableInterpreter(energy, likelihood, effects, LocalityTable(n_outputs, n_units, len(nodes), len(sums)))

    with NO_MEMORY:
        _check_own_shapes(alike(), state)
    interpreter = alike()
    _load(interpreter, state)
    owners = _units_of_columns(explainer)[column]
    need(torch.equal(interpreter.effects.unit_of_encoded, owners), "columns belong to other units")
    interpreter.localities.check(n_columns, n_columns + space.n_columns, explainer.targets_)
    return interpreter


def _load(interpreter: nn.Module, state: dict[str, Tensor]) -> None:
    """Take the saved tensors; those of the energy, which it shares, are there already."""
    interpreter.load_state_dict(_check_own_shapes(interpreter, state))


def _check_own_shapes(interpreter: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The state with that of the energy, if it is of the interpreter's size."""
    whole = {name: tensor for name, tensor in interpreter.state_dict().items() if of_energy(name)} | state
    check_shapes(interpreter, whole)
    return whole


def of_energy(name: str) -> bool:
    """Whether a weight is one of the energy's."""
    return name.startswith(("energy.", "effects.energy."))


def move(network: nn.Module, device: torch.device) -> None:
    """To another device, but for double precision: see `sointer._support.torch_state`."""
    if device.type == "cpu":
        return
    network._apply(lambda tensor: tensor if tensor.dtype is torch.float64 else tensor.to(device))
    for module in network.modules():
        if isinstance(space := getattr(module, "space", None), OutputSpace):
            space.forget()


def _units_of_columns(explainer: SOInter) -> Tensor:
    return torch.from_numpy(explainer.groups_.unit_of_column.astype(np.int64))
