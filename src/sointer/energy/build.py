"""Fresh energies as the settings say: for training, and to hold saved weights."""

from __future__ import annotations

from typing import Any, TypeAlias

from sointer._support.torch_state import seeded
from sointer.config import EnergyConfig
from sointer.data.images import ImageShape
from sointer.energy.networks import SeparateEnergy, TrainableEnergy, VectorEnergy
from sointer.energy.paper_image import PaperImageEnergy, paper_image_energy
from sointer.energy.space import Encoding, OutputSpace, PiecewiseLinear

PaperEnergy: TypeAlias = VectorEnergy | PaperImageEnergy
# A layer of all outputs' networks together: many outputs must do with narrower ones.
MAX_UNITS_ALONE, MIN_UNITS_ALONE = 2000, 16


def build_energy(
    encoding: int | Encoding, space: OutputSpace, config: EnergyConfig, *, structured: bool, seed: int
) -> TrainableEnergy:
    """A fresh energy; the global random state of torch is left as it was.

    Inputs that are encoded piecewise linear enter a network that bends smoothly; sparse ones that of the paper.
    """
    is_table = isinstance(encoding, PiecewiseLinear)
    more: dict[str, Any] = {"activation": "silu" if is_table else "softplus", "output_offset": is_table}
    with seeded(seed):
        if structured:
            return VectorEnergy(encoding, space, hidden=config.hidden, coupling_units=config.coupling_units, **more)
        most = max(MIN_UNITS_ALONE, MAX_UNITS_ALONE // space.n_outputs)
        return SeparateEnergy(encoding, space, hidden=tuple(min(width, most) for width in config.hidden), **more)


def build_paper_energy(
    n_columns: int, image: ImageShape | None, space: OutputSpace, config: EnergyConfig, pixel: int | None = None
) -> PaperEnergy:
    """The paper's energy of all outputs, or of one pixel alone.

    Of vectors, eq. 17-3 to the letter: no offset inside softplus, the library's default initial weights.
    """
    if image is not None:
        return paper_image_energy(image, space, config, pixel=pixel)
    return VectorEnergy(
        n_columns,
        space,
        hidden=config.hidden,
        coupling_units=config.coupling_units,
        coupling_spread=None,
        coupling_offset=False,
    )
