"""From evidence to a ranking by elimination: slow twins, a planted row of synonyms, and what must hold of any row."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from sointer import EnergyConfig, SOInter
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import SeparateEnergy, VectorEnergy
from sointer.energy.space import OutputSpace
from sointer.energy.sparse import SparseRows
from sointer.interpreter.elimination import (
    BLOCK_ROWS,
    MIN_ROOM,
    EliminationInterpreter,
    PresentUnits,
    blocks,
    eliminate,
    hard_top_k,
    is_decided_by_features,
    path_positions,
    ranked_above,
    rows_at_once,
)
from sointer.training.sparse_rows import selection_sizes

pytestmark = pytest.mark.usefixtures("global_random_state_is_left_alone")

SPACES = {
    "binary": OutputSpace((2, 2, 2)),
    "categorical": OutputSpace((3, 2, 4)),
}
N_COLUMNS = 12


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@torch.random.fork_rng(devices=[])
def make_energy(kind: str, space: OutputSpace, n_inputs: int = N_COLUMNS, width: int = 8):
    torch.manual_seed(0)
    if kind == "vector":
        energy = VectorEnergy(n_inputs, space, hidden=(width,), coupling_units=5)
        torch.nn.init.normal_(energy.b)
        torch.nn.init.normal_(energy.a.weight)
    else:
        energy = SeparateEnergy(n_inputs, space, hidden=(width,))
        torch.nn.init.normal_(energy.a)
    torch.nn.init.normal_(energy.input_weights[0])
    energy.encoding.scale.copy_(torch.rand(n_inputs) + 0.5)
    return energy.requires_grad_(False)


def make_interpreter(
    kind="vector", space=SPACES["binary"], *, reference=None, units=None, width=8, n_columns=N_COLUMNS
):
    units = torch.arange(n_columns) if units is None else units
    return EliminationInterpreter(
        make_energy(kind, space, n_columns, width=width),
        Likelihood(),
        torch.zeros(1, n_columns) if reference is None else reference,
        units,
        int(units.max()) + 1,
        n_path_steps=4,
    )


def make_rows(n: int, seed: int = 1, n_columns: int = N_COLUMNS) -> tuple[Tensor, Tensor]:
    """Rows with about two thirds of their entries set, and a target for each."""
    x = torch.randn(n, n_columns, generator=generator(seed))
    x = x.masked_fill(torch.rand(x.shape, generator=generator(seed + 1)) < 0.33, 0.0)
    return x, torch.randint(3, (n,), generator=generator(seed + 2))


def unusual_values(interpreter, targets: Tensor) -> Tensor:
    """Values that the target does not have when everything is removed, so that features decide."""
    of_nothing = interpreter.likelihood.predict(interpreter.energy, interpreter.references)[0]
    n_classes = torch.tensor(interpreter.energy.space.n_classes)
    return (of_nothing[targets] + 1) % n_classes[targets]


def slow_evidence(interpreter, x: Tensor, targets: Tensor, values: Tensor) -> Tensor:
    """By its definition, in the inputs themselves: the mean slope on the path from the reference, times the way."""
    reference, energy, likelihood = interpreter.references[0], interpreter.energy, interpreter.likelihood
    slope = torch.zeros_like(x)
    for share in path_positions(interpreter.n_path_steps).tolist():
        point = (reference + share * (x - reference)).requires_grad_(True)
        with torch.enable_grad():
            evidence = likelihood.target_evidence(energy, point, targets, values)
            slope += torch.autograd.grad(evidence.sum(), point)[0] / interpreter.n_path_steps
    by_column = slope * (x - reference)
    return torch.zeros(len(x), interpreter.n_units).index_add_(1, interpreter.unit_of_column, by_column)


# --- choosing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limited", [False, True])
def test_hard_top_k_with_a_size_for_each_row(limited):
    scores = torch.randn(40, 9, generator=generator())
    allowed = torch.rand(40, 9, generator=generator(1)) < 0.5 if limited else torch.ones(40, 9, dtype=torch.bool)
    allowed[3] = not limited
    sizes = torch.randint(0, 7, (40,), generator=generator(2))
    k = 5
    found = hard_top_k(scores, k, allowed if limited else None, sizes)
    for row in range(40):
        units = sorted((u for u in range(9) if allowed[row, u]), key=lambda u: -float(scores[row, u]))
        expected = set(units[: min(k, int(sizes[row]))])
        assert set(torch.nonzero(found[row]).ravel().tolist()) == expected
    everything = hard_top_k(scores, k, allowed)
    assert torch.equal(hard_top_k(scores, k, allowed, torch.full((40,), k)), everything)


@pytest.mark.parametrize("k", [1, 2, 10])
def test_sizes_of_asked_selections(k):
    context = SimpleNamespace(k=k, generator=generator())
    sizes = selection_sizes(context, 4000)
    assert sizes.dtype == torch.long
    assert set(range(1, k + 1)) == set(sizes.tolist()), "every shorter list must be right too"
    if k > 1:
        assert 0.7 < (sizes < k).float().mean().item() < 0.8
    again = SimpleNamespace(k=k, generator=generator())
    assert torch.equal(selection_sizes(again, 4000), sizes)


# --- elimination by a slow twin ----------------------------------------------------------------------------


def slow_ranking(interpreter, row: Tensor, target: Tensor, value: Tensor) -> tuple[list[int], float]:
    """One row alone, halved again and again: its units, best first, and the score of the best."""
    reference, unit_of_column = interpreter.references[0], interpreter.unit_of_column.tolist()

    def scores_of(kept: list[int]) -> list[float]:
        reduced = row.clone()
        for column, unit in enumerate(unit_of_column):
            if unit not in kept:
                reduced[column] = reference[column]
        return slow_evidence(interpreter, reduced[None], target[None], value[None])[0].tolist()

    alive = sorted({unit_of_column[c] for c in range(len(row)) if row[c] != reference[c]})
    scores, below = scores_of(alive), []
    while len(alive) > 2:
        by_score = sorted(alive, key=lambda unit: -scores[unit])
        n_kept = -(-len(alive) // 2)
        below = by_score[n_kept:] + below
        alive = by_score[:n_kept]
        scores = scores_of(alive)
    alive = sorted(alive, key=lambda unit: -scores[unit])
    return alive + below, scores[alive[0]]


@pytest.mark.parametrize("kind", ["vector", "separate"])
@pytest.mark.parametrize("space", list(SPACES))
@pytest.mark.parametrize("grouped", [False, True])
def test_elimination_equals_its_slow_twin(kind, space, grouped):
    units = torch.tensor([0, 0, 1, 2, 2, 2, 3, 4, 5, 6, 7, 7]) if grouped else None
    reference = torch.full((1, N_COLUMNS), 0.25) if grouped else None
    interpreter = make_interpreter(kind, SPACES[space], reference=reference, units=units)
    x, targets = make_rows(11)
    if reference is not None:
        x = torch.where(x == 0, reference, x)
    x[0], x[1, 1:] = interpreter.references[0], interpreter.references[0, 1:]  # nothing to rank, and one unit
    values = unusual_values(interpreter, targets)
    prior = slow_evidence(interpreter, x, targets, values)
    final = eliminate(interpreter, x, targets, values)
    assert torch.isfinite(final).all()
    assert torch.equal(final, interpreter(x, targets, values))
    if not grouped:
        assert torch.equal(final, interpreter(SparseRows.of_dense(x), targets, values))
    changed = 0
    for row in range(1, 11):
        expected, last_score = slow_ranking(interpreter, x[row], targets[row], values[row])
        order = [unit for unit in final[row].argsort(descending=True).tolist() if unit in expected]
        assert order == expected
        assert final[row, expected[0]].item() == pytest.approx(last_score, rel=1e-4, abs=1e-5)
        changed += [unit for unit in prior[row].argsort(descending=True).tolist() if unit in expected] != expected
    assert changed > 0, "elimination changed no ranking: the test shows nothing"


def test_units_kept_longer_rank_above():
    scores = torch.randn(50, 9, generator=generator())
    new = 3 * torch.randn(50, 9, generator=generator(1))
    kept = torch.zeros(50, 9, dtype=torch.bool)
    kept[:, [1, 4, 5]] = True
    removed = torch.zeros(50, 9, dtype=torch.bool)
    removed[:, [0, 2, 7]] = True
    old = scores.clone()
    old[:, [3, 6, 8]] -= 10.0  # removed before
    final = ranked_above(new, old, kept, removed)
    assert torch.equal(final[kept], new[kept])
    assert (final[:, [1, 4, 5]].amin(dim=1) > final[:, [0, 2, 7]].amax(dim=1)).all()
    others = [0, 2, 3, 6, 7, 8]
    assert torch.equal(final[:, others].argsort(dim=1), old[:, others].argsort(dim=1))
    already = ranked_above(new + 100.0, old, kept, removed)
    assert torch.equal(already[:, others], old[:, others])
    nothing_removed = ranked_above(new, old, kept, torch.zeros_like(removed))
    assert torch.equal(nothing_removed, torch.where(kept, new, old))


# --- what it is for ----------------------------------------------------------------------------------------


def synonyms() -> EliminationInterpreter:
    """One yes or no: log-odds of yes = 4 min(1, number of synonyms) + 1.5 other - 2, over four synonyms and another."""
    energy = VectorEnergy(5, OutputSpace((2,)), hidden=(4,), coupling_units=1)
    sharp = 40.0
    first = torch.tensor([[sharp] * 4 + [0.0], [sharp] * 4 + [0.0], [0.0] * 4 + [sharp], [0.0] * 5])
    energy.first.weight.data.copy_(first)
    energy.first.bias.data.copy_(torch.tensor([0.0, -sharp, 0.0, 30.0]))
    energy.a.weight.data.copy_(-torch.tensor([[4 / sharp, -4 / sharp, 1.5 / sharp, -2 / 30.0]]))
    energy.b.data.zero_()
    return EliminationInterpreter(
        energy.requires_grad_(False), Likelihood(), torch.zeros(1, 5), torch.arange(5), 5, n_path_steps=64
    )


def test_words_that_repeat_each_other_do_not_lose_to_a_weaker_one():
    with torch.random.fork_rng(devices=[]):
        interpreter = synonyms()
    x, target, yes = torch.ones(1, 5), torch.tensor([0]), torch.tensor([1])
    alone = torch.eye(5)
    says_yes = interpreter.likelihood.predict(interpreter.energy, alone).ravel().tolist()
    assert says_yes == [1, 1, 1, 1, 0], "any synonym alone suffices, the other word does not"
    at_once = slow_evidence(interpreter, x, target, yes)[0]
    assert int(at_once.argmax()) == 4  # in the whole row the synonyms share the credit
    by_elimination = interpreter(x, target, yes)[0]
    assert int(by_elimination.argmax()) in (0, 1, 2, 3)
    no = interpreter(torch.zeros(1, 5), target, torch.tensor([0]))
    assert torch.equal(no, torch.zeros(1, 5))


@pytest.mark.parametrize("space", ["binary", "categorical"])
def test_rows_that_nothing_decides_keep_their_scores(space):
    interpreter = make_interpreter(space=SPACES[space])
    x, targets = make_rows(40)
    of_nothing = interpreter.likelihood.predict(interpreter.energy, torch.zeros(1, N_COLUMNS))[0]
    values = unusual_values(interpreter, targets)
    values[::2] = of_nothing[targets[::2]]
    prior = slow_evidence(interpreter, x, targets, values)
    decided = is_decided_by_features(interpreter, targets, values)
    assert decided.tolist() == [i % 2 == 1 for i in range(40)]
    final = eliminate(interpreter, x, targets, values)
    torch.testing.assert_close(final[::2], prior[::2])
    assert not torch.allclose(final[1::2], prior[1::2])
    assert torch.equal(eliminate(interpreter, x[::2], targets[::2], values[::2]), final[::2])


@pytest.mark.parametrize("kind", ["vector", "separate"])
def test_rows_do_not_depend_on_the_rows_around_them(kind):
    interpreter = make_interpreter(kind, width=64, n_columns=300)
    x, targets = make_rows(2 * BLOCK_ROWS + 9, n_columns=300)
    x[:, 5:] *= torch.rand(len(x), 1, generator=generator(5)) > torch.rand(x[:, 5:].shape, generator=generator(6))
    values = unusual_values(interpreter, targets)
    assert len({room for _, room in blocks((x != 0).sum(dim=1))}) > 2
    together = eliminate(interpreter, x, targets, values)
    for rows in (torch.tensor([3]), torch.tensor([40, 3, 17]), torch.arange(len(x)).flip(0)):
        part = eliminate(interpreter, x[rows], targets[rows], values[rows])
        assert torch.equal(part, together[rows])


def test_every_row_is_in_one_block_with_room_for_all_its_units():
    n_of_row = torch.cat([torch.arange(200), torch.tensor([1024, 1025, 100_000]), torch.full((100,), 33)])
    seen = []
    for rows, room in blocks(n_of_row):
        seen += rows.tolist()
        n_units = n_of_row[rows]
        assert 0 < len(rows) <= rows_at_once(room)
        assert (n_units <= room).all()
        assert room == MIN_ROOM or (2 * n_units > room).all(), "most of its room is used"
    assert sorted(seen) == list(range(len(n_of_row)))


def test_rows_of_which_nothing_is_there():
    interpreter = make_interpreter()
    targets, values = torch.tensor([0, 1, 2]), torch.tensor([1, 0, 1])
    assert torch.equal(eliminate(interpreter, torch.zeros(3, N_COLUMNS), targets, values), torch.zeros(3, N_COLUMNS))
    nobody = eliminate(interpreter, torch.zeros(0, N_COLUMNS), targets[:0], values[:0])
    assert nobody.shape == (0, N_COLUMNS)


@pytest.mark.parametrize("grouped", [False, True])
def test_units_that_are_present(grouped):
    units = torch.tensor([2, 0, 0, 1]) if grouped else torch.arange(4)
    x = torch.tensor([[5.0, 0.0, 7.0, 0.0], [0.0] * 4, [0.0, 1.0, 2.0, 3.0]])
    present = PresentUnits.of(SparseRows.of_dense(x), units)
    assert present.n_of_row.tolist() == ([2, 0, 2] if grouped else [2, 0, 3])
    there, of_unit = present.table(torch.tensor([2, 0]), 3, 4)
    assert of_unit.tolist() == (
        [[0, 1, 3, 3], [0, 2, 3, 3], [3, 3, 3, 3]] if grouped else [[1, 2, 3, 4], [0, 2, 4, 4], [4, 4, 4, 4]]
    )
    each = present.differences(there).dense().view(3, 4, 4)
    assert torch.equal(each.sum(dim=1), torch.stack([x[2], x[0], x[1]]))
    for row, units_of_row in enumerate(of_unit.tolist()):
        for place, unit in enumerate(units_of_row):
            columns = torch.nonzero(each[row, place]).ravel().tolist()
            assert {int(units[column]) for column in columns} <= {unit}


def test_sparse_rows_are_what_dense_ones_are():
    x, _ = make_rows(9)
    x[4] = 0.0
    rows = SparseRows.of_dense(x)
    assert torch.equal(rows.dense(), x)
    index = torch.tensor([3, -1, 8, 4, 3, -1])
    taken = rows.take(index)
    assert torch.equal(taken.dense(), torch.where(index.unsqueeze(1) < 0, 0.0, x[index]))
    with_zero = SparseRows(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1]), torch.tensor([0.0, 2.0, 3.0]), 2)
    assert [part.tolist() for part in with_zero.entries()] == [[0, 1], [1, 1], [2.0, 3.0]]
    matrix = torch.randn(N_COLUMNS, 3, generator=generator())
    torch.testing.assert_close(rows.times(matrix), x @ matrix)
    nothing = rows.take(torch.tensor([-1, 4]))
    assert torch.equal(nothing.times(matrix), torch.zeros(2, 3))


def test_gradients_of_a_row_do_not_depend_on_the_targets_around_it():
    for width in (40, 64, 150):
        energy = make_energy("separate", SPACES["binary"], n_inputs=300, width=width)
        gradient = torch.randn(64, 3 * width, generator=generator(6))
        alike = energy.pull_back(gradient, torch.full((64,), 2))
        for n_others in (61, 62, 63):
            mixed = energy.pull_back(gradient, torch.tensor([2] * (64 - n_others) + [0] * n_others))
            assert torch.equal(mixed[0], alike[0])


@pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning")
def test_continuous_outputs_of_wide_sparse_rows():
    """Two sums of words: every row is ranked by elimination, and the largest parts of a sum are found."""
    rng = np.random.default_rng(0)
    X = np.where(rng.random((800, 260)) < 0.04, 1.0, 0.0)
    worth = np.zeros((260, 2))
    worth[:8, 0], worth[8:16, 1] = 3.0, -3.0
    explainer = SOInter(
        lambda X: X @ worth + 0.5,
        k=2,
        random_state=0,
        query_budget=1500,
        output_kind="continuous",
        energy=EnergyConfig(hidden=(40,), coupling_units=4, batch_size=64),
    ).fit(X)
    assert isinstance(explainer.interpreter_, EliminationInterpreter)
    subset = X[X[:, :8].sum(axis=1) == 2][:40]
    explanation = explainer.explain(subset, target=0, predicted=subset @ worth + 0.5)
    assert len(subset) >= 20
    assert (np.sort(explanation.selected, axis=1) < 8).all(axis=1).mean() > 0.9
