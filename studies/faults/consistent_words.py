"""Saved explainers of texts, of tables with texts and of sequences, made large as in `consistent`."""

from __future__ import annotations

import numpy as np
import torch

from sointer.masking.conditional import N_PLACES
from studies.faults.consistent import (
    MAX_BYTES,
    Growth,
    Metadata,
    Tensors,
    more_layers,
    more_names,
    more_outputs,
    more_text,
    size,
    wider_layers,
    without_probe,
)

UNSEEN = "(words not seen in fit)"


# --- texts, and tables with texts --------------------------------------------------------------------------


def more_words(metadata: Metadata, tensors: Tensors, rng: np.random.Generator) -> None:
    """More words, in one column of texts or in many."""
    form = metadata["input_format"]
    most_parts = min(20_000, 200_000 // (1 + len(form["parts"][0]["words"]))) if "parts" in form else 1
    n_parts = size(rng, most_parts)
    each = max(1, size(rng, 200_000) // n_parts)
    length = size(rng, 1000) if rng.random() < 0.2 else 1
    words = [*(f"{i:x}".rjust(length, "w") for i in range(min(each, max(1, 2**22 // length)) - 1)), UNSEEN]
    names, n_beside = words, 0
    if "parts" in form:
        form["parts"] = [{**form["parts"][0], "feature_names": words}] * n_parts
        beside = [column for column in form["columns"] if not column.get("is_text")]
        text = next(column for column in form["columns"] if column.get("is_text"))
        form["columns"] = [*beside, *({**text, "label": f"t{i}"} for i in range(n_parts))]
        names = [f"t{i}: {word}" for i in range(n_parts) for word in words]
        n_beside = len(form["table"]["columns"])
        names = [*names, *(str(column["label"]) for column in form["table"]["columns"])]
        without_probe(metadata, tensors)
    form["feature_names"] = names
    set_words(metadata, tensors, len(names))
    if "parts" in form:
        owners = tensors["removal.owners"]
        tensors["removal.owners"] = torch.clamp(owners - owners.min() + len(names) - n_beside, max=len(names) - 1)
    if rng.random() < 0.3:
        tensors["interpreter.rank"] = torch.full((len(names) - n_beside,), -1, dtype=torch.int64)


def set_words(metadata: Metadata, tensors: Tensors, n: int) -> None:
    """What is of the size of the words besides their names."""
    places = list(range(n))
    names = metadata["input_format"]["feature_names"]
    metadata["groups"] |= {"unit_names": names, "unit_of_feature": places, "column_feature": places}
    metadata["removal"]["n_columns"] = n
    metadata["background"]["shape"][1] = n
    tensors["shift"] = torch.zeros(n, dtype=torch.float64)
    tensors["background.varies"] = torch.ones(n, dtype=torch.bool)
    tensors["background.indices"] = torch.clamp(tensors["background.indices"], max=n - 1)
    tensors["interpreter.unit_of_column"] = torch.arange(n)


def more_texts(metadata: Metadata, tensors: Tensors, rng: np.random.Generator) -> None:
    """Longer texts in the probe, which loading reads."""
    if metadata["probe"] is not None and "parts" not in metadata["input_format"]:
        word = str(rng.choice(["rain ", "a", "a.", "é ", "rain\u0301 ", "1-", "\n"]))
        metadata["probe"]["texts"] = [word * size(rng, 2**22)] * metadata["probe"]["n"]


def more_ways_to_split(metadata: Metadata, tensors: Tensors, rng: np.random.Generator) -> None:
    """Texts by occurrences or sentences, of which the format names the words."""
    form = metadata["input_format"]
    n_words = size(rng, max(1, 200_000 // len(form.get("parts", [form]))))
    for one in form.get("parts", [form]):
        one["by"] = str(rng.choice(["occurrences", "sentences"]))
        one["words"] = [f"{i:x}" for i in range(n_words)]


def more_bins(metadata: Metadata, tensors: Tensors, rng: np.random.Generator) -> None:
    edges = metadata["input_format"].get("edges")
    if edges is not None:
        metadata["input_format"]["edges"] = [list(range(size(rng, 200_000))) if one else one for one in edges]


def more_documents(metadata: Metadata, tensors: Tensors, rng: np.random.Generator) -> None:
    n, n_words = size(rng, 10**6), size(rng, 2**20)
    metadata["background"]["shape"][0] = n
    starts = torch.linspace(0, n_words, n + 1).long()
    starts[-1] = n_words
    tensors["background.indptr"] = starts
    tensors["background.indices"] = torch.zeros(n_words, dtype=torch.int64)
    tensors["background.data"] = torch.arange(1, n_words + 1, dtype=torch.float64)
    if "background.values" in tensors:
        width = tensors["background.values"].shape[1]
        tensors["background.values"] = torch.zeros((min(n, MAX_BYTES // 8 // width), width), dtype=torch.float64)


# --- sequences ---------------------------------------------------------------------------------------------


def more_labels(metadata: Metadata, tensors: Tensors, rng: np.random.Generator) -> None:
    n = size(rng, 400)
    number = rng.random() < 0.3
    metadata["outputs"] |= {"classes": [float(i) for i in range(n)] if number else [f"y{i}" for i in range(n)]}
    if number:
        metadata["outputs"] |= {"kind": "number", "edges": [i + 0.5 for i in range(n - 1)]}


def wider_window(metadata: Metadata, tensors: Tensors, rng: np.random.Generator) -> None:
    metadata["window"] = size(rng, 10**6)


def more_features(metadata: Metadata, tensors: Tensors, rng: np.random.Generator) -> None:
    """Kinds of tokens that the energy knows."""
    tensors["vocabulary"] = torch.arange(size(rng, 2**21), dtype=torch.int64)


def more_tokens(metadata: Metadata, tensors: Tensors, rng: np.random.Generator) -> None:
    n, length = size(rng, 10**6), size(rng, 30)
    metadata["tokens"] = [f"{i:x}".rjust(length, "w") for i in range(n)]
    for place in range(N_PLACES):
        tensors[f"pool.{place}"] = torch.zeros(size(rng, 2**20), dtype=torch.int32)


SHARED = {"more layers": more_layers, "wider layers": wider_layers, "more outputs": more_outputs}
SHARED |= {"more text": more_text, "more tensors": more_names}
OF_TEXTS: dict[str, Growth] = {
    **SHARED,
    "more words": more_words,
    "longer texts": more_texts,
    "other pieces": more_ways_to_split,
    "more bins": more_bins,
    "more documents": more_documents,
}
OF_SEQUENCES: dict[str, Growth] = {
    "more labels": more_labels,
    "wider window": wider_window,
    "more features": more_features,
    "more tokens": more_tokens,
    "more text": more_text,
    "more tensors": more_names,
}
