"""What does loading make of explainers some of whose tensors hold nothing, or one row, with sizes that may agree?"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import save as serialise

import sointer
from sointer.errors import SointerError
from sointer.io.storage import SEQUENCES, storage_of
from studies.faults import fuzz_load
from studies.faults.consistent import TooLarge, complete
from studies.faults.fuzzing import fuzz, n_tried, section, what_held
from studies.faults.mutations import fresh_copy, reseal_weights
from studies.frame.study import Case, Row, Study

PER_PART, N_PARTS = 250, 2
FOLDER = Path()


def cases(smoke: bool) -> Iterator[Case]:
    for kinds in fuzz_load.KINDS:
        for part in range(1 if smoke else N_PARTS):
            yield {"part": part, "n": 20 if smoke else PER_PART, "kinds": kinds}


def empty(saved: Path, rng: np.random.Generator) -> str:
    """Leave some tensors with a side of 0, or of 1; what was done."""
    storage = storage_of(saved)
    metadata, tensors = storage.read(saved)
    names = sorted(tensors)
    prefix = str(
        rng.choice(["", "", "energy.", "interpreter.", "background.", "removal.", "probe.", "additive.", "pool."])
    )
    chosen = [name for name in names if name.startswith(prefix)] or names
    n = len(chosen) if rng.random() < 0.2 else min(len(chosen), int(rng.integers(1, 4)))
    sides, done = int(rng.random() < 0.2), rng.choice(chosen, size=n, replace=False).tolist()
    for name in done:
        tensor = tensors[name]
        if tensor.ndim == 0:
            tensors[name] = tensor.reshape(1)[:sides]
        else:
            tensors[name] = tensor.narrow(int(rng.integers(tensor.ndim)), 0, min(sides, *tensor.shape)).contiguous()
    for place in ("background", "removal", "probe"):  # where the number of rows is told beside them
        known = metadata.get(place)
        if isinstance(known, dict) and known.get("shape") is not None and rng.random() < 0.5:
            known["shape"][0] = sides
            tensors[f"{place}.indptr"] = torch.zeros(sides + 1, dtype=torch.int32)
    if rng.random() < 0.3:  # metadata that know of nothing either
        key = str(rng.choice(["targets", "history", "output_agreement", "tokens", "groups", "outputs"]))
        if key in metadata and isinstance(metadata[key], list | dict):
            metadata[key] = type(metadata[key])()
            done.append(key)
    if rng.random() < 0.5:
        try:
            complete(metadata, tensors, set(tensors), is_sequences=storage is SEQUENCES)
        except (TooLarge, LookupError):
            done.append("not completed")
    reseal_weights(saved, json.loads(json.dumps(metadata)), serialise(tensors))
    return f"{sides} of {', '.join(done[:5])}"


def make(rng: np.random.Generator, which: str) -> tuple[str, Callable[[], str]]:
    name = str(rng.choice(list(fuzz_load.KINDS[which])))
    data, model, target, _ = fuzz_load.KINDS[which][name]
    few, place = data.iloc[:2] if isinstance(data, pd.DataFrame) else data[:2], FOLDER / "emptied"
    fresh_copy(FOLDER / "saved" / name, place)
    what = empty(place, rng)

    def attempt() -> str:
        try:
            explainer = sointer.load(place, black_box=model)
            explainer.explain(few, target)
            explainer.explain(few, target, k=1).verify()
        except SointerError as error:
            if "MemoryError" in str(error) or "allocate" in str(error):
                raise MemoryError(str(error)) from error
            return "refused"
        return "accepted"

    return f"{name}: {what}", attempt


def run(part: int, n: int, kinds: str) -> dict[str, Any]:
    global FOLDER
    with tempfile.TemporaryDirectory() as folder:
        FOLDER = Path(folder)
        for name, saved in fuzz_load.saved_explainers(FOLDER / "saved", kinds).items():  # whatever must be imported, is
            data, model, target, _ = fuzz_load.KINDS[kinds][name]
            sointer.load(saved, black_box=model).explain(data[:2], target, k=1).verify()
        return fuzz(partial(make, which=kinds), part, n)


def verdict(rows: list[Row]) -> tuple[str, str]:
    return f"{n_tried(rows):,} saved explainers with empty tensors loaded", what_held(rows)


def page(rows: list[Row], images: Path) -> str:
    lead = (
        "Tensors of explainers of the same 12 kinds are cut to nothing, or to one row or column, from one of them to "
        "all of a part; some of what tells their sizes is made to agree, and checksums are right. Those that load "
        "explain two samples and verify them."
    )
    return section("Empty tensors", lead, rows)


STUDY = Study("fuzz_empty", cases, run, page)
