"""as_black_box with real scikit-learn and torch models: the same answers as the model itself gives."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from sointer.adapters import as_black_box
from sointer.adapters.torch import TorchPredict
from sointer.blackbox import BlackBox
from sointer.errors import BlackBoxError, InputError
from sointer.inputs import InputFormat

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 4))
Y = np.column_stack([X[:, 0] > 0, X[:, 1] + X[:, 2] > 0, X[:, 3] > 0.5]).astype(int)

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
    box = as_black_box(model, batch_size=7)
    np.testing.assert_array_equal(box(X), model.predict(X))
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


def test_probability_of_an_output_that_never_varied() -> None:
    constant = np.column_stack([Y[:, 0], np.zeros(60, int), np.ones(60, int)])
    model = RandomForestClassifier(5, random_state=0).fit(X, constant)
    got = as_black_box(model, method="predict_proba")(X)
    np.testing.assert_array_equal(got[:, 1], 0.0)
    np.testing.assert_array_equal(got[:, 2], 1.0)


def test_more_than_two_classes_suggest_predict() -> None:
    model = DecisionTreeClassifier().fit(X, np.column_stack([Y[:, 0], np.arange(60) % 3]))
    with pytest.raises(InputError, match=r"output 1.*method='predict'"):
        as_black_box(model, method="predict_proba")(X)
    assert as_black_box(model)(X).shape == (60, 2)


def test_string_labels_and_numbers_keep_their_types() -> None:
    labels = np.where(Y, "yes", "no")
    model = KNeighborsClassifier(1).fit(X, labels)
    got = as_black_box(model)(X)
    assert got.dtype.kind == "U"
    np.testing.assert_array_equal(got, labels)
    regressor = RandomForestRegressor(3, random_state=0).fit(X, X[:, :2])
    assert as_black_box(regressor)(X).dtype == np.float64
    assert as_black_box(LinearRegression().fit(X, X[:, 0]))(X).shape == (60, 1)


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
    np.testing.assert_array_equal(as_black_box(model, batch_size=11)(make(X)), model.predict(X))


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
