"""Black boxes of any size that cost next to nothing: every output is decided by two features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse


@dataclass(frozen=True)
class Pairs:
    """Output j is [x_a + s x_b > c], with a, b, s and c of its own."""

    n_features: int
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    sign: NDArray[np.float64]
    threshold: NDArray[np.float64]

    @classmethod
    def draw(cls, n_features: int, n_outputs: int) -> Pairs:
        rng = np.random.default_rng(0)
        first = rng.integers(n_features, size=n_outputs)
        second = (first + rng.integers(1, n_features, size=n_outputs)) % n_features
        signs, thresholds = rng.choice([-1.0, 1.0], size=n_outputs), 0.3 * rng.standard_normal(n_outputs)
        return cls(n_features, first, second, signs, thresholds)

    def __call__(self, X: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.asarray(X[:, self.first] + self.sign * X[:, self.second] > self.threshold).astype(np.int64)

    def sample(self, n_rows: int, seed: int) -> NDArray[np.float64]:
        return np.random.default_rng(seed).standard_normal((n_rows, self.n_features))

    def found(self, selected: NDArray[np.int64], target: int) -> float:
        """The share of rows in which both deciding features are among those selected first (or the first alone)."""
        wanted = {int(self.first[target]), int(self.second[target])}
        n = min(2, selected.shape[1])
        return float(np.mean([len(wanted & set(row[:n].tolist())) == n for row in selected]))


def words(n_columns: int, n_rows: int, seed: int, present: float = 0.04) -> Any:
    """Rows that are mostly zero, such as the words of documents, as a CSR matrix."""
    rng = np.random.default_rng(seed)
    return sparse.random(n_rows, n_columns, density=present, format="csr", random_state=rng, data_rvs=np.ones)


def tags(X: Any, n_tags: int = 20) -> NDArray[np.int64]:
    """A tag is given where one of its two words is there."""
    X = X.tocsr() if sparse.issparse(X) else sparse.csr_matrix(X)
    return np.asarray((X[:, :n_tags] + X[:, n_tags : 2 * n_tags]).toarray() > 0).astype(np.int64)
