"""Saved explainers made to be large or slow to load, all of whose sizes and checksums agree with each other.

Sizes in the JSON file are changed, and then whatever the library itself finds to be of another size is made anew, as
zeros, until it finds nothing more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as serialise
from torch import Tensor, nn

import sointer.io.explainers as saved_explainers
import sointer.io.networks as networks
import sointer.io.sequences as saved_sequences
from sointer.errors import SointerError
from sointer.io.storage import SEQUENCES, storage_of
from studies.faults.mutations import reseal_weights

MAX_BYTES = 2**24
"""Of the weights; larger ones are no news."""
Metadata = dict[str, Any]
Tensors = dict[str, Tensor]
Growth = Callable[[Metadata, Tensors, np.random.Generator], None]


class TooLarge(Exception):
    """The weights would have to be larger than the sizes of interest."""


def make_consistent(saved: Path, rng: np.random.Generator, growths: Mapping[str, Growth]) -> str:
    """Let some sizes of a saved explainer grow, in its place; what was done."""
    storage = storage_of(saved)
    metadata, tensors = storage.read(saved)
    n, own = min(int(rng.integers(1, 4)), len(growths)), set(tensors)
    names = [str(name) for name in rng.choice(list(growths), size=n, replace=False)]
    for name in names:
        growths[name](metadata, tensors, rng)
    try:
        complete(metadata, tensors, own, is_sequences=storage is SEQUENCES)
    except TooLarge:
        names.append("too large to complete")
    reseal_weights(saved, json.loads(json.dumps(metadata)), serialise(tensors))
    return " + ".join(names)


def complete(metadata: Metadata, tensors: Tensors, own: Collection[str], *, is_sequences: bool = False) -> None:
    """Make tensors of the sizes that the library wants, one network after the other.

    Of the explainer's `own` tensors, those that are wanted no more are left out, such as of layers that it had.
    """
    module: Any = saved_sequences if is_sequences else networks
    restore: Any = saved_sequences._restore if is_sequences else saved_explainers._restore
    prefixes = ("energy", "additive" if is_sequences else "interpreter")
    real, n_networks = module.check_shapes, 0

    def completing(network: nn.Module, state: Any) -> None:
        nonlocal n_networks
        is_both = n_networks == 0 and any(map(networks.of_energy, state))  # of images, in one network
        prefix = prefixes[1 if is_both else min(n_networks, 1)]
        n_networks += 1
        wanted = network.state_dict()
        for name in [name for name in state if name not in wanted]:
            whole = name if networks.of_energy(name) else f"{prefix}.{name}"
            if whole in own:
                del state[name], tensors[whole]
        for name, tensor in wanted.items():
            if networks.of_energy(name) and not is_both:
                continue
            whole = name if networks.of_energy(name) else f"{prefix}.{name}"
            found = tensors.get(whole)
            if found is None or found.shape != tensor.shape or found.dtype != tensor.dtype:
                if tensor.nbytes > MAX_BYTES:
                    raise TooLarge
                tensors[whole] = torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu")
                if name == "localities.root":
                    tensors[whole].fill_(0)
                if name == "effects.output_units.unit":
                    tensors[whole].fill_(1)
                if name in ("localities.condition", "localities.left", "localities.right"):
                    tensors[whole].fill_(-1)
                state[name] = tensors[whole]
        real(network, state)

    module.check_shapes = completing
    try:
        for _ in range(2):
            n_networks = 0
            try:
                restore(metadata, tensors, None, None, None)
            except (*saved_explainers.DAMAGE, SointerError):
                continue
            return
    finally:
        module.check_shapes = real


# --- what can grow -----------------------------------------------------------------------------------------


def size(rng: np.random.Generator, most: int) -> int:
    """Of any order of magnitude."""
    return int(np.exp(rng.uniform(0.0, np.log(most))))


def more_outputs(metadata: Metadata, tensors: Tensors, rng: np.random.Generator) -> None:
    n, n_classes = size(rng, 5000), size(rng, 30_000)
    if metadata["outputs"].get("shape") is not None:
        return
    kind = "binary" if n_classes <= 2 else "categorical"
    if rng.random() < 0.5:
        n = 1
    else:
        n_classes = min(n_classes, 3)
    metadata["outputs"] |= {
        "names": [f"y{i}" for i in range(n)],
        "kinds": [kind] * n,
        "classes": [list(range(n_classes))] * n,
        "seen": [None] * n,
        "quantiles": [None] * n,
    }
    metadata["targets"] = list(range(n))
    metadata["output_agreement"], metadata["output_skill"] = [1.0] * n, [1.0] * n
    tensors["training_codes"] = torch.zeros((2, n), dtype=torch.int64)
    without_probe(metadata, tensors)
    for name in ("levels", "values"):
        whole = f"interpreter.effects.output_units.{name}"
        if whole in tensors:
            tensors[whole] = torch.zeros(n * (1 if n_classes == 2 else n_classes), 2)


def without_probe(metadata: Metadata, tensors: Tensors) -> None:
    """As older versions saved: its rows and outputs would be of another size."""
    metadata["probe"] = None
    for name in [name for name in tensors if name.startswith("probe.")]:
        del tensors[name]


def more_layers(metadata: Metadata, tensors: Tensors, rng: np.random.Generator) -> None:
    stage = int(rng.integers(2))
    metadata["config"][stage]["hidden"] = [size(rng, 20)] * size(rng, 100_000)


def wider_layers(metadata: Metadata, tensors: Tensors, rng: np.random.Generator) -> None:
    metadata["config"][0]["hidden"] = [size(rng, 10_000) for _ in range(int(rng.integers(1, 4)))]
    if metadata["config"][0].get("coupling_units") is not None:
        metadata["config"][0]["coupling_units"] = size(rng, 10**6)


def more_columns(metadata: Metadata, tensors: Tensors, rng: np.random.Generator) -> None:
    image, n = metadata["input_format"].get("image"), size(rng, 100_000)
    if metadata["input_format"]["kind"] == "pandas":
        return
    if image is not None:
        height, width = (1, n) if rng.random() < 0.5 else (n, 1)
        metadata["input_format"]["image"] = metadata["removal"]["image"] = [image[0], height, width]
        metadata["groups"]["image"] = {"channels": image[0], "height": height, "width": width}
        n *= image[0]
    n_features = n if image is None else n // image[0]
    names = [f"x{i}" for i in range(n_features)]
    without_probe(metadata, tensors)
    metadata["input_format"]["feature_names"] = names
    if image is None:
        metadata["groups"] = {
            **metadata["groups"],
            "unit_names": names,
            "unit_of_feature": list(range(n)),
            "column_feature": list(range(n)),
        }
    tensors["shift"] = torch.zeros(n, dtype=torch.float64)
    for name in [name for name in tensors if name.startswith(("removal.", "background."))]:
        part = name.split(".")[1]
        if part in ("varies", "scale", "reference", "usual"):
            tensors[name] = torch.zeros(n, dtype=tensors[name].dtype)
        elif part == "rows":
            tensors[name] = torch.zeros((size(rng, min(1000, max(2, 2**20 // n))), n), dtype=torch.float64)
    for place in ("removal", "background"):
        if metadata[place].get("shape") is not None:
            metadata[place]["shape"][1] = n
    if "interpreter.unit_of_column" in tensors:
        tensors["interpreter.references"] = torch.zeros((1, n))
        tensors["interpreter.unit_of_column"] = torch.arange(n)
    for name in [name for name in tensors if name.endswith(".indices")]:
        tensors[name] = torch.clamp(tensors[name], max=n - 1)
    if "energy.encoding.column" in tensors:
        tensors["energy.encoding.column"] = torch.clamp(tensors["energy.encoding.column"], max=n - 1)
        tensors["interpreter.effects.unit_of_encoded"] = tensors["energy.encoding.column"].clone()


def more_rows(metadata: Metadata, tensors: Tensors, rng: np.random.Generator) -> None:
    n = size(rng, 10**6)
    for place in ("removal", "background"):
        if metadata[place].get("shape") is not None:
            metadata[place]["shape"][0] = n
            tensors[f"{place}.indptr"] = torch.zeros(n + 1, dtype=torch.int32)
            tensors[f"{place}.indices"] = torch.zeros(0, dtype=torch.int32)
            tensors[f"{place}.data"] = torch.zeros(0, dtype=torch.float64)
        elif f"{place}.rows" in tensors:
            rows = tensors[f"{place}.rows"]
            tensors[f"{place}.rows"] = rows[:1].repeat(min(n, max(1, MAX_BYTES // max(1, rows[:1].nbytes))), 1)


def more_nodes(metadata: Metadata, tensors: Tensors, rng: np.random.Generator) -> None:
    if "interpreter.localities.condition" in tensors:
        tensors["interpreter.localities.condition"] = torch.full((size(rng, 10**6),), -1, dtype=torch.long)


def more_sums(metadata: Metadata, tensors: Tensors, rng: np.random.Generator) -> None:
    """Of columns, some of which may not be there; in some cases as many as there may be."""
    if "interpreter.localities.sum_column" in tensors:
        n_nodes = len(tensors["interpreter.localities.condition"])
        n = n_nodes if rng.random() < 0.5 else size(rng, 10**6)
        sums = torch.zeros((n, tensors["interpreter.localities.sum_column"].shape[1]), dtype=torch.long)
        tensors["interpreter.localities.sum_column"] = sums + int(rng.choice([0, 0, 0, -1, size(rng, 10**6)]))


def more_references(metadata: Metadata, tensors: Tensors, rng: np.random.Generator) -> None:
    if "interpreter.effects.projections" in tensors:
        width = tensors["interpreter.effects.projections"].shape[1]
        tensors["interpreter.effects.projections"] = torch.zeros(size(rng, 2000), width)
        tensors["interpreter.effects.network.first.weight"] = torch.zeros(size(rng, 5000), 1)
        tensors["interpreter.effects.encodings"] = tensors["interpreter.effects.encodings"][:1].clone()


def more_text(metadata: Metadata, tensors: Tensors, rng: np.random.Generator) -> None:
    metadata["history"] = [{}] * size(rng, 3_000_000)


def more_names(metadata: Metadata, tensors: Tensors, rng: np.random.Generator) -> None:
    for number in range(size(rng, 30_000)):
        tensors[f"energy.x{number}"] = torch.zeros(0)


def more_segments(metadata: Metadata, tensors: Tensors, rng: np.random.Generator) -> None:
    if "superpixels" in metadata["groups"]:
        metadata["groups"]["superpixels"]["n_segments"] = size(rng, 10**9)


GROWTHS: dict[str, Growth] = {
    "more outputs": more_outputs,
    "more layers": more_layers,
    "wider layers": wider_layers,
    "more columns": more_columns,
    "more rows": more_rows,
    "more localities": more_nodes,
    "more sums": more_sums,
    "more references": more_references,
    "more text": more_text,
    "more tensors": more_names,
    "more segments": more_segments,
}
