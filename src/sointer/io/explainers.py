"""Saved explainers: a directory of JSON and safetensors, written atomically, versioned, never a pickle."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sointer._support.files import as_finite
from sointer._support.torch_state import CPU, device_of, one_thread, resolve_device
from sointer._support.validation import is_integer
from sointer.blackbox.box import BlackBox
from sointer.config import (
    PRESETS,
    Configs,
    DataKind,
    EnergyConfig,
    InterpreterConfig,
    Rows,
    TrainingConfig,
    check_rows,
)
from sointer.data.inputs import InputFormat
from sointer.data.outputs import Outputs
from sointer.data.text_tables import Records, TextTableFormat
from sointer.data.texts import TextFormat
from sointer.errors import InputError, LoadError
from sointer.explainers.estimator import refuse_for_sequences
from sointer.explainers.record_check import Probe, are_long, as_lists, texts_of
from sointer.explainers.sequence_base import as_sointer
from sointer.explainers.sointer import SOInter
from sointer.interpreter.tables import TableInterpreter
from sointer.io.checks import check_metadata, with_prefix
from sointer.io.networks import move, of_energy, restore_networks
from sointer.io.sequences import load as load_sequences
from sointer.io.storage import DAMAGE, EXPLAINER, SEQUENCES, hash_of, need, storage_of
from sointer.masking.build import (
    restore_groups,
    restore_removal,
    synthetic_background,
    with_background,
    without_rows,
)
from sointer.masking.removal import Background, FunctionRemoval, Removal, RemovalByRows, TextTableRemoval

PROJECTIONS, ENCODINGS = "effects.projections", "effects.encodings"
STORAGE = EXPLAINER
DECISIVE = ("background", "config", "input_format", "groups", "outputs", "removal", "targets", "method", "probe")
SAVED_PARAMETERS = ("k", "structured", "preset", "query_budget", "batch_size", "verbose", "tolerance", "output_kind")


def save(explainer: SOInter, path: str | os.PathLike[str], rows: Rows = "keep") -> None:
    """Write the explainer to the directory `path`, whole or not at all; `rows` as in `SOInter.save`.

    The weights go to a file named after their content; then explainer.json, which names that file, is put in
    place by one atomic rename. Until then an explainer saved there before stays as it was. Other files in the
    directory are left alone.
    """
    check_rows(rows)
    STORAGE.write(path, *_describe(explainer, rows))


def check_fitted(explainer: Any, what: str) -> None:
    """InputError for anything but a fitted SOInter, which `what` takes alone."""
    refuse_for_sequences(explainer, what)
    if not isinstance(explainer, SOInter):
        raise InputError(f"explainer is a {type(explainer).__name__}, expected a fitted SOInter.")
    check_is_fitted(explainer, "interpreter_")


def load(
    path: str | os.PathLike[str],
    black_box: Any = None,
    *,
    removal: Any = None,
    splitter: Any = None,
    device: str = "cpu",
) -> SOInter:
    """Read a saved explainer.

    Nothing in the files is executed, and loading takes at most four times their size plus 256 MB of memory, so
    explainers from others can be loaded too.

    Parameters
    ----------
    path : str or path
        The directory that `save` wrote.
    black_box : model or function, optional
        With it, explain() explains what the model predicts, and verify() and refine= work; without it, expected values
        are explained.
    removal : function, optional
        Needed only if fit used a function of yours.
    splitter : function, optional
        Needed only if texts, or strings of tokens, were split by a function of yours in fit.
    device : str, default "cpu"
        Where its networks are computed, as in `SOInter`; fit may have used another device.

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
    where = resolve_device(device)
    if storage_of(path) is SEQUENCES:
        return as_sointer(load_sequences(path, black_box, replacement=removal, splitter=splitter, device=device))
    metadata, tensors = STORAGE.read(path)
    try:
        with one_thread():  # torch's threads would wait for ever in a forked process
            explainer = _restore(metadata, tensors, black_box, removal, splitter)
    except LoadError:
        raise
    except DAMAGE as error:
        raise STORAGE.damaged(Path(path), error) from error
    explainer.black_box_ = None if black_box is None else explainer._black_box_again()  # its errors are the model's
    _set_parameters(explainer)
    explainer.device = device
    for network in (explainer.energy_, explainer.interpreter_):
        move(network, where)
    return explainer


def digest(explainer: SOInter) -> str:
    """SHA-256 of what decides explanations: networks, formats, settings, training rows; before and after saving."""
    metadata, tensors = _describe(explainer, "keep")
    return hash_of({name: metadata[name] for name in DECISIVE}, tensors)


def _describe(explainer: SOInter, rows: Rows) -> tuple[dict[str, Any], dict[str, Tensor]]:
    background, removal, interpreter_state = _with_rows(explainer, rows)
    removal_metadata, removal_arrays = removal.state()
    background_metadata, background_arrays = background.state()
    tensors = {f"removal.{name}": as_tensor(array) for name, array in removal_arrays.items()}
    tensors |= {f"background.{name}": as_tensor(array) for name, array in background_arrays.items()}
    tensors["shift"] = as_tensor(explainer.shift_)
    codes = explainer.training_codes_  # only how outputs go together matters, not in which order the samples were
    tensors["training_codes"] = as_tensor(codes if rows == "keep" else codes[np.lexsort(codes.T)])
    tensors |= {f"energy.{name}": t.to(CPU).contiguous() for name, t in explainer.energy_.state_dict().items()}
    own = {name: t for name, t in interpreter_state.items() if not of_energy(name)}
    tensors |= {f"interpreter.{name}": t.to(CPU).contiguous() for name, t in own.items()}
    params = explainer.get_params(deep=False)
    probe = explainer.probe_
    probe_metadata, probe_tensors = _describe_probe(probe if probe is None or rows == "keep" else probe.without_rows())
    tensors |= probe_tensors
    metadata = {
        "probe": probe_metadata,
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
        "held_out_agreement": as_finite(explainer.held_out_agreement_),
        "held_out_skill": explainer.held_out_skill_,
        "history": explainer.history_,
        "output_agreement": as_finite(explainer.output_agreement_.tolist()),
        "output_skill": [None if np.isnan(one) else float(one) for one in explainer.output_skill_],
        "localities": [explainer.localities(target).to_json() for target in explainer.targets_]
        if "locality" in explainer.known_columns
        else None,
    }
    return metadata, tensors


def _describe_probe(probe: Probe | None) -> tuple[dict[str, Any] | None, dict[str, Tensor]]:
    if probe is None:
        return None, {}
    texts = None if probe.rows is None else texts_of(probe.rows)
    outputs = None if probe.outputs is None else as_lists(probe.outputs)
    metadata: dict[str, Any] = {**probe.summary, "outputs": outputs, "texts": texts, "shape": None}
    if isinstance(probe.rows, Records) and probe.rows.values is not None:
        return metadata, {"probe.values": as_tensor(probe.rows.values)}
    if probe.rows is None or texts is not None:
        return metadata, {}
    state, arrays = Background(probe.rows, np.ones(probe.rows.shape[1], dtype=bool)).state()
    return metadata | state, {f"probe.{name}": as_tensor(array) for name, array in arrays.items()}


def _restore_probe(metadata: dict[str, Any] | None, tensors: dict[str, Tensor], form: InputFormat) -> Probe | None:
    if metadata is None:
        return None
    rows, outputs = None, metadata["outputs"]
    if are_long(metadata["texts"]):  # earlier versions kept them
        return Probe.of_summary(metadata)
    if metadata["texts"] is not None and isinstance(form, TextTableFormat):
        values = tensors["probe.values"].numpy()
        need(values.shape == (metadata["n"], len(form.owners)), "the probe's columns are of another size")
        texts = [json.loads(one) for one in metadata["texts"]]
        need(all(isinstance(one, list) and len(one) == len(form.parts) for one in texts), "the probe has other texts")
        rows = form.encode(form.frame(texts, values), caller="load")
    elif metadata["texts"] is not None:
        rows = form.encode(metadata["texts"], caller="load")
    elif outputs is not None:
        rows = Background.from_state(metadata, _arrays(tensors, "probe.")).rows
    known = None if outputs is None else np.array([[*row, None] for row in outputs], dtype=object)[:, :-1]
    return Probe(rows, known, *(metadata[name] for name in ("n", "inputs_sha256", "outputs_sha256")))


def _with_rows(explainer: SOInter, rows: Rows) -> tuple[Background, Removal, dict[str, Tensor]]:
    """The background, the removal and the state of the interpreter, with as much of the training rows as wanted."""
    background, removal, state = explainer.background_, explainer.removal_, explainer.interpreter_.state_dict()
    if rows == "keep":
        return background, removal, state
    form = explainer.input_format_
    owners = form.column_feature
    kept = synthetic_background(background, owners, seed=0)
    if isinstance(form, TextTableFormat):
        own = np.zeros(0, dtype=np.int64) if form.table is None else form.table.column_feature
        beside = Background(background.rows.values, np.ones(len(own), dtype=bool))
        beside_drawn = synthetic_background(beside, own, seed=2)
        kept = Background(Records.holding(kept.rows, beside_drawn.rows), kept.varies)
        if isinstance(removal, TextTableRemoval):
            drawn = synthetic_background(removal.background, own, seed=1)
            removal = with_background(removal, drawn if rows == "synthetic" else without_rows(drawn))
    if isinstance(removal, RemovalByRows):
        drawn = synthetic_background(removal.background, owners, seed=1)
        interpreter = explainer.interpreter_
        if isinstance(interpreter, TableInterpreter) and drawn.rows.shape[0]:  # both identify their rows
            n, energy = len(state[PROJECTIONS]), interpreter.effects.energy
            chosen = drawn.take(np.arange(n) % drawn.rows.shape[0]) - explainer.shift_
            with one_thread(device_of(explainer.energy_)), torch.no_grad():
                x = torch.as_tensor(chosen.astype(np.float32), device=device_of(explainer.energy_))
                encodings = energy.encoding(x)
                state[PROJECTIONS] = energy.project_encoded(encodings)
                state[ENCODINGS] = encodings if len(state[ENCODINGS]) == n else encodings.mean(dim=0, keepdim=True)
        removal = with_background(removal, drawn if rows == "synthetic" else without_rows(drawn))
    return (kept if rows == "synthetic" else without_rows(kept)), removal, state


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
    data = "texts" if explainer.has_words else data
    explainer.config_ = Configs(
        EnergyConfig(**energy_metadata).resolve(parameters["preset"], data),
        InterpreterConfig(**interpreter_metadata).resolve(parameters["preset"], data),
        TrainingConfig(**training_metadata).resolve(parameters["preset"], data),
    )
    explainer.groups_ = restore_groups(metadata["groups"])
    explainer.outputs_ = Outputs.from_json(metadata["outputs"])
    explainer.removal_ = _removal(metadata["removal"], _arrays(tensors, "removal."), removal)
    explainer.background_ = Background.from_state(metadata["background"], _arrays(tensors, "background."))
    explainer.shift_ = tensors["shift"].numpy()
    explainer.training_codes_ = tensors["training_codes"].numpy()
    explainer.method_ = metadata["method"]
    explainer.probe_ = _restore_probe(metadata.get("probe"), tensors, explainer.input_format_)
    explainer.targets_ = [int(t) for t in metadata["targets"]]
    explainer.n_queries_ = int(metadata["n_queries"])
    agreement = metadata["held_out_agreement"]
    explainer.held_out_agreement_ = math.nan if agreement is None else agreement
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
    return explainer


def _input_format(metadata: dict[str, Any], splitter: Any) -> InputFormat:
    if "parts" in metadata:
        return TextTableFormat.restored(metadata, splitter)
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
    explainer.text_columns = form.text_labels if isinstance(form, TextTableFormat) else None
    if explainer.black_box_ is None or not isinstance(explainer.model, BlackBox):
        explainer.method = None if explainer.black_box_ is None else explainer.black_box_.method


def _removal(metadata: dict[str, Any], arrays: dict[str, NDArray[Any]], function: Any) -> Removal:
    removal = restore_removal(metadata, arrays, function=function)
    if function is not None and not isinstance(removal, FunctionRemoval):
        raise LoadError(
            f"removal was given, but the explainer was fitted with removal={removal.name!r} and keeps it; leave "
            "removal out."
        )
    return removal


def as_tensor(array: NDArray[Any]) -> Tensor:
    """An array as a tensor, whatever its order in memory."""
    return torch.as_tensor(np.ascontiguousarray(array))


def as_plain(value: Any) -> Any:
    """numpy numbers as Python's, which JSON knows."""
    return value.item() if isinstance(value, np.generic) else value


def _arrays(tensors: dict[str, Tensor], prefix: str) -> dict[str, NDArray[Any]]:
    return {name: tensor.numpy() for name, tensor in with_prefix(tensors, prefix).items()}


def _without_lists(config: dict[str, Any]) -> dict[str, Any]:
    """JSON has no tuples; configurations have no lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in config.items()}
