"""Small fitted explainers that many tests share."""

from __future__ import annotations

import signal

import numpy as np
import pytest

from generators import numpy_state
from quick import TAUGHT, quick_fit
from sointer.zoo.synthetic import paper_e1


@pytest.fixture(scope="session")
def small_problem():
    return paper_e1(8)


@pytest.fixture(scope="session")
def small_data(small_problem):
    return small_problem.sample(600, random_state=0)


@pytest.fixture(scope="session")
def small_explainer(small_problem, small_data):
    """Fitted on E1 with 8 features, once; tests must not change it."""
    return quick_fit(small_problem, small_data, **TAUGHT | {"k": 4})


@pytest.fixture
def quick_paths(monkeypatch):
    """The networks that only paths() needs learn little: for tests of form, not of quality."""
    monkeypatch.setattr("sointer.training.energy.N_STEPS", 40)


@pytest.fixture
def global_random_state_is_left_alone():
    """The code under test may not touch numpy's or torch's global generators."""
    import torch

    before_numpy, before_torch = numpy_state(), torch.random.get_rng_state()
    yield
    assert np.array_equal(before_numpy, numpy_state()), "numpy's global generator was used"
    assert torch.equal(before_torch, torch.random.get_rng_state()), "torch's global generator was used"


@pytest.fixture(autouse=True, scope="session")
def heed_ctrl_c():
    """Ctrl-C works in the tests also where they were started in the background, with interrupts switched off."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def _running():
    from model_server import ModelServer, serve

    server = ModelServer()
    with serve(server.app) as url:
        server.url = url
        yield server


@pytest.fixture
def server(_running):
    """A server of models on loopback, as if just started."""
    url, app = _running.url, _running.app
    _running.__init__()
    _running.url, _running.app = url, app
    return _running
