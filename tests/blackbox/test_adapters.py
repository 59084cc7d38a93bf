"""as_black_box with real scikit-learn and torch models: the same answers as the model itself gives."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from quick import quick_fit
from sointer.blackbox.adapters import as_black_box
from sointer.blackbox.adapters.torch import TorchPredict
from sointer.blackbox.box import BlackBox
from sointer.data.inputs import InputFormat
from sointer.errors import BlackBoxError, InputError, MethodWarning, QueryBudgetExceeded, SointerWarning

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 4))
Y = np.column_stack([X[:, 0] > 0, X[:, 1] + X[:, 2] > 0, X[:, 3] > 0.5]).astype(int)


class Odd:
    """Two outputs, of which subclasses give odd probabilities."""

    def predict(self, X: np.ndarray) -> np.ndarray:
        return X[:, :2] > 0


class Moody(Odd):
    """Probabilities that agree with predict on rows whose first number is positive."""

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return np.where((X[:, :2] > 0) == (X[:, :1] > 0), 0.75, 0.25)


MODELS = {
    "chain": ClassifierChain(LogisticRegression()),
    "multi": MultiOutputClassifier(LogisticRegression()),
    "forest": RandomForestClassifier(5, random_state=0),
    "tree": DecisionTreeClassifier(random_state=0),
    "pipeline": make_pipeline(StandardScaler(), MultiOutputClassifier(LogisticRegression())),
    "neighbours": KNeighborsClassifier(3),
    "one versus rest": OneVsRestClassifier(LogisticRegression()),
}


@pytest.mark.parametrize("name", MODELS)
def test_predict_is_the_models_own(name: str) -> None:
    model = clone(MODELS[name]).fit(X, Y)
    box = as_black_box(model, method="predict", batch_size=7)
    np.testing.assert_array_equal(box(X), model.predict(X))
    assert (box.method, box.declared_kind) == ("predict", None)
    assert box.n_outputs == 3
    assert box.n_queries == 60
    assert box.name == type(model).__name__


@pytest.mark.parametrize("name", MODELS)
def test_probabilities_are_those_of_the_positive_class(name: str) -> None:
    model = clone(MODELS[name]).fit(X, Y)
    box = as_black_box(model, method="predict_proba", batch_size=7)
    got = box(X)
    assert got.shape == (60, 3)
    np.testing.assert_array_equal(got > 0.5, model.predict(X) == 1)
    own = model.predict_proba(X)
    expected = np.column_stack([one[:, 1] for one in own]) if isinstance(own, list) else own
    np.testing.assert_allclose(got, expected)


@pytest.mark.parametrize("name", MODELS)
def test_probabilities_are_the_default_where_they_agree_with_predict(name: str) -> None:
    """A tree grown to the end has none between 0 and 1: its labels say as much."""
    model = clone(MODELS[name]).fit(X, Y)
    box = as_black_box(model)
    assert box.method is None
    got = box(X)
    expected = "predict" if name == "tree" else "predict_proba"
    assert (box.method, box.declared_kind) == (expected, None if name == "tree" else "probability")
    np.testing.assert_array_equal(got, as_black_box(model, method=expected)(X))
    assert box.n_queries == 60


def test_what_has_no_probabilities_is_predicted_without_a_word(recwarn: pytest.WarningsRecorder) -> None:
    class Broken(LogisticRegression):
        def predict_proba(self, X: np.ndarray) -> np.ndarray:
            raise NotImplementedError

    for model in [
        MultiOutputClassifier(SVC()).fit(X, Y),
        make_pipeline(StandardScaler(), SVC()).fit(X, Y[:, 0]),
        MultiOutputClassifier(Broken()).fit(X, Y),
        LogisticRegression().fit(X, np.arange(60) % 3),
        RandomForestClassifier(5, random_state=0).fit(X, np.column_stack([Y[:, 0], np.arange(60) % 3])),
        RandomForestRegressor(5, random_state=0).fit(X, Y),
    ]:
        box = as_black_box(model)
        np.testing.assert_array_equal(box(X), model.predict(X).reshape(60, -1))
        assert box.method == "predict"
    assert not [one for one in recwarn if issubclass(one.category, SointerWarning)]


def test_another_threshold_than_one_half_is_said() -> None:
    model = FixedThresholdClassifier(LogisticRegression(), threshold=0.2).fit(X, Y[:, 0])
    likely = model.predict_proba(X)[:, 1] > 0.5
    n_wrong = int((likely != (model.predict(X) == 1)).sum())
    assert n_wrong > 3
    box = as_black_box(model)
    with pytest.warns(MethodWarning, match=rf"disagree: for {n_wrong} of 60 samples.*method='predict_proba'") as warned:
        np.testing.assert_array_equal(box(X)[:, 0], model.predict(X))
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(as_black_box(model, method="predict")(X)[:, 0], model.predict(X))
        got = as_black_box(model, method="predict_proba")(X)
    np.testing.assert_allclose(got[:, 0], model.predict_proba(X)[:, 1])


def test_probabilities_outside_their_range_are_not_taken_for_any() -> None:
    class Scores(Odd):
        def predict_proba(self, X: np.ndarray) -> np.ndarray:
            return np.clip(X[:, :2], -0.5, 1.5) + 0.5

    with pytest.warns(MethodWarning, match=r"from 0 to 2, outside \[0, 1\].*output_kind='continuous'"):
        assert as_black_box(Scores())(X).dtype == bool

    class Lost(Odd):
        def predict_proba(self, X: np.ndarray) -> np.ndarray:
            return np.where(X[:, :2] > 1, np.nan, 0.3)

    with pytest.warns(MethodWarning, match="NaN"):
        assert as_black_box(Lost())(X).dtype == bool
    with pytest.raises(BlackBoxError, match="NaN"):
        as_black_box(Lost(), method="predict_proba")(X)

    class Rounded(Odd):
        def predict_proba(self, X: np.ndarray) -> np.ndarray:
            return np.where(X[:, :2] > 0, 1 + 1e-9, 0.25 - 0.25 * (X[:, :2] < -1) - 1e-9)

    got = as_black_box(Rounded())(X)
    assert (got.min(), got.max()) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("labels", "name"),
    [((0, 1), None), ((False, True), None), ((-1, 1), None), (("no", "yes"), "yes"), ((3, 8), "y0=8")],
)
def test_one_binary_classifier_has_one_probability_named_after_its_class(labels: tuple, name: str | None) -> None:
    model = LogisticRegression().fit(X, np.where(Y[:, 0], labels[1], labels[0]))
    for method in (None, "predict_proba"):
        box = as_black_box(model, method=method)
        np.testing.assert_allclose(box(X), model.predict_proba(X)[:, 1:])
        assert box.output_names == (None if name is None else [name])
        assert box.method == "predict_proba"
    named = as_black_box(model, output_names=["mine"])
    named(X)
    assert named.output_names == ["mine"]


def test_labels_of_many_outputs_are_in_their_names() -> None:
    model = RandomForestClassifier(5, random_state=0).fit(X, np.where(Y, "yes", "no"))
    box = as_black_box(model)
    got = box(X)
    assert box.output_names == ["y0=yes", "y1=yes", "y2=yes"]
    np.testing.assert_array_equal(np.where(got > 0.5, "yes", "no"), model.predict(X))


def test_probabilities_of_more_than_two_classes_are_outputs_if_asked_for() -> None:
    model = LogisticRegression().fit(X, np.array(["red", "green", "blue"])[np.arange(60) % 3])
    box = as_black_box(model, method="predict_proba")
    np.testing.assert_allclose(box(X), model.predict_proba(X))
    assert box.output_names == ["blue", "green", "red"]


def test_a_single_class_has_one_certain_probability() -> None:
    for label, p in [(0, 0.0), (1, 1.0), ("a", 1.0)]:
        model = RandomForestClassifier(3, random_state=0).fit(X, np.full(60, label))
        assert as_black_box(model, method="predict_proba")(X).tolist() == [[p]] * 60
        assert as_black_box(model)(X).tolist() == [[label]] * 60


@pytest.mark.usefixtures("forked_workers")
def test_workers_do_not_choose_for_themselves() -> None:
    """The first rows agree and others do not: the choice of the first holds for all."""
    box = as_black_box(Moody(), batch_size=5, n_jobs=2)
    got = box(np.abs(X) * np.sign(np.arange(60) - 30.5)[::-1, None])
    assert box.method == "predict_proba"
    assert got.dtype == np.float64
    np.testing.assert_array_equal(got, 0.75)


def test_the_choice_counts_no_query_and_keeps_the_budget() -> None:
    model = clone(MODELS["forest"]).fit(X, Y)
    box = as_black_box(model, query_budget=10)
    with pytest.raises(QueryBudgetExceeded):
        box(X)
    assert box.method is None
    box(X[:10])
    assert (box.method, box.n_queries) == ("predict_proba", 10)


def test_probability_of_an_output_that_never_varied() -> None:
    constant = np.column_stack([Y[:, 0], np.zeros(60, int), np.ones(60, int)])
    model = RandomForestClassifier(5, random_state=0).fit(X, constant)
    got = as_black_box(model, method="predict_proba")(X)
    np.testing.assert_array_equal(got[:, 1], 0.0)
    np.testing.assert_array_equal(got[:, 2], 1.0)


def test_probabilities_of_two_classes_stand_beside_labels_of_more() -> None:
    model = DecisionTreeClassifier(max_depth=2).fit(X, np.column_stack([Y[:, 0], np.arange(60) % 3]))
    box = as_black_box(model, method="predict_proba")
    table = box(X)
    np.testing.assert_array_equal(table[:, 0].astype(float), model.predict_proba(X)[0][:, 1])
    np.testing.assert_array_equal(table[:, 1], model.predict(X)[:, 1])
    assert box.declared_kind == ["probability", None]
    model.classes_ = None
    with pytest.raises(InputError, match=r"output 1.*method='predict'"):
        as_black_box(model, method="predict_proba")(X)


def test_string_labels_and_numbers_keep_their_types() -> None:
    labels = np.where(Y, "yes", "no")
    model = KNeighborsClassifier(1).fit(X, labels)
    got = as_black_box(model)(X)
    assert got.dtype.kind == "U"
    np.testing.assert_array_equal(got, labels)
    regressor = RandomForestRegressor(3, random_state=0).fit(X, X[:, :2])
    assert as_black_box(regressor)(X).dtype == np.float64
    assert as_black_box(LinearRegression().fit(X, X[:, 0]))(X).shape == (60, 1)


@pytest.mark.parametrize("wrap", [lambda tree: tree, lambda tree: make_pipeline(StandardScaler(), tree)])
def test_counts_that_a_regressor_predicts_are_numbers(wrap: Any) -> None:
    counts = np.rint(3 * X[:, :1] + 9)
    tree = wrap(DecisionTreeRegressor(random_state=0)).fit(X, np.column_stack([counts, X[:, 0] > 0]))
    explainer = quick_fit(tree, X)
    assert explainer.outputs_.kinds == ("continuous", "binary")
    assert quick_fit(tree.predict, X).outputs_.kinds == ("categorical", "binary"), "of a function, nothing is known"


def test_a_frame_stays_a_frame_through_a_pipeline() -> None:
    frame = pd.DataFrame({"size": X[:, 0], "colour": rng.choice(["red", "blue"], 60), "count": rng.integers(0, 9, 60)})
    target = np.column_stack([frame["size"] > 0, frame["colour"] == "red"]).astype(int)
    encoder = ColumnTransformer([("c", OneHotEncoder(), ["colour"])], remainder="passthrough")
    model = make_pipeline(encoder, DecisionTreeClassifier(random_state=0)).fit(frame, target)
    box = as_black_box(model, batch_size=9)
    np.testing.assert_array_equal(box(frame), target)
    format = InputFormat.infer(frame)
    np.testing.assert_array_equal(box(format.decode(format.encode(frame))), target)
    with pytest.raises(BlackBoxError, match="Your function failed"):
        box(format.encode(frame))


@pytest.mark.parametrize("make", [sparse.csr_matrix, sparse.csr_array])
def test_sparse_rows_reach_the_model_sparse(make: type) -> None:
    model = MultiOutputClassifier(LogisticRegression()).fit(sparse.csr_matrix(X), Y)
    np.testing.assert_array_equal(as_black_box(model, method="predict", batch_size=11)(make(X)), model.predict(X))
    np.testing.assert_array_equal(as_black_box(model, batch_size=11)(make(X)) > 0.5, model.predict(X) == 1)


@pytest.mark.parametrize("name", MODELS)
def test_an_unfitted_estimator_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"not fitted.*fit"):
        as_black_box(clone(MODELS[name]))


def test_the_model_stays_fitted_through_clone() -> None:
    class Holder(BaseEstimator):
        def __init__(self, black_box: object = None) -> None:
            self.black_box = black_box

    model = clone(MODELS["forest"]).fit(X, Y)
    box = as_black_box(model)
    assert clone(Holder(box)).black_box.predict.model is model
    assert len(model.estimators_) == 5


def make_module() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 3)
    )


@pytest.mark.parametrize(
    "make", [np.asarray, lambda X: X.astype(np.float32), torch.tensor, pd.DataFrame, sparse.csr_array]
)
def test_a_module_answers_in_evaluation_mode_and_is_left_alone(make: object) -> None:
    module = make_module()
    module(torch.randn(50, 4))  # moves the running mean
    expected = module.eval()(torch.tensor(X, dtype=torch.float32)).detach().numpy()
    module.train()
    module[2].eval()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    box = as_black_box(module, batch_size=60)
    got = box(make(X))  # type: ignore[operator]
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(got, box(make(X)))  # type: ignore[operator]
    assert [part.training for part in module.modules()] == [True, True, True, False, True]
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


def test_a_module_gets_its_own_dtype_and_whole_numbers_pass() -> None:
    double = torch.nn.Linear(4, 2).double()
    assert as_black_box(double)(X).dtype == np.float64
    embedding = torch.nn.Sequential(torch.nn.Embedding(5, 2), torch.nn.Flatten())
    assert as_black_box(embedding)(torch.tensor([[1, 2], [3, 4]])).shape == (2, 4)

    class Plain(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert x.dtype == torch.float32
            return x

    np.testing.assert_allclose(as_black_box(Plain())(X), X, rtol=1e-6)


def test_flags_come_back_after_a_failure() -> None:
    module = make_module().train()
    with pytest.raises(BlackBoxError, match="Your function failed"):
        as_black_box(module)(np.ones((2, 9)))
    assert all(part.training for part in module.modules())
    assert TorchPredict(module).module is module


def test_functions_boxes_and_anything_with_predict() -> None:
    box = BlackBox(lambda X: X)
    assert as_black_box(box) is box
    with pytest.raises(InputError, match="batch_size, method"):
        as_black_box(box, batch_size=3, method="predict")
    np.testing.assert_array_equal(as_black_box(np.sign, query_budget=60)(X), np.sign(X))

    class Duck:
        def predict(self, X: np.ndarray) -> np.ndarray:
            return X > 0

    np.testing.assert_array_equal(as_black_box(Duck())(X), X > 0)
    options = as_black_box(Duck(), batch_size=3, query_budget=9, cache=True, output_names=list("abcd"), name="duck")
    assert (options.batch_size, options.remaining, options.cache, options.name) == (3, 9, True, "duck")


def test_what_cannot_be_a_model() -> None:
    for wrong, words in [
        (3, "type int"),
        (X, "numpy array"),
        (DecisionTreeClassifier, "the class DecisionTreeClassifier"),
        (None, "None"),
    ]:
        with pytest.raises(InputError, match=words):
            as_black_box(wrong)
    tree = DecisionTreeClassifier().fit(X, Y)
    with pytest.raises(InputError, match="'transform'"):
        as_black_box(tree, method="transform")
    with pytest.raises(InputError, match="without predict_proba"):
        as_black_box(LinearRegression().fit(X, Y), method="predict_proba")
    with pytest.raises(InputError, match="method='predict_proba' was given"):
        as_black_box(np.sign, method="predict_proba")


def test_masks_are_predicted_unless_probabilities_are_asked_for() -> None:
    class Segments:
        def predict(self, images: np.ndarray) -> np.ndarray:
            return (images[:, 0] > 0).astype(int)

        def predict_proba(self, images: np.ndarray) -> np.ndarray:
            return 1 / (1 + np.exp(-images[:, 0]))

    images = rng.normal(size=(5, 1, 4, 4))
    box = as_black_box(Segments())
    np.testing.assert_array_equal(box(images), (images[:, 0] > 0).reshape(5, 16))
    assert box.output_shape == (4, 4)
    soft = as_black_box(Segments(), method="predict_proba")
    np.testing.assert_allclose(soft(images), 1 / (1 + np.exp(-images.reshape(5, 16))))
    assert soft.output_shape == (4, 4)
