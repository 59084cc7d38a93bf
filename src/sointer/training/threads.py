"""One thread for small networks: two would mostly wait for each other, and fight the black box for the cores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

LARGEST_FOR_ONE_THREAD = 256

_lock = threading.Lock()
_users = 0
_before = 1


@contextmanager
def threads_for(n_columns: int) -> Iterator[None]:
    """Within the block torch uses one thread if inputs are narrow; afterwards as many as before.

    The setting belongs to the whole process, so blocks in several threads are counted, and the last one
    to end puts it back.
    """
    global _users, _before
    if n_columns > LARGEST_FOR_ONE_THREAD:
        yield
        return
    with _lock:
        if _users == 0:
            _before = torch.get_num_threads()
            torch.set_num_threads(1)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                torch.set_num_threads(_before)
