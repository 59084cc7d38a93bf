"""What the baselines share: a fit that asks about whole rows only, and rankings whose ties are broken by lot."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from sointer._support.hashing import row_keys
from sointer.base import Explainer, Subject, fitted_targets
from sointer.blackbox.replies import stack
from sointer.concerns import warn_about_outputs
from sointer.data.outputs import Outputs
from sointer.masking.rows import Source

N_FIRST = 16

AnyBaseline = TypeVar("AnyBaseline", bound="Baseline")


@dataclass(frozen=True)
class Answers:
    """What the black box said about whole rows of the data."""

    index: NDArray[np.int64]
    raw: NDArray[Any]
    outputs: Outputs
    targets: list[int]


class Baseline(Explainer):
    """An explainer that learns, if anything, from whole rows.

    Parameters are those of SOInter: model, k, removal, feature_names, output_names, output_kind, method,
    tolerance, groups, batch_size, random_state and verbose mean the same here.
    """

    most_rows_asked: int | None = 1000
    """Rows that fit asks about, to learn what the outputs are; None for all."""

    def __init__(
        self,
        model: Any,
        *,
        k: int | Literal["auto"] = 10,
        removal: Any = "auto",
        feature_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        output_kind: str | None = None,
        method: str | None = None,
        tolerance: float | None = None,
        groups: Any = None,
        batch_size: int | None = None,
        random_state: Any = None,
        verbose: bool | None = None,
    ) -> None:
        self.model = model
        self.k = k
        self.removal = removal
        self.feature_names = feature_names
        self.output_names = output_names
        self.output_kind = output_kind
        self.method = method
        self.tolerance = tolerance
        self.groups = groups
        self.batch_size = batch_size
        self.random_state = random_state
        self.verbose = verbose

    def fit(self: AnyBaseline, X: Any, y: Any = None, *, targets: Any = None) -> AnyBaseline:
        """Learn what there is to learn about the model on data X, for all outputs or for some; y is not used."""
        self._check_settings()
        subject = self._read(X, self._wanted_removal())
        queries_before = subject.black_box.n_queries
        answers = self._ask_whole_rows(subject, targets)
        warn_about_outputs(answers.outputs, answers.raw, stacklevel=2)
        seed = int(subject.rng.integers(2**63))
        self._learn(subject, answers)
        self._adopt_subject(subject, answers.outputs, answers.targets)
        self.seed_ = seed
        self.n_queries_ = subject.black_box.n_queries - queries_before
        return self

    def _check_settings(self) -> None:
        """Refuse impossible settings before anything is asked."""

    def _wanted_removal(self) -> Any:
        """What `removal` stands for."""
        return self.removal

    @abstractmethod
    def _learn(self, subject: Subject, answers: Answers) -> None:
        """Whatever the method does before it sees the rows to explain."""

    def _effects(self, source: Source, targets: NDArray[np.int64]) -> NDArray[np.float32] | None:
        """Which way each unit pushes: (rows, units), None from baselines that do not know.

        For labels and probabilities positive means towards the value predicted; for numbers, upwards.
        """
        return None

    def _ask_whole_rows(self, subject: Subject, targets: Any) -> Answers:
        n_rows = subject.data.shape[0]
        order = subject.rng.permutation(n_rows)[: self.most_rows_asked]
        # Wrong names or targets must come to light before the black box is asked much.
        first = subject.ask(order[:N_FIRST])
        self._check_first(first, subject.black_box, targets)
        raw = stack([first, subject.ask(order[N_FIRST:])]) if len(order) > N_FIRST else first
        outputs = self._outputs(raw, subject.black_box)
        return Answers(order, raw, outputs, fitted_targets(targets, outputs))

    def _rank(
        self, scores: NDArray[np.float32], allowed: NDArray[np.bool_], source: Source, n: int
    ) -> NDArray[np.int64]:
        """Best first; equal scores in an order drawn by lot, the same for equal rows."""
        ranking = np.full(scores.shape, -1, dtype=np.int64)
        for i, rng in enumerate(self._row_generators(source)):
            units = np.flatnonzero(allowed[i])
            order = np.lexsort((rng.random(len(units)), -scores[i, units]))
            ranking[i, : len(units)] = units[order]
        return ranking

    def _row_generators(self, source: Source) -> list[np.random.Generator]:
        """One generator per row, seeded by what the row holds: where it stands in X does not matter."""
        return [row_generator(self.seed_, key) for key in row_keys(source.data)]


def row_generator(seed: int, key: bytes) -> np.random.Generator:
    return np.random.default_rng([seed, int.from_bytes(key, "little")])
