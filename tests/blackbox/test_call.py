"""Models that fail, hang, or return nonsense now and then: called again, counted, and given up in plain words."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from model_server import ModelServer, model
from quick import QUICK
from sointer import BlackBox, HTTPBlackBox, SOInter
from sointer.blackbox.call import RetryPolicy
from sointer.errors import BlackBoxError, InputError, QueryBudgetExceeded

X = np.random.default_rng(0).normal(size=(50, 4))


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BlackBox, "_first_wait", 0.001)
    monkeypatch.setattr(HTTPBlackBox, "_first_wait", 0.001)


class Flaky:
    """Fails at the calls whose numbers are given, from 1; and counts them."""

    def __init__(self, *bad_calls: int, how: Callable[[np.ndarray], object] | None = None) -> None:
        self.bad_calls = bad_calls
        self.how = how
        self.n_calls = 0

    def __call__(self, batch: np.ndarray) -> object:
        self.n_calls += 1
        if self.n_calls in self.bad_calls:
            batch[:] = 99  # what a failed call does to its input must not reach the next one
            if self.how is None:
                raise ConnectionError("the network was down")
            return self.how(batch)
        return model(batch)


def counts(box: BlackBox) -> tuple[int, int, int, int]:
    return box.n_queries, box.n_failures, box.n_retries, box.n_retried_rows


# --- any function ------------------------------------------------------------------------------------------


def test_a_function_that_fails_now_and_then_survives() -> None:
    box = BlackBox(Flaky(1, 3, 4), batch_size=20, query_budget=50)
    np.testing.assert_array_equal(box(X), model(X))
    assert counts(box) == (50, 3, 3, 60)
    assert box.remaining == 0  # the budget counts each row once


def test_a_function_that_never_returns_is_given_up() -> None:
    flaky = Flaky(*range(100))
    box = BlackBox(flaky, batch_size=20, query_budget=100)
    with pytest.raises(BlackBoxError, match=r"ConnectionError: the network was down\. .*It was tried 3 times") as info:
        box(X)
    assert isinstance(info.value.__cause__, ConnectionError)
    assert (counts(box), flaky.n_calls) == ((20, 3, 2, 40), 3)
    assert box.remaining == 80
    once = Flaky(1)
    with pytest.raises(BlackBoxError, match="It was tried once"):
        BlackBox(once, retries=0)(X)
    assert once.n_calls == 1


SPOILS = [
    lambda batch: model(batch) * np.nan,
    lambda batch: model(batch)[:-1],
    lambda batch: model(batch)[:, :2],
    lambda batch: None,
    lambda batch: [[object()] * 3] * len(batch),
]


@pytest.mark.parametrize("how", SPOILS)
def test_nonsense_is_retried_only_from_a_model_that_was_right_before(how: Callable[[np.ndarray], object]) -> None:
    box = BlackBox(Flaky(2, 4, how=how), batch_size=20)
    np.testing.assert_array_equal(box(X), model(X))
    assert counts(box) == (50, 2, 2, 30)
    always = Flaky(*range(100), how=how)
    if how(np.zeros((2, 4))) is None or np.shape(how(np.zeros((2, 4)))) != (2, 2):  # two outputs may be meant
        with pytest.raises(BlackBoxError, match="invalid result"):
            BlackBox(always)(X)
        assert always.n_calls == 1
    later = BlackBox(Flaky(*range(2, 100), how=how), batch_size=20)
    with pytest.raises(BlackBoxError, match=r"invalid result.* It was tried 6 times"):
        later(X)


def test_wrong_input_is_not_sent_twice() -> None:
    n_calls = []

    def refuses(batch: np.ndarray) -> np.ndarray:
        n_calls.append(1)
        raise InputError("not this")

    with pytest.raises(InputError, match=r"^not this$"):
        BlackBox(refuses)(X)
    assert len(n_calls) == 1


def test_a_call_that_hangs_is_left_behind() -> None:
    release = threading.Event()

    def waits(batch: np.ndarray) -> np.ndarray:
        release.wait(20)
        return model(batch)

    flaky = Flaky(2, how=waits)
    box = BlackBox(flaky, batch_size=30, timeout=1)
    np.testing.assert_array_equal(box(X), model(X))
    assert counts(box) == (50, 1, 1, 20)
    stuck = BlackBox(waits, timeout=0.05, retries=1)
    with pytest.raises(BlackBoxError, match=r"hung: waits returned nothing within timeout=0\.05 s.* tried 2 times"):
        stuck(X)
    release.set()


def test_the_models_own_timeout_is_not_ours() -> None:
    def gives_up(batch: np.ndarray) -> np.ndarray:
        raise TimeoutError("of its own")

    with pytest.raises(BlackBoxError, match="failed: gives_up raised TimeoutError: of its own"):
        BlackBox(gives_up, timeout=5, retries=0)(X)


def test_settings_of_the_thread_hold_with_a_timeout_too() -> None:
    def divides(batch: np.ndarray) -> np.ndarray:
        return np.where(batch / 0.0 > 0, 1, 0)

    with np.errstate(divide="raise"), pytest.raises(BlackBoxError, match="FloatingPointError"):
        BlackBox(divides, timeout=5, retries=0)(X)


def test_interrupts_pass() -> None:
    def interrupts(batch: np.ndarray) -> np.ndarray:
        raise KeyboardInterrupt

    for timeout in (None, 5):
        box = BlackBox(interrupts, timeout=timeout)
        with pytest.raises(KeyboardInterrupt):
            box(X)
        assert box.n_retries == 0


def test_waits_grow_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    policy = RetryPolicy(10, first_wait=0.1, max_wait=1.0)
    for n_failures in range(1, 8):
        policy.sleep(n_failures)
    full = np.minimum(0.1 * 2.0 ** np.arange(7), 1.0)
    assert (np.array(waits) <= full).all()
    assert (np.array(waits) >= full / 2).all()
    policy.sleep(1, at_least=0.7)
    policy.sleep(1, at_least=1e9)
    assert waits[-2:] == [0.7, 1.0]


@pytest.mark.parametrize("options", [{"retries": -1}, {"retries": 1.5}, {"timeout": 0}, {"timeout": "1"}])
def test_wrong_options(options: dict[str, object]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        BlackBox(model, **options)  # type: ignore[arg-type]


# --- many threads ------------------------------------------------------------------------------------------


def test_eight_threads_and_one_flaky_model_with_a_cache() -> None:
    seen: list[bytes] = []
    lock = threading.Lock()

    def flaky(batch: np.ndarray) -> np.ndarray:
        with lock:
            is_first = batch.tobytes() not in seen
            seen.append(batch.tobytes())
        time.sleep(0.001)
        if is_first:
            raise ConnectionError("the first time always fails")
        return model(batch)

    box = BlackBox(flaky, batch_size=5, cache=True, query_budget=len(X))
    with ThreadPoolExecutor(8) as pool:
        orders = [np.random.default_rng(i).permutation(len(X)) for i in range(40)]
        tables = list(pool.map(lambda order: box(X[order]), orders))
    for order, table in zip(orders, tables, strict=True):
        np.testing.assert_array_equal(table, model(X[order]))
    n_calls = len(seen)
    assert box.n_queries == 50, "a row was queried twice"
    assert box.n_cache_hits == 40 * 50 - 50
    assert box.n_failures == box.n_retries == n_calls - len(set(seen))
    assert box.remaining == 0
    copied = pickle.loads(pickle.dumps(BlackBox(model, cache=True)))
    np.testing.assert_array_equal(copied(X), model(X))


def test_a_thread_that_waits_for_anothers_rows_asks_itself_when_that_one_fails() -> None:
    entered, go_on = threading.Event(), threading.Event()

    def fails_first(batch: np.ndarray) -> np.ndarray:
        if not entered.is_set():
            entered.set()
            go_on.wait(10)
            raise ConnectionError("once")
        return model(batch)

    box = BlackBox(fails_first, cache=True, retries=0)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(box, X)
        entered.wait(10)
        second = pool.submit(box, X)
        time.sleep(0.05)
        assert not second.done()
        go_on.set()
        with pytest.raises(BlackBoxError, match="once"):
            first.result(10)
        np.testing.assert_array_equal(second.result(10), model(X))


def test_eight_threads_share_a_budget_exactly() -> None:
    box = BlackBox(Flaky(3, 7, 20), batch_size=3, query_budget=500)
    outcomes = []

    def ask(_: int) -> None:
        try:
            outcomes.append(len(box(X[:10])))
        except QueryBudgetExceeded:
            outcomes.append(0)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(80)))
    assert (sum(outcomes), box.n_queries, box.remaining) == (500, 500, 0)
    assert (box.n_failures, box.n_retries) == (3, 3)


# --- servers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["500", "503", "429", "408", "drops", "garbage", "hangs", "drips"])
def test_a_fault_that_passes(server: ModelServer, fault: str) -> None:
    server.fault = lambda n: fault if n == 2 else None
    box = HTTPBlackBox(server.url, batch_size=20, n_jobs=None, timeout=1 if fault in ("hangs", "drips") else 20)
    np.testing.assert_array_equal(box(X), model(X))
    assert counts(box) == (50, 1, 1, 20)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("500", "status 500: .*failed on purpose"),
        ("drops", "connection broke off"),
        ("garbage", "did not reply with a JSON object: <html>no gateway"),
        ("hangs", r"did not respond within timeout=0\.3 s"),
        ("drips", r"did not respond within timeout=0\.3 s"),
    ],
)
def test_a_fault_that_stays(server: ModelServer, fault: str, words: str) -> None:
    server.fault = lambda n: fault
    box = HTTPBlackBox(server.url, retries=2, n_jobs=None, timeout=0.3 if fault in ("hangs", "drips") else 20)
    with pytest.raises(BlackBoxError, match=rf"{words}.* It was tried 3 times, in \d+\.\d s"):
        box(X)
    assert counts(box) == (50, 3, 2, 100)


def test_a_refusal_is_not_retried(server: ModelServer) -> None:
    for status, words in (("400", "failed on purpose"), ("401", "token in headers"), ("307", "final address")):
        server.n_requests, server.fault = 0, lambda n, status=status: status
        box = HTTPBlackBox(server.url, n_jobs=None)
        with pytest.raises(BlackBoxError, match=f"status {status}.*{words}"):
            box(X)
        assert (server.n_requests, box.n_retries) == (1, 0)


def test_the_server_says_when_to_come_back(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(RetryPolicy, "sleep", lambda self, n_failures, at_least: waits.append(at_least))
    server.fault = lambda n: {1: "429 7", 2: "503 Wed, 21 Oct 2015 07:28:00 GMT", 3: "503 soon", 4: "500"}.get(n)
    np.testing.assert_array_equal(HTTPBlackBox(server.url, n_jobs=None)(X), model(X))
    assert waits == [7.0, 0.0, 0.0, 0.0]


def test_one_failure_in_a_hundred(server: ModelServer) -> None:
    server.fault = lambda n: "503" if n % 100 == 50 else None
    box = HTTPBlackBox(server.url, batch_size=4)
    for _ in range(16):
        np.testing.assert_array_equal(box(X), model(X))
    assert server.n_requests == 16 * 13 + 2
    assert counts(box) == (800, 2, 2, box.n_retried_rows)


@pytest.mark.parametrize(("share", "retries"), [(0.1, 5), (0.5, 40)])
def test_fit_against_a_failing_server_gives_the_same_explainer(
    server: ModelServer, share: float, retries: int, clean: SOInter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HTTPBlackBox, "_max_wait", 0.02)  # of up to forty tries
    rng, lock = np.random.default_rng(1), threading.Lock()
    faults = []

    def fault(n: int) -> str | None:
        with lock:
            spoiled = rng.random() < share
        faults.append(spoiled)
        return rng.choice(["500", "garbage", "drops"]) if spoiled else None

    server.fault = fault
    box = HTTPBlackBox(server.url, retries=retries, batch_size=50, n_jobs=2)
    explainer = SOInter(box, **QUICK).fit(X)
    assert box.n_failures == sum(faults) > 0
    assert explainer.n_queries_ == clean.n_queries_ == box.n_queries
    one, other = clean.explain(X, target=1), explainer.explain(X, target=1)
    np.testing.assert_array_equal(one.scores, other.scores)
    np.testing.assert_array_equal(one.selected, other.selected)


@pytest.fixture(scope="module")
def clean() -> SOInter:
    """Fitted on the same model, with nothing in between (float32, as the server takes it)."""
    box = BlackBox(lambda rows: model(np.asarray(rows, dtype=np.float32)), batch_size=50)
    return SOInter(box, **QUICK).fit(X)
