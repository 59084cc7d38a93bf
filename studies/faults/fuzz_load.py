"""What does loading make of files that were damaged, by accident or with intent?"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

import sointer
from sointer import Patches, SOInter, Superpixels, TrainingConfig
from sointer.apps.serve import create_app
from sointer.errors import SointerError
from studies.faults.fuzz_cli import attempt as sointer_command
from studies.faults.fuzzing import fuzz, n_tried, section, what_held
from studies.faults.mutations import DAMAGES, fresh_copy
from studies.frame.study import Case, Row, Study

PER_PART = 500
N_PARTS, N_WORDY_PARTS = 40, 12
FOLDER = Path()

RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(60, 5))
SPARSE = sp.csr_array(np.where(RNG.random((60, 300)) < 0.05, 1.0, 0.0))
FRAME = pd.DataFrame({"colour": np.where(TABLE[:, 0] > 0, "red", "blue"), "a": TABLE[:, 1], "n": np.arange(60)})
IMAGES = RNG.random((30, 1, 6, 6))
WORDS = RNG.choice(["rain", "sun", "wind", "snow", "cold"], size=(60, 6))
TEXTS = [" ".join(words) for words in WORDS]
SENTENCES = [words[: 2 + i % 4].tolist() for i, words in enumerate(WORDS)]


def two(batch: Any) -> Any:
    dense = batch.toarray() if sp.issparse(batch) else np.asarray(batch, dtype=float)
    return (dense[:, :2] > 0).astype(int)


def masks(batch: Any) -> Any:
    return (batch[:, 0] > 0.5).astype(int)


def rainy(texts: Any) -> Any:
    return np.array([["rain" in text, "sun" in text] for text in texts]).astype(int)


def after_rain(batch: Any) -> Any:
    return [["wet" if before == "rain" else "dry" for before in ["", *words[:-1]]] for words in batch]


EXPLAINERS: dict[str, tuple[Any, Any, Any, dict[str, Any]]] = {
    "table": (TABLE, two, 1, {}),
    "labels": (TABLE, lambda batch: np.where(np.asarray(batch)[:, :3] > 0, "yes", "no"), 0, {"removal": "conditional"}),
    "numbers": (TABLE, lambda batch: np.asarray(batch)[:, :2] * 3.0, 1, {"groups": {"both": [0, 1]}}),
    "frame": (FRAME, lambda X: np.column_stack([X["colour"] == "red", X["a"] > 0]), 0, {}),
    "sparse": (SPARSE, two, 1, {}),
    "paper": (TABLE, two, 1, {"preset": "paper", "training": TrainingConfig(n_rounds=1, n_pretraining_steps=10)}),
    "alone": (TABLE, two, 1, {"structured": False}),
    "images": (IMAGES, masks, (2, 3), {"groups": Patches(2)}),
    "superpixels": (IMAGES, masks, (2, 3), {"groups": Superpixels(8), "removal": "blur"}),
}
WORDY: dict[str, tuple[Any, Any, Any, dict[str, Any]]] = {
    "texts": (TEXTS, rainy, 0, {}),
    "text columns": (FRAME.assign(said=TEXTS), lambda X: rainy(X["said"]), 0, {"text_columns": ["said"]}),
    "sequences": (SENTENCES, after_rain, 0, {"query_budget": 300, "training": None, "k": "auto"}),
}
KINDS = {"tables and images": EXPLAINERS, "texts and sequences": WORDY}


def cases(smoke: bool) -> Iterator[Case]:
    for part in range(1 if smoke else N_PARTS):
        yield {"part": part, "n": 30 if smoke else PER_PART}
    for part in range(1 if smoke else N_WORDY_PARTS):
        yield {"part": part, "n": 30 if smoke else PER_PART, "kinds": "texts and sequences"}


def saved_explainers(folder: Path, kinds: str = "tables and images") -> dict[str, Path]:
    """A small one of every kind."""
    small = {"k": 2, "query_budget": 120, "random_state": 0, "verbose": False}
    quick = {"training": TrainingConfig(n_epochs=1)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, (data, model, _, settings) in KINDS[kinds].items():
            faster = {} if "preset" in settings else quick
            SOInter(model, **{**small, **faster, **settings}).fit(data).save(folder / name)
    return {name: folder / name for name in KINDS[kinds]}


def make(rng: np.random.Generator, which: str = "tables and images") -> tuple[str, Callable[[], str]]:
    """Damage an explainer; the attempt loads it and, if that works, explains with it."""
    kinds, weights = list(DAMAGES), np.array([weight for _, weight in DAMAGES.values()])
    name, kind = str(rng.choice(list(KINDS[which]))), str(rng.choice(kinds, p=weights / weights.sum()))
    data, model, target, _ = KINDS[which][name]
    few, place = data.iloc[:2] if isinstance(data, pd.DataFrame) else data[:2], FOLDER / "damaged"
    fresh_copy(FOLDER / "saved" / name, place)
    DAMAGES[kind][0](place, rng)
    uses_all = rng.random() < 0.1

    def attempt() -> str:
        try:
            explainer = sointer.load(place, black_box=model)
            explainer.explain(few, target)
            if uses_all:
                use(explainer, few, name)
        except SointerError as error:
            if "MemoryError" in str(error) or "allocate" in str(error):
                raise MemoryError(str(error)) from error
            return "refused"
        return "accepted"

    return f"{name}: {kind}", attempt


def use(explainer: Any, few: Any, name: str) -> None:
    """All that shows or keeps what was loaded: on a terminal, in a report, behind HTTP, in a file, in a record."""
    for arguments in (["--json"], []):
        sointer_command(["info", str(FOLDER / "damaged"), *arguments])
    explainer.report(few, FOLDER / "report.html", paths=False)
    explainer.save(FOLDER / f"again {name}")
    create_app(explainer)
    explanation = explainer.explain(few, (EXPLAINERS | WORDY)[name][2])
    json.dumps([explanation.record(), str(explanation), str(explainer)])


def run(part: int, n: int, kinds: str = "tables and images") -> dict[str, Any]:
    global FOLDER
    with tempfile.TemporaryDirectory() as folder:
        FOLDER = Path(folder)
        for name, saved in saved_explainers(FOLDER / "saved", kinds).items():  # whatever must be imported, is
            fresh_copy(saved, FOLDER / "damaged")
            data, model, _, _ = KINDS[kinds][name]
            use(sointer.load(saved, black_box=model), data[:2], name)
        return fuzz(partial(make, which=kinds), part, n)


def verdict(rows: list[Row]) -> tuple[str, str]:
    return f"{n_tried(rows):,} damaged and hostile saved explainers loaded", what_held(rows)


def page(rows: list[Row], images: Path) -> str:
    tried = {row.get("kinds", "tables and images") for row in rows}
    names = [name for kinds, all_of in KINDS.items() if kinds in tried for name in all_of]
    lead = (
        f"Explainers of {len(names)} kinds ({', '.join(names)}) are damaged in {len(DAMAGES)} ways "
        f"({'; '.join(DAMAGES)}) and loaded. Those that load are used to explain, and some also to write reports and "
        "records, to save and to serve."
    )
    return section("Damaged and hostile files", lead, rows)


STUDY = Study("fuzz_load", cases, run, page)
