"""Saved explainers: a directory of JSON and safetensors, written atomically, versioned, never a pickle."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from sointer._version import __version__
from sointer.adapters import as_black_box
from sointer.config import EnergyConfig, InterpreterConfig, TrainingConfig
from sointer.energy.interactions import output_interactions
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import AnyEnergy, SideBySideEnergies
from sointer.energy.space import OutputSpace
from sointer.errors import LoadError
from sointer.explainer import SOInter
from sointer.groups import Groups
from sointer.inputs import InputFormat
from sointer.interpreter.networks import PaperInterpreter, ResidualNetwork, SaliencyInterpreter
from sointer.outputs import Outputs
from sointer.removal import Removal
from sointer.training.energy_steps import build_energy
from sointer.training.paper import paper_energy
from sointer.training.task import Configs

FORMAT = 1
FACTS, WEIGHTS = "explainer.json", "weights.safetensors"
SAVED_PARAMETERS = (
    "k",
    "structured",
    "preset",
    "query_budget",
    "batch_size",
    "verbose",
    "tolerance",
    "output_kind",
)


def save(explainer: SOInter, path: str | os.PathLike[str]) -> None:
    """Write the explainer to `path`, whole or not at all; an explainer that is already there is replaced."""
    target = Path(path)
    if target.exists() and not (target / FACTS).exists() and any(target.iterdir() if target.is_dir() else [target]):
        raise LoadError(f"{target} exists and is not a saved explainer; nothing was overwritten. Choose another path.")
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        facts, tensors = _describe(explainer)
        save_file(tensors, draft / WEIGHTS)
        (draft / FACTS).write_text(json.dumps(facts, indent=1), encoding="utf-8")
        _replace(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def load(path: str | os.PathLike[str], black_box: Any = None, *, removal: Any = None) -> SOInter:
    """Read a saved explainer. `black_box` (model or function) is needed only to verify or for k="auto";
    `removal` only if a function of yours was used."""
    source = Path(path)
    facts = _read_facts(source)
    try:
        tensors = load_file(source / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise LoadError(
            f"{source / WEIGHTS} cannot be read ({error}); the explainer is damaged. Save it again."
        ) from error
    try:
        return _restore(facts, tensors, black_box, removal)
    except (KeyError, TypeError, ValueError, RuntimeError, AssertionError) as error:
        if isinstance(error, LoadError):
            raise
        raise LoadError(
            f"{source} does not hold a whole explainer ({type(error).__name__}: {error}). Save it again."
        ) from error


def _read_facts(source: Path) -> dict[str, Any]:
    try:
        facts = json.loads((source / FACTS).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise LoadError(
            f"{source} is not a saved explainer: {FACTS} is missing. Give the directory that explainer.save() wrote."
        ) from error
    except (OSError, ValueError) as error:
        raise LoadError(
            f"{source / FACTS} cannot be read ({error}); the explainer is damaged. Save it again."
        ) from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        found = facts.get("format") if isinstance(facts, dict) else None
        raise LoadError(
            f"{source} has format {found!r}, this version of sointer ({__version__}) reads format {FORMAT}. "
            "Install the version that saved it, or fit and save again."
        )
    return facts


def _describe(explainer: SOInter) -> tuple[dict[str, Any], dict[str, Tensor]]:
    removal_facts, removal_arrays = explainer.removal_.state()
    tensors = {f"removal.{name}": torch.from_numpy(np.ascontiguousarray(a)) for name, a in removal_arrays.items()}
    tensors |= {f"energy.{name}": t.contiguous() for name, t in explainer.energy_.state_dict().items()}
    interpreter = explainer.interpreter_
    own = {name: t for name, t in interpreter.state_dict().items() if not name.startswith("energy.")}
    tensors |= {f"interpreter.{name}": t.contiguous() for name, t in own.items()}
    params = explainer.get_params(deep=False)
    facts = {
        "format": FORMAT,
        "sointer": __version__,
        "parameters": {name: params[name] for name in SAVED_PARAMETERS},
        "config": [asdict(config) for config in explainer.config_],
        "input_format": explainer.input_format_.to_json(),
        "groups": explainer.groups_.to_json(),
        "outputs": explainer.outputs_.to_json(),
        "removal": removal_facts,
        "targets": explainer.targets_,
        "n_queries": explainer.n_queries_,
        "held_out_agreement": explainer.held_out_agreement_,
        "history": explainer.history_,
        "n_path_steps": interpreter.n_path_steps if isinstance(interpreter, SaliencyInterpreter) else None,
    }
    return facts, {name: tensor.clone() for name, tensor in tensors.items()}


def _restore(facts: dict[str, Any], tensors: dict[str, Tensor], black_box: Any, removal: Any) -> SOInter:
    parameters = facts["parameters"]
    explainer = SOInter(black_box, **parameters)
    energy_facts, interpreter_facts, training_facts = (_without_lists(config) for config in facts["config"])
    explainer.config_ = Configs(
        EnergyConfig(**energy_facts),
        InterpreterConfig(**interpreter_facts),
        TrainingConfig(**training_facts),
    )
    explainer.input_format_ = InputFormat.from_json(facts["input_format"])
    explainer.groups_ = Groups.from_json(facts["groups"])
    explainer.outputs_ = Outputs.from_json(facts["outputs"])
    arrays = {name: tensor.numpy() for name, tensor in _part(tensors, "removal.").items()}
    explainer.removal_ = Removal.from_state(facts["removal"], arrays, function=removal)
    explainer.black_box_ = None if black_box is None else as_black_box(black_box)
    explainer.targets_ = [int(t) for t in facts["targets"]]
    explainer.n_queries_ = facts["n_queries"]
    explainer.held_out_agreement_ = facts["held_out_agreement"]
    explainer.history_ = facts["history"]
    explainer.n_features_in_ = explainer.input_format_.n_features
    explainer.feature_names_in_ = np.array(explainer.input_format_.feature_names, dtype=object)
    explainer.n_outputs_ = explainer.outputs_.n_outputs
    explainer.output_names_ = list(explainer.outputs_.names)
    explainer.energy_ = _energy(explainer, parameters, _part(tensors, "energy."))
    explainer.interpreter_ = _interpreter(explainer, facts, _part(tensors, "interpreter.")).eval()
    explainer.output_interactions_ = output_interactions(explainer.energy_)
    return explainer


def _energy(explainer: SOInter, parameters: dict[str, Any], state: dict[str, Tensor]) -> AnyEnergy:
    config = explainer.config_[0]
    space = OutputSpace.of(explainer.outputs_)
    n_columns = explainer.input_format_.n_columns
    energy: AnyEnergy
    if parameters["preset"] == "paper":
        with torch.random.fork_rng(devices=[]):
            if parameters["structured"]:
                energy = paper_energy(n_columns, space, config)
            else:
                alone = {t: OutputSpace((space.n_classes[t],)) for t in explainer.targets_}
                energy = SideBySideEnergies(space, {t: paper_energy(n_columns, s, config) for t, s in alone.items()})
    else:
        energy = build_energy(n_columns, space, config, structured=parameters["structured"], seed=0)
    energy.load_state_dict(state)
    return energy.requires_grad_(False)


def _interpreter(
    explainer: SOInter, facts: dict[str, Any], state: dict[str, Tensor]
) -> SaliencyInterpreter | PaperInterpreter:
    energy_config, config, _ = explainer.config_
    n_columns, n_units = explainer.input_format_.n_columns, explainer.groups_.n_units
    with torch.random.fork_rng(devices=[]):
        if facts["parameters"]["preset"] == "paper":
            paper = PaperInterpreter(n_columns, n_units, explainer.n_outputs_, config.hidden)
            paper.load_state_dict(state)
            return paper.requires_grad_(False)
        likelihood = Likelihood.of(energy_config)
        assert not isinstance(explainer.energy_, SideBySideEnergies)  # only the paper's SOInter-1 has those
        interpreter = SaliencyInterpreter(
            explainer.energy_,
            likelihood,
            state["references"],
            state["unit_of_column"],
            n_units,
            n_path_steps=int(facts["n_path_steps"]),
        )
        if any(name.startswith("residual.") for name in state):
            interpreter.residual = ResidualNetwork(
                explainer.energy_.scaling, n_columns, explainer.n_outputs_, n_units, config.hidden
            )
    own = {f"energy.{name}": tensor for name, tensor in explainer.energy_.state_dict().items()}
    interpreter.load_state_dict(own | state)
    return interpreter.requires_grad_(False)


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _without_lists(config: dict[str, Any]) -> dict[str, Any]:
    """JSON has no tuples; configurations have no lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in config.items()}


def _replace(draft: Path, target: Path) -> None:
    """Put the draft in the target's place; the old one is kept aside until the new one is there."""
    if not target.exists():
        draft.rename(target)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}-old-", dir=target.parent))
    target.rename(aside / target.name)
    try:
        draft.rename(target)
    except OSError:
        (aside / target.name).rename(target)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
