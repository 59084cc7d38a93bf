"""Explainers are fitted once, each in a process of its own, and kept with what they cost."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import resource
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from setting import Setting, setting

import sointer
from sointer import Patches, SOInter, Superpixels
from sointer.config import EnergyConfig, InterpreterConfig, TrainingConfig

CACHE = Path(os.environ.get("SOINTER_CACHE", Path.home() / ".cache" / "sointer")) / "explainers"
RECIPE = 4
"""To be raised whenever the training of SOInter changes: explainers fitted by an older recipe are then fitted anew."""
COSTS = "costs.json"
PATCH, N_SUPERPIXELS = 8, 100
QUICK_BUDGET, QUICK_STEPS = 150, 4

Costs = dict[str, Any]


@dataclass(frozen=True)
class Recipe:
    """Which black box is explained, and how SOInter is set; everything else is as it comes."""

    black_box: str = "unet"
    size: int = 32
    k: int = 30
    structured: bool = True
    removal: str = "zero"
    groups: str | None = None
    preset: str = "default"
    target: tuple[int, int] | None = None
    """The only pixel to be explained; None for all of them."""
    temperature: float | None = None
    learning_rate: float | None = None
    query_budget: int | None = None
    n_residual_steps: int | None = None
    n_rounds: int | None = None
    n_pretraining_steps: int | None = None
    seed: int = 0
    quick: bool = False
    judged_by: str = "test"

    @property
    def setting(self) -> Setting:
        return setting(self.black_box, self.size, self.quick, self.judged_by)

    def make(self) -> SOInter:
        """The explainer, not fitted."""
        paper, quick = self.preset == "paper", self.quick
        n_steps, n_rounds, n_first = self.n_residual_steps, self.n_rounds, self.n_pretraining_steps
        if quick:
            n_steps, n_rounds, n_first = None if paper else QUICK_STEPS, 2, 3 if paper else None
        small, few = (4, 8) if quick and not paper else None, 8 if quick else None
        return SOInter(
            self.setting.model.predict,
            k=self.k,
            removal=self.removal,
            structured=self.structured,
            preset=self.preset,  # type: ignore[arg-type]
            groups=units(self.groups),
            query_budget=QUICK_BUDGET if quick else self.query_budget,
            energy=EnergyConfig(hidden=small, batch_size=few),
            interpreter=InterpreterConfig(
                hidden=small,
                n_residual_steps=n_steps,
                batch_size=few,
                temperature=self.temperature,
                learning_rate=self.learning_rate,
            ),
            training=TrainingConfig(n_rounds=n_rounds, n_pretraining_steps=n_first),
            random_state=self.seed,
            verbose=False,
        )

    def folder(self) -> Path:
        """Named after all that the fitted explainer depends on."""
        digest = hashlib.sha256(json.dumps([RECIPE, asdict(self)], sort_keys=True).encode())
        digest.update(self.setting.train.tobytes())
        digest.update(self.setting.ask(self.setting.train).tobytes())
        return CACHE / f"{self.black_box}-{self.size}-{digest.hexdigest()[:16]}"


def units(groups: str | None) -> Patches | Superpixels | None:
    return {None: None, "patches": Patches(PATCH), "superpixels": Superpixels(N_SUPERPIXELS)}[groups]


def fitted(recipe: Recipe) -> tuple[SOInter, Costs]:
    """The explainer and what its fit cost, from what is kept or fitted now."""
    folder, model = recipe.folder(), recipe.setting.model.predict
    if not (folder / COSTS).exists():
        fit_apart(recipe, folder)
    try:
        explainer = sointer.load(folder, black_box=model)
    except sointer.errors.LoadError:  # damaged, or its networks have changed since
        fit_apart(recipe, folder)
        explainer = sointer.load(folder, black_box=model)
    costs = json.loads((folder / COSTS).read_text())
    if costs["code"] != code():
        print(f"note: {folder} was fitted before the training code changed; delete it to fit anew", flush=True)
    return explainer, costs


def fit_apart(recipe: Recipe, folder: Path) -> None:
    """Fit in a process that knows torch but has done nothing yet, for memory is that of a whole process."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["sointer", "sointer.models"])
    process = context.Process(target=fit_and_keep, args=(recipe, folder))
    process.start()
    process.join()
    if process.exitcode != 0:
        raise RuntimeError(f"the fit of {recipe} failed; what went wrong is shown above")


def code() -> str:
    """A short name for the code that fits explainers, as it is now."""
    package = Path(sointer.__file__).parent
    digest = hashlib.sha256()
    for part in ("training", "energy", "interpreter", "convolution.py", "config.py"):
        for file in sorted((package / part).rglob("*.py")) or [package / part]:
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def fit_and_keep(recipe: Recipe, folder: Path) -> None:
    """Fit, save, and write down what it took: runs in a process of its own."""
    explainer = recipe.make()
    targets = None if recipe.target is None else [recipe.target]
    started, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", sointer.errors.SointerWarning)
        explainer.fit(recipe.setting.train, targets=targets)
    costs = {
        "seconds": round(time.perf_counter() - started, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "n_threads": torch.get_num_threads(),
        "n_queries": explainer.n_queries_,
        "peak_gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        "n_targets": len(explainer.targets_),
        "held_out_skill": round(explainer.held_out_skill_, 4),
        "code": code(),
        "warnings": [str(one.message) for one in warned if issubclass(one.category, sointer.errors.SointerWarning)],
    }
    explainer.save(folder)
    (folder / COSTS).write_text(json.dumps(costs, indent=1))
