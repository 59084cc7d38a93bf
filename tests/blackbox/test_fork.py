"""Black boxes in processes that were forked while another thread was querying."""

from __future__ import annotations

import os

import pytest

import forking

SCRIPT = """
import multiprocessing, sys, threading, time
import numpy as np
from sointer import BlackBox, CommandBlackBox

X = np.ones((1, 2))
PROGRAM = '''
import json, sys, time
for line in sys.stdin:
    time.sleep(1.5)
    print(json.dumps({"outputs": [[1, 0] for _ in json.loads(line)["rows"]]}), flush=True)
'''

def slow(Z):
    time.sleep(1.5)
    return Z > 0

box = CommandBlackBox([sys.executable, "-c", PROGRAM]) if sys.argv[1] == "command" else BlackBox(slow, cache=True)
thread = threading.Thread(target=lambda: box(X), daemon=True)
thread.start()
time.sleep(0.7)
child = multiprocessing.get_context("fork").Process(target=lambda: box(X))
child.start()
child.join(60)
code = child.exitcode
child.kill()
thread.join(60)
sys.exit(3 if code is None else code)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a POSIX system")
@pytest.mark.parametrize("kind", ["cache", "command"])
def test_the_child_does_not_wait_for_threads_it_does_not_have(kind):
    done = forking.run(["-c", SCRIPT, kind])
    assert done.returncode == 0, done.stderr
