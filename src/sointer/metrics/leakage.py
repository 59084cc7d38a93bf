"""Whether a selection carries what decides the target, or the shape of the mask leaks the output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sointer._support.containers import is_sparse, row_keys
from sointer._support.validation import some
from sointer.blackbox.replies import stack
from sointer.data.text_tables import Records
from sointer.errors import InputError
from sointer.explanation import Explanation
from sointer.masking.rows import QUERY_ROWS, ExplainedRows
from sointer.masking.superpixels import Superpixels
from sointer.metrics.evaluation_result import MeanInterval
from sointer.metrics.masked_predictor import Index, MaskedPredictor, MaskedRows, MasksAlone, any_mask, mask_of_another

N_FOLDS = 3
MIN_ROWS = 30
FIRST_STEPS = (1000, 4000)
ROWS_PER_FIRST_STEP = 3  # more rows to learn from are worth more steps
MORE_STEPS = 150
SURE = 0.2  # less of the way from chance to certainty is a guess: below 0.6 where there are two values


class Reading(NamedTuple):
    """How well the target's value was predicted on the explained rows, each of its values counting the same.

    Examples
    --------
    >>> from sointer.metrics import Reading
    >>> Reading(accuracy=0.5, log_loss=1.0)  # a guess of one of two values
    Reading(accuracy=0.5, log_loss=1.0)
    """

    accuracy: float
    """Share of rows predicted correctly, averaged over the values of the target; unsure ones count as guesses."""
    log_loss: float
    """In bits, averaged likewise; 0 if always right with certainty, 1 for guessing one of two values."""


@dataclass(frozen=True)
class Leakage:
    """What can be predicted from the selected values, from the mask's shape, and from both; see `leakage`.

    Examples
    --------
    >>> from sointer.metrics import Leakage, MeanInterval, Reading
    >>> guess, right = Reading(0.5, 1.0), Reading(1.0, 0.0)
    >>> carried, leaked = MeanInterval(0.0, -0.1, 0.1), MeanInterval(0.5, 0.4, 0.6)
    >>> found = Leakage(guess, right, right, right, 0.5, carried, leaked, tolerance=0.1, n_rows=100, n_queries=0)
    >>> found.verdict
    'leaked'
    """

    evaluator: Reading
    """From the selected values, by a network whose masks were drawn without regard to the row (EVAL-X)."""
    joint: Reading
    """The same, by a network that has learned this explainer's habits: which mask it gives to which row."""
    shape: Reading
    """From the mask alone, by a network that has learned these habits and sees no values."""
    whole: Reading
    """From all values, by the evaluator; how good it can be at all."""
    chance: float
    """Accuracy of a guess; one over the number of values."""
    carried: MeanInterval
    """How far the evaluator is above chance, with its 95 % interval."""
    leaked: MeanInterval
    """How far the better of joint and shape is above the evaluator, with its 95 % interval."""
    tolerance: float
    """The smallest difference of accuracies that counts."""
    n_rows: int
    """Held-out rows."""
    n_queries: int
    """Rows that this check sent to the model."""

    @property
    def informative(self) -> bool:
        """Whether the selected values predict the target better than chance, by more than the tolerance and noise."""
        return self.carried.mean > self.tolerance and self.carried.low > 0

    @property
    def leaks(self) -> bool:
        """Whether the masks predict more than the values they select, by more than the tolerance and noise."""
        return self.leaked.mean > self.tolerance and self.leaked.low > 0

    @property
    def conclusive(self) -> bool:
        """Whether finding nothing means anything; on whole rows the evaluator makes under half the errors of chance."""
        return self.informative or self.leaks or 1 - self.whole.accuracy < (1 - self.chance) / 2

    @property
    def verdict(self) -> str:
        """In a few words."""
        if self.leaks:
            return "partly leaked" if self.informative else "leaked"
        if self.informative:
            in_part = self.evaluator.accuracy < self.whole.accuracy - self.tolerance
            return "carried by the selected values" + " in part" * in_part
        if self.conclusive:
            return "neither carried nor leaked"
        return "undecided: the evaluator fails on whole rows too, give it more rows with X="

    def __repr__(self) -> str:
        return (
            f"Leakage({self.verdict}: predicted correctly {self.evaluator.accuracy:.2f} from the selected values, "
            f"{self.joint.accuracy:.2f} knowing the explainer's habits, {self.shape.accuracy:.2f} from the mask alone, "
            f"{self.whole.accuracy:.2f} from whole rows, {self.chance:.2f} by chance; {self.n_rows} rows, "
            f"n_queries={self.n_queries})"
        )


def leakage(explanation: Explanation, X: Any = None, *, tolerance: float = 0.1, random_state: int = 0) -> Leakage:
    """Whether the target can be predicted from the selected values, or only from which features were selected.

    An explainer that selects feature 0 for yes and feature 1 for no leaks the output, although neither feature matters.
    As in EVAL-X (Jethani et al. 2021), an *evaluator* learns to predict the model's outputs for unmasked rows from
    masked ones, under masks that do not depend on the row: drawn at random, or selected for another row. The shape of
    a mask means nothing to it, so what it predicts correctly is carried by the selected values. A copy of it then
    learns from the same rows with their own masks (*joint*), another network from the masks alone (*shape*). What
    these predict beyond the evaluator comes from the explainer's habits: it was leaked. All three are tested on
    held-out rows.

    If different features decide different rows, the shape of an honest mask depends on the output too: shape above
    chance proves nothing as long as the evaluator keeps up. Selecting in every row the features that support its
    output leaks a little, hence the tolerance. A selection that is the same in all rows cannot leak.

    Parameters
    ----------
    explanation : Explanation
        Of one target, with at least 30 rows; hundreds give precise results. Numeric outputs count as low or high, split
        at their median.
    X : optional
        More rows to learn from; each costs one query. Default: up to 1,000 training rows of the explainer. Explained
        rows are left out.
    tolerance : float, default 0.1
        The smallest difference in accuracy that counts.
    random_state : int, default 0
        Seed of the networks and their masks.

    Returns
    -------
    Leakage

    Raises
    ------
    InputError
        If there are several targets, too few rows, or only one value of the target.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.explainers.baselines import Random
    >>> X = np.random.default_rng(0).normal(size=(1200, 8))
    >>> model = lambda X: np.column_stack([X[:, 0] > 0, X[:, 3] > 0])
    >>> explanation = Random(model, k=1, random_state=0).fit(X).explain(X[:300], target=1)
    >>> leakage(explanation).leaks
    False
    """
    _check_target(explanation, tolerance)
    source = explanation.source.take(np.arange(len(explanation)))
    before = 0 if source.black_box is None else source.black_box.n_queries
    data, truth, explained, others = _rows_to_read(explanation, source, X)
    own, n_values = explanation.unit_mask, int(truth.max()) + 1
    seeds = np.random.default_rng(random_state).integers(2**62, size=4 + N_FOLDS).tolist()
    first = MaskedPredictor(MaskedRows(data, source.groups), truth, n_values, seeds[0])
    n_first_steps = int(np.clip(len(others) // ROWS_PER_FIRST_STEP, *FIRST_STEPS))
    first.train(others, any_mask(own[explained]), n_first_steps, seeds[1])
    blind = MaskedPredictor(MasksAlone(own.shape[1]), truth, n_values, seeds[2])
    fold_of = _folds(source.data[explained], seeds[3])
    log_p = {name: np.empty((len(explained), n_values)) for name in ("evaluator", "joint", "shape")}
    for fold, seed in enumerate(seeds[4:]):
        learn, test = explained[fold_of != fold], explained[fold_of == fold]
        evaluator = first.copy().train(learn, mask_of_another(own[learn]), MORE_STEPS, seed)
        joint = first.copy().train(learn, lambda index, _: own[index], MORE_STEPS, seed)
        shape = blind.copy().train(learn, lambda index, _: own[index], MORE_STEPS, seed)
        for name, network in (("evaluator", evaluator), ("joint", joint), ("shape", shape)):
            log_p[name][fold_of == fold] = network.log_probabilities(test, own[test])
    log_p["whole"] = first.log_probabilities(explained, np.ones((len(explained), own.shape[1]), dtype=bool))
    n_queries = 0 if source.black_box is None else source.black_box.n_queries - before
    return _compare(log_p, truth[explained], tolerance, n_queries)


# --- the rows, and the model's outputs for them ----------------------------------------------------------


def _check_target(explanation: Explanation, tolerance: float) -> None:
    targets = np.unique(explanation.target)
    if len(targets) != 1:
        raise InputError(
            f"leakage looks at one target at a time, got an explanation of {len(targets)} "
            f"({some([explanation.output_names[t] for t in targets])}); explain each target by itself."
        )
    if isinstance(explanation.source.data, Records):
        raise InputError(
            "leakage cannot be measured for tables with text columns, yet; use explanation.verify() and evaluate()."
        )
    if isinstance(explanation.source.groups.spec, Superpixels):
        raise InputError("leakage cannot be measured for superpixels, which differ from image to image; use Patches.")
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 <= tolerance < 1:
        raise InputError(f"leakage: tolerance must be a number from 0 to below 1, got {tolerance!r}.")


def _folds(data: Any, seed: int) -> Index:
    """The fold of each row; equal rows share one, so that none is learnt from and then tested."""
    numbers: dict[bytes, int] = {}
    number_of = np.array([numbers.setdefault(key, len(numbers)) for key in row_keys(data)])
    return np.asarray(np.random.default_rng(seed).permutation(len(numbers))[number_of] % N_FOLDS)


def _rows_to_read(explanation: Explanation, source: ExplainedRows, X: Any) -> tuple[Any, Index, Index, Index]:
    """All rows, their values from 0 on, and which rows are explained and which are not."""
    target = int(explanation.target[0])
    more = source.background.known_rows() if X is None else source.input_format.encode(X, caller="leakage")
    explained_keys = set(row_keys(source.data))
    more = more[np.array([key not in explained_keys for key in row_keys(more)], dtype=bool)]
    n_explained, n_more = source.n_rows, more.shape[0]
    if len(explained_keys) < MIN_ROWS or n_more < MIN_ROWS:
        raise InputError(
            f"leakage needs at least {MIN_ROWS} explained rows that differ and as many others to learn from, got "
            f"{len(explained_keys)} and {n_more}; explain rows that were held out, or give more rows with X=."
        )
    predictions = [source.query_points(more[start : start + QUERY_ROWS]) for start in range(0, n_more, QUERY_ROWS)]
    codes, known = source.outputs.encode_targets(
        stack([source.predictions, *predictions]), np.full(n_explained + n_more, target), source.regions
    )
    kind = source.outputs.kinds[min(target, source.outputs.n_outputs - 1)]
    if kind == "continuous":
        codes = (codes > np.median(codes[:n_explained])).astype(np.int64)
    elif kind == "probability":
        codes = (codes > 0.5).astype(np.int64)
    known &= np.isin(codes, codes[:n_explained][known[:n_explained]])
    rows = np.flatnonzero(known)
    truth = np.unique(np.where(known, codes, codes[rows[0]]), return_inverse=True)[1]
    explained, others = rows[rows < n_explained], rows[rows >= n_explained]
    for which, index in (("explained rows", explained), ("rows to learn from", others)):
        if len(np.unique(truth[index])) < 2:
            raise InputError(
                f"leakage: the {which} have one value of {explanation.output_names[target]!r} only, so there is "
                "nothing to tell apart; give rows on which it varies."
            )
    data = sparse.vstack([source.data, more], format="csr") if is_sparse(more) else np.vstack([source.data, more])
    return data, truth.astype(np.int64), explained, others


# --- the comparison --------------------------------------------------------------------------------------


def _compare(log_p: dict[str, NDArray[np.float64]], truth: Index, tolerance: float, n_queries: int) -> Leakage:
    chance = 1 / len(np.unique(truth))
    right = {name: _credit(predicted, truth, chance) for name, predicted in log_p.items()}
    readings = {
        name: Reading(
            _over_values(right[name], truth).mean,
            _over_values(-predicted[np.arange(len(truth)), truth], truth).mean,
        )
        for name, predicted in log_p.items()
    }
    better = max(("joint", "shape"), key=lambda name: readings[name].accuracy)
    return Leakage(
        **readings,
        chance=chance,
        carried=_over_values(right["evaluator"] - chance, truth),
        leaked=_over_values(right[better] - right["evaluator"], truth),
        tolerance=tolerance,
        n_rows=len(truth),
        n_queries=n_queries,
    )


def _credit(log_p: NDArray[np.float64], truth: Index, chance: float) -> NDArray[np.float64]:
    """1 where the prediction is correct, 0 where wrong, and what a guess is worth where it was no more than one.

    An evaluator with nothing to go by leans a hair to this side under one mask and to that under another; where
    masks go with outputs, all those hairs would be right together, or wrong together.
    """
    right = (log_p.argmax(axis=1) == truth).astype(np.float64)
    return np.where(np.exp2(log_p.max(axis=1)) < chance + SURE * (1 - chance), chance, right)


def _over_values(numbers: NDArray[np.float64], truth: Index) -> MeanInterval:
    """Mean over the rows of each value, then over the values, with its 95 % interval."""
    groups = [numbers[truth == value] for value in np.unique(truth)]
    mean = float(np.mean([group.mean() for group in groups]))
    # One row more, off by one, keeps a value seen once or twice from looking certain.
    variances = [(np.square(group - group.mean()).sum() + 1) / len(group) ** 2 for group in groups]
    half_width = 1.96 * float(np.sqrt(np.sum(variances))) / len(groups)
    return MeanInterval(mean, mean - half_width, mean + half_width)
