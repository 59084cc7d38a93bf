"""torch's global generator, borrowed and given back: torch draws the weights of a new network from nowhere else."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_seed_lock = threading.RLock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within the block torch draws what `seed` says; afterwards what it would have drawn without it.

    One thread at a time, since there is one generator for all.
    """
    with _seed_lock, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def _new_seed_lock() -> None:
    global _seed_lock
    _seed_lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_seed_lock)  # the thread that held it is not there any more
