"""L2X: learn to select the k features from which the model's output can be predicted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sointer._support.progress import History
from sointer._support.torch_state import one_thread, seeded
from sointer._support.validation import check_number, check_positive_int
from sointer.data.outputs import Outputs
from sointer.errors import InputError
from sointer.explainers.baselines.base import Baseline, QueriedRows
from sointer.interpreter.elimination import hard_top_k
from sointer.interpreter.paper import gumbel_k_hot
from sointer.masking.removal import FixedRemoval
from sointer.masking.rows import CHUNK_ROWS, ExplainedRows, Subject
from sointer.masking.selection import Scored, allowed_units
from sointer.training.context import is_mostly_zero

NEVER = -1e9


class Networks(nn.Module):
    """The selector, which sees the row and the target, and the predictor, which sees the masked row."""

    center: Tensor
    spread: Tensor
    unit_of_column: Tensor
    n_classes: Tensor

    def __init__(self, n_columns: int, unit_of_column: Tensor, n_units: int, n_classes: Tensor, hidden: int) -> None:
        super().__init__()
        n_outputs, width = len(n_classes), int(n_classes.max())
        self.register_buffer("unit_of_column", unit_of_column)
        self.register_buffer("n_classes", n_classes)
        self.register_buffer("center", torch.zeros(n_columns, dtype=torch.float64))
        self.register_buffer("spread", torch.ones(n_columns, dtype=torch.float64))
        self.target_seen = nn.Embedding(n_outputs, hidden)
        self.selector_first = nn.Linear(n_columns, hidden)
        self.selector_rest = nn.Sequential(nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, n_units))
        self.target_shift = nn.Embedding(n_outputs, 2 * hidden)
        self.predictor_first = nn.Linear(n_columns, 2 * hidden)
        self.predictor_rest = nn.Sequential(nn.ReLU(), nn.Linear(2 * hidden, 2 * hidden), nn.ReLU())
        self.heads = nn.Embedding(n_outputs, 2 * hidden * width)
        self.biases = nn.Embedding(n_outputs, width)
        nn.init.normal_(self.heads.weight, std=(2 * hidden) ** -0.5)
        nn.init.zeros_(self.biases.weight)

    @classmethod
    def build(cls, subject: Subject, outputs: Outputs, hidden: int, seed: int) -> Networks:
        """Networks for these inputs and outputs, with weights drawn by the seed."""
        with seeded(seed):
            networks = cls(
                subject.rows.input_format.n_columns,
                torch.from_numpy(subject.rows.groups.unit_of_column),
                subject.rows.groups.n_units,
                torch.tensor(outputs.n_classes),
                hidden,
            )
        center, spread = _scale_of(subject)
        networks.center.copy_(torch.from_numpy(center))
        networks.spread.copy_(torch.from_numpy(spread))
        return networks

    def scale(self, rows: NDArray[np.float64]) -> Tensor:
        """Encoded rows as the networks see them: zero is what an absent feature looks like."""
        return ((torch.from_numpy(rows) - self.center) / self.spread).float()

    def select(self, x: Tensor, targets: Tensor) -> Tensor:
        """Scores of the units for each row's target: (rows, units)."""
        scores: Tensor = self.selector_rest(self.selector_first(x) + self.target_seen(targets))
        return scores

    def predict(self, x: Tensor, mask: Tensor, targets: Tensor) -> Tensor:
        """From rows with a mask over units to scores of the target's classes (rows, classes); numbers have two."""
        seen = x * mask[:, self.unit_of_column]
        inner = self.predictor_rest(self.predictor_first(seen) + self.target_shift(targets))
        heads = self.heads(targets).view(len(x), inner.shape[1], -1)
        scores: Tensor = torch.einsum("rh,rhc->rc", inner, heads) + self.biases(targets)
        return scores.masked_fill(torch.arange(scores.shape[1]) >= self.n_classes[targets].unsqueeze(1), NEVER)


def output_loss(scores: Tensor, truth: Tensor) -> Tensor:
    """Cross-entropy of labels, or of the codes of graded outputs, which are the probability of their second label."""
    if not truth.dtype.is_floating_point:
        return nn.functional.cross_entropy(scores, truth)
    # Beside graded outputs, class codes are floating-point numbers too.
    low = truth.floor().long()
    wanted = torch.zeros_like(scores).scatter_add_(1, low.unsqueeze(1), (1 - (truth - low)).unsqueeze(1))
    high = (low + 1).clamp_max(scores.shape[1] - 1)
    return nn.functional.cross_entropy(scores, wanted.scatter_add_(1, high.unsqueeze(1), (truth - low).unsqueeze(1)))


def _scale_of(subject: Subject) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What stands for an absent value in every column, and by how much values stray from their mean."""
    n_columns = subject.rows.input_format.n_columns
    mostly_zero = is_mostly_zero(subject.rows.data)
    if isinstance(subject.rows.removal, FixedRemoval):
        center = subject.rows.removal.reference
    elif mostly_zero:
        center = np.zeros(n_columns)
    else:
        center = subject.rows.data.mean(axis=0)
    spread = np.ones(n_columns) if mostly_zero else subject.rows.data.std(axis=0)
    return np.asarray(center, dtype=np.float64), np.where(spread > 0, spread, 1.0)


PAIRS_PER_STEP = 128
STEPS_PER_REPORT = 100


@dataclass(kw_only=True, eq=False, repr=False)
class L2X(Baseline):
    """Learning to explain (Chen et al. 2018): a selector and a predictor, trained together on whole rows.

    The selector scores the features for a target, k relaxed draws combined by maximum make a mask, and the
    predictor predicts the model's output from the masked row; both are trained to make it right. The
    original trains one pair of networks per target; here one pair serves all, with an embedding of the
    target, and rare outputs are drawn as often as common ones. Only features that differ from their reference
    can be drawn. Every row of X is queried once, in fit.

    Parameters
    ----------
    model, k, removal, feature_names, output_names, output_kind, method, tolerance, groups : as in `SOInter`
    batch_size, random_state, verbose : as in `SOInter`
    n_steps : int, default 2000
        Steps of training.
    learning_rate : float, default 1e-3
        Size of the steps.
    temperature : float, default 0.1
        Of the relaxed draws.
    hidden : int, default 100
        Width of the networks' layers.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.explainers.baselines import L2X
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> model = lambda X: np.column_stack([X[:, 0] > 0, X[:, 3] > 0])
    >>> explainer = L2X(model, k=1, random_state=0, n_steps=200).fit(X)
    >>> explainer.explain(X[:3], target=1).selected.ravel().tolist(), explainer.n_explain_queries_
    ([3, 3, 3], 3)
    """

    max_rows_queried = None

    n_steps: int = 2000
    learning_rate: float = 1e-3
    temperature: float = 0.1
    hidden: int = 100

    def _check_settings(self) -> None:
        check_positive_int(self.n_steps, "n_steps")
        check_positive_int(self.hidden, "hidden")
        for name in ("learning_rate", "temperature"):
            check_number(getattr(self, name), name)

    def _learn(self, subject: Subject, queried: QueriedRows) -> None:
        if subject.rows.input_format.image is not None:
            raise InputError("L2X is for tables, but X holds images; explain them with SOInter or another baseline.")
        networks = Networks.build(subject, queried.outputs, self.hidden, seed=int(subject.rng.integers(2**62)))
        history = History(self.verbose)
        with one_thread(lasts=True):
            self._train(networks, subject, queried, history)
        self.networks_ = networks.eval().requires_grad_(False)
        self.trained_k_ = subject.k
        self.history_ = history.rows

    def _train(self, networks: Networks, subject: Subject, queried: QueriedRows, history: History) -> None:
        generator = torch.Generator().manual_seed(int(subject.rng.integers(2**62)))
        draws = TargetDraws(queried)
        optimiser = torch.optim.Adam(networks.parameters(), lr=self.learning_rate)
        history.stage("training L2X", self.n_steps)
        losses = []
        for step in range(self.n_steps):
            rows, chosen = draws.draw(PAIRS_PER_STEP, subject.rng)
            raw = subject.rows.samples(queried.index[rows])
            x, targets = networks.scale(raw), torch.from_numpy(chosen)
            allowed = torch.from_numpy(allowed_units(subject.rows.removal, subject.rows.groups, raw))
            scores = networks.select(x, targets).masked_fill(~allowed, NEVER)
            mask = gumbel_k_hot(scores, subject.k, self.temperature, generator)
            loss = output_loss(networks.predict(x, mask, targets), torch.from_numpy(draws.truth[rows, chosen]))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
            history.step(loss=losses[-1])
            if (step + 1) % STEPS_PER_REPORT == 0:
                history.record(stage="training", step=step + 1, loss=float(np.mean(losses[-STEPS_PER_REPORT:])))
        history.close()

    def _scored(self, source: ExplainedRows, targets: NDArray[np.int64]) -> Scored:
        n_rows, n_columns = source.n_rows, source.data.shape[1]
        scores = np.empty((n_rows, source.groups.n_units), dtype=np.float32)
        values = np.empty(n_rows, dtype=np.float32 if source.outputs.graded.any() else np.int64)
        allowed = self._allowed(source)
        with one_thread(), torch.no_grad():
            for start in range(0, n_rows, CHUNK_ROWS):
                rows = np.arange(start, min(start + CHUNK_ROWS, n_rows))
                n = len(rows)
                # Every chunk has the same shape, so a row's explanation cannot depend on the rows around it.
                x = torch.zeros(CHUNK_ROWS, n_columns)
                x[:n] = self.networks_.scale(source.rows(rows))
                t = torch.zeros(CHUNK_ROWS, dtype=torch.long)
                t[:n] = torch.from_numpy(targets[rows])
                may = torch.zeros(CHUNK_ROWS, source.groups.n_units, dtype=torch.bool)
                may[:n] = torch.from_numpy(allowed[rows])
                logits = self.networks_.select(x, t)
                predicted = self.networks_.predict(x, hard_top_k(logits, self.trained_k_, may).float(), t)
                scores[rows] = logits[:n].numpy()
                likely = np.where(
                    source.outputs.graded[targets[rows]], predicted.softmax(1)[:n, 1], predicted.argmax(1)[:n]
                )
                values[rows] = likely
        return Scored(scores, values)


class TargetDraws:
    """What the networks learn from: rows, targets, and what the model returned."""

    def __init__(self, queried: QueriedRows) -> None:
        outputs = queried.outputs
        labels = outputs.labels(queried.raw)
        self.targets = np.array(queried.targets)
        self.truth = outputs.encode(queried.raw)
        self._unusual: dict[int, NDArray[np.int64]] = {}
        for t in queried.targets:
            self._unusual[t] = np.flatnonzero(labels[:, t] != np.bincount(labels[:, t]).argmax())

    def draw(self, n: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draw n rows and targets; every other row, where there are such, has not its target's usual label."""
        chosen = self.targets[rng.integers(len(self.targets), size=n)]
        rows = rng.integers(len(self.truth), size=n)
        for i in range(0, n, 2):
            unusual = self._unusual.get(int(chosen[i]), rows[:0])
            if len(unusual):
                rows[i] = unusual[rng.integers(len(unusual))]
        return rows, chosen
