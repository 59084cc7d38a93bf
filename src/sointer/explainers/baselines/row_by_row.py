"""Explaining row by row: query the model with changed copies of each row, then weigh the features."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from sointer._support.containers import csr_array, row_keys
from sointer._support.progress import History
from sointer._support.validation import check_positive_int, is_integer
from sointer.data.inputs import InputFormat
from sointer.data.targets import target_columns
from sointer.data.texts import Documents
from sointer.errors import InputError, require_extra
from sointer.explainers.baselines.base import Baseline, QueriedRows, row_generator
from sointer.masking.groups import Groups
from sointer.masking.rows import ExplainedRows, SentRows, Subject
from sointer.masking.selection import Scored, allowed_units

N_SAMPLES = 1000
N_DRAWS = 10


@dataclass(frozen=True)
class Row:
    """One row to explain, for one or more targets."""

    source: ExplainedRows
    columns: NDArray[np.float64]
    prediction: NDArray[Any]
    """The model's outputs for the whole row: (1, outputs)."""
    groups: Groups
    """The units of this row."""
    targets: NDArray[np.int64]
    units: NDArray[np.int64]
    """The units that differ from their reference."""
    rng: np.random.Generator
    document: Documents | None = None
    """The row, where it is a text."""

    def values(self, points: Any) -> NDArray[np.float64]:
        """Queries encoded points: how far each target is what it is of the whole row, (points, targets).

        Labels: 1 where they are the same, else 0. Probabilities: that of the row's own label. Numbers: themselves.
        Regions: the mean of their outputs.
        """
        return self._support(self.source.query_points(points))

    def stays(self, points: Any) -> NDArray[np.float64]:
        """Queries encoded points: whether each target has the row's own value, of regions the share that has.

        Probabilities by their side of 0.5, numbers within the tolerance: (points, targets).
        """
        outputs = self.source.outputs
        same = outputs.agree(np.repeat(self.prediction, points.shape[0], axis=0), self.source.query_points(points))
        return target_columns(same.astype(np.float64), self.targets, self.source.regions)

    @property
    def value(self) -> NDArray[np.float64]:
        """The same of the unmasked row, which was queried before: (targets,)."""
        (own,) = self._support(self.prediction)
        return np.asarray(own)

    def _support(self, replies: NDArray[Any]) -> NDArray[np.float64]:
        outputs = self.source.outputs
        support = outputs.agree(np.repeat(self.prediction, len(replies), axis=0), replies).astype(np.float64)
        for kind in ("probability", "continuous"):
            columns = np.flatnonzero([one == kind for one in outputs.kinds])
            numbers = replies[:, columns].astype(np.float64)
            if kind == "probability":
                own = self.prediction[:, columns].astype(np.float64)
                numbers = np.where(own > 0.5, numbers, 1.0 - numbers)
            support[:, columns] = numbers
        return target_columns(support, self.targets, self.source.regions)

    def n_draws(self, n_samples: int) -> int:
        """How often copies are drawn when at most n_samples may be queried."""
        return max(1, min(N_DRAWS, n_samples // 20)) if self.source.removal.is_random else 1

    def copies(self, keep: NDArray[np.bool_], n_draws: int = 1) -> Iterator[Any]:
        """Copies of the row that keep some of its `units`, n_draws times if removal is random, else once.

        The copies of one draw share what stands in for removed units, so that what a unit changes is not lost
        in what the draws change.
        """
        kept = np.zeros((len(keep), self.groups.n_units), dtype=bool)
        kept[:, self.units] = keep
        columns = self.groups.take(np.zeros(len(keep), dtype=np.int64)).to_columns(kept)
        if self.document is not None:
            copies = self.document[np.zeros(len(keep), dtype=np.int64)]
            if self.source.removal.is_random:
                return self.source.removal.draws(copies, columns, n_draws, self.rng)
            return iter((self.source.removal.reduce(copies, columns, self.rng),))
        return self.source.removal.draws(np.tile(self.columns, (len(keep), 1)), columns, n_draws, self.rng)


@dataclass(kw_only=True, eq=False, repr=False)
class RowByRow(Baseline):
    """A baseline that queries the model for every row it explains; equal rows are queried once.

    Parameters are those of `KernelShap` but protocol. Where removal is random, the sizes of weights find planted
    features far more often than signed ones, though these may keep the prediction slightly better.
    """

    queries_to_explain = True

    n_samples: int | None = None
    signed: bool | None = None
    n_jobs: int | None = None

    @abstractmethod
    def _weights(self, rows: Iterator[Row]) -> Iterator[NDArray[np.float64]]:
        """For each row, what every unit speaks for its targets' values: (targets, units)."""

    def _check_settings(self) -> None:
        if self.n_samples is not None:
            check_positive_int(self.n_samples, "n_samples", minimum=10)
        if not (self.signed is None or isinstance(self.signed, bool)):
            raise InputError(f"signed must be None, True or False, got {self.signed!r}.")
        if self.n_jobs is not None and (not is_integer(self.n_jobs) or self.n_jobs == 0):
            raise InputError(f"n_jobs must be None or an int other than 0, got {self.n_jobs!r}; -1 means all cores.")

    def _learn(self, subject: Subject, queried: QueriedRows) -> None:
        pass

    def _scored(self, source: ExplainedRows, targets: NDArray[np.int64]) -> Scored:
        keys = row_keys(source.data.keys() if isinstance(source.data, Documents) else source.data)
        rows_of: dict[bytes, list[int]] = {}
        for row, sample in enumerate(source.sample_of_row):
            rows_of.setdefault(keys[sample], []).append(row)
        first = np.array([rows[0] for rows in rows_of.values()])
        distinct = source.take(first)
        targets_of = [np.unique(targets[rows]) for rows in rows_of.values()]
        weights = self._in_parallel(distinct, list(rows_of), targets_of)
        scores = np.zeros((len(targets), source.groups.n_units), dtype=np.float32)
        for rows, own, found in zip(rows_of.values(), targets_of, weights, strict=True):
            scores[rows] = found.toarray()[np.searchsorted(own, targets[rows])]
        values, _ = source.encoded_values(targets)
        return Scored(scores, values)

    @property
    def _is_signed(self) -> bool:
        if self.signed is not None:
            return self.signed
        return "continuous" not in self.outputs_.kinds and not self.removal_.is_random

    def _in_parallel(self, source: ExplainedRows, keys: list[bytes], targets: list[NDArray[np.int64]]) -> list[Any]:
        """For each row a sparse table (targets, units)."""
        black_box = source.black_box
        assert black_box is not None
        n_jobs = effective_n_jobs(self.n_jobs)
        if n_jobs > 1 and black_box.remaining is not None:
            raise InputError(
                f"n_jobs={self.n_jobs} was given with a black box that has a query budget, which cannot be kept "
                "across processes; set n_jobs=1, or lift the budget with black_box.reset_budget(None)."
            )
        index, _ = np.arange(len(keys)), source.predictions  # queried once, before the shares are given out
        # One process sets up once; several take small shares, so that none is left with all the slow rows.
        shares = [index] if n_jobs == 1 else np.array_split(index, min(len(index), 4 * n_jobs))
        n_before = black_box.n_queries
        progress = History(self.verbose)
        progress.stage("explaining rows", len(index))
        results: list[Any] = []
        n_queried = 0
        jobs = (
            delayed(_explain_share)(
                self,
                replace(source.take(share), sent=SentRows()),
                [keys[i] for i in share],
                [targets[i] for i in share],
                progress if n_jobs == 1 else None,
            )
            for share in shares
        )
        try:
            for weights, n in Parallel(n_jobs=self.n_jobs, return_as="generator")(jobs):
                results += weights
                n_queried += n
                source.sent.add(range(n))
                if n_jobs > 1:
                    progress.step(len(weights))
        finally:
            progress.close()
        # Other processes query through copies of the black box; their queries are added to the count here.
        black_box.n_queries += n_queried - (black_box.n_queries - n_before)
        return results

    def _rows(self, source: ExplainedRows, keys: list[bytes], targets: list[NDArray[np.int64]]) -> Iterator[Row]:
        for i, key in enumerate(keys):
            columns, groups = source.rows(np.array([i])), source.groups.take(np.array([i]))
            units = np.flatnonzero(allowed_units(source.removal, groups, columns)[0])
            document = source.data[i : i + 1] if source.documents is not None else None
            rng = row_generator(self.seed_, key)
            yield Row(source, columns, source.predictions[[i]], groups, targets[i], units, rng, document)


def _explain_share(
    explainer: RowByRow,
    source: ExplainedRows,
    keys: list[bytes],
    targets: list[NDArray[np.int64]],
    progress: History | None,
) -> tuple[list[Any], int]:
    """The weights of some rows (sparse: most are zero), and how many rows were queried; runs in any process."""
    results = []
    for weights in explainer._weights(explainer._rows(source, keys, targets)):
        results.append(csr_array((weights if explainer._is_signed else np.abs(weights)).astype(np.float32)))
        if progress is not None:
            progress.step()
    return results, source.sent.n


Protocol = Literal["tuned", "package"]
PROTOCOLS: tuple[Protocol, ...] = ("tuned", "package")


@dataclass(kw_only=True, eq=False, repr=False)
class TwoProtocols(RowByRow):
    """The frame of baselines with a package: settings for a fair comparison, or those of the package."""

    package: ClassVar[str]
    """The package that weighs the copies."""
    protocol: Protocol = "tuned"

    def _check_settings(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise InputError(f"protocol must be one of {', '.join(map(repr, PROTOCOLS))}, got {self.protocol!r}.")
        if self.protocol == "package" and self.signed:
            raise InputError("signed=True was given with protocol='package', which takes sizes; leave signed out.")
        super()._check_settings()
        require_extra(self.package, "baselines")

    def _learn(self, subject: Subject, queried: QueriedRows) -> None:
        if self.protocol == "package" and subject.rows.input_format.image is not None:
            raise InputError(
                "protocol='package' is the package's explainer of tables, which knows no images; leave it out."
            )
        super()._learn(subject, queried)

    @property
    def _is_signed(self) -> bool:
        return self.protocol == "tuned" and super()._is_signed

    def _weights(self, rows: Iterator[Row]) -> Iterator[NDArray[np.float64]]:
        if self.protocol == "tuned":
            yield from (self._unit_weights(row, self.n_samples or N_SAMPLES) for row in rows)
            return
        table = FeatureTable(self.input_format_)
        weights_of = self._package_weights(table)
        for row in rows:
            yield table.sum_by_unit(np.abs(weights_of(row)), row.source.groups.unit_of_feature)

    @staticmethod
    def _unit_weights(row: Row, n_samples: int) -> NDArray[np.float64]:
        """Weights of the units that differ, from at most n_samples copies of the row: (targets, units)."""
        raise NotImplementedError

    def _package_weights(self, table: FeatureTable) -> Callable[[Row], NDArray[np.float64]]:
        """A function that gives all features of a row their weights, by the package's defaults: (targets, features)."""
        raise NotImplementedError


class FeatureTable:
    """From encoded columns, where a category is a block of zeros and a one, to one number per feature and back.

    CSR data, which have no categories, stay sparse.
    """

    def __init__(self, input_format: InputFormat) -> None:
        if len(input_format.absence):
            raise InputError(
                "X has missing values, for which this package has no place; the baseline takes them with "
                "protocol='tuned'."
            )
        self.input_format = input_format
        self.categorical = np.flatnonzero(input_format.is_categorical)
        self._blocks = [np.flatnonzero(input_format.column_feature == j) for j in range(input_format.n_features)]

    @property
    def is_sparse(self) -> bool:
        """Whether the package gets CSR matrices."""
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
