"""Rows as packages for tables want them: one number per feature, categories as codes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer._support.containers import csr_matrix
from sointer.data.inputs import InputFormat


class FeatureTable:
    """From encoded columns, where a category is a block of zeros and a one, to one number per feature and back.

    CSR data, which have no categories, stay sparse.
    """

    def __init__(self, input_format: InputFormat) -> None:
        self.input_format = input_format
        self.categorical = np.flatnonzero(input_format.is_categorical)
        self._blocks = [np.flatnonzero(input_format.column_feature == j) for j in range(input_format.n_features)]

    @property
    def is_sparse(self) -> bool:
        return self.input_format.kind == "csr"

    def from_columns(self, columns: Any) -> Any:
        """Encoded rows (n, columns) as (n, features)."""
        if self.is_sparse:
            return csr_matrix(columns)
        if len(self.categorical) == 0:
            return np.array(columns, dtype=np.float64)
        features = np.empty((len(columns), self.input_format.n_features))
        for j, block in enumerate(self._blocks):
            features[:, j] = columns[:, block].argmax(axis=1) if self._is_category(j) else columns[:, block[0]]
        return features

    def to_columns(self, features: Any) -> Any:
        """The inverse of `from_columns`."""
        if self.is_sparse or len(self.categorical) == 0:
            return features
        columns = np.zeros((len(features), self.input_format.n_columns))
        for j, block in enumerate(self._blocks):
            if self._is_category(j):
                columns[np.arange(len(features)), block[features[:, j].astype(np.int64)]] = 1.0
            else:
                columns[:, block[0]] = features[:, j]
        return columns

    def sum_by_unit(self, weights: NDArray[np.float64], unit_of: NDArray[np.int64]) -> NDArray[np.float64]:
        """Weights of features (n, features) added up within each unit."""
        n_units = int(unit_of.max()) + 1
        return np.stack([np.bincount(unit_of, weights=one, minlength=n_units) for one in weights])

    def _is_category(self, feature: int) -> bool:
        return bool(self.input_format.is_categorical[feature])
