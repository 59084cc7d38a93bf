"""Settings: what a preset fills in, and what it refuses."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from sointer import SOInter
from sointer.config import PRESETS, EnergyConfig, InterpreterConfig, StageConfig, TrainingConfig
from sointer.errors import InputError

STAGES = [EnergyConfig, InterpreterConfig, TrainingConfig]
KINDS = ["table", "sparse rows", "images"]


def used_by(stage: type[StageConfig], preset: str, data: str) -> dict[str, object]:
    """Settings of a preset with some data: those of tables, changed, added and (None) taken away."""
    used = dict(stage.presets[preset])
    if preset == "default" and data != "table":
        used.update(stage.other_data.get(data, {}))
    return {name: value for name, value in used.items() if value is not None}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("data", KINDS)
def test_a_preset_fills_in_all_it_uses_and_nothing_else(stage: type[StageConfig], preset: str, data: str) -> None:
    resolved = stage().resolve(preset, data)
    used = used_by(stage, preset, data)
    for field in dataclasses.fields(resolved):
        assert getattr(resolved, field.name) == used.get(field.name)
    assert resolved.resolve(preset, data) == resolved
    assert stage() == stage()  # the open configuration is left as it was


def test_every_preset_is_known_to_every_stage() -> None:
    for stage in STAGES:
        assert set(stage.presets) == set(PRESETS)
        names = {field.name for field in dataclasses.fields(stage)}
        used = set().union(*(used_by(stage, preset, data) for preset in PRESETS for data in KINDS))
        assert used == names  # no setting without an effect somewhere, no default without a setting


def test_the_papers_numbers() -> None:
    assert EnergyConfig().resolve("paper").hidden == (150, 150)
    assert InterpreterConfig().resolve("paper").hidden == (100, 100, 100)
    assert TrainingConfig().resolve("paper").n_rounds == 100


def test_what_is_set_stays() -> None:
    resolved = EnergyConfig(hidden=(7,), input_sparsity=0.0).resolve("default")
    assert (resolved.hidden, resolved.input_sparsity) == ((7,), 0.0)
    assert resolved.coupling_units == EnergyConfig().resolve("default").coupling_units


@pytest.mark.parametrize(
    ("config", "preset", "name"),
    [
        (InterpreterConfig(n_path_steps=3), "default", "InterpreterConfig.n_path_steps=3"),
        (InterpreterConfig(temperature=0.5), "default", "InterpreterConfig.temperature=0.5"),
        (TrainingConfig(n_rounds=3), "default", "TrainingConfig.n_rounds=3"),
        (EnergyConfig(input_sparsity=1.0), "paper", "EnergyConfig.input_sparsity=1.0"),
        (EnergyConfig(coupling_speed=3.0), "paper", "EnergyConfig.coupling_speed=3.0"),
        (InterpreterConfig(n_path_steps=3), "paper", "InterpreterConfig.n_path_steps=3"),
        (TrainingConfig(n_epochs=3), "paper", "TrainingConfig.n_epochs=3"),
        (TrainingConfig(margin=2.0), "default", "TrainingConfig.margin=2.0"),
        (TrainingConfig(penalty_tolerance=0.1), "default", "TrainingConfig.penalty_tolerance=0.1"),
    ],
)
def test_a_setting_without_effect_is_refused(config: StageConfig, preset: str, name: str) -> None:
    with pytest.raises(InputError) as error:
        config.resolve(preset)
    message = str(error.value)
    assert message.startswith(f"{name} has no effect with preset='{preset}'")
    assert all(used in message for used in config.presets[preset])


@pytest.mark.parametrize(
    "config",
    [
        EnergyConfig(hidden=(10, 0)),
        EnergyConfig(hidden=(-10,)),
        EnergyConfig(coupling_units=0),
        EnergyConfig(learning_rate=-1e-3),
        EnergyConfig(learning_rate=math.nan),
        EnergyConfig(input_sparsity=-0.1),
        EnergyConfig(exact_limit=0),
        InterpreterConfig(n_path_steps=0),
        InterpreterConfig(temperature=0.0),
        TrainingConfig(n_rounds=-1),
        TrainingConfig(validation_share=0.0),
        TrainingConfig(on_policy_share=-0.5),
        TrainingConfig(n_epochs=0),
    ],
)
def test_values_out_of_range_are_refused(config: StageConfig) -> None:
    with pytest.raises(InputError, match=r"Config\.\w+ must be a .*positive .*(or zero)?, got "):
        config.resolve("default")


@pytest.mark.parametrize(
    "config",
    [
        EnergyConfig(input_sparsity=0.0),
        EnergyConfig(weight_decay=0.0),
        TrainingConfig(n_rounds=0),
        TrainingConfig(on_policy_share=0.0),
    ],
)
def test_zero_is_fine_where_it_switches_something_off(config: StageConfig) -> None:
    resolved = config.resolve("default", "table" if isinstance(config, EnergyConfig) else "sparse rows")
    given = {f.name: getattr(config, f.name) for f in dataclasses.fields(config) if getattr(config, f.name) == 0}
    assert given
    assert all(getattr(resolved, name) == 0 for name in given)


@pytest.mark.parametrize(
    "config",
    [
        TrainingConfig(on_policy_share=1.5),
        TrainingConfig(validation_share=1.0),
        EnergyConfig(learning_rate=math.inf),
        EnergyConfig(coupling_units=np.int64(-3)),
        EnergyConfig(hidden=[-1]),
        EnergyConfig(hidden=()),
        EnergyConfig(batch_size=1.5),
        EnergyConfig(batch_size=True),
        EnergyConfig(learning_rate="fast"),
    ],
)
def test_values_that_cannot_work_are_refused(config: StageConfig) -> None:
    with pytest.raises(InputError):
        config.resolve("default")


def test_a_resolved_configuration_prints_as_what_would_make_it() -> None:
    for stage in STAGES:
        for preset in PRESETS:
            resolved = stage().resolve(preset)
            text = repr(resolved)
            assert all(f"{name}={value!r}" in text for name, value in stage.presets[preset].items())
            assert eval(text, {stage.__name__: stage}) == resolved


def test_settings_cannot_be_misspelt_or_changed() -> None:
    with pytest.raises(TypeError, match="learning_rat"):
        EnergyConfig(learning_rat=1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        EnergyConfig().hidden = (3,)


@pytest.mark.parametrize(
    ("config", "preset"),
    [
        (InterpreterConfig(n_path_steps=3), "default"),  # sparse rows
        (EnergyConfig(hidden=(4, 4), weight_decay=0.0), "default"),  # images
        (TrainingConfig(n_rounds=3, on_policy_share=0.2), "default"),
        (EnergyConfig(input_sparsity=0.5, coupling_speed=2.0), "default"),  # not images
        (TrainingConfig(margin=0.5), "paper"),
    ],
)
def test_settings_of_any_data_pass_before_the_data_are_known(config: StageConfig, preset: str) -> None:
    config.check_for(preset)


@pytest.mark.parametrize(
    ("config", "preset", "words"),
    [
        (InterpreterConfig(n_path_steps=3), "paper", "n_path_steps=3 has no effect with preset='paper'"),
        (TrainingConfig(margin=2.0), "default", "margin=2.0 has no effect with preset='default'"),
        (InterpreterConfig(n_path_steps=3, temperature=2.0), "default", "has no effect"),  # never both
        (InterpreterConfig(n_path_steps=0), "default", "n_path_steps must be a positive whole number"),
    ],
)
def test_settings_that_no_data_can_use_are_refused_before_data_are_read(config, preset, words) -> None:
    with pytest.raises(InputError, match=words):
        config.check_for(preset)
    name = {InterpreterConfig: "interpreter", TrainingConfig: "training"}[type(config)]
    with pytest.raises(InputError, match=words):
        SOInter(None, preset=preset, **{name: config}).fit("no data at all")


def test_a_setting_for_other_data_is_refused_once_the_data_are_known() -> None:
    X = np.random.default_rng(0).normal(size=(40, 3))
    asked = []
    explainer = SOInter(lambda X: asked.append(1) or X > 0, interpreter=InterpreterConfig(n_path_steps=3))
    with pytest.raises(InputError, match="n_path_steps=3 has no effect with preset='default'"):
        explainer.fit(X)
    assert not asked
