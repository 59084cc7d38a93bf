"""Which networks, which inference and which value the paper's recipe uses: those of vectors, or those of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from sointer.config import EnergyConfig, InterpreterConfig
from sointer.data.images import BOUNDS
from sointer.energy import descent, inference, losses
from sointer.energy.networks import VectorEnergy
from sointer.energy.paper_image import PaperImageEnergy, paper_image_energy
from sointer.energy.space import OutputSpace
from sointer.errors import InputError
from sointer.interpreter.networks import PaperInterpreter
from sointer.interpreter.paper_image import PaperImageInterpreter, check_memory
from sointer.masking.superpixels import SuperpixelGroups
from sointer.training.task import Task

PaperEnergy: TypeAlias = VectorEnergy | PaperImageEnergy


def check_images(task: Task) -> None:
    """Refuse, before anything is asked of the black box, images that the paper's networks cannot serve."""
    image = task.input_format.image
    if image is None:
        return
    if isinstance(task.groups, SuperpixelGroups):
        raise InputError(
            "preset='paper' cannot choose among superpixels: each output of its interpreter network is one fixed part "
            "of the image, and superpixels are other parts in every image. Use groups=Patches(size), no groups, or "
            "preset='default'."
        )
    config = task.configs.interpreter
    if config.hidden != InterpreterConfig.presets["paper"]["hidden"]:
        raise InputError(
            f"InterpreterConfig.hidden={config.hidden!r} has no effect on images with preset='paper', whose "
            "convolutional interpreter is that of the paper's section 3.3. Remove the setting."
        )
    check_memory(image, task.groups.n_units, 1)


def paper_energy(n_columns: int, space: OutputSpace, config: EnergyConfig) -> VectorEnergy:
    """Eq. 17-3 to the letter: no offset inside softplus, the library's usual initial weights."""
    return VectorEnergy(
        n_columns,
        space,
        hidden=config.hidden,
        coupling_units=config.coupling_units,
        coupling_spread=None,
        coupling_offset=False,
    )


def energy_for(task: Task, space: OutputSpace, alone: int | None = None) -> PaperEnergy:
    """A fresh energy of all outputs, or of the one that is to be seen alone."""
    image, config = task.input_format.image, task.configs.energy
    if image is None:
        return paper_energy(task.input_format.n_columns, space, config)
    energy = paper_image_energy(image, space, config, pixel=alone)
    energy.scale.fill_(pixel_scale(task))
    return energy


def interpreter_for(task: Task, n_outputs: int, targets: Sequence[int]) -> PaperInterpreter:
    """Fresh networks W; of images for the targets alone, as each is large."""
    image, n_units = task.input_format.image, task.groups.n_units
    if image is None:
        return PaperInterpreter(task.input_format.n_columns, n_units, n_outputs, task.configs.interpreter.hidden)
    interpreter = PaperImageInterpreter(image, n_units, targets)
    interpreter.scale.fill_(pixel_scale(task))
    return interpreter


def pixel_scale(task: Task) -> float:
    """What pixels are multiplied by before a network sees them: none is then larger than 1 or so."""
    if task.input_format.pixel_range == "any":
        return 1.0 / (float(abs(task.data).max()) or 1.0)
    return 1.0 / BOUNDS[task.input_format.pixel_range][1]


def value_for(energy: PaperEnergy) -> Callable[[Tensor, Tensor], Tensor]:
    """v of appendix B: F1 for labels, intersection over union for masks, else the share of outputs that agree."""
    if isinstance(energy, PaperImageEnergy) and energy.pixel is None:
        return losses.mask_overlap
    return losses.example_f1 if energy.space.is_binary else losses.matching_share


def other_than(energy: PaperEnergy, x: Tensor, codes: Tensor) -> Tensor:
    """y' != codes of least energy, by gradient inference."""
    if isinstance(energy, PaperImageEnergy):
        return descent.best_other(energy, x, codes)
    return inference.best_other(energy, x, codes, exact=False)


def energy_in_training(energy: PaperEnergy, x: Tensor, codes: Tensor, generator: torch.Generator) -> Tensor:
    """E(x, y) for a step on the energy's own weights, with dropout where the energy has it."""
    more = [generator] if isinstance(energy, PaperImageEnergy) else []
    result: Tensor = energy(x, energy.space.encode(codes), *more)
    return result
