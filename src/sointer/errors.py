"""Every error and warning that the library raises, under one root each."""

from __future__ import annotations

import importlib
import sys
import warnings
from types import FrameType, ModuleType


class SointerError(Exception):
    """Root of all errors of this library."""


class InputError(SointerError, ValueError):
    """An argument given by the caller cannot be used."""


class BlackBoxError(SointerError, RuntimeError):
    """The model failed, or returned something that is not a table of outputs."""


class QueryBudgetExceeded(SointerError, RuntimeError):
    """More samples were sent to the model than its budget allows."""


class LoadError(SointerError, ValueError):
    """A saved object or a data set cannot be loaded."""


class CheckpointError(SointerError, RuntimeError):
    """A checkpoint cannot be used, or no longer be written."""


class MissingExtraError(SointerError, ImportError):
    """An optional dependency is needed and not installed."""


class SointerWarning(UserWarning):
    """Root of all warnings of this library."""


class ConstantOutputWarning(SointerWarning):
    """An output never changes on the data, so nothing can explain it."""


class ConstantFeatureWarning(SointerWarning):
    """A feature never changes on the data, so it cannot be selected."""


class MethodWarning(SointerWarning):
    """An estimator's predict_proba does not agree with its predict, so labels are explained."""


class UnstableBlackBoxWarning(SointerWarning):
    """The model returns different outputs for the same sample."""


class BudgetWarning(SointerWarning):
    """The query budget is too small for good explanations."""


class InterruptedFitWarning(SointerWarning):
    """Fit was interrupted; what it had learned by then is kept."""


class PoorFitWarning(SointerWarning):
    """The energy does not predict the model well enough to be trusted."""


class FewImagesWarning(SointerWarning):
    """There are too few images to learn from."""


class NoOppositeWarning(SointerWarning):
    """No image in fit has another label at the pixel that is explained."""


class FarInputWarning(SointerWarning):
    """Samples to explain are far from the training data."""


class TextColumnWarning(SointerWarning):
    """A column of strings is read as text by default."""


class CheckpointWarning(SointerWarning):
    """Part of a checkpoint was lost or is damaged, or its directory cannot be locked."""


def require_extra(module: str, extra: str) -> ModuleType:
    """Import an optional dependency, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as exc:
        # An installed package with a broken import of its own must not be reported as absent.
        if exc.name is not None and exc.name.split(".")[0] != module.split(".")[0]:
            raise
        raise MissingExtraError(
            f"This needs the package {module!r}, which cannot be imported ({exc}). "
            f'Install it with: pip install "sointer[{extra}]"',
            name=module,
        ) from exc


def warn_caller(message: str, category: type[SointerWarning]) -> None:
    """Warn about the line outside of this package that called it, however deep inside it the reason is."""
    frame: FrameType | None = sys._getframe()
    depth, level = 0, 1
    while frame is not None:
        depth += 1
        if str(frame.f_globals.get("__name__")).partition(".")[0] == __package__:
            level = depth + 1
        frame = frame.f_back
    warnings.warn(message, category, stacklevel=level)
