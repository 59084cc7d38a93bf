"""Are explanations of sequences faithful? The model judges, with the nearest tokens and random ones beside them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sointer._support.validation import check_positive_int
from sointer.data.sequences import read_sequences
from sointer.errors import InputError
from sointer.explainers.sequence_explanation import SequenceExplanation
from sointer.explainers.sequences import SequenceExplainer
from sointer.metrics.evaluation_result import aligned

N_DRAWS = 10


@dataclass(frozen=True)
class TokenScore:
    """How one method did on all labels."""

    name: str
    keep: float
    """Share of draws in which the label stays when all but the selected tokens are replaced."""
    delete: float
    """Share of draws in which it changes when the selected tokens are replaced, and all others stay."""


@dataclass(frozen=True)
class SequenceEvaluation:
    """A comparison on some sequences; the explainer itself comes first, and the others select as many tokens."""

    methods: list[TokenScore]
    n_sequences: int
    n_labels: int
    n_selected: float
    """Tokens selected for a label, on average."""
    n_queries: int

    @property
    def fidelity(self) -> float:
        """What the explainer's own tokens keep."""
        return self.methods[0].keep

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {**asdict(self), "fidelity": self.fidelity}

    def table(self) -> str:
        """The comparison as text, with a line of explanation for every column."""
        rows = [[one.name, f"{one.keep:.3f}", f"{one.delete:.3f}"] for one in self.methods]
        lines = [
            f"{self.n_sequences} sequences, {self.n_labels} labels, {self.n_selected:.1f} tokens selected on average",
            "",
            *aligned([["", "keep", "delete"], *rows]),
            "",
            "keep    the model predicts the same when all but these tokens are replaced (share of draws)",
            "delete  it predicts something else when these are replaced and all others stay; read both together",
        ]
        return "\n".join(lines)


def evaluate_sequences(
    explainer: SequenceExplainer,
    X: Any,
    *,
    n_rows: int = 50,
    k: int | Literal["auto"] | None = None,
    random_state: int = 0,
) -> SequenceEvaluation:
    """Compare the selected tokens of an explainer with as many nearest and as many random ones.

    Parameters
    ----------
    explainer : SequenceExplainer
        Fitted, with its model.
    X : list of token lists
        Held-out ones say most.
    n_rows : int, default 50
        Sequences drawn from X; all their labels are explained.
    k : int or "auto", optional
        How many tokens are selected; default the explainer's own.
    random_state : int, default 0

    Returns
    -------
    SequenceEvaluation

    Raises
    ------
    InputError
        If the explainer has no model.
    """
    if explainer.black_box_ is None:
        raise InputError("evaluate: there is no model to query; load the explainer with its black box.")
    rng = np.random.default_rng(check_positive_int(random_state, "random_state", minimum=0))
    sequences = read_sequences(X, explainer.splitter, "evaluate")
    subset = np.sort(rng.permutation(len(sequences))[: check_positive_int(n_rows, "n_rows")])
    before = explainer.black_box_.n_queries
    why = explainer.explain([sequences[i] for i in subset], k=k)
    near = -np.abs(np.arange(why.scores.shape[1]) - why.position[:, None]).astype(np.float64)
    masks = {
        type(explainer).__name__: why.mask,
        "NearestTokens": _best(why, near),
        "Random": _best(why, rng.random(near.shape)),
    }
    methods = []
    for name, mask in masks.items():
        keep, delete = (why.repeated(kept, N_DRAWS, random_state)[0] for kept in (mask, ~mask))
        methods.append(TokenScore(name, float(keep.mean()), float(1 - delete.mean())))
    n_queries = explainer.black_box_.n_queries - before
    return SequenceEvaluation(methods, len(subset), len(why), float(why.n_selected.mean()), n_queries)


def _best(why: SequenceExplanation, scores: NDArray[np.float64]) -> NDArray[np.bool_]:
    """As many tokens of each target's sequence as were selected for it, those with the largest scores."""
    scores = np.where(np.isnan(why.scores), -np.inf, scores)
    rank = np.argsort(np.argsort(-scores, axis=1, kind="stable"), axis=1, kind="stable")
    return np.asarray(rank < why.n_selected[:, None])
