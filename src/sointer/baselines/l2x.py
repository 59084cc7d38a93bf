"""L2X: learn to select the k features from which the black box's answer can be told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from sointer._support.torch_state import one_thread
from sointer._support.validation import check_positive_int
from sointer.base import CHUNK_ROWS, Subject
from sointer.baselines.baseline import Answers, Baseline
from sointer.baselines.hide_and_seek import check_number
from sointer.baselines.l2x_networks import NEVER, Networks, answer_loss
from sointer.errors import InputError
from sointer.interpreter.networks import gumbel_k_hot, hard_top_k
from sointer.masking.rows import Source
from sointer.masking.selection import allowed_units
from sointer.training.history import History

PAIRS_PER_STEP = 128
STEPS_PER_REPORT = 100


class L2X(Baseline):
    """Learning to explain (Chen et al. 2018): a selector and a predictor, trained together on whole rows.

    The selector scores the features for a target, k relaxed draws combined by maximum make a mask, and the
    predictor tells the black box's answer from the masked row; both are trained to make it right. The
    original trains one pair of networks per target; here one pair serves all, with an embedding of the
    target, and rare answers are drawn as often as usual ones. Only features that differ from their reference
    can be drawn. Asks about every row of X once, in fit, and never again.

    Parameters
    ----------
    n_steps, learning_rate, temperature, hidden : of the training, and the width of the networks' layers.
    Other parameters are those of SOInter.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.baselines import L2X
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> model = lambda X: np.column_stack([X[:, 0] > 0, X[:, 3] > 0])
    >>> explainer = L2X(model, k=1, random_state=0, n_steps=200).fit(X)
    >>> explainer.explain(X[:3], target=1).selected.ravel().tolist(), explainer.n_explain_queries_
    ([3, 3, 3], 3)
    """

    most_rows_asked = None

    def __init__(
        self,
        model: Any,
        *,
        k: int | Literal["auto"] = 10,
        removal: Any = "auto",
        n_steps: int = 2000,
        learning_rate: float = 1e-3,
        temperature: float = 0.1,
        hidden: int = 100,
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
        super().__init__(
            model,
            k=k,
            removal=removal,
            feature_names=feature_names,
            output_names=output_names,
            output_kind=output_kind,
            method=method,
            tolerance=tolerance,
            groups=groups,
            batch_size=batch_size,
            random_state=random_state,
            verbose=verbose,
        )
        self.n_steps = n_steps
        self.learning_rate = learning_rate
        self.temperature = temperature
        self.hidden = hidden

    def _check_settings(self) -> None:
        check_positive_int(self.n_steps, "n_steps")
        check_positive_int(self.hidden, "hidden")
        for name in ("learning_rate", "temperature"):
            check_number(getattr(self, name), name)

    def _learn(self, subject: Subject, answers: Answers) -> None:
        if subject.input_format.image is not None:
            raise InputError("L2X is for tables, but X holds images; explain them with SOInter or another baseline.")
        networks = Networks.build(subject, answers.outputs, self.hidden, seed=int(subject.rng.integers(2**62)))
        history = History(self.verbose)
        with one_thread():
            self._train(networks, subject, answers, history)
        self.networks_ = networks.eval().requires_grad_(False)
        self.trained_k_ = subject.k
        self.history_ = history.rows

    def _train(self, networks: Networks, subject: Subject, answers: Answers, history: History) -> None:
        generator = torch.Generator().manual_seed(int(subject.rng.integers(2**62)))
        pairs = Pairs(answers)
        optimiser = torch.optim.Adam(networks.parameters(), lr=self.learning_rate)
        history.stage("training L2X", self.n_steps)
        losses = []
        for step in range(self.n_steps):
            rows, chosen = pairs.draw(PAIRS_PER_STEP, subject.rng)
            raw = subject.rows(answers.index[rows])
            x, targets = networks.scale(raw), torch.from_numpy(chosen)
            allowed = torch.from_numpy(allowed_units(subject.removal, subject.groups, raw))
            scores = networks.select(x, targets).masked_fill(~allowed, NEVER)
            mask = gumbel_k_hot(scores, subject.k, self.temperature, generator)
            loss = answer_loss(networks.predict(x, mask, targets), torch.from_numpy(pairs.truth[rows, chosen]))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
            history.step(loss=losses[-1])
            if (step + 1) % STEPS_PER_REPORT == 0:
                history.record(stage="training", step=step + 1, loss=float(np.mean(losses[-STEPS_PER_REPORT:])))
        history.close()

    def _scores(self, source: Source, targets: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[Any]]:
        n_rows, n_columns = source.data.shape
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
                answer = self.networks_.predict(x, hard_top_k(logits, self.trained_k_, may).float(), t)
                scores[rows] = logits[:n].numpy()
                likely = np.where(source.outputs.graded[targets[rows]], answer.softmax(1)[:n, 1], answer.argmax(1)[:n])
                values[rows] = likely
        return scores, values


class Pairs:
    """What the networks learn from: rows, targets, and what the black box said."""

    def __init__(self, answers: Answers) -> None:
        outputs = answers.outputs
        labels = outputs.labels(answers.raw)
        self.targets = np.array(answers.targets)
        self.truth = outputs.encode(answers.raw)
        self._unusual: dict[int, NDArray[np.int64]] = {}
        for t in answers.targets:
            self._unusual[t] = np.flatnonzero(labels[:, t] != np.bincount(labels[:, t]).argmax())

    def draw(self, n: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """n rows and targets; every other row, where there are such, has not its target's usual label."""
        chosen = self.targets[rng.integers(len(self.targets), size=n)]
        rows = rng.integers(len(self.truth), size=n)
        for i in range(0, n, 2):
            unusual = self._unusual.get(int(chosen[i]), rows[:0])
            if len(unusual):
                rows[i] = unusual[rng.integers(len(unusual))]
        return rows, chosen
