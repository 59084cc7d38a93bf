"""Rows that are mostly zero, from the first layer to a fitted explainer: always against a dense twin."""

from __future__ import annotations

import math
import tracemalloc
import warnings
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F

import quick
import sointer
from quick import few_steps
from sointer import BlackBox, EnergyConfig, SOInter
from sointer.config import Configs, InterpreterConfig, TrainingConfig
from sointer.data.inputs import InputFormat
from sointer.energy.inference import mean_field_log_marginals, mean_field_log_odds
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import AtProjection, SeparateEnergy, VectorEnergy
from sointer.energy.space import OutputSpace
from sointer.energy.sparse import SparseRows, linear
from sointer.errors import InputError
from sointer.interpreter import scoring as sparse_scoring
from sointer.interpreter.elimination import EliminationInterpreter
from sointer.masking.build import make_groups, make_removal
from sointer.masking.rows import MaskableRows
from sointer.training import context as task_module
from sointer.training.context import FitContext, InputBuffer, as_small, compact, concatenate

pytestmark = [
    pytest.mark.usefixtures("global_random_state_is_left_alone"),
    pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning"),
]


def some_rows(n_rows: int = 6, n_columns: int = 5, seed: int = 0) -> np.ndarray:
    """Dense rows with many zeros, an empty first and last row, and an empty column."""
    rng = np.random.default_rng(seed)
    rows = np.where(rng.random((n_rows, n_columns)) < 0.5, rng.normal(size=(n_rows, n_columns)), 0.0)
    rows[[0, -1]] = 0.0
    rows[:, 2] = 0.0
    return rows.astype(np.float32)


def shuffled_entries(rows: np.ndarray) -> sp.csr_array:
    """CSR whose entries stand in no order within a row, and with a zero that is written out."""
    matrix = sp.csr_array(rows)
    order = np.concatenate([np.arange(a, b)[::-1] for a, b in zip(matrix.indptr, matrix.indptr[1:], strict=False)])
    order = order.astype(int)
    data, indices = matrix.data[order], matrix.indices[order]
    starts = np.append(matrix.indptr[:-1], matrix.indptr[-1] + 1)
    return sp.csr_array((np.append(data, np.float32(0)), np.append(indices, 2), starts), shape=matrix.shape)


MATRICES = {
    "some": sp.csr_array(some_rows()),
    "no entries": sp.csr_array((3, 5), dtype=np.float32),
    "no rows": sp.csr_array((0, 5), dtype=np.float32),
    "all entries": sp.csr_array(np.arange(1, 16, dtype=np.float32).reshape(3, 5)),
    "one row": sp.csr_array(np.array([[0, 2, 0, 0, -1]], dtype=np.float32)),
    "double precision": sp.csr_array(some_rows(seed=3).astype(np.float64)),
    "counts": sp.csr_array(np.array([[0, 3, 0, 0, 1], [0, 0, 0, 0, 2]])),
    "unordered entries": shuffled_entries(some_rows(seed=4)),
}


@pytest.fixture(params=list(MATRICES))
def matrix(request):
    return MATRICES[request.param]


# --- the product and its gradient --------------------------------------------------------------------------


def test_shape_and_length(matrix):
    rows = SparseRows.of(matrix)
    assert rows.shape == matrix.shape
    assert len(rows) == matrix.shape[0]
    assert rows.values.dtype == torch.float32


def test_the_product_equals_loops(matrix):
    dense, other = matrix.toarray(), torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    expected = [
        [sum(float(dense[i, c]) * float(other[c, j]) for c in range(5)) for j in range(3)] for i in range(len(dense))
    ]
    product = SparseRows.of(matrix).times(other)
    torch.testing.assert_close(product, torch.tensor(expected).reshape(-1, 3), rtol=1e-5, atol=1e-5)


def test_transposed_and_scaled(matrix):
    rows, scale = SparseRows.of(matrix), torch.tensor([2.0, -1.0, 3.0, 0.0, 0.5])
    dense = torch.from_numpy(matrix.toarray().astype(np.float32))
    assert rows.transposed().shape == (5, matrix.shape[0])
    assert torch.equal(rows.transposed().times(torch.eye(matrix.shape[0])), dense.T)
    assert torch.equal(rows.scaled(scale).times(torch.eye(5)), dense * scale)
    assert torch.equal(rows.times(torch.eye(5)), dense), "scaling must leave the rows themselves alone"


@pytest.mark.parametrize("column_by_column", [False, True])
def test_linear_and_its_gradients_equal_the_dense_layer(matrix, column_by_column):
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(4, 5, generator=generator)
    weight = weight.T.contiguous().T if column_by_column else weight
    offset = torch.randn(4, generator=generator)
    found = [weight.clone().requires_grad_(True), offset.clone().requires_grad_(True)]
    wanted = [weight.clone().requires_grad_(True), offset.clone().requires_grad_(True)]
    dense = torch.from_numpy(matrix.toarray().astype(np.float32))
    results = [linear(SparseRows.of(matrix), *found), linear(dense, *wanted)]
    torch.testing.assert_close(results[0], results[1])
    torch.testing.assert_close(results[1], F.linear(dense, weight, offset))
    for result in results:
        (result.square().sum() + torch.sin(result).sum()).backward()
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got.grad, want.grad, rtol=1e-5, atol=1e-5)


def test_gradients_of_a_shared_weight_add_up():
    weight = torch.ones(2, 5, requires_grad=True)
    first, second = MATRICES["some"], MATRICES["all entries"]
    total = sum(linear(SparseRows.of(m), weight, torch.zeros(2)).sum() for m in (first, second))
    total.backward()
    expected = first.toarray().sum(axis=0) + second.toarray().sum(axis=0)
    assert weight.grad is not None
    np.testing.assert_allclose(weight.grad.numpy(), np.tile(expected, (2, 1)), rtol=1e-5, atol=1e-5)


def test_a_fixed_weight_needs_no_gradient():
    assert not linear(SparseRows.of(MATRICES["some"]), torch.ones(2, 5), torch.zeros(2)).requires_grad


# --- energies in two parts ---------------------------------------------------------------------------------

SPACES = {
    "binary": OutputSpace((2, 2, 2)),
    "categorical": OutputSpace((3, 2, 4)),
    "constant": OutputSpace((1, 2, 3)),
}


@torch.random.fork_rng(devices=[])
def make_energy(kind: str, space: OutputSpace, n_inputs: int = 5, hidden: tuple[int, ...] = (6, 4)):
    torch.manual_seed(0)
    if kind == "vector":
        energy = VectorEnergy(n_inputs, space, hidden=hidden, coupling_units=5)
        torch.nn.init.normal_(energy.b)
    else:
        energy = SeparateEnergy(n_inputs, space, hidden=hidden)
    energy.encoding.scale.copy_(torch.rand(n_inputs) + 0.5)
    return energy


@pytest.fixture(params=["vector", "separate"])
def kind(request):
    return request.param


@pytest.fixture(params=list(SPACES))
def space(request):
    return SPACES[request.param]


@pytest.fixture(params=[(6,), (6, 4)])
def energy(request, kind, space):
    return make_energy(kind, space, hidden=request.param)


def test_the_two_parts_make_the_whole(energy):
    x = torch.from_numpy(some_rows())
    torch.testing.assert_close(energy.unary(x), energy.unary_of(energy.project(x)))
    zero, y = torch.zeros(1, 5), torch.randn(6, 5, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(energy.project(x + y), energy.project(x) + energy.project(y) - energy.project(zero))


def test_sparse_inputs_mean_the_same_as_dense_ones(energy):
    rows = sp.csr_array(some_rows())
    y = energy.space.encode(torch.zeros(6, 3, dtype=torch.long))
    gradients = []
    for x in (SparseRows.of(rows), torch.from_numpy(rows.toarray())):
        energy.zero_grad()
        (energy(x, y) + energy.unary(x).square().sum(dim=1)).sum().backward()
        gradients.append([p.grad.clone() for p in energy.parameters() if p.grad is not None])
    torch.testing.assert_close(energy.project(SparseRows.of(rows)), energy.project(torch.from_numpy(rows.toarray())))
    assert len(gradients[0]) == len(gradients[1]) > 0
    for sparse_gradient, dense_gradient in zip(*gradients, strict=True):
        torch.testing.assert_close(sparse_gradient, dense_gradient, rtol=1e-4, atol=1e-5)


def test_pull_back_equals_the_gradient_in_the_inputs(energy):
    x, targets = torch.from_numpy(some_rows()).requires_grad_(True), torch.tensor([2, 0, 1, 1, 2, 0])

    def said_of_targets(unary: torch.Tensor) -> torch.Tensor:
        """Something not linear about each row's own target."""
        own = energy.space.column_output.unsqueeze(0) == targets.unsqueeze(1)
        return (torch.sin(unary + 0.3) * own).sum()

    (wanted,) = torch.autograd.grad(said_of_targets(energy.unary(x)), x)
    behind = energy.project(x).detach().requires_grad_(True)
    (gradient,) = torch.autograd.grad(said_of_targets(energy.unary_of(behind)), behind)
    assert wanted.abs().max() > 0.01
    in_columns = energy.pull_back(gradient, targets).detach() * energy.encoding.scale  # from encoded columns
    torch.testing.assert_close(in_columns, wanted)


@pytest.mark.parametrize("exact_limit", [4096, 1])
def test_an_energy_seen_from_behind_its_first_layer(energy, exact_limit):
    x, likelihood = torch.from_numpy(some_rows()), Likelihood(exact_limit=exact_limit)
    behind = AtProjection(energy)
    assert behind.space is energy.space
    torch.testing.assert_close(likelihood.log_marginals(behind, energy.project(x)), likelihood.log_marginals(energy, x))
    targets = torch.tensor([2, 0, 1, 1, 2, 0])
    values = torch.zeros(6, dtype=torch.long)
    torch.testing.assert_close(
        likelihood.target_log_likelihood(behind, energy.project(x), targets, values),
        likelihood.target_log_likelihood(energy, x, targets, values),
    )


# --- inference over yes and no -----------------------------------------------------------------------------


def slow_mean_field(unary, weight, offset, b, n_steps, damping):
    """One row, label by label: damped logits, a softmax over "no" and "yes", the energy linear at the mean."""
    n = len(unary)
    logits = [[0.0, -unary[i]] for i in range(n)]
    for step in range(n_steps + 1):
        tops = [max(pair) for pair in logits]
        weights = [[math.exp(v - top) for v in pair] for pair, top in zip(logits, tops, strict=True)]
        q = [[v / sum(pair) for v in pair] for pair in weights]
        if step == n_steps:
            return [math.log(p) for pair in q for p in pair]
        mean = [pair[1] for pair in q]
        for i in range(n):
            slope = unary[i]
            for u in range(len(b)):
                inside = sum(weight[u][j] * mean[j] for j in range(n)) + offset[u]
                slope += b[u] * weight[u][i] / (1 + math.exp(-inside))
            logits[i][0] = damping * logits[i][0]  # "no" has no energy of its own
            logits[i][1] = damping * logits[i][1] + (1 - damping) * -slope
    raise AssertionError


@pytest.mark.parametrize(("n_steps", "damping"), [(0, 0.5), (1, 0.0), (6, 0.5), (3, 0.9)])
def test_log_odds_steps_equal_label_wise_steps(n_steps, damping):
    energy, x = make_energy("vector", SPACES["binary"]), torch.from_numpy(some_rows())
    with torch.no_grad():
        unary = energy.unary(x)
        found = energy.space.from_log_odds(mean_field_log_odds(energy, unary, n_steps=n_steps, damping=damping))
        whole = mean_field_log_marginals(energy, x, n_steps=n_steps, damping=damping)
    parts = [part.detach().double().tolist() for part in energy.coupling]
    expected = [slow_mean_field(row, *parts, n_steps, damping) for row in unary.double().tolist()]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float32), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(whole, found)


def test_log_odds_steps_and_their_gradients_equal_the_general_way():
    """The same outputs, once known to be yes or no and once taken as classes like any other."""
    energies = [make_energy("vector", OutputSpace((2, 2, 2))) for _ in range(2)]
    energies[1].space.__dict__["is_binary"] = False
    results, gradients = [], []
    for energy in energies:
        x = torch.from_numpy(some_rows()).requires_grad_(True)
        log_p = mean_field_log_marginals(energy, x)
        results.append(log_p.detach())
        (log_p[:, 1] - 0.3 * log_p[:, 4]).sum().backward()
        gradients.append([x.grad, *[p.grad for p in energy.parameters()]])
    assert energies[0].space.is_binary
    torch.testing.assert_close(results[0], results[1])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert torch.equal(energies[0].space.most_likely(results[0]), energies[1].space.most_likely(results[1]))


def test_uncoupled_outputs_need_no_steps():
    energy, x = make_energy("separate", SPACES["binary"]), torch.from_numpy(some_rows())
    unary = energy.unary(x)
    assert torch.equal(mean_field_log_odds(energy, unary, n_steps=6, damping=0.5), -unary)


def test_labels_from_log_odds():
    space, log_odds = OutputSpace((2, 2)), torch.tensor([[0.0, math.log(3.0)], [-300.0, 300.0]])
    log_p = space.from_log_odds(log_odds)
    torch.testing.assert_close(log_p[0].exp(), torch.tensor([0.5, 0.5, 0.25, 0.75]))  # no, yes, no, yes
    torch.testing.assert_close(log_p[1], torch.tensor([0.0, -300.0, -300.0, 0.0]))
    torch.testing.assert_close(log_p[:, 1::2] - log_p[:, ::2], log_odds)
    assert space.most_likely(log_p)[:, 1].tolist() == [1, 1]
    assert space.most_likely(log_p)[1].tolist() == [0, 1]


# --- tables of points --------------------------------------------------------------------------------------


def as_dense(inputs) -> torch.Tensor:
    return inputs.times(torch.eye(inputs.n_columns)) if isinstance(inputs, SparseRows) else inputs


@pytest.mark.parametrize("sparse", [False, True])
def test_points(sparse):
    rows = some_rows(n_rows=7).astype(np.float64)
    shift = np.zeros(5) if sparse else np.arange(5.0)
    points = InputBuffer.of(sp.csr_array(rows) if sparse else rows, shift)
    expected = torch.from_numpy((rows - shift).astype(np.float32))
    assert len(points) == 7
    assert isinstance(points.take(slice(0, 2)), SparseRows if sparse else torch.Tensor)
    assert torch.equal(points.dense(), expected)
    assert torch.equal(as_dense(points.take(torch.tensor([5, 1, 1]))), expected[[5, 1, 1]])
    assert torch.equal(as_dense(points.take(slice(2, 6))), expected[2:6])
    assert torch.equal(points.where(rows[:, 0] != 0).dense(), expected[rows[:, 0] != 0])
    joined = InputBuffer.join([points, points.where(np.arange(7) == 2)])
    assert torch.equal(joined.dense(), torch.cat([expected, expected[[2]]]))
    assert joined.dense().dtype == torch.float32
    grown, wanted = points.where(np.arange(7) < 3), expected[:3]
    for size in (1, 7, 2, 0, 30):  # within its room and beyond, more and less than it has
        more = InputBuffer.of((sp.csr_array if sparse else np.asarray)(np.resize(rows, (size, 5))), shift)
        before = grown.take(slice(0, 3))
        grown.add(more)
        wanted = torch.cat([wanted, more.dense()])
        assert torch.equal(grown.dense(), wanted)
        assert len(grown) == len(wanted)
        assert torch.equal(as_dense(before), wanted[:3])
    assert torch.equal(points.dense(), expected)


def test_large_numbers_keep_their_differences():
    rows = np.array([[1.7e9], [1.7e9 + 1]])  # in single precision these are the same number
    assert InputBuffer.of(rows, rows.mean(axis=0)).dense().ravel().tolist() == [-0.5, 0.5]


# --- which data are kept sparse ----------------------------------------------------------------------------


def wide_rows(n_rows: int = 40, n_columns: int = 256, share: float = 0.05, seed: int = 0) -> np.ndarray:
    rows = np.zeros(n_rows * n_columns)
    rows[: round(share * len(rows))] = np.random.default_rng(seed).integers(1, 4, size=round(share * len(rows)))
    return np.random.default_rng(seed).permutation(rows).reshape(n_rows, n_columns)


def removal_of(name, rows):
    return make_removal(name, rows, InputFormat.infer(rows))


@pytest.mark.parametrize("given", ["dense", "csr"])
@pytest.mark.parametrize(
    ("n_columns", "share", "removal", "becomes"),
    [
        (256, 0.05, "zero", "csr"),
        (256, 0.25, "zero", "csr"),
        (255, 0.05, "zero", "dense"),
        (256, 0.26, "zero", "as given"),
        (256, 0.05, "mean", "as given"),
        (256, 0.05, "marginal", "as given"),
    ],
)
def test_compact(given, n_columns, share, removal, becomes):
    rows = wide_rows(n_columns=n_columns, share=share)
    data = sp.csr_array(rows) if given == "csr" else rows
    made = compact(data, removal_of(removal, data))
    assert sp.issparse(made) == (becomes == "csr" or (becomes == "as given" and given == "csr"))
    assert np.array_equal(made.toarray() if sp.issparse(made) else made, rows)


@pytest.mark.parametrize("removal", ["zero", "mean", "marginal"])
def test_reducing_csr_equals_reducing_dense_rows(removal):
    rows = wide_rows(n_rows=30, n_columns=20, share=0.2)
    rows[4] = 0.0
    made = removal_of(removal, rows)
    keep = np.random.default_rng(1).random(rows.shape) < 0.5
    keep[0], keep[1] = False, True
    expected = made.apply(rows, keep, np.random.default_rng(2))
    matrix = sp.csr_array(rows)
    reduced = made.reduce(matrix, keep, np.random.default_rng(2))
    assert sp.issparse(reduced) == (removal == "zero")
    assert np.array_equal(reduced.toarray() if sp.issparse(reduced) else reduced, expected)
    assert np.array_equal(matrix.toarray(), rows), "the rows themselves were changed"
    assert np.array_equal(made.reduce(rows, keep, np.random.default_rng(2)), expected)


def test_reducing_unordered_entries():
    matrix = shuffled_entries(some_rows(seed=4))
    keep = np.tile([True, False, True, True, False], (6, 1))
    reduced = removal_of("zero", some_rows()).reduce(matrix, keep, np.random.default_rng(0))
    assert np.array_equal(reduced.toarray(), np.where(keep, matrix.toarray(), 0))


# --- questions in chunks -----------------------------------------------------------------------------------


class Sums:
    """Two sums, and a record of what was sent."""

    def __init__(self) -> None:
        self.sent = []

    def __call__(self, X):
        self.sent.append(X)
        dense = X.toarray() if sp.issparse(X) else np.asarray(X)
        return np.column_stack([dense.sum(axis=1), dense[:, ::2].sum(axis=1)])


def make_context(rows, *, removal="zero", budget=None, groups=None):
    input_format = InputFormat.infer(rows)
    data = input_format.encode(rows, caller="fit")
    made = make_removal(removal, data, input_format)
    configs = Configs(EnergyConfig(), InterpreterConfig(), TrainingConfig())
    return FitContext(
        rows=MaskableRows(
            compact(data, made),
            BlackBox(Sums(), batch_size=10_000, query_budget=budget),
            input_format,
            make_groups(groups, input_format.feature_names, input_format.column_feature),
            made,
        ),
        k=3,
        n_queries=100,
        configs=configs,
        structured=True,
        shift_inputs=True,
        check=lambda raw: None,
        describe=lambda raw: pytest.fail("query must not describe"),
        rng=np.random.default_rng(0),
        generator=torch.Generator().manual_seed(0),
    )


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float64])
@pytest.mark.parametrize("container", ["csr_array", "csr_matrix", "dense"])
@pytest.mark.parametrize("how", ["whole", "masks", "function"])
def test_more_rows_than_one_chunk(monkeypatch, container, dtype, how):
    monkeypatch.setattr(task_module, "QUERY_ROWS", 7)
    dense = wide_rows().astype(dtype)
    rows = dense if container == "dense" else getattr(sp, container)(dense)
    context = make_context(rows)
    index = np.random.default_rng(3).permutation(40)[:24]
    masks = np.random.default_rng(4).random((24, 256)) < 0.5
    asked_for = []

    def some_masks(rows, rng):
        n = len(rows)
        asked_for.append(n)
        return masks[sum(asked_for) - n : sum(asked_for)]

    replies = context.query(index, {"whole": None, "masks": masks, "function": some_masks}[how])
    sent = np.where(masks, dense[index], 0) if how != "whole" else dense[index]
    assert replies is not None
    assert np.array_equal(replies.raw, Sums()(sent))
    assert np.array_equal(replies.points.dense().numpy(), sent.astype(np.float32))
    batches = context.rows.model.predict.sent
    assert [batch.shape[0] for batch in batches] == [7, 7, 7, 3]
    assert context.rows.model.n_queries == 24
    for batch in batches:
        assert batch.dtype == dtype
        assert type(batch) is (np.ndarray if container == "dense" else getattr(sp, container))
    assert asked_for == ([7, 7, 7, 3] if how == "function" else [])
    assert not context.budget_ran_out


def test_the_budget_ends_within_a_chunk(monkeypatch):
    monkeypatch.setattr(task_module, "QUERY_ROWS", 7)
    rows = sp.csr_array(wide_rows())
    context = make_context(rows, budget=10)
    masks = np.random.default_rng(4).random((24, 256)) < 0.5
    replies = context.query(np.arange(24), masks)
    assert replies is not None
    assert len(replies) == len(replies.points) == context.rows.model.n_queries == 10
    assert context.budget_ran_out
    expected = np.where(masks[:10], rows[:10].toarray(), 0)
    assert np.array_equal(replies.points.dense().numpy(), expected)
    assert np.array_equal(replies.raw, Sums()(expected))
    assert context.query(np.arange(5)) is None
    assert context.rows.model.n_queries == 10


def test_a_budget_that_suffices_exactly_did_not_run_out():
    context = make_context(sp.csr_array(wide_rows()), budget=10)
    assert len(context.query(np.arange(10))) == 10
    assert not context.budget_ran_out
    with pytest.raises(InputError, match="raise query_budget"):
        concatenate([])


def test_groups_are_kept_or_removed_whole_in_sparse_rows():
    groups = {"first": list(range(100)), "second": list(range(100, 200))}
    rows = wide_rows()
    context = make_context(sp.csr_array(rows), groups=groups)
    keep = np.zeros((40, context.rows.groups.n_units), dtype=bool)
    keep[:, [context.rows.groups.unit_names.index("second")]] = True
    replies = context.query(np.arange(40), keep)
    columns = np.arange(256)
    assert np.array_equal(replies.points.dense().numpy(), rows * ((columns >= 100) & (columns < 200)))


# --- a planted bag of words --------------------------------------------------------------------------------

N_WORDS, N_TAGS = 300, 6
WORDS_OF_TAG = np.arange(30).reshape(5, 6)
MEANING = np.zeros((N_WORDS, 5))
MEANING[WORDS_OF_TAG.ravel(), np.repeat(np.arange(5), 6)] = 1.0
QUICK = EnergyConfig(hidden=(40,), coupling_units=8, batch_size=64)
WORD_NAMES = [f"word {i}" for i in range(N_WORDS)]


def tags(X):
    """Five tags are set by any of six words each; the last is a function of the other tags."""
    counts = X.to_numpy() @ MEANING if isinstance(X, pd.DataFrame) else X @ MEANING
    own = np.asarray(counts) > 0
    return np.column_stack([own, (own[:, 0] & ~own[:, 1]) | (own[:, 2] & own[:, 3])]).astype(int)


def documents(n=1500, seed=0):
    return sp.csr_array((np.random.default_rng(seed).random((n, N_WORDS)) < 0.03).astype(np.float64))


def fit(X, model=tags, **settings):
    """With few steps, unless settings say which energy is to learn."""
    with warnings.catch_warnings(), nullcontext() if "energy" in settings else few_steps(150):
        warnings.simplefilter("ignore")
        return SOInter(model, **{"k": 3, "random_state": 0, "query_budget": 1500, "energy": QUICK, **settings}).fit(X)


@pytest.fixture(scope="module")
def fitted():
    """With default settings but for the budget."""
    return fit(documents(), query_budget=8000, energy=None)


def test_words_that_set_a_tag_are_found(fitted):
    X = documents(600, seed=1)
    said = tags(X)
    for tag in range(5):
        with_tag = X[said[:, tag] == 1]
        explanation = fitted.explain(with_tag, target=tag, k=1)
        assert (explanation.value == 1).all()
        assert (fitted.explain(with_tag, target=tag, query=False).value == 1).mean() > 0.95
        assert np.isin(explanation.selected[:, 0], WORDS_OF_TAG[tag]).mean() > 0.95


def test_words_that_act_through_other_tags_are_found(fitted):
    X = documents(600, seed=1)
    with_tag = X[tags(X)[:, 5] == 1]
    dense = with_tag.toarray()
    last_two = np.zeros(dense.shape, dtype=bool)
    for i, row in enumerate(dense):
        last_two[i, np.flatnonzero(row)[-2:]] = True
    assert tags(np.where(last_two, dense, 0))[:, 5].mean() < 0.3, "any two words would do"
    explanation = fitted.explain(with_tag, target=5, k=2, predicted=tags(with_tag))
    assert tags(np.where(explanation.mask, dense, 0))[:, 5].mean() > 0.95
    assert explanation.verify().fidelity > 0.95
    guessed = fitted.explain(with_tag, target=5, k=2, query=False)
    right = guessed.value == 1
    assert right.mean() > 0.75
    assert guessed.verify().agreement[right].mean() > 0.95


def test_what_a_sparse_fit_is(fitted):
    assert fitted.n_queries_ <= 8000
    assert isinstance(fitted.interpreter_, EliminationInterpreter)
    assert fitted.config_.energy == EnergyConfig().resolve("default", "sparse rows")
    assert fitted.held_out_skill_ > 0.9
    assert set(fitted.explain(documents(5), target=0).selected[:, 0]) <= set(range(N_WORDS))


def test_only_words_of_the_row_are_selected(fitted):
    X = documents(50, seed=5).toarray()
    X[0] = 0
    explanation = fitted.explain(sp.csr_array(X), target=2, k=20)
    assert (explanation.mask <= (X != 0)).all()
    assert (explanation.n_selected == np.minimum((X != 0).sum(axis=1), 20)).all()
    assert np.isfinite(explanation.scores).all()


def test_the_order_of_many_rows_changes_nothing(fitted):
    """Rows that are ranked by elimination are put together, over many chunks; each gets what it gets alone."""
    X = sp.vstack([documents(700, seed=7), documents(40)]).tocsr()
    targets = np.arange(740) % N_TAGS
    together = fitted.explain(X, target=targets)
    shuffle = np.random.default_rng(0).permutation(740)
    shuffled = fitted.explain(X[shuffle], target=targets[shuffle])
    for name in ("scores", "selected", "value"):
        assert np.array_equal(getattr(together, name)[shuffle], getattr(shuffled, name))
    for row in (0, 5, 699, 720):
        alone = fitted.explain(X[[row]], target=targets[row])
        assert np.array_equal(alone.scores[0], together.scores[row])


def test_saved_and_loaded_the_same(fitted, tmp_path):
    fitted.save(tmp_path / "explainer")
    loaded = sointer.load(tmp_path / "explainer", black_box=tags)
    X = documents(40, seed=6)
    for target in (0, 5):
        before, after = fitted.explain(X, target=target), loaded.explain(X, target=target)
        assert np.array_equal(before.scores, after.scores)
        assert np.array_equal(before.selected, after.selected)
        assert np.array_equal(before.value, after.value)
    assert isinstance(loaded.interpreter_, EliminationInterpreter)
    assert loaded.explain(X, target=5).verify().fidelity == fitted.explain(X, target=5).verify().fidelity


def test_every_container_goes_the_same_sparse_way():
    X, few = documents(), documents(30, seed=7)
    sent = set()

    def recording(batch):
        sent.add(type(batch))
        return tags(batch)

    by_csr = fit(X, recording)
    frame = pd.DataFrame(X.toarray(), columns=WORD_NAMES).astype({WORD_NAMES[0]: np.int64, WORD_NAMES[1]: bool})
    by_frame = fit(frame, recording)
    assert sent == {sp.csr_array, pd.DataFrame}
    assert isinstance(by_frame.interpreter_, EliminationInterpreter)
    expected = by_csr.explain(few, target=5)
    found = by_frame.explain(pd.DataFrame(few.toarray(), columns=WORD_NAMES).astype(frame.dtypes), target=5)
    assert np.array_equal(found.scores, expected.scores)
    assert np.array_equal(found.selected, expected.selected)
    again = fit(X.toarray()).explain(few.toarray(), target=5)  # another container, and the same seed again
    assert np.array_equal(again.scores, expected.scores)


def test_csr_is_never_made_dense_whole(monkeypatch):
    most_rows = 0

    def watched(toarray):
        def to_dense(self, *arguments, **options):
            nonlocal most_rows
            most_rows = max(most_rows, self.shape[0])
            return toarray(self, *arguments, **options)

        return to_dense

    X = documents(3000)
    # One method serves all of scipy's CSR containers, and todense calls it too.
    owner = next(cls for cls in sp.csr_array.__mro__ if "toarray" in vars(cls))
    monkeypatch.setattr(owner, "toarray", watched(owner.toarray))
    explainer = fit(X, query_budget=1200)
    assert 0 < most_rows < 1200
    most_rows = 0
    monkeypatch.setattr(sparse_scoring, "MAX_ROWS", 1024)
    explainer.explain(X, target=5, predicted=tags(X))
    assert 0 < most_rows <= 1024


@pytest.mark.slow
def test_csr_with_another_removal_is_learned():
    assert fit(documents(), removal="mean", query_budget=2000, energy=QUICK).held_out_skill_ > 0.3  # dense: 0.6


def test_codes_are_kept_small_where_they_fit():
    few, many = torch.tensor([[0, 2**15 - 1]]), torch.tensor([[3, 2**15]])
    assert as_small(few).dtype == torch.int16
    assert torch.equal(as_small(few).long(), few)
    assert torch.equal(as_small(many), many)
    assert torch.equal(torch.cat([as_small(few), as_small(many)]), torch.cat([few, many]))
    assert as_small(torch.tensor([[0.5]])).dtype == torch.float32


def test_explaining_takes_little_more_memory_than_what_it_returns():
    X = sp.random(1500, 4000, 0.01, format="csr", random_state=0)
    model = lambda batch: np.asarray(batch[:, :2000].sum(axis=1)) > 10  # noqa: E731
    explainer = SOInter(model, **quick.QUICK | {"k": 10, "query_budget": 50}).fit(X[:50])
    explainer.explain(X[:20], 0)
    tracemalloc.start()
    try:
        explanation = explainer.explain(X, 0, query=False)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert explanation.effects is not None
    assert kept < 10 * explanation.scores.size
    assert peak < 25 * explanation.scores.size  # of which the chunk at hand is much here
