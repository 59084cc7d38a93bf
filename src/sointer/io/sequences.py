"""Saved explainers of sequences: JSON and safetensors, as those of tables."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sointer._support.torch_state import CPU, resolve_device
from sointer._support.validation import is_integer
from sointer.blackbox.adapters.tagger import as_tagger
from sointer.blackbox.box import BlackBox
from sointer.data.sequences import Vocabulary
from sointer.data.token_outputs import MAX_LABELS, TokenOutputs
from sointer.energy.chain import HIDDEN_WIDTH, ChainEnergy
from sointer.errors import InputError
from sointer.explainers.records import Probe
from sointer.explainers.sequences import SequenceExplainer
from sointer.io.checks import check_sequences
from sointer.io.networks import NO_MEMORY
from sointer.io.storage import DAMAGE, SEQUENCES, check_shapes, hash_of, need
from sointer.masking.tokens import N_PLACES, Replacement

SAVED_PARAMETERS = ("k", "level", "window", "tolerance", "query_budget", "batch_size", "verbose")
MAX_WINDOW = 64
DECISIVE = ("outputs", "window", "tokens", "has_function", "has_splitter", "probe")


def save(explainer: SequenceExplainer, path: str | os.PathLike[str]) -> None:
    """Write the explainer to the directory `path`, whole or not at all."""
    SEQUENCES.write(path, *_describe(explainer))


def digest(explainer: SequenceExplainer) -> str:
    """SHA-256 of what decides explanations: networks, tokens, outputs, settings; before and after saving."""
    metadata, tensors = _describe(explainer)
    decisive = {name: metadata[name] for name in DECISIVE} | {"level": explainer.level}
    return hash_of(decisive, tensors)


def _describe(explainer: SequenceExplainer) -> tuple[dict[str, Any], dict[str, Tensor]]:
    seed = explainer.random_state
    metadata = {
        "parameters": {name: getattr(explainer, name) for name in SAVED_PARAMETERS},
        "random_state": int(seed) if is_integer(seed) else None,
        "outputs": explainer.outputs_.to_json(),
        "window": explainer.window_,
        "tokens": explainer.replacement_.tokens,
        "has_function": explainer.replacement_.function is not None,
        "has_splitter": explainer.splitter is not None,
        "n_queries": explainer.n_queries_ + explainer.n_queries_replayed_,
        "held_out": [explainer.held_out_agreement_, explainer.held_out_skill_],
        "history": explainer.history_,
        "probe": None if explainer.probe_ is None else explainer.probe_.summary,
    }
    tensors = {f"energy.{name}": tensor.to(CPU) for name, tensor in explainer.energy_.state_dict().items()}
    if explainer.additive_ is not None:
        states = explainer.additive_.state_dict()
        tensors |= {f"additive.{name}": tensor.to(CPU) for name, tensor in states.items()}
    tensors["vocabulary"] = torch.from_numpy(explainer.vocabulary_.known)
    for place, pool in enumerate(explainer.replacement_.pools):
        tensors[f"pool.{place}"] = torch.from_numpy(pool.astype(np.int32))
    return metadata, tensors


def load(
    path: str | os.PathLike[str],
    black_box: Any = None,
    *,
    replacement: Any = None,
    splitter: Any = None,
    device: str = "cpu",
) -> SequenceExplainer:
    """See `SequenceExplainer.load`."""
    where = resolve_device(device)
    metadata, tensors = SEQUENCES.read(path)
    for name, given, has in (("replacement", replacement, "has_function"), ("splitter", splitter, "has_splitter")):
        if metadata.get(has) and given is None:
            raise InputError(f"the explainer was fitted with a {name} of yours, which is not stored; give {name}=.")
    try:
        explainer = _restore(metadata, tensors, black_box, replacement, splitter)
    except InputError:
        raise
    except DAMAGE as error:
        raise SEQUENCES.damaged(Path(path), error) from error
    explainer.device, explainer.energy_ = device, explainer.energy_.to(where)
    if explainer.additive_ is not None:
        explainer.additive_ = explainer.additive_.to(where)
    return explainer


def _restore(
    metadata: dict[str, Any], tensors: dict[str, Tensor], black_box: Any, replacement: Any, splitter: Any
) -> SequenceExplainer:
    check_sequences(metadata)
    parameters = {name: metadata["parameters"][name] for name in SAVED_PARAMETERS}
    try:
        SequenceExplainer(None, **parameters)._check_parameters()
    except InputError as error:
        raise ValueError(str(error)) from None
    if isinstance(black_box, BlackBox):
        parameters["batch_size"] = None
    explainer = SequenceExplainer(
        black_box, **parameters, replacement=replacement, splitter=splitter, random_state=metadata["random_state"]
    )
    explainer.outputs_ = TokenOutputs.from_json(metadata["outputs"])
    explainer.vocabulary_ = Vocabulary(tensors["vocabulary"].numpy())
    need(bool((np.diff(explainer.vocabulary_.known) > 0).all()), "features are not sorted")
    window = metadata["window"]
    need(is_integer(window) and 0 <= window <= MAX_WINDOW, "the window is none")
    need(2 <= explainer.outputs_.n_labels <= MAX_LABELS, "the labels are none")
    size = explainer.vocabulary_.n_rows, explainer.outputs_.n_labels
    explainer.energy_, explainer.window_ = _restore_energy(tensors, "energy.", size, window), int(window)
    if any(name.startswith("additive.") for name in tensors):
        explainer.additive_ = _restore_energy(tensors, "additive.", size, window)
    tokens = list(metadata["tokens"])
    pools = [tensors[f"pool.{place}"].numpy().astype(np.int64) for place in range(N_PLACES)]
    need(all(len(pool) > 0 and pool.min() >= 0 and pool.max() < len(tokens) for pool in pools), "tokens are missing")
    explainer.replacement_ = Replacement(tokens, pools, replacement)
    explainer.black_box_ = None if black_box is None else as_tagger(black_box, explainer.batch_size)
    explainer.held_out_agreement_, explainer.held_out_skill_ = map(float, metadata["held_out"])
    explainer.history_, explainer.n_queries_ = metadata["history"], int(metadata["n_queries"])
    explainer.n_explain_queries_ = 0
    if (probe := metadata.get("probe")) is not None:  # older versions kept none
        explainer.probe_ = Probe.of_summary(probe)
    return explainer


def _restore_energy(tensors: dict[str, Tensor], prefix: str, size: tuple[int, int], window: int) -> ChainEnergy:
    state = {name.removeprefix(prefix): part for name, part in tensors.items() if name.startswith(prefix)}
    how: dict[str, Any] = {"window": window, "additive": prefix == "additive."}
    if not how["additive"] and len(state.get("hidden.bias", ())) == HIDDEN_WIDTH:
        how["n_linear"] = 0  # older versions had none
    with NO_MEMORY:
        check_shapes(ChainEnergy(*size, **how), state)
    with torch.random.fork_rng(devices=[]):
        energy = ChainEnergy(*size, **how)
    energy.load_state_dict(state)
    return energy.requires_grad_(False).eval()
