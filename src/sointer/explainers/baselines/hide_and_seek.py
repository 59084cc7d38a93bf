"""Hide&Seek: a mask that hides as much as possible while a predictor can still tell the model's output."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sointer._support.progress import History
from sointer._support.torch_state import seeded
from sointer._support.validation import check_number, check_positive_int
from sointer.explainers.baselines.trained import Examples, TargetNetworks, Trained, layers, losses, to_columns

HIDDEN = (32, 32)
LEARNING_RATE = 1e-3
EPOCHS_PER_REPORT = 50


@dataclass(kw_only=True, eq=False, repr=False)
class HideAndSeek(Trained):
    """Hide&Seek, written from its description: a soft mask m(x) and a predictor, trained together for each target.

    Hidden values are drawn from the data, each unit on its own (the product of the marginals), x~ = m x + (1 - m) draw.
    The predictor sees x~ only. Its loss plus `penalty_t / d |m|_1` is minimised, with penalty_t = penalty (t / T)^2, by
    Adam with learning rate 1e-3 on all rows at once; both networks have two hidden layers of 32.

    Parameters
    ----------
    query_budget : rows that fit queries the model about; all rows of X by default.
    n_epochs : T, steps on all rows.
    penalty : the largest weight of the mask's size. 0.2 suits probabilities; with labels, 0.5 leaves fewer irrelevant
        units selected.
    Other parameters are those of SOInter. With k="auto" all units with m >= 0.5 are selected, at least one.

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
