"""Other methods, set up to answer the very questions that an explainer answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sointer.base import Explainer
from sointer.baselines import KernelShap, Lime, Random
from sointer.baselines.baseline import Baseline
from sointer.errors import InputError, MissingExtraError, require_extra

RIVALS = ("Random", "Lime", "KernelShap")
PACKAGES = {"Lime": "lime", "KernelShap": "shap"}

SHARED = (
    "black_box_",
    "input_format_",
    "groups_",
    "removal_",
    "background_",
    "outputs_",
    "targets_",
    "n_features_in_",
    "feature_names_in_",
    "n_outputs_",
    "output_names_",
)


def make_rivals(names: Sequence[str], explainer: Explainer, n_samples: int, seed: int) -> list[Baseline]:
    """The methods of these names beside the explainer: same model, features, outputs and meaning of "absent"."""
    known = {name.lower(): name for name in RIVALS}
    unknown = [name for name in names if name.lower() not in known]
    if unknown:
        raise InputError(f"there is no method {unknown[0]!r} to compare with; choose among {', '.join(RIVALS)}.")
    chosen = [known[name.lower()] for name in dict.fromkeys(names)]
    return [_beside(explainer, _make(name, explainer, n_samples, seed), seed) for name in chosen]


def installed_rivals(tell: Callable[[str], None]) -> list[str]:
    """Those of all methods whose packages are there; tells which are not."""
    found = []
    for name in RIVALS:
        try:
            if name in PACKAGES:
                require_extra(PACKAGES[name], "baselines")
        except MissingExtraError:
            tell(f'{name} is left out, for {PACKAGES[name]} is not installed (pip install "sointer[baselines]")')
        else:
            found.append(name)
    return found


def _make(name: str, explainer: Explainer, n_samples: int, seed: int) -> Baseline:
    if name == "Random":
        return Random(explainer.black_box_, random_state=seed)
    kind = Lime if name == "Lime" else KernelShap
    return kind(explainer.black_box_, n_samples=n_samples, random_state=seed, verbose=False)


def _beside(explainer: Explainer, rival: Baseline, seed: int) -> Baseline:
    """What a rival's fit would find out by asking, taken from the explainer."""
    rival._check_settings()
    for name in SHARED:
        setattr(rival, name, getattr(explainer, name))
    rival.seed_ = seed
    if isinstance(rival, Random):  # its guess of the answer, never used where the answer is given
        rival.usual_ = np.zeros(explainer.n_outputs_, dtype=np.int64)
    return rival
