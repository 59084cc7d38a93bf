"""A method of a package in two settings: as its package runs it, and at its best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from sointer.base import Subject
from sointer.baselines.baseline import Answers
from sointer.baselines.row_by_row import RowByRow
from sointer.errors import InputError

Setting = Literal["well", "paper"]
SETTINGS: tuple[Setting, ...] = ("well", "paper")


class TwoSettings(RowByRow):
    """Parameters are those of SOInter, and:

    setting : "well" (only features that differ from their reference are removed, in the way `removal` says) or
        "paper" (the package's defaults, and the size of weights).
    n_samples : in "well", the most rows asked per explained row (1000 unless told); in "paper" the package's own.
    signed : in "well", count what speaks against the model's answer as less than nothing; False counts the size
        of weights only. None decides: sizes for numbers, and where removal is random; signs elsewhere.
    n_jobs : processes that explain rows side by side, as joblib counts them; each works with a copy of the model.
    """

    def __init__(
        self,
        model: Any,
        *,
        k: int | Literal["auto"] = 10,
        removal: Any = "auto",
        setting: Setting = "well",
        n_samples: int | None = None,
        signed: bool | None = None,
        feature_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        output_kind: str | None = None,
        method: str | None = None,
        tolerance: float | None = None,
        groups: Any = None,
        batch_size: int | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: bool | None = None,
    ) -> None:
        super().__init__(
            model,
            k=k,
            removal=removal,
            n_samples=n_samples,
            signed=signed,
            feature_names=feature_names,
            output_names=output_names,
            output_kind=output_kind,
            method=method,
            tolerance=tolerance,
            groups=groups,
            batch_size=batch_size,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
        )
        self.setting = setting

    def _check_settings(self) -> None:
        if self.setting not in SETTINGS:
            raise InputError(f"setting must be one of {', '.join(map(repr, SETTINGS))}, got {self.setting!r}.")
        if self.setting == "paper" and self.signed:
            raise InputError("signed=True was given with setting='paper', which takes sizes; leave signed out.")
        super()._check_settings()

    def _learn(self, subject: Subject, answers: Answers) -> None:
        if self.setting == "paper" and subject.input_format.image is not None:
            raise InputError(
                "setting='paper' is the package's explainer of tables, which knows no images; leave it out."
            )
        super()._learn(subject, answers)

    @property
    def _is_signed(self) -> bool:
        return self.setting == "well" and super()._is_signed
