"""Finer settings, one typed and validated group per stage; what is left None takes the preset's value."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from sointer._support.validation import is_integer
from sointer.errors import InputError

Preset = Literal["default", "paper"]
PRESETS: tuple[Preset, ...] = ("default", "paper")
Rows = Literal["keep", "synthetic", "none"]
"""What becomes of the training rows that an explainer holds when it is saved."""
ROWS: tuple[Rows, ...] = ("keep", "synthetic", "none")
DataKind = Literal["table", "sparse rows", "texts", "images"]
"""Tables; wide ones that are mostly zero, such as counts of words; texts; images."""

Config = TypeVar("Config", bound="StageConfig")
OPEN: Any = None  # left to the preset
MAX_LAYERS = 64


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_rows(rows: object) -> None:
    """Refuse anything else than a way to save training rows."""
    if rows not in ROWS:
        raise InputError(f"rows must be one of {', '.join(map(repr, ROWS))}, got {rows!r}.")


@dataclass(frozen=True)
class StageConfig:
    """Settings of one stage. A setting that a preset does not use may not be set for it."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    other_data: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """What the default preset does otherwise with other data than tables; None for settings not used then."""

    def resolve(self: Config, preset: str, data: DataKind = "table") -> Config:
        """The same configuration with every open setting filled in from the preset.

        Parameters
        ----------
        preset : {"default", "paper"}
        data : {"table", "sparse rows", "texts", "images"}, default "table"
            The kind of data.

        Returns
        -------
        EnergyConfig, InterpreterConfig or TrainingConfig
            Settings that the preset does not use stay None.

        Raises
        ------
        InputError
            If a value is wrong, or the preset does not use it.
        """
        self.check()
        otherwise = self.other_data.get(data, {}) if preset == "default" else {}
        known = {name: value for name, value in {**self.presets[preset], **otherwise}.items() if value is not None}
        for field in fields(self):
            given = getattr(self, field.name)
            if given is not None and field.name not in known:
                on = "" if data == "table" else f" on {data}"
                used = ", ".join(known) or "none of these"
                raise InputError(
                    f"{type(self).__name__}.{field.name}={given!r} has no effect with preset={preset!r}{on}; "
                    f"that preset uses: {used}. Remove the setting or choose another preset."
                )
        filled = {name: value for name, value in known.items() if getattr(self, name) is None}
        return replace(self, **filled)

    def check_for(self, preset: str) -> None:
        """Check every setting, whatever the data are.

        Parameters
        ----------
        preset : {"default", "paper"}

        Raises
        ------
        InputError
            If a value is wrong, or the preset uses it for no data.
        """
        kinds: tuple[DataKind, ...] = ("table", "sparse rows", "texts", "images")
        problems = []
        for data in kinds if preset == "default" else kinds[:1]:
            try:
                self.resolve(preset, data)
            except InputError as error:
                problems.append(error)
            else:
                return
        raise problems[0]

    def check(self) -> None:
        """Check types and ranges.

        Raises
        ------
        InputError
            If a value has the wrong type or is out of range.
        """
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            wanted = self._wanted(field.name, value)
            if wanted is not None:
                raise InputError(f"{type(self).__name__}.{field.name} must be {wanted}, got {value!r}.")

    def _wanted(self, name: str, value: Any) -> str | None:
        """What the setting must be, if the value is not that."""
        known = (*self.presets.values(), *self.other_data.values())
        example = next(settings[name] for settings in known if settings.get(name) is not None)
        zero = name in self.may_be_zero
        if isinstance(example, tuple):
            fits = isinstance(value, tuple) and 0 < len(value) <= MAX_LAYERS
            fits = fits and all(is_integer(v) and v > 0 for v in value)
            return None if fits else f"a tuple of up to {MAX_LAYERS} positive whole numbers"
        if isinstance(example, int):
            most = self.at_most.get(name, math.inf)
            fits = is_integer(value) and (value > 0 or (zero and value == 0)) and value <= most
            up_to = f" up to {most}" if name in self.at_most else ""
            return None if fits else "a positive whole number" + (" or zero" if zero else "") + up_to
        if not _is_number(value) or not (value > 0 or (zero and value == 0)) or not math.isfinite(value):
            return "a positive number" + (" or zero" if zero else "")
        return "a share below 1" if name.endswith("_share") and value >= 1 else None

    may_be_zero: ClassVar[frozenset[str]] = frozenset()
    at_most: ClassVar[Mapping[str, int]] = {}
    """Where more would take memory or time that no one has; also files of others cannot ask for it."""


@dataclass(frozen=True)
class EnergyConfig(StageConfig):
    """The energy network and how it is trained.

    Examples
    --------
    >>> from sointer import EnergyConfig
    >>> EnergyConfig(hidden=(50,)).resolve("default").learning_rate
    0.003
    """

    hidden: tuple[int, ...] = OPEN
    """Widths of the layers of F; for images, channels at full size and after each halving."""
    coupling_units: int = OPEN
    """Rows of B in eq. 17-3."""
    input_sparsity: float = OPEN
    """How strongly the weights of each unit are drawn to zero together, in learning rates per step; with fewer than
    5,000 queries more strongly, up to 2.5 times."""
    learning_rate: float = OPEN
    """Size of the training steps."""
    coupling_speed: float = OPEN
    """Learning rate of B and b, as a multiple of the others'."""
    weight_decay: float = OPEN
    """By how much all weights are drawn to zero, in learning rates per step."""
    batch_size: int = OPEN
    """Queries per step; for images, images per step, each with eight mixtures."""
    exact_limit: int = OPEN
    """Largest number of output configurations over which inference is exact."""
    mean_field_steps: int = OPEN
    """Steps of inference where it is not exact."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {
            "hidden": (150, 150),
            "coupling_units": 64,
            "input_sparsity": 1.0,
            "learning_rate": 3e-3,
            "coupling_speed": 3.0,
            "weight_decay": 1e-2,
            "batch_size": 128,
            "exact_limit": 4096,
            "mean_field_steps": 6,
        },
        "paper": {
            "hidden": (150, 150),
            "coupling_units": 64,
            "learning_rate": 1e-3,
            "batch_size": 128,
            "exact_limit": 4096,
            "mean_field_steps": 6,
        },
    }
    other_data: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "sparse rows": {
            "hidden": (600,),
            "input_sparsity": 0.0,
            "learning_rate": 3e-3,
            "coupling_speed": 1.0,
            "weight_decay": 0.0,
            "batch_size": 512,
        },
        "texts": {
            "hidden": (128,),
            "input_sparsity": 0.3,
            "learning_rate": 3e-3,
            "coupling_speed": 1.0,
            "weight_decay": 0.0,
            "batch_size": 256,
        },
        "images": {
            "hidden": (32, 48, 64, 64),
            "coupling_units": None,
            "input_sparsity": None,
            "learning_rate": 3e-3,
            "coupling_speed": None,
            "weight_decay": 1e-2,
            "batch_size": 5,
            "exact_limit": None,
            "mean_field_steps": None,
        },
    }
    may_be_zero: ClassVar[frozenset[str]] = frozenset({"input_sparsity", "weight_decay"})
    at_most: ClassVar[Mapping[str, int]] = {"exact_limit": 2**16, "mean_field_steps": 1000}


@dataclass(frozen=True)
class InterpreterConfig(StageConfig):
    """The interpreter and how it is trained.

    Examples
    --------
    >>> from sointer import InterpreterConfig
    >>> InterpreterConfig(temperature=0.5).resolve("paper").hidden
    (100, 100, 100)
    """

    hidden: tuple[int, ...] = OPEN
    """Widths of the hidden layers of W in the paper's preset."""
    n_path_steps: int = OPEN
    """Of sparse rows, points on the paths along which the energy's gradient is averaged."""
    learning_rate: float = OPEN
    """Size of the training steps, in the paper's preset."""
    batch_size: int = OPEN
    """Samples per step, in the paper's preset."""
    temperature: float = OPEN
    """tau of the relaxation of "choose k"."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "paper": {
            "hidden": (100, 100, 100),
            "learning_rate": 1e-3,
            "batch_size": 128,
            "temperature": 0.1,
        },
    }
    other_data: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "sparse rows": {"n_path_steps": 4},
        "texts": {"n_path_steps": 4},
    }
    at_most: ClassVar[Mapping[str, int]] = {"n_path_steps": 256}


@dataclass(frozen=True)
class TrainingConfig(StageConfig):
    """Queries, rounds and stopping.

    Examples
    --------
    >>> from sointer import TrainingConfig
    >>> TrainingConfig(n_epochs=20).resolve("default").validation_share
    0.1
    """

    n_rounds: int = OPEN
    """Rounds of "select, query, learn" after pre-training (at most that many in the paper's preset)."""
    on_policy_share: float = OPEN
    """Share of the queries that are spent on the interpreter's own selections."""
    validation_share: float = OPEN
    """Share of the queries and of the samples held out to judge the energy; of images, of the mixtures."""
    n_epochs: int = OPEN
    """Training steps, as passes over the planned queries; of tables, an epoch has at least 25 and at most 100 steps."""
    margin: float = OPEN
    """m' of eq. 10."""
    n_pretraining_steps: int = OPEN
    """Steps of appendix B before the rounds begin."""
    penalty_tolerance: float = OPEN
    """Relative change of the penalty under which the rounds stop."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {"validation_share": 0.1, "n_epochs": 60},
        "paper": {
            "n_rounds": 100,
            "margin": 1.0,
            "n_pretraining_steps": 1500,
            "penalty_tolerance": 1e-3,
        },
    }
    other_data: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "sparse rows": {"n_rounds": 3, "n_epochs": 6, "on_policy_share": 0.5},
        "texts": {"n_rounds": 3, "n_epochs": 6, "on_policy_share": 0.5},
        "images": {"n_epochs": 6},
    }
    may_be_zero: ClassVar[frozenset[str]] = frozenset({"n_rounds", "on_policy_share"})


class Configs(NamedTuple):
    """The resolved settings of every stage."""

    energy: EnergyConfig
    interpreter: InterpreterConfig
    training: TrainingConfig


POOR_SKILL = 0.5
"""Of held-out outputs: below this, explanations come with a warning."""
