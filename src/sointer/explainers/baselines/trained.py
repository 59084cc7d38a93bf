"""Baselines that train networks of their own for every target: what they share, and Hide&Seek."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sointer._support.progress import History
from sointer._support.torch_state import one_thread, seeded
from sointer._support.validation import check_number, check_positive_int
from sointer.data.outputs import Outputs
from sointer.errors import InputError
from sointer.explainers.baselines.base import N_FIRST, Baseline, QueriedRows
from sointer.explanation import Explanation
from sointer.masking.groups import Groups
from sointer.masking.rows import CHUNK_ROWS, ExplainedRows, Subject
from sointer.masking.selection import Scored

MAX_NUMBERS = 2**27
"""Largest table of queried rows, in numbers: the networks hold it in memory, dense."""
THRESHOLD = 0.5
"""Units with at least this probability are selected where the size is left to the method."""


@dataclass(frozen=True)
class QueriedPoints(QueriedRows):
    """The rows that the model was queried about, encoded, and what it returned; `index` are those of the data."""

    points: NDArray[np.float64]


@dataclass(frozen=True)
class Examples:
    """What the networks of one target learn from."""

    x: Tensor
    """Scaled rows: (rows, columns)."""
    truth: Tensor
    """Probabilities of the target's classes; of a number, of low and high: (rows, classes)."""
    unit_of_column: Tensor
    n_units: int


@dataclass(frozen=True)
class TargetNetworks:
    """The networks of one target."""

    selector: nn.Module
    """From scaled rows to the probability of every unit to be selected."""
    predictor: nn.Module
    """From whole scaled rows to logits of the classes; of a number, of low and high."""


@dataclass(kw_only=True, eq=False, repr=False)
class TrainedBaseline(Baseline):
    """A baseline whose networks are trained for each target, on the model's outputs for `query_budget` rows.

    Probabilities are learned as they are, by soft cross-entropy; labels as certain; numbers by their quantile. If the
    budget exceeds the rows of X, the further queries are rows of X with a random part of their units taken from another
    row. Explaining queries only values. With k="auto" the method decides on the size: all units of probability 0.5 or
    more, at least one.
    """

    queries_for_sizes = False
    query_budget: int | None = None

    @abstractmethod
    def _train(self, examples: Examples, seed: int, history: History) -> TargetNetworks:
        """The networks of one target."""

    def _check_settings(self) -> None:
        if self.query_budget is not None:
            check_positive_int(self.query_budget, "query_budget", minimum=N_FIRST)

    def _query_rows(self, subject: Subject, targets: Any) -> QueriedPoints:
        name = type(self).__name__
        if subject.rows.input_format.image is not None:
            raise InputError(f"{name} is for tables, but X holds images; explain them with SOInter.")
        n_rows, n_columns = subject.rows.data.shape
        n_queries = self.query_budget or n_rows
        if n_queries * n_columns > MAX_NUMBERS:
            raise InputError(
                f"{name} holds all queried rows in memory, {n_queries:,} x {n_columns:,} numbers, expected at most "
                f"{MAX_NUMBERS:,}; set query_budget to {MAX_NUMBERS // n_columns:,} or less."
            )
        order = subject.rng.permutation(n_rows)[:n_queries]
        points = subject.rows.samples(order)
        if n_queries > n_rows:
            points = np.concatenate([points, mixed_rows(points, n_queries - n_rows, subject.rows.groups, subject.rng)])
        return QueriedPoints(**vars(self._query(subject, order, points, targets)), points=points)

    def _learn(self, subject: Subject, queried: QueriedRows) -> None:
        assert isinstance(queried, QueriedPoints)
        points, history = queried.points, History(self.verbose)
        spread = points.std(axis=0)
        self.center_ = points.mean(axis=0)
        self.spread_ = np.where(spread > 0, spread, 1.0)
        x, units = self._scale(points), torch.from_numpy(subject.rows.groups.unit_of_column)
        self.networks_: dict[int, TargetNetworks] = {}
        with one_thread(lasts=True):
            for target in queried.targets:
                truth = graded(queried.raw, queried.outputs, target)
                seed = int(subject.rng.integers(2**32))
                trained = self._train(Examples(x, truth, units, subject.rows.groups.n_units), seed, history)
                for network in (trained.selector, trained.predictor):
                    network.eval().requires_grad_(False)
                self.networks_[target] = trained
        self.history_ = history.rows

    def _scale(self, rows: NDArray[np.float64]) -> Tensor:
        return torch.from_numpy((rows - self.center_) / self.spread_).float()

    def _scored(self, source: ExplainedRows, targets: NDArray[np.int64]) -> Scored:
        n_rows, n_columns = source.n_rows, source.data.shape[1]
        is_graded = source.outputs.graded
        scores = np.empty((n_rows, source.groups.n_units), dtype=np.float32)
        values = np.empty(n_rows, dtype=np.float32 if is_graded.any() else np.int64)
        with one_thread(), torch.no_grad():
            for target in np.unique(targets).tolist():
                networks, index = self.networks_[target], np.flatnonzero(targets == target)
                for start in range(0, len(index), CHUNK_ROWS):
                    chunk = index[start : start + CHUNK_ROWS]
                    # Every chunk has the same shape, so a row's explanation cannot depend on the rows around it.
                    x = torch.zeros(CHUNK_ROWS, n_columns)
                    x[: len(chunk)] = self._scale(source.rows(chunk))
                    scores[chunk] = networks.selector(x)[: len(chunk)].numpy()
                    predicted = networks.predictor(x)[: len(chunk)]
                    likely = predicted.softmax(dim=1)[:, 1] if is_graded[target] else predicted.argmax(dim=1)
                    values[chunk] = likely.numpy()
        return Scored(scores, values)

    def _explain_rows(
        self,
        source: ExplainedRows,
        targets: NDArray[np.int64],
        k: int | Literal["auto"] | None = None,
        **options: Any,
    ) -> Explanation:
        if (self.k if k is None else k) != "auto":
            return super()._explain_rows(source, targets, k, **options)
        ranked = super()._explain_rows(source, targets, self.groups_.n_units, **options)
        sizes = np.maximum(1, (ranked.scores >= THRESHOLD).sum(axis=1))
        width = int(sizes.max())
        return replace(ranked, selected=np.where(np.arange(width) < sizes[:, None], ranked.selected[:, :width], -1))


def mixed_rows(rows: NDArray[np.float64], n: int, groups: Groups, rng: np.random.Generator) -> NDArray[np.float64]:
    """Make n rows, each with a random part of its units taken from another row."""
    kept = rng.random((n, groups.n_units)) < rng.random((n, 1))
    one, other = rows[rng.integers(len(rows), size=n)], rows[rng.integers(len(rows), size=n)]
    return np.where(groups.to_columns(kept), one, other)


def graded(raw: NDArray[Any], outputs: Outputs, target: int) -> Tensor:
    """What the model returned for one output, as probabilities of its classes; of a number, of low and high."""
    codes = outputs.encode(raw)[:, target]
    if outputs.graded[target]:
        return torch.from_numpy(np.stack([1 - codes, codes], axis=1))
    return torch.from_numpy(np.eye(outputs.n_classes[target], dtype=np.float32)[codes.astype(np.int64)])


def to_columns(of_units: Tensor, unit_of_column: Tensor) -> Tensor:
    """A table (rows, units) as (rows, columns); copied only where units are not columns anyway."""
    plain = torch.arange(of_units.shape[1])
    return of_units if torch.equal(unit_of_column, plain) else of_units[:, unit_of_column]


def losses(predicted: Tensor, truth: Tensor) -> Tensor:
    """Soft cross-entropy: (rows,)."""
    return -(truth * predicted.log_softmax(dim=1)).sum(dim=1)


def layers(
    n_in: int, hidden: Sequence[int], n_out: int, activation: type[nn.Module], *, norm: bool = False
) -> nn.Module:
    """A plain network; with batch normalisation before each activation if `norm`."""
    parts: list[nn.Module] = []
    for width in hidden:
        parts += [nn.Linear(n_in, width), *([nn.BatchNorm1d(width)] if norm else []), activation()]
        n_in = width
    return nn.Sequential(*parts, nn.Linear(n_in, n_out))


HIDDEN = (32, 32)
LEARNING_RATE = 1e-3
EPOCHS_PER_REPORT = 50


@dataclass(kw_only=True, eq=False, repr=False)
class HideAndSeek(TrainedBaseline):
    """Hide&Seek, written from its description: a soft mask m(x) and a predictor, trained together for each target.

    Hidden values are drawn from the data, each unit independently (the product of the marginals),
    x~ = m x + (1 - m) draw. The predictor sees only x~. Its loss plus `penalty_t / d |m|_1` is minimised, with
    penalty_t = penalty (t / T)^2, by Adam with learning rate 1e-3 on all rows at once; both networks have two hidden
    layers of 32.

    Parameters
    ----------
    model, k, removal, feature_names, output_names, output_kind, method, tolerance, groups : as in `SOInter`
    batch_size, random_state, verbose : as in `SOInter`
        With k="auto" all units with m >= 0.5 are selected, at least one.
    query_budget : int, optional
        Maximum number of rows that fit queries; by default all rows of X.
    n_epochs : int, default 500
        T, steps on all rows.
    penalty : float, default 0.2
        The largest weight of the mask's size. 0.2 suits probabilities; with labels, 0.5 leaves fewer irrelevant units
        selected.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.explainers.baselines import HideAndSeek
    >>> X = np.random.default_rng(0).normal(size=(500, 5))
    >>> model = lambda X: np.column_stack([X[:, 0] > 0, X[:, 3] > 0])
    >>> explainer = HideAndSeek(model, k="auto", random_state=0).fit(X)
    >>> explainer.explain(X[:3], target=1).selected.tolist(), explainer.n_explain_queries_
    ([[3], [3], [3]], 3)
    """

    n_epochs: int = 500
    penalty: float = 0.2

    def _check_settings(self) -> None:
        super()._check_settings()
        check_positive_int(self.n_epochs, "n_epochs")
        check_number(self.penalty, "penalty")

    def _train(self, examples: Examples, seed: int, history: History) -> TargetNetworks:
        n_columns, n_classes = examples.x.shape[1], examples.truth.shape[1]
        with seeded(seed):
            mask = nn.Sequential(layers(n_columns, HIDDEN, examples.n_units, nn.ReLU), nn.Sigmoid())
            predictor = layers(n_columns, HIDDEN, n_classes, nn.ReLU)
        generator = torch.Generator().manual_seed(seed)
        optimiser = torch.optim.Adam([*mask.parameters(), *predictor.parameters()], lr=LEARNING_RATE)
        history.stage("training Hide&Seek", self.n_epochs)
        for epoch in range(1, self.n_epochs + 1):
            kept = mask(examples.x)
            seen = hide(examples.x, kept, examples.unit_of_column, generator)
            error = losses(predictor(seen), examples.truth).mean()
            loss = error + size_penalty(kept, self.penalty, epoch / self.n_epochs)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            history.step(loss=loss.item())
            if epoch % EPOCHS_PER_REPORT == 0:
                history.record(
                    stage="training", step=epoch, loss=loss.item(), size=float(kept.detach().sum(dim=1).mean())
                )
        history.close()
        return TargetNetworks(mask, predictor)


def hide(x: Tensor, kept: Tensor, unit_of_column: Tensor, generator: torch.Generator) -> Tensor:
    """Rows m x + (1 - m) draw, every unit drawn from the rows on its own: (rows, columns)."""
    rows = torch.randint(len(x), kept.shape, generator=generator)
    draw = x.gather(0, to_columns(rows, unit_of_column))
    share = to_columns(kept, unit_of_column)
    return share * x + (1 - share) * draw


def size_penalty(kept: Tensor, penalty: float, progress: float) -> Tensor:
    """The term penalty (t / T)^2 / d |m|_1, averaged over rows."""
    return penalty * progress**2 * kept.mean()
