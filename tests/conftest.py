"""Small fitted explainers that many tests share."""

from __future__ import annotations

import gc
import signal
import sys
from collections import Counter
from contextlib import nullcontext

import numpy as np
import pytest

from generators import numpy_state
from quick import TAUGHT, few_effect_steps, few_path_steps, quick_fit
from sointer.zoo.synthetic import paper_e1

SECONDS = "sointer/seconds_of_file"
SECONDS_PER_TEST = 0.2
"""In files whose time is not known yet."""
LEARNS_IN_FULL = {"quality", "training", "interpreter", "studies", "docs", "examples"}
_spent: Counter[str] = Counter()
gc.disable()
"""Until all is imported and collected: no garbage is in it, and looking for some takes a third of the time."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """The files that take longest come first, so that no worker of `make test` begins one at the end."""
    known = config.cache.get(SECONDS, {}) if hasattr(config, "cache") else {}
    n_tests = Counter(item.location[0] for item in items)
    items.sort(key=lambda item: -known.get(item.location[0], SECONDS_PER_TEST * n_tests[item.location[0]]))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """From then on, garbage is looked for among what the tests make."""
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Where quality is not what is tested, the network that explains tables in one pass learns little."""
    in_full = "slow" in item.keywords or not LEARNS_IN_FULL.isdisjoint(item.path.with_suffix("").parts)
    with nullcontext() if in_full else few_effect_steps():
        return (yield)


def pytest_runtest_logreport(report):
    _spent[report.location[0]] += report.duration


def pytest_sessionfinish(session):
    """Remember how long each file took, where many were run by several workers."""
    if "forking" in sys.modules:
        sys.modules["forking"].stop()
    gc.collect()
    gc.freeze()  # pytest looks for garbage five times at the end: once is enough
    config = session.config
    if getattr(config.option, "numprocesses", None) and hasattr(config, "cache"):
        config.cache.set(SECONDS, config.cache.get(SECONDS, {}) | {name: round(s, 1) for name, s in _spent.items()})


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
def quick_paths():
    with few_path_steps():
        yield


@pytest.fixture
def forked_workers():
    """Processes of joblib begin in a moment; that new interpreters do the same is tested in test_parallel."""
    from forking import joblib_workers

    with joblib_workers():
        yield


@pytest.fixture
def global_random_state_is_left_alone():
    """The code under test may not touch numpy's or torch's global generators."""
    import torch

    before_numpy, before_torch = numpy_state(), torch.random.get_rng_state()
    yield
    assert np.array_equal(before_numpy, numpy_state()), "numpy's global generator was used"
    assert torch.equal(before_torch, torch.random.get_rng_state()), "torch's global generator was used"


@pytest.fixture(autouse=True)
def same_global_generators():
    """Every test begins with the same global generators, whichever tests the same process ran before it."""
    import torch

    torch.default_generator.manual_seed(0)  # torch.manual_seed notes a traceback for every kind of device
    np.random.seed(0)  # noqa: NPY002


@pytest.fixture(autouse=True, scope="session")
def heed_ctrl_c():
    """Ctrl-C works in the tests also where they were started in the background, with interrupts switched off."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def _browser():
    from browsing import browser

    with browser() as made:
        yield made


@pytest.fixture(scope="module")
def driver(_browser):
    """A real browser, as if just started."""
    from browsing import as_if_new

    as_if_new(_browser)
    yield _browser
    _browser.get("about:blank")  # nothing goes on running


@pytest.fixture(scope="module")
def _running():
    from model_server import ModelServer, serve

    server = ModelServer()
    with serve(server.app) as url:
        server.url = url
        yield server


@pytest.fixture
def server(_running, monkeypatch):
    """A server of models on loopback, as if just started; clients that must try again do so almost at once."""
    from sointer import HTTPBlackBox

    monkeypatch.setattr(HTTPBlackBox, "_first_wait", 0.01)
    url, app = _running.url, _running.app
    _running.__init__()
    _running.url, _running.app = url, app
    return _running
