"""Same seed, same bits: however many threads, in whatever order and portions, and with nothing global touched."""

from __future__ import annotations

import random

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
import torch

import sointer
from generators import numpy_state
from quick import IMAGES, TABLE, WIDE, labels, masks, quick_explainer, quick_fit
from sointer import BlackBox, TrainingConfig

SPARSE_WORDS = sp.csr_array(np.where(np.random.default_rng(0).random((80, 400)) < 0.05, 1.0, 0.0))


def weights(explainer):
    return {**explainer.energy_.state_dict(), **explainer.interpreter_.state_dict()}


def assert_same(one, two, data, target=1):
    first, second = weights(one), weights(two)
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []
    assert np.array_equal(one.explain(data, target).scores, two.explain(data, target).scores)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def explainer():
    return quick_explainer("table")


# --- threads -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "black_box", "changes", "target"),
    [
        (TABLE, labels, {"energy": None}, 1),  # networks so large that torch may share out their work
        (SPARSE_WORDS, labels, {}, 1),
        (WIDE, labels, {"energy": None, "query_budget": 60}, 1),
        (IMAGES[:20], masks, {"energy": None}, (2, 3)),
    ],
    ids=["table", "sparse", "wide", "images"],
)
def test_one_and_two_threads(data, black_box, changes, target, threads):
    threads(1)
    one = quick_fit(black_box, data, **changes)
    threads(2)
    two = quick_fit(black_box, data, **changes)
    assert_same(one, two, data, target)
    assert torch.get_num_threads() == 2
    scores = one.explain(data, target).scores
    threads(1)
    assert np.array_equal(one.explain(data, target).scores, scores)


def test_the_black_box_has_all_threads_that_its_owner_gave(threads):
    seen = set()

    def watching(batch):
        seen.add(torch.get_num_threads())
        return labels(batch)

    threads(2)
    quick_fit(watching, TABLE)
    assert seen == {2}


# --- order and portions ------------------------------------------------------------------------------------


def test_the_order_of_rows_does_not_matter_to_them(explainer):
    order = np.random.default_rng(1).permutation(len(TABLE))
    whole, mixed = explainer.explain(TABLE, 1), explainer.explain(TABLE[order], 1)
    assert np.array_equal(whole.scores[order], mixed.scores)
    assert np.array_equal(whole.selected[order], mixed.selected)


def test_rows_can_be_explained_in_any_portions(explainer):
    whole = explainer.explain(np.tile(TABLE, (5, 1)), 1).scores[: len(TABLE)]
    for size in (1, 7, 64):
        parts = [explainer.explain(TABLE[i : i + size], 1).scores for i in range(0, len(TABLE), size)]
        assert np.array_equal(np.concatenate(parts), whole), size
    targets = np.arange(len(TABLE)) % 3
    together = explainer.explain(TABLE, targets).scores
    assert np.array_equal(together[targets == 1], whole[targets == 1])


def test_the_black_box_can_be_asked_in_any_portions(explainer):
    for size in (7, 500):
        assert_same(explainer, quick_fit(BlackBox(labels, batch_size=size), TABLE), TABLE)


def test_the_black_box_can_be_asked_by_several_workers(explainer):
    with joblib.parallel_config(backend="threading"):
        assert_same(explainer, quick_fit(BlackBox(labels, batch_size=16, n_jobs=2), TABLE), TABLE)


# --- nothing global ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_paths")
def test_no_global_generator_is_touched(tmp_path):
    before = random.getstate(), numpy_state(), torch.random.get_rng_state()

    def check(what):
        now = random.getstate(), numpy_state(), torch.random.get_rng_state()
        assert now[0] == before[0], f"{what} used random's generator"
        assert np.array_equal(now[1], before[1]), f"{what} used numpy's generator"
        assert torch.equal(now[2], before[2]), f"{what} used torch's generator"

    fitted = quick_fit(labels, TABLE)
    check("fit")
    explanation = fitted.explain(TABLE[:10], 1, refine=5)
    check("explain")
    explanation.verify()
    check("verify")
    explanation.paths(n_draws=2)
    check("paths")
    fitted.save(tmp_path / "why")
    check("save")
    loaded = sointer.load(tmp_path / "why", black_box=labels)
    check("load")
    loaded.report(TABLE[:10], tmp_path / "why.html", verify=False, paths=False)
    check("report")
    quick_fit(labels, TABLE, preset="paper", training=TrainingConfig(n_rounds=1, n_pretraining_steps=10))
    check("fit of the paper's preset")


def test_global_seeds_change_nothing(explainer):
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(5)
    assert_same(explainer, quick_fit(labels, TABLE), TABLE)
