"""How large a share is, and how sure that is, where some groups were asked about more often than others."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

QUANTILE = 1.96  # of the normal distribution: 95 of 100 intervals hold the truth


class Share(NamedTuple):
    """A share with the bounds of its 95 % interval, and how many cases it is judged by."""

    share: float
    low: float
    high: float
    n_asked: int
    n_confirmed: int


def confirmed_share(
    asked: npt.NDArray[np.bool_], confirmed: npt.NDArray[np.bool_], stratum: npt.NDArray[Any]
) -> Share | None:
    """The share confirmed among all cases (targets, samples), had all been asked; None if none was.

    Cases of one stratum count alike, asked or not, so a stratum asked about more than its due weighs no more
    than it should. Samples asked about for many targets are no independent cases: the interval is at least as wide as
    the spread between samples makes it.
    """
    _, of = np.unique(stratum, return_inverse=True)
    of = of.reshape(stratum.shape)
    n_strata = int(of.max(initial=-1)) + 1
    sizes = np.bincount(of.ravel(), minlength=n_strata)
    n_asked = np.bincount(of[asked], minlength=n_strata)
    n_confirmed = np.bincount(of[asked & confirmed], minlength=n_strata)
    known = n_asked > 0
    if not known.any():
        return None
    weight = np.where(known, sizes, 0) / sizes[known].sum()
    share = n_confirmed / np.maximum(n_asked, 1)
    mean = float(weight @ share)
    # Two more cases of each kind (Agresti and Coull) keep shares of 0 and 1 from looking certain.
    n = n_asked + QUANTILE**2
    shrunk = (n_confirmed + QUANTILE**2 / 2) / n
    between_cases = float(np.sum(weight**2 * shrunk * (1 - shrunk) / n))
    each = np.where(asked, (confirmed - share[of]) * (weight / np.maximum(n_asked, 1))[of], 0.0)
    between_samples = float(np.sum(each.sum(axis=0) ** 2))
    half = QUANTILE * max(between_cases, between_samples) ** 0.5
    # With one stratum this is Agresti and Coull's interval, whose middle is not quite the share.
    middle = float(weight @ shrunk) if known.sum() == 1 else mean
    low, high = max(0.0, min(mean, middle - half)), min(1.0, max(mean, middle + half))
    return Share(mean, low, high, int(n_asked.sum()), int(n_confirmed.sum()))
