"""The networks of a saved explainer: of the size that its settings say, if that is the size of the saved weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sointer.convolution import channels_last
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import AnyEnergy, SideBySideEnergies, TrainableEnergy
from sointer.energy.paper_image import paper_image_energy
from sointer.energy.space import OutputSpace
from sointer.explainer import SOInter
from sointer.interpreter.networks import PaperInterpreter, ResidualNetwork, SaliencyInterpreter
from sointer.interpreter.paper_image import PaperImageInterpreter
from sointer.randomness import seeded
from sointer.storage.weights import check_shapes, need
from sointer.training.energy_steps import build_energy
from sointer.training.images import build_networks
from sointer.training.paper_networks import PaperEnergy, paper_energy

NO_MEMORY = torch.device("meta")
"""Where networks have a size but no weights."""


def restore_networks(
    explainer: SOInter, facts: dict[str, Any], energy_state: dict[str, Tensor], state: dict[str, Tensor]
) -> tuple[AnyEnergy, nn.Module]:
    """The energy and the interpreter, with the weights that were saved."""
    structured = bool(facts["parameters"]["structured"])
    if facts["parameters"]["preset"] == "paper":
        return _paper_networks(explainer, structured, energy_state, state)
    image = explainer.input_format_.image
    if image is not None:
        n_classes = explainer.outputs_.n_classes[0]
        whole = {f"energy.{name}": tensor for name, tensor in energy_state.items()} | state
        with NO_MEMORY:
            check_shapes(build_networks(image, n_classes, explainer.config_, structured=structured), whole)
        of_images = build_networks(image, n_classes, explainer.config_, structured=structured)
        of_images.load_state_dict(whole)
        channels_last(of_images).requires_grad_(False).eval()
        return of_images.energy, of_images

    def alike() -> TrainableEnergy:
        space, n_columns = OutputSpace.of(explainer.outputs_), explainer.input_format_.n_columns
        return build_energy(n_columns, space, explainer.config_.energy, structured=structured, seed=0)

    with NO_MEMORY:
        check_shapes(alike(), energy_state)
    energy = alike()
    energy.load_state_dict(energy_state)
    energy.requires_grad_(False)
    return energy, _saliency_interpreter(explainer, energy, facts, state).eval()


def _paper_networks(
    explainer: SOInter, structured: bool, energy_state: dict[str, Tensor], state: dict[str, Tensor]
) -> tuple[AnyEnergy, nn.Module]:
    n_columns, n_units = explainer.input_format_.n_columns, explainer.groups_.n_units
    image, (energy_config, config, _) = explainer.input_format_.image, explainer.config_

    def energy_of(space: OutputSpace, alone: int | None = None) -> PaperEnergy:
        if image is None:
            return paper_energy(n_columns, space, energy_config)
        return paper_image_energy(image, space, energy_config, pixel=alone)

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


def _saliency_interpreter(
    explainer: SOInter, energy: TrainableEnergy, facts: dict[str, Any], state: dict[str, Tensor]
) -> SaliencyInterpreter:
    n_columns, n_units = explainer.input_format_.n_columns, explainer.groups_.n_units
    of_units = torch.from_numpy(explainer.groups_.unit_of_column.astype(np.int64))
    references = state["references"]
    need(references.ndim == 2 and references.shape[1] == n_columns and len(references) > 0, "no references")
    need(torch.equal(state["unit_of_column"], of_units), "columns belong to other units")

    def alike(of_energy: TrainableEnergy) -> SaliencyInterpreter:
        made = SaliencyInterpreter(
            of_energy,
            Likelihood.of(explainer.config_.energy),
            references,
            of_units,
            n_units,
            n_path_steps=int(facts["n_path_steps"]),
            eliminates=bool(facts["eliminates"]),
        )
        if any(name.startswith("residual.") for name in state):
            hidden = explainer.config_.interpreter.hidden
            made.residual = ResidualNetwork(of_energy.scaling, n_columns, explainer.n_outputs_, n_units, hidden)
        return made

    whole = {f"energy.{name}": tensor for name, tensor in energy.state_dict().items()} | state
    with NO_MEMORY:
        check_shapes(alike(energy), whole)
    with seeded(0):
        interpreter = alike(energy)
    interpreter.load_state_dict(whole)
    return interpreter.requires_grad_(False)
