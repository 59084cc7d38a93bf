"""The black box is queried in a thread of its own: the same explainer however slow it is, and no harm if stopped."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings

import joblib
import numpy as np
import pytest
from sklearn import config_context, get_config

from quick import TABLE, labels, quick_fit
from sointer import BlackBox, EnergyConfig, SOInter, TrainingConfig
from sointer.errors import BlackBoxError, InterruptedFitWarning
from sointer.training.energy import EnergyTrainer
from sointer.zoo.synthetic import paper_e1

BUDGET, N_FEATURES = 1600, 6  # with fewer queries nothing is queried ahead
QUICK = {"energy": EnergyConfig(hidden=(32,)), "training": TrainingConfig(n_epochs=4)}


class Watched:
    """E1, and who called it when: what to do before outputs are returned, by the number of rows queried so far."""

    def __init__(self, before=lambda n_queried: None):
        self.problem, self.before = paper_e1(N_FEATURES), before
        self.n_queried, self.n_inside, self.most_inside = 0, 0, 0
        self.batches, self.threads, self.settings = [], [], []

    def __call__(self, X):
        self.n_inside += 1
        self.most_inside = max(self.most_inside, self.n_inside)
        self.n_queried += len(X)
        self.batches.append(X.copy())
        self.threads.append(threading.current_thread())
        self.settings.append((get_config()["assume_finite"], np.geterr()["over"]))
        try:
            self.before(self.n_queried)
            return self.problem(X)
        finally:
            self.n_inside -= 1


def fit(model, *, budget=BUDGET, batch_size=64, **settings):
    X = paper_e1(N_FEATURES).sample(500, random_state=0)
    box = BlackBox(model, batch_size=batch_size)
    return SOInter(box, k=4, random_state=0, query_budget=budget, verbose=False, **(QUICK | settings)).fit(X)


def weights(explainer):
    return {name: value.numpy() for name, value in explainer.interpreter_.state_dict().items()}


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module")
def quiet():
    watched = Watched()
    return watched, fit(watched)


# --- one thread, a fixed order ------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning")
def test_the_speed_of_the_black_box_changes_neither_the_queries_nor_the_explainer(quiet):
    swift, explainer = quiet
    pauses = np.random.default_rng(0).random(100) * 0.05
    slow = Watched(lambda n_queried: time.sleep(pauses[n_queried % 100]))
    assert same(weights(fit(slow)), weights(explainer))
    assert len(slow.batches) == len(swift.batches)
    assert all(np.array_equal(a, b) for a, b in zip(slow.batches, swift.batches, strict=True))


def test_all_queries_come_from_one_thread_which_ends_with_fit(quiet):
    watched, explainer = quiet
    assert watched.most_inside == 1
    assert len(set(watched.threads)) == 1
    assert watched.threads[0] is not threading.main_thread()
    assert not watched.threads[0].is_alive()
    assert explainer.n_queries_ == watched.n_queried <= BUDGET


@pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning")
def test_training_goes_on_while_the_black_box_computes(monkeypatch):
    trained = threading.Event()
    step = EnergyTrainer._step

    def noted(trainer, batch):
        trained.set()
        return step(trainer, batch)

    monkeypatch.setattr(EnergyTrainer, "_step", noted)
    waited_in_vain = []

    def wait_for_training(n_queried):
        if n_queried > 0.55 * BUDGET and not trained.wait(60):
            waited_in_vain.append(n_queried)

    fit(Watched(wait_for_training), batch_size=16)
    assert trained.is_set()
    assert not waited_in_vain, "no training step was taken while the black box was computing"


@pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning")
def test_settings_of_the_callers_thread_hold_where_the_model_is_called():
    watched = Watched()
    with config_context(assume_finite=True), np.errstate(over="raise"):
        fit(watched)
    assert set(watched.settings) == {(True, "raise")}


# --- failures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.3, 0.7, 0.9])
@pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning")
def test_a_black_box_that_fails_for_good_raises_and_is_asked_no_more(share):
    def fail(n_queried):
        if n_queried > share * BUDGET:
            raise RuntimeError("out of order")

    watched = Watched(fail)
    with pytest.raises(BlackBoxError, match="out of order"):
        fit(BlackBoxFunction(watched), batch_size=16)
    n_queried = watched.n_queried
    assert not watched.threads[0].is_alive()
    time.sleep(0.05)
    assert watched.n_queried == n_queried


class BlackBoxFunction:
    """Hides a callable's attributes, as a plain function would."""

    def __init__(self, function):
        self.function = function

    def __call__(self, X):
        return self.function(X)


# --- interrupts ---------------------------------------------------------------------------------------------


def interrupt_main():
    """A real Ctrl-C: it reaches the main thread also while that waits."""
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


def interrupting_at(share, times=1):
    """Interrupts the main thread, as Ctrl-C does, when that share of the budget is used."""
    left = [times]

    def before(n_queried):
        if n_queried > share * BUDGET and left[0]:
            left[0] -= 1
            interrupt_main()

    return before


def test_an_interrupt_after_enough_was_learned_leaves_a_usable_explainer_and_says_what_it_is_worth():
    # The last fifth is queried only after the energy was trained on the first outputs.
    watched = Watched(interrupting_at(0.9))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        explainer = fit(watched, batch_size=8)
    (warned,) = [w for w in caught if issubclass(w.category, InterruptedFitWarning)]
    assert f"{explainer.n_queries_} of {BUDGET} planned" in str(warned.message)
    assert f"{explainer.held_out_agreement_:.0%}" in str(warned.message)
    assert warned.filename == __file__
    assert explainer.n_queries_ == watched.n_queried < BUDGET
    assert not watched.threads[0].is_alive()
    X = watched.problem.sample(5, random_state=1)
    assert explainer.explain(X, target=0).selected.shape == (5, 4)


def test_an_interrupt_before_anything_was_learned_is_raised():
    watched = Watched(interrupting_at(0.1))
    with pytest.raises(KeyboardInterrupt):
        fit(watched, batch_size=8)
    assert not watched.threads[0].is_alive()
    assert watched.n_queried < 0.5 * BUDGET


@pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning")
def test_a_second_interrupt_is_raised_at_once_even_if_the_black_box_hangs():
    answered = threading.Event()

    def hang(n_queried):
        if n_queried > 0.9 * BUDGET:
            interrupt_main()
            threading.Timer(0.5, interrupt_main).start()
            answered.wait(60)

    watched = Watched(hang)
    with pytest.raises(KeyboardInterrupt):
        fit(watched, batch_size=8)
    assert watched.n_inside == 1, "the black box was still hanging"
    answered.set()


def test_fit_uses_the_backend_that_joblib_was_set_to():
    processes, threads = set(), set()

    def model(X):
        processes.add(os.getpid())
        threads.add(threading.get_ident())
        return labels(X)

    with joblib.parallel_config(backend="threading"):
        quick_fit(BlackBox(model, n_jobs=2, batch_size=8), TABLE)
    assert processes == {os.getpid()}  # of other processes nothing would be known here
    assert threading.get_ident() not in threads
