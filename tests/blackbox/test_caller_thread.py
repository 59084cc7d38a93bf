"""Models that may be called from one thread only."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import threading
import warnings

import numpy as np
import pytest
import torch

from quick import QUICK
from sointer import BlackBox, HTTPBlackBox, SOInter
from sointer.errors import BlackBoxError, InputError, SointerWarning

X = np.random.default_rng(0).normal(size=(100, 3))


def two(batch):
    return (batch[:, :2] > 0).astype(int)


def fit(model, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SointerWarning)
        return SOInter(model, **QUICK).fit(X, **more)


def with_sqlite():
    connection = sqlite3.connect(":memory:")
    return lambda batch: (connection.execute("select 1").fetchone(), two(batch))[1]


def with_signals():
    def model(batch):
        signal.signal(signal.SIGALRM, signal.signal(signal.SIGALRM, signal.SIG_DFL))
        return two(batch)

    return model


def with_a_loop():
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)

    async def answer(batch):
        return two(batch)

    return lambda batch: asyncio.get_event_loop().run_until_complete(answer(batch))


def with_thread_locals():
    local = threading.local()
    local.model = two
    return lambda batch: local.model(batch)


MODELS = [with_sqlite, with_signals, with_a_loop, with_thread_locals]


@pytest.mark.parametrize("make", MODELS)
def test_models_of_one_thread_can_be_fitted(make):
    assert fit(BlackBox(make(), caller_thread=True)).n_queries_ > 100


@pytest.mark.parametrize("make", [with_sqlite, with_thread_locals])
def test_without_it_the_error_says_what_to_do(make):
    with pytest.raises(BlackBoxError, match=r"another thread than yours.*BlackBox\(model, caller_thread=True\)"):
        fit(BlackBox(make(), retries=0))


def test_a_failure_in_ones_own_thread_says_nothing_of_threads():
    def broken(batch):
        raise RuntimeError("no")

    with pytest.raises(BlackBoxError) as caught:
        fit(BlackBox(broken, retries=0, caller_thread=True))
    assert "thread" not in str(caught.value)


def test_all_calls_come_from_the_caller_with_its_own_settings_and_the_explainer_is_the_same(tmp_path):
    threads, n_torch, before = set(), set(), torch.get_num_threads()

    def model(batch):
        threads.add(threading.get_ident())
        n_torch.add(torch.get_num_threads())
        return two(batch)

    torch.set_num_threads(3)
    try:
        here = fit(BlackBox(model, caller_thread=True), checkpoint=tmp_path / "fit")
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert threads == {threading.get_ident()}
    assert n_torch == {3}
    there = fit(BlackBox(two))
    assert np.array_equal(here.explain(X, 0).scores, there.explain(X, 0).scores)
    assert here.n_queries_ == there.n_queries_


def test_an_interrupt_in_the_model_ends_fit():
    def interrupted(batch):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(BlackBox(interrupted, caller_thread=True))


@pytest.mark.parametrize("more", [{"timeout": 1.0}, {"n_jobs": 2}])
def test_what_needs_other_threads_is_refused_with_it(more):
    with pytest.raises(InputError, match="caller_thread=True was given together with"):
        BlackBox(two, caller_thread=True, **more)
    with pytest.raises(InputError, match="caller_thread=True was given together with"):
        HTTPBlackBox("http://localhost:1/invocations", caller_thread=True)
