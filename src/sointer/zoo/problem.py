"""A problem whose truth is planted: how inputs are drawn, the exact black box, and which features matter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sointer.errors import require_extra

if TYPE_CHECKING:
    import pandas as pd

FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
RandomState: TypeAlias = int | np.random.Generator | None

BlackBoxFunction: TypeAlias = Callable[[FloatArray], npt.NDArray[Any]]
Sampler: TypeAlias = Callable[[int, int, np.random.Generator], FloatArray]
RowRelevance: TypeAlias = Callable[[FloatArray, int], BoolArray]


def standard_normal(n_rows: int, n_features: int, rng: np.random.Generator) -> FloatArray:
    """Independent standard normal inputs, one row per sample."""
    return rng.standard_normal((n_rows, n_features))


@dataclass(frozen=True, eq=False)
class Problem:
    """A black box with many outputs, of which some have a known set of relevant features.

    Calling the problem is calling its black box, so it can be given wherever a model is expected.
    """

    name: str
    n_features: int
    n_outputs: int
    targets: tuple[int, ...]
    """The outputs whose truth is planted and worth explaining."""
    relevant: Mapping[int, tuple[int, ...]]
    """For each target, the sorted indices of the features that can change it."""
    output_names: tuple[str, ...]
    output_kind: str
    """"binary" (0 and 1), "categorical" (class labels as strings), "probability" or "continuous"."""
    paper_relevant: Mapping[int, tuple[int, ...]] | None = None
    """The set that the paper claims, where it differs from the true one."""
    black_box: BlackBoxFunction = field(kw_only=True, repr=False)
    sampler: Sampler = field(default=standard_normal, kw_only=True, repr=False)
    row_relevance: RowRelevance | None = field(default=None, kw_only=True, repr=False)
    """Set only where the relevant features differ from row to row."""
    order: tuple[int, ...] | None = field(default=None, kw_only=True, repr=False)
    """Where the features were shuffled: the number that each column had before."""
    switches: Mapping[int, tuple[int, ...]] = field(default_factory=dict, kw_only=True, repr=False)
    """For each target whose relevant features differ from row to row: the features that decide which ones they are."""
    categorical: tuple[int, ...] = field(default=(), kw_only=True, repr=False)
    """Features whose numbers are codes of categories."""

    def sample(self, n_rows: int, random_state: RandomState = None) -> FloatArray:
        """Draw inputs, one row per sample; the same seed gives the same rows."""
        return self.sampler(n_rows, self.n_features, np.random.default_rng(random_state))

    def frame(self, X: npt.ArrayLike) -> pd.DataFrame:
        """The inputs as a pandas DataFrame with columns x0, x1 ..., in which categorical features are marked as such.

        Problems take such frames as well as arrays.
        """
        pandas = require_extra("pandas", "pandas")
        frame: pd.DataFrame = pandas.DataFrame(self._as_inputs(X), columns=[f"x{i}" for i in range(self.n_features)])
        for feature in self.categorical:
            frame[f"x{feature}"] = pandas.Categorical(frame[f"x{feature}"].astype(int))
        return frame

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """The black box: one row of outputs for each row of inputs."""
        return self.black_box(self._as_inputs(X))

    __call__ = predict

    def relevant_rows(self, X: npt.ArrayLike, target: int) -> BoolArray:
        """For each row, a mask over the features: True where the feature is relevant to the target there."""
        inputs = self._as_inputs(X)
        if target not in self.relevant:
            raise ValueError(f"no truth is planted for output {target}; choose one of {self.targets}")
        if self.row_relevance is not None:
            return self.row_relevance(inputs, target)
        mask = np.zeros(inputs.shape, dtype=np.bool_)
        mask[:, list(self.relevant[target])] = True
        return mask

    def _as_inputs(self, X: npt.ArrayLike) -> FloatArray:
        inputs = np.asarray(X, dtype=np.float64)
        if inputs.ndim != 2 or inputs.shape[1] != self.n_features:
            raise ValueError(f"{self.name} takes {self.n_features} features per row, not shape {inputs.shape}")
        return inputs
