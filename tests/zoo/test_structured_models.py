"""Structured models: the mathematics against slow twins, planted relations between labels, and what users may send."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import cross_val_score
from sklearn.multioutput import MultiOutputClassifier

from sealing import edit_model
from sointer.errors import InputError, LoadError
from sointer.zoo import fit_or_load
from sointer.zoo.structured_base import Coupling, FrozenNetwork, LabelNetwork, relaxed_f1, score_of
from sointer.zoo.structured_models import (
    SPEN,
    DeepValueNetwork,
    climb_loss,
    climb_value,
    column_moments,
    descend_energy,
    relaxed_f1_gradient,
    score_gradient,
    structured_hinge,
    value_loss,
)

KINDS = [DeepValueNetwork, SPEN]
RNG = np.random.default_rng(0)
X = np.where(RNG.random((300, 12)) < 0.4, RNG.normal(size=(300, 12)), 0.0)
Y = np.column_stack([X[:, 0] > 0, X[:, 1] > 0, X[:, 0] + X[:, 2] > 0, RNG.random(300) < 0.5]).astype(int)


def small(kind, **changes):
    if kind is SPEN:
        changes = {"n_pretraining_steps": 10, **changes}
    return kind(**{"hidden": (8,), "label_units": 5, "n_steps": 10, "random_state": 0, **changes})


def brief(kind, n_steps):
    """The defaults, but for the number of steps."""
    pretraining = {"n_pretraining_steps": n_steps} if kind is SPEN else {}
    return kind(n_steps=n_steps, random_state=0, **pretraining)


@pytest.fixture(scope="module", params=KINDS)
def fitted(request):
    return small(request.param).fit(X, Y)


def problem(n_rows=40, n_labels=7, n_units=5, seed=0, scale=1.0):
    """Random a_i' F(x), coupling, relaxed labels and truth, in double precision."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)

    coupling = Coupling(draw(n_labels, n_units), draw(n_units))
    y = torch.rand(n_rows, n_labels, generator=generator, dtype=torch.float64)
    truth = (torch.rand(n_rows, n_labels, generator=generator) < 0.3).double()
    return draw(n_rows, n_labels), coupling, y, truth


# --- the mathematics -----------------------------------------------------------------------------------------


def slow_score(u, y, B, b):
    """Eq. 17-3, written out with loops."""
    total = sum(y[i] * u[i] for i in range(len(y)))
    for unit in range(len(b)):
        total += b[unit] * np.log1p(np.exp(sum(B[i, unit] * y[i] for i in range(len(y)))))
    return total


def test_the_score_is_that_of_the_equation():
    unary, coupling, y, _ = problem()
    expected = [slow_score(u, one, *map(np.asarray, coupling)) for u, one in zip(unary.numpy(), y.numpy(), strict=True)]
    np.testing.assert_allclose(score_of(unary, y, coupling), expected, rtol=1e-10)


def test_the_gradients_written_by_hand_are_those_of_autograd():
    unary, coupling, y, truth = problem()
    y.requires_grad_()
    by_autograd = torch.autograd.grad(score_of(unary, y, coupling).sum(), y)[0]
    torch.testing.assert_close(score_gradient(unary, y, coupling).detach(), by_autograd)
    by_autograd = torch.autograd.grad(relaxed_f1(y, truth).sum(), y)[0]
    torch.testing.assert_close(relaxed_f1_gradient(y, truth).detach(), by_autograd)


def test_one_step_of_each_kind_follows_the_gradient_of_what_it_climbs():
    unary, coupling, y, truth = problem(scale=0.3)
    y = 0.25 + 0.5 * y  # far enough from 0 and 1 that no label is clipped
    y.requires_grad_()
    slope = torch.autograd.grad(torch.sigmoid(score_of(unary, y, coupling)).sum(), y)[0]
    torch.testing.assert_close(climb_value(unary, coupling, 1, 0.01, start=y.detach()), y.detach() + 0.01 * slope)
    slope = torch.autograd.grad(value_loss(unary, coupling, y, truth).sum(), y)[0]
    climbed = climb_loss(unary, coupling, truth, y.detach(), 1, 0.01)
    torch.testing.assert_close(climbed, y.detach() + 0.01 * slope)


def test_relaxed_f1_of_hard_labels_is_that_of_scikit_learn():
    _, _, y, truth = problem(500)
    hard = (y > 0.7).double()
    assert ((hard.sum(1) == 0) & (truth.sum(1) == 0)).any()
    expected = f1_score(truth.numpy(), hard.numpy(), average="samples", zero_division=1.0)
    assert relaxed_f1(hard, truth).mean() == pytest.approx(expected)


def test_relaxed_f1_is_the_ratio_of_minima_and_maxima():
    _, _, y, truth = problem()
    low, high = torch.minimum(y, truth).sum(1), torch.maximum(y, truth).sum(1)
    torch.testing.assert_close(relaxed_f1(y, truth), 2 * low / (low + high))


def test_inference_raises_the_value_step_by_step():
    unary, coupling, _, _ = problem(scale=0.5)
    values = [score_of(unary, climb_value(unary, coupling, n, 0.2), coupling) for n in (0, 1, 5, 20, 50)]
    for before, after in pairwise(values):
        assert (after >= before - 1e-9).all()
    assert (values[-1] > values[0]).all()


def test_inference_stays_among_relaxed_labels():
    unary, coupling, _, truth = problem(scale=5.0)
    for y in (climb_value(unary, coupling, 30, 3.0), climb_loss(unary, coupling, truth, truth, 5, 3.0)):
        assert y.min() >= 0
        assert y.max() <= 1


def test_descent_lowers_the_energy_and_finds_the_best_of_all_label_sets():
    unary, coupling, _, _ = problem(scale=0.3)
    unary = 3 * unary
    found = descend_energy(unary, coupling, 200, 0.5)
    half = torch.full_like(found, 0.5)
    assert (score_of(unary, found, coupling) < score_of(unary, half, coupling)).all()
    corners = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * 7)
    energies = torch.stack([score_of(unary, corner.expand_as(unary), coupling) for corner in corners])
    exact = corners[energies.argmin(0)]
    assert ((found > 0.5) == exact.bool()).all(1).double().mean() >= 0.9


def test_adversarial_labels_have_a_higher_loss():
    unary, coupling, y, truth = problem(scale=0.5)
    for start in (torch.zeros_like(truth), truth, y):
        before = value_loss(unary, coupling, start, truth)
        after = value_loss(unary, coupling, climb_loss(unary, coupling, truth, start, 3, 0.02), truth)
        assert after.mean() > before.mean() + 0.01
        smooth = (start.sum(1) + truth.sum(1)) > 0  # F1 jumps where both are empty
        assert (after >= before - 1e-9)[smooth].all()


def test_loss_augmented_inference_finds_a_larger_violation():
    unary, coupling, _, truth = problem(scale=0.5)
    plain = structured_hinge(unary, coupling, descend_energy(unary, coupling, 100, 0.2), truth, 4.0)
    y = descend_energy(unary, coupling, 100, 0.2, truth=truth, margin=4.0)
    augmented = structured_hinge(unary, coupling, y, truth, 4.0)
    assert augmented.mean() > plain.mean() + 0.1


def test_the_structured_hinge_is_that_of_the_paper():
    """max over y of [Delta(y, truth) - E(x, y)] + E(x, truth), at 0 or more, with Delta = margin (1 - F1)."""
    unary, coupling, y, truth = problem()
    hard = (y > 0.5).double()
    expected = []
    for u, candidate, t in zip(unary.numpy(), hard.numpy(), truth.numpy(), strict=True):
        both, either = (candidate * t).sum(), candidate.sum() + t.sum()
        delta = 2.5 * (1 - (2 * both / either if either else 1.0))
        B, b = map(np.asarray, coupling)
        expected.append(max(0.0, delta - slow_score(u, candidate, B, b) + slow_score(u, t, B, b)))
    np.testing.assert_allclose(structured_hinge(unary, coupling, hard, truth, 2.5), expected, atol=1e-9)
    assert structured_hinge(unary, coupling, truth, truth, 2.5).abs().max() < 1e-12


def test_the_folded_network_answers_as_the_trained_one():
    network = LabelNetwork(12, 4, (8, 6), 5).initialise(torch.Generator().manual_seed(0))
    network.standardise(*column_moments(sp.csr_array(X)))
    expected = network.unary(torch.tensor(X, dtype=torch.float32)).detach()
    got = FrozenNetwork(network).unary(sp.csr_array(X.astype(np.float32)), 320)
    torch.testing.assert_close(got[:300], expected, atol=1e-5, rtol=1e-5)


def test_column_moments_are_those_of_numpy_and_constant_columns_do_no_harm():
    data = X.copy()
    data[:, 3], data[:, 4] = 7.0, 0.0
    mean, deviation = column_moments(sp.csr_array(data))
    np.testing.assert_allclose(mean, data.mean(0), atol=1e-12)
    np.testing.assert_allclose(deviation, data.std(0), atol=1e-7)
    model = small(DeepValueNetwork).fit(data, Y)
    changed = data.copy()
    changed[:, 3:5] += 1000
    np.testing.assert_array_equal(model.predict_proba(data), model.predict_proba(changed))


# --- planted relations ---------------------------------------------------------------------------------------


def exclusive_or(n_rows, seed):
    inputs = np.random.default_rng(seed).normal(size=(n_rows, 6))
    a, b = inputs[:, 0] > 0, inputs[:, 1] > 0
    return inputs, np.column_stack([a, b, a ^ b]).astype(int)


@pytest.mark.parametrize(
    ("model", "least"),
    [
        # Two softplus units cannot carry "a xor b": the third label must be had from the other two.
        (
            SPEN(
                hidden=(2,),
                n_pretraining_steps=500,
                n_steps=2000,
                learning_rate=0.05,
                margin=10.0,
                step_size=0.5,
                weight_decay=1e-4,
                random_state=0,
            ),
            0.9,
        ),
        (DeepValueNetwork(n_steps=2000, random_state=0), 0.72),
    ],
    ids=["SPEN", "DeepValueNetwork"],
)
@pytest.mark.slow
def test_related_labels_are_learned_where_separate_ones_cannot_be(model, least):
    inputs, labels = exclusive_or(1500, 0)
    new_inputs, new_labels = exclusive_or(1000, 1)

    def all_right(classifier):
        return (classifier.predict(new_inputs) == new_labels).all(1).mean()

    separate = all_right(MultiOutputClassifier(LogisticRegression()).fit(inputs, labels))
    structured = all_right(model.fit(inputs, labels))
    assert structured > max(least, separate + 0.15)
    model.network_.b.zero_()
    model._adopt(model.network_)
    assert all_right(model) < structured - 0.05  # the coupling is what knew


@pytest.mark.parametrize("kind", KINDS)
def test_what_follows_from_the_input_alone_is_learned(kind):
    inputs = np.random.default_rng(0).normal(size=(600, 8))
    labels = (inputs[:, :3] + inputs[:, 3:6] > 0).astype(int)
    model = brief(kind, 600).fit(inputs[:400], labels[:400])
    assert model.score(inputs[400:], labels[400:]) > 0.85
    losses = [row["loss"] for row in model.history_ if row["stage"] == model.history_[-1]["stage"]]
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_truth_has_less_energy_than_other_labels(kind):
    inputs = np.random.default_rng(0).normal(size=(400, 6))
    labels = (inputs[:, :3] > 0).astype(int)
    model = brief(kind, 500).fit(inputs, labels)
    wrong = labels.copy()
    wrong[:, 0] = 1 - wrong[:, 0]
    assert (model.energy(inputs, labels) < model.energy(inputs, wrong)).mean() > 0.85


# --- estimator manners ---------------------------------------------------------------------------------------


def test_sparse_and_dense_and_frames_and_tensors_get_the_same_answer(fitted):
    answer = fitted.predict_proba(X)
    columns = [f"x{i}" for i in range(12)]
    for same in (
        sp.csr_matrix(X),
        sp.csr_array(X),
        sp.csc_matrix(X),
        torch.tensor(X),
        pd.DataFrame(X, columns=columns),
    ):
        np.testing.assert_array_equal(fitted.predict_proba(same), answer)
    again = clone(fitted).fit(sp.csr_matrix(X), sp.csr_matrix(Y))
    np.testing.assert_array_equal(again.predict_proba(X), answer)
    np.testing.assert_array_equal(again.energy(X, Y), fitted.energy(sp.csr_matrix(X), sp.csr_matrix(Y)))


def test_a_row_gets_the_same_answer_in_any_company(fitted):
    many = np.tile(X, (4, 1))
    answer, labels, energy = fitted.predict_proba(many), fitted.predict(many), fitted.energy(many, np.tile(Y, (4, 1)))
    np.testing.assert_array_equal(answer[:300], answer[600:900])
    shuffled = np.random.default_rng(1).permutation(1200)
    np.testing.assert_allclose(fitted.predict_proba(many[shuffled]), answer[shuffled], atol=1e-6)
    for rows in (slice(0, 1), slice(5, 7), slice(10, 43), slice(64, 129), slice(100, 900)):
        np.testing.assert_allclose(fitted.predict_proba(many[rows]), answer[rows], atol=1e-6)
        np.testing.assert_array_equal(fitted.predict(many[rows]), labels[rows])
        np.testing.assert_allclose(fitted.energy(many[rows], np.tile(Y, (4, 1))[rows]), energy[rows], atol=1e-5)


@pytest.mark.usefixtures("global_random_state_is_left_alone")
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_model(kind):
    first, second, other = (small(kind, random_state=seed).fit(X, Y) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))
    assert not np.array_equal(first.predict_proba(X), other.predict_proba(X))


def test_answers_have_the_form_that_scikit_learn_expects(fitted):
    relaxed, labels = fitted.predict_proba(X), fitted.predict(X)
    assert relaxed.shape == labels.shape == Y.shape
    assert relaxed.min() >= 0
    assert relaxed.max() <= 1
    np.testing.assert_array_equal(labels, relaxed >= fitted.threshold_)
    assert set(np.unique(labels)) <= {0, 1}
    assert (fitted.n_features_in_, fitted.n_outputs_, list(fitted.classes_)) == (12, 4, [0, 1, 2, 3])
    expected = f1_score(Y, labels, average="samples", zero_division=1.0)
    assert fitted.score(X, Y) == pytest.approx(expected)
    assert np.isfinite(cross_val_score(clone(fitted), X, Y, cv=2)).all()


def test_parameters_can_be_read_set_and_cloned(fitted):
    changed = clone(fitted).set_params(n_inference_steps=3)
    assert changed.get_params()["n_inference_steps"] == 3
    assert not hasattr(changed, "network_")
    assert changed.fit(X, Y).predict(X).shape == Y.shape


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_kept_and_columns_put_in_order(kind):
    frame = pd.DataFrame(X, columns=[f"word{i}" for i in range(12)])
    model = small(kind).fit(frame, pd.DataFrame(Y, columns=list("abcd")))
    assert list(model.feature_names_in_) == list(frame.columns)
    assert model.label_names_ == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(model.predict_proba(frame[frame.columns[::-1]]), model.predict_proba(frame))
    with pytest.raises(InputError, match="word0"):
        model.predict(frame.rename(columns={"word0": "other"}))


def seeded(model):
    """The generator of a fit, after the network was drawn."""
    generator = torch.Generator().manual_seed(int(np.random.default_rng(model.random_state).integers(2**63)))
    LabelNetwork(12, 4, model.hidden, model.label_units).initialise(generator)
    return generator


def test_the_threshold_and_weights_of_spen_are_chosen_on_rows_held_out():
    assert small(SPEN, validation_share=0.0).fit(X, Y).threshold_ == 0.5
    model = small(SPEN, validation_share=0.5).fit(X, Y)
    order = torch.randperm(300, generator=seeded(model)).numpy()
    held_out, relaxed = order[:150], model.predict_proba(X[order[:150]])

    def held_out_f1(threshold):
        return f1_score(Y[held_out], relaxed >= threshold, average="samples", zero_division=1.0)

    chosen = held_out_f1(model.threshold_)
    assert chosen == pytest.approx(max(held_out_f1(t) for t in np.linspace(0.02, 0.98, 49)))
    assert chosen == pytest.approx(max(row["held_out_f1"] for row in model.history_ if row["stage"] == "all labels"))


# --- bad input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (Y * 2, "holds 2.0, expected only 0 and 1"),
        (np.where(Y == 1, np.nan, 0), "holds nan"),
        (Y[:-1], r"\(299, 4\), expected \(300, one or more\)"),
        (Y[:, 0], r"shape \(300,\)"),
        (np.where(Y == 1, "yes", "no"), "cannot be read as numbers"),
    ],
)
def test_labels_that_are_not_a_table_of_0_and_1_are_refused(kind, labels, message):
    with pytest.raises(InputError, match=message):
        small(kind).fit(X, labels)


def test_inputs_that_cannot_be_used_are_refused(fitted):
    missing = X.copy()
    missing[7, 3] = np.nan
    with pytest.raises(InputError, match="NaN"):
        fitted.predict(missing)
    with pytest.raises(InputError, match="NaN"):
        clone(fitted).fit(missing, Y)
    with pytest.raises(InputError, match="5 features, but 12"):
        fitted.predict(X[:, :5])
    with pytest.raises(InputError, match="1 dimensions"):
        fitted.predict(X[0])
    with pytest.raises(InputError, match="beyond 1e\\+37"):
        fitted.predict(np.full((1, 12), 1e300))
    with pytest.raises(InputError, match="expected numbers from 0 to 1"):
        fitted.energy(X, Y - 0.5)
    with pytest.raises(InputError, match=r"expected \(300, 4\)"):
        fitted.energy(X, Y[:, :2])


@pytest.mark.parametrize("kind", KINDS)
def test_an_unfitted_model_says_so(kind, tmp_path):
    for use in (lambda m: m.predict(X), lambda m: m.energy(X, Y), lambda m: m.save(tmp_path / "m")):
        with pytest.raises(NotFittedError, match="fit"):
            use(kind())


@pytest.mark.parametrize(
    "wrong",
    [
        {"hidden": ()},
        {"hidden": 150},
        {"hidden": (0,)},
        {"n_steps": 0},
        {"batch_size": 2.5},
        {"learning_rate": 0.0},
        {"learning_rate": "fast"},
        {"weight_decay": -1.0},
        {"step_size": float("nan")},
        {"random_state": "seed"},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", KINDS)
def test_settings_out_of_range_are_refused(kind, wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        kind(**wrong).fit(X, Y)


def test_pretraining_can_be_left_out():
    model = small(SPEN, n_pretraining_steps=0).fit(X, Y)
    assert {row["stage"] for row in model.history_} == {"all labels"}


def test_settings_of_one_model_only_are_checked_too():
    with pytest.raises(InputError, match=r"below 1, got 0.6 \+ 0.5"):
        DeepValueNetwork(adversarial_share=0.6, truth_share=0.5).fit(X, Y)
    with pytest.raises(InputError, match="validation_share"):
        SPEN(validation_share=1.0).fit(X, Y)


# --- saving --------------------------------------------------------------------------------------------------


def test_a_saved_model_answers_bit_for_bit_alike(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    loaded = type(fitted).load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))
    np.testing.assert_array_equal(loaded.energy(X, Y), fitted.energy(X, Y))
    assert loaded.get_params() == fitted.get_params()
    assert (loaded.threshold_, loaded.history_) == (fitted.threshold_, fitted.history_)
    np.testing.assert_array_equal(clone(loaded).fit(X, Y).predict_proba(X), fitted.predict_proba(X))
    assert {path.suffix for path in (tmp_path / "model").iterdir()} == {".json", ".safetensors"}


def test_names_survive_saving(tmp_path):
    frame = pd.DataFrame(X, columns=[f"word{i}" for i in range(12)])
    small(SPEN).fit(frame, pd.DataFrame(Y, columns=list("abcd"))).save(tmp_path / "m")
    loaded = SPEN.load(tmp_path / "m")
    assert (loaded.label_names_, list(loaded.feature_names_in_)) == (list("abcd"), list(frame.columns))


def test_saving_again_leaves_one_model_and_foreign_directories_alone(fitted, tmp_path):
    fitted.save(tmp_path / "m")
    changed = clone(fitted).set_params(random_state=5).fit(X, Y)
    changed.save(tmp_path / "m")
    assert len(list((tmp_path / "m").iterdir())) == 2
    np.testing.assert_array_equal(type(fitted).load(tmp_path / "m").predict_proba(X), changed.predict_proba(X))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match="holds no saved model"):
        fitted.save(tmp_path / "mine")


def damage_bytes(directory):
    file = next(directory.glob("*.safetensors"))
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_bytes, "checksum"),
        (lambda d: next(d.glob("*.safetensors")).unlink(), "cannot be read"),
        (lambda d: (d / "model.json").unlink(), "model.json is missing"),
        (lambda d: (d / "model.json").write_text("{"), "damaged"),
        (lambda d: (d / "model.json").write_text("[]"), "format None"),
        (edit_model(format=99), "format 99"),
        (edit_model(model="Other"), "holds a Other, expected a DeepValueNetwork"),
        (edit_model(labels=["one"]), "whole DeepValueNetwork"),
        (edit_model(parameters={"hidden": [8], "colour": 1}), "whole DeepValueNetwork"),
        (edit_model(weights={"file": "../secret", "sha256": ""}), "which save never writes"),
        (edit_model(weights=None), "whole model"),
    ],
)
def test_a_damaged_model_gives_one_clear_error(tmp_path, damage, message):
    small(DeepValueNetwork, n_steps=1).fit(X, Y).save(tmp_path / "m")
    damage(tmp_path / "m")
    with pytest.raises(LoadError, match=message):
        DeepValueNetwork.load(tmp_path / "m")


def test_models_are_trained_once_for_the_same_data_and_parameters(tmp_path, monkeypatch):
    trained = []
    fit = DeepValueNetwork.fit
    monkeypatch.setattr(DeepValueNetwork, "fit", lambda self, *data: trained.append(1) or fit(self, *data))
    first = fit_or_load(small(DeepValueNetwork), X, Y, tmp_path)
    again = fit_or_load(small(DeepValueNetwork, verbose=False), X, Y, tmp_path)
    assert len(trained) == 1
    np.testing.assert_array_equal(first.predict_proba(X), again.predict_proba(X))
    other = X.copy()
    other[0, 0] += 1e-9
    fit_or_load(small(DeepValueNetwork, n_steps=11), X, Y, tmp_path)
    fit_or_load(small(DeepValueNetwork, random_state=1), X, Y, tmp_path)
    fit_or_load(small(DeepValueNetwork), other, Y, tmp_path)
    fit_or_load(small(DeepValueNetwork), X, 1 - Y, tmp_path)
    assert len(trained) == 5
    for directory in tmp_path.iterdir():
        damage_bytes(directory)
    healed = fit_or_load(small(DeepValueNetwork), X, Y, tmp_path)
    assert len(trained) == 6
    np.testing.assert_array_equal(healed.predict_proba(X), first.predict_proba(X))
    with pytest.raises(InputError, match="random_state must be an int"):
        fit_or_load(DeepValueNetwork(), X, Y, tmp_path)


def test_nothing_is_printed_unless_asked(capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small(SPEN).fit(X, Y).predict(X)
    assert capfd.readouterr() == ("", "")
    small(SPEN, verbose=True).fit(X, Y)
    assert "all labels" in capfd.readouterr().err
