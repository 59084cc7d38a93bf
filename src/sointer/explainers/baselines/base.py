"""What the baselines share: a fit that queries unmasked rows only, and rankings whose ties are broken at random."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt

from sointer._support.containers import row_keys
from sointer.blackbox.replies import stack
from sointer.data.outputs import Outputs
from sointer.data.text_tables import Records
from sointer.errors import InputError
from sointer.explainers.base import Explainer
from sointer.explainers.data_checks import warn_about_outputs
from sointer.explainers.reading import fitted_targets
from sointer.masking.groups import Groups
from sointer.masking.rows import ExplainedRows, Subject
from sointer.masking.selection import Scored

N_FIRST = 16

AnyBaseline = TypeVar("AnyBaseline", bound="Baseline")


@dataclass(frozen=True)
class QueriedRows:
    """What the model returned for unmasked rows of the data."""

    index: NDArray[np.int64]
    raw: NDArray[Any]
    outputs: Outputs
    targets: list[int]


@dataclass(kw_only=True, eq=False, repr=False)
class Baseline(Explainer):
    """An explainer that learns, if anything, from whole rows.

    Parameters are those of SOInter: model, k, removal, feature_names, output_names, output_kind, method,
    tolerance, groups, batch_size, random_state and verbose mean the same here.
    """

    auto_removal: ClassVar[str] = "auto"
    """What removal="auto" stands for."""
    max_rows_queried: ClassVar[int | None] = 1000
    """Rows that fit queries, to learn what the outputs are; None for all."""

    model: Any = field(kw_only=False)
    k: int | Literal["auto"] = 10
    removal: Any = "auto"
    feature_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None
    output_kind: str | None = None
    method: str | None = None
    tolerance: float | None = None
    groups: Any = None
    batch_size: int | None = None
    random_state: Any = None
    verbose: bool | None = None

    def fit(self: AnyBaseline, X: Any, y: Any = None, *, targets: Any = None, checkpoint: None = None) -> AnyBaseline:
        """Learn what there is to learn about the model on data X.

        Parameters
        ----------
        X : samples
            As in `SOInter.fit`.
        y : ignored
        targets : sequence of int or str, optional
            Outputs that will be explained; default: all.
        checkpoint : None
            For SOInter alone; anything else is refused.

        Returns
        -------
        The fitted explainer.

        Raises
        ------
        InputError
            If X, targets or a setting does not fit, or a checkpoint is given.
        """
        if checkpoint is not None:
            raise InputError(
                f"checkpoint={checkpoint!r} was given to {type(self).__name__}, whose fit keeps none: once stopped, it "
                "begins anew. Leave it out. BlackBox(model, cache=True) keeps outputs as long as the program runs."
            )
        self._check_settings()
        wants_auto = isinstance(self.removal, str) and self.removal == "auto"
        subject = self._read(X, self.auto_removal if wants_auto else self.removal)
        queries_before = subject.rows.model.n_queries
        queried = self._query_rows(subject, targets)
        warn_about_outputs(queried.outputs, queried.raw)
        seed = int(subject.rng.integers(2**63))
        self._learn(subject, queried)
        self._adopt_subject(subject, queried.outputs, queried.targets)
        self.seed_ = seed
        self.n_queries_ = subject.rows.model.n_queries - queries_before
        return self

    def _check_settings(self) -> None:
        """Refuse impossible settings before the model is queried."""

    @abstractmethod
    def _learn(self, subject: Subject, queried: QueriedRows) -> None:
        """Whatever the method does before it sees the rows to explain."""

    def _query_rows(self, subject: Subject, targets: Any) -> QueriedRows:
        order = subject.rng.permutation(subject.rows.n_samples)[: self.max_rows_queried]
        return self._query(subject, order, subject.rows.data[order], targets)

    def _query(self, subject: Subject, index: NDArray[np.int64], points: Any, targets: Any) -> QueriedRows:
        """What the model returns for encoded points, the first of which are the rows of this index."""
        rows = subject.rows
        # Wrong names or targets must come to light before the model is queried much.
        raw = rows.query_points(points[:N_FIRST])
        self._check_first(raw, rows.model, targets)
        if points.shape[0] > N_FIRST:
            raw = stack([raw, rows.query_points(points[N_FIRST:])])
        outputs = self._outputs(raw, rows.model)
        return QueriedRows(index, raw, outputs, fitted_targets(targets, outputs))

    def _rank(
        self, scores: NDArray[np.float32], allowed: NDArray[np.bool_], source: ExplainedRows, n: int
    ) -> NDArray[np.int64]:
        """Best first; equal scores in random order, the same for equal rows."""
        ranking = np.full(scores.shape, -1, dtype=np.int64)
        for i, rng in enumerate(self._row_generators(source)):
            units = np.flatnonzero(allowed[i])
            order = np.lexsort((rng.random(len(units)), -scores[i, units]))
            ranking[i, : len(units)] = units[order]
        return ranking

    def _row_generators(self, source: ExplainedRows) -> list[np.random.Generator]:
        """One generator per row, seeded by what the row holds: where it stands in X does not matter."""
        keys = row_keys(source.data.keys() if isinstance(source.data, Records) else source.data)
        return [row_generator(self.seed_, keys[sample]) for sample in source.sample_of_row]


def row_generator(seed: int, key: bytes) -> np.random.Generator:
    """A generator of its own for each row, so that what a row gets does not depend on the others."""
    return np.random.default_rng([seed, int.from_bytes(key, "little")])


class UsualValue(Baseline):
    """Learns the most frequent label, or the mean, of every output."""

    def _learn(self, subject: Subject, queried: QueriedRows) -> None:
        codes, graded = queried.outputs.encode(queried.raw), queried.outputs.graded
        columns = zip(codes.T, graded, strict=True)
        usual = [own.mean() if is_graded else np.bincount(own.astype(np.int64)).argmax() for own, is_graded in columns]
        self.usual_ = np.array(usual, dtype=codes.dtype)

    def _usual(self, source: ExplainedRows, targets: NDArray[np.int64]) -> NDArray[Any]:
        """The encoded usual value of each row's target."""
        if (targets < len(self.usual_)).all():
            return np.asarray(self.usual_[targets])
        usual = source.outputs.decode(self.usual_[None])
        of_all_rows = np.broadcast_to(usual, (len(targets), usual.shape[1]))
        return source.outputs.encode_targets(of_all_rows, targets, source.regions)[0]


class Random(UsualValue):
    """Selects features at random among those that differ from their reference; queries only for the values.

    With query=False the value is the most common one of the target.

    Parameters
    ----------
    model, k, removal, feature_names, output_names, output_kind, method, tolerance, groups : as in `SOInter`
    batch_size, random_state, verbose : as in `SOInter`

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.explainers.baselines import Random
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> model = lambda X: np.column_stack([X[:, 0] > 0, X[:, 3] > 0])
    >>> explainer = Random(model, k=1, random_state=0).fit(X)
    >>> explainer.explain(X[:3], target=1, query=False).selected.ravel().tolist(), explainer.n_explain_queries_
    ([0, 1, 1], 0)
    """

    def _scored(self, source: ExplainedRows, targets: NDArray[np.int64]) -> Scored:
        scores = np.empty((len(targets), source.groups.n_units), dtype=np.float32)
        for i, (rng, target) in enumerate(zip(self._row_generators(source), targets.tolist(), strict=True)):
            own = np.random.default_rng([target_number(target, source), int(rng.integers(2**63))])
            scores[i] = own.random(source.groups.n_units, dtype=np.float32)
        return Scored(scores, self._usual(source, targets))


def target_number(target: int, source: ExplainedRows) -> int:
    """An output's number, or one made from the outputs of a region, whose own number depends on the others."""
    if target < source.outputs.n_outputs:
        return target
    region = np.packbits(source.regions[target - source.outputs.n_outputs])
    return int.from_bytes(blake2b(region.tobytes(), digest_size=8).digest(), "little")


class NearestPixels(UsualValue):
    """Selects the pixels nearest to the target pixel or region, the target itself first; queries only for values.

    A group of pixels is as near as its nearest pixel; ties are broken at random. With query=False the value is the most
    common one of the target.

    Parameters
    ----------
    model, k, removal, feature_names, output_names, output_kind, method, tolerance, groups : as in `SOInter`
    batch_size, random_state, verbose : as in `SOInter`

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.explainers.baselines import NearestPixels
    >>> images = np.random.default_rng(0).random((50, 1, 6, 6))
    >>> model = lambda images: images[:, 0] > 0.5
    >>> explainer = NearestPixels(model, k=1, random_state=0).fit(images)
    >>> explainer.explain(images[:2], target=(2, 3), query=False).pixels.tolist(), explainer.n_explain_queries_
    ([[[2, 3]], [[2, 3]]], 0)
    """

    def _learn(self, subject: Subject, queried: QueriedRows) -> None:
        if subject.rows.input_format.image is None or queried.outputs.shape is None:
            raise InputError(
                "NearestPixels is for images (n, channels, height, width) and a model that returns masks (n, height, "
                "width), got a table; use Random instead."
            )
        super()._learn(subject, queried)

    def _scored(self, source: ExplainedRows, targets: NDArray[np.int64]) -> Scored:
        assert source.outputs.shape is not None
        scores = np.empty((len(targets), source.groups.n_units), dtype=np.float32)
        for target in np.unique(targets).tolist():
            rows = np.flatnonzero(targets == target)
            distance = distance_from(target, source).ravel()
            scores[rows] = -nearest(distance, source.units(rows), len(rows))
        return Scored(scores, self._usual(source, targets))


def distance_from(target: int, source: ExplainedRows) -> NDArray[np.float64]:
    """How far every pixel lies from a target, in pixels: (height, width)."""
    outside = np.ones(source.outputs.n_outputs, dtype=bool)
    outside[source.outputs_of(target)] = False
    return np.asarray(distance_transform_edt(outside.reshape(source.outputs.shape)))


def nearest(distance: NDArray[np.float64], groups: Groups, n_rows: int) -> NDArray[np.float64]:
    """The distance of every unit's nearest pixel, larger than any other where a unit has none: (rows, units)."""
    if groups.spec is None:
        return np.tile(distance, (n_rows, 1))
    found = np.full((n_rows, groups.n_units), distance.max() + 1.0)
    for row, units in enumerate(groups.unit_of_features(n_rows)):
        np.minimum.at(found[row], units, distance)
    return found
