"""What does loading make of files that were damaged, by accident or with intent?"""

from __future__ import annotations

import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from mutations import DAMAGES, fresh_copy
from study import Case, Row, Study
from tables import sections, table

import sointer
from sointer import InterpreterConfig, Patches, SOInter, Superpixels, TrainingConfig
from sointer.errors import SointerError

PER_PART = 500
N_PARTS = 40
LONGEST, LONGEST_WAIT = 5, 60  # seconds of processor time; and of waiting, so that a busy machine is no hang
MOST_MEMORY, MOST_EXTRA = 2**30, 2**28  # bytes that may be asked for, and that a refusal may take
FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "pickle.find_class", "socket.connect")
OUTCOMES = ("refused", "loaded", "crashes", "hangs", "memory", "executions")

RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(60, 5))
SPARSE = sp.csr_array(np.where(RNG.random((60, 300)) < 0.05, 1.0, 0.0))
FRAME = pd.DataFrame({"colour": np.where(TABLE[:, 0] > 0, "red", "blue"), "a": TABLE[:, 1], "n": np.arange(60)})
IMAGES = RNG.random((30, 1, 6, 6))


def two(batch: Any) -> Any:
    dense = batch.toarray() if sp.issparse(batch) else np.asarray(batch, dtype=float)
    return (dense[:, :2] > 0).astype(int)


def masks(batch: Any) -> Any:
    return (batch[:, 0] > 0.5).astype(int)


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


def cases(smoke: bool) -> Iterator[Case]:
    for part in range(1 if smoke else N_PARTS):
        yield {"part": part, "n": 30 if smoke else PER_PART}


def saved_explainers(folder: Path) -> dict[str, Path]:
    """A small one of every kind."""
    small = {"k": 2, "query_budget": 120, "random_state": 0, "verbose": False}
    quick = {
        "training": TrainingConfig(n_epochs=1, n_rounds=1),
        "interpreter": InterpreterConfig(n_path_steps=2, n_residual_steps=5),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, (data, model, _, settings) in EXPLAINERS.items():
            some = {} if "preset" in settings else quick
            if data is IMAGES:
                some = {**quick, "interpreter": InterpreterConfig(n_residual_steps=5)}
            SOInter(model, **{**small, **some, **settings}).fit(data).save(folder / name)
    return {name: folder / name for name in EXPLAINERS}


def run(part: int, n: int) -> dict[str, Any]:
    """Damage an explainer, load it and, if that works, explain with it; n times."""
    rng = np.random.default_rng(part)
    found: Counter[str] = Counter()
    slowest, worst = 0.0, []
    executed: list[str] = []
    watching = [False]
    sys.addaudithook(lambda event, _: executed.append(event) if watching[0] and event in FORBIDDEN else None)
    kinds, weights = list(DAMAGES), np.array([weight for _, weight in DAMAGES.values()])
    with tempfile.TemporaryDirectory() as folder:
        saved = saved_explainers(Path(folder, "saved"))
        place = Path(folder, "damaged")
        before = _memory()
        for number in range(n):
            name, kind = str(rng.choice(list(saved))), str(rng.choice(kinds, p=weights / weights.sum()))
            seed = int(rng.integers(2**32))
            fresh_copy(saved[name], place)
            DAMAGES[kind][0](place, np.random.default_rng(seed))
            started, memory, watching[0] = time.process_time(), _memory(), True
            outcome, what = try_out(place, name)
            watching[0] = False
            slowest = max(slowest, time.process_time() - started)
            found[outcome] += 1
            if outcome == "refused" and _memory() - memory > MOST_EXTRA:
                outcome = "memory"
            if outcome in ("crashes", "hangs", "memory"):
                worst.append({"number": number, "explainer": name, "damage": kind, "seed": seed, "what": what})
        after = _memory()
    found["executions"] = len(executed)
    return {
        **{name: found[name] for name in OUTCOMES},
        "slowest": round(slowest, 2),
        "megabytes": round((after - before) / 2**20),
        "worst": worst[:20],
    }


def try_out(place: Path, name: str) -> tuple[str, str]:
    data, model, target, _ = EXPLAINERS[name]
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, _too_long)
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    signal.alarm(LONGEST_WAIT)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_virtual_memory() + MOST_MEMORY, limits[1]))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sointer.load(place, black_box=model).explain(data[:2] if name != "frame" else data.iloc[:2], target)
        return "loaded", ""
    except SointerError as error:
        return ("memory" if "MemoryError" in str(error) or "allocate" in str(error) else "refused"), str(error)
    except TimeoutError:
        return "hangs", traceback.format_exc(limit=-3)
    except BaseException as error:
        told = traceback.format_exc(limit=-3)
        return ("memory" if isinstance(error, MemoryError) or "allocate" in str(error) else "crashes"), told
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def _too_long(signal_number: int, frame: Any) -> None:
    raise TimeoutError(f"took over {LONGEST} s")


def _memory() -> int:
    """The most memory this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _virtual_memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


# --- the page ----------------------------------------------------------------------------------------------


def total(rows: list[Row]) -> Counter[str]:
    return sum((Counter({name: row[name] for name in OUTCOMES}) for row in rows), Counter())


def n_tried(rows: list[Row]) -> int:
    found = total(rows)
    return sum(found[name] for name in OUTCOMES if name != "executions")


def verdict(rows: list[Row]) -> tuple[str, str]:
    found = total(rows)
    return f"{n_tried(rows):,} damaged and hostile saved explainers loaded", (
        f"{found['crashes']} crashes, {found['hangs']} hangs over {LONGEST} s, {found['executions']} code executions, "
        f"{found['memory']} times over {MOST_MEMORY // 2**20} MB"
    )


def page(rows: list[Row], images: Path) -> str:
    found = total(rows)
    lines = [
        ["", "count"],
        ["saved explainers damaged, loaded and, if that worked, used", f"{n_tried(rows):,}"],
        ["refused with one clear error", f"{found['refused']:,}"],
        ["loaded and used (the change did no harm)", f"{found['loaded']:,}"],
        ["crashes: any other error", f"{found['crashes']:,}"],
        [f"hangs: over {LONGEST} s of processor time", f"{found['hangs']:,}"],
        [f"memory: over {MOST_MEMORY // 2**20} MB", f"{found['memory']:,}"],
        [f"code executions: any of {', '.join(FORBIDDEN)}", f"{found['executions']:,}"],
        ["slowest, s of processor time", f"{max(row['slowest'] for row in rows):.1f}"],
        ["most memory beyond that of the process before, MB", f"{max(row['megabytes'] for row in rows):,}"],
    ]
    return sections(
        "## Damaged and hostile files",
        f"Explainers of {len(EXPLAINERS)} kinds ({', '.join(EXPLAINERS)}) are damaged in {len(DAMAGES)} ways: "
        f"{'; '.join(DAMAGES)}.",
        table(lines),
    )


STUDY = Study("fuzz_load", cases, run, page)
