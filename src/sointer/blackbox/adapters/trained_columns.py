"""Which columns a model was trained on, as far as it says so, and what is wrong with those that it is given."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sointer._support import containers
from sointer._support.validation import some
from sointer.errors import InputError

_PLACES = ("feature_names_in_", "feature_names_", "feature_names", "feature_name")
"""Where estimators and boosters of scikit-learn, catboost, xgboost and lightgbm hold the names."""
_NUMBERED = re.compile(r"(Column_)?\d+")
"""Names that lightgbm and catboost make where they are given none."""
_ABOUT_COLUMNS = re.compile("feature|columns are missing", re.IGNORECASE)
MAX_WRITTEN = 8
"""So many names are written into a message, as what to do."""


def trained_columns(model: Any) -> list[str] | None:
    """The names of the columns that a model was trained on, in their order; None where it does not say."""
    for place in _PLACES:
        names: Any = None
        try:
            names = getattr(model, place, None)
            names = names() if callable(names) else names
        except Exception:  # such as of a part that is not fitted
            continue
        if (isinstance(names, Sequence) or getattr(names, "ndim", 0) == 1) and len(names):
            found = [str(name) for name in names]
            return None if all(_NUMBERED.fullmatch(name) for name in found) else found
    return None


def refuse_other_columns(model: Any, X: Any) -> None:
    """Refuse a table whose columns are known to be others than a model was trained on, or in another order."""
    parts = list(getattr(model, "estimators_", ()))[:1]
    wanted, given = trained_columns(model) or next(map(trained_columns, parts), None), _columns(X)
    if wanted is None or given is None or list(map(_key, given)) == list(map(_key, wanted)):
        return
    own = {_key(column): column for column in given}  # as they are written in X
    name, lacking = type(model).__name__, [column for column in wanted if _key(column) not in own]
    if lacking:
        raise InputError(
            f"X lacks {len(lacking)} of the {len(wanted)} columns that the {name} was trained on: {some(lacking)}; it "
            f"has {some(given)}. Add or rename them."
        )
    names = [own[_key(column)] for column in wanted]
    other = [column for column in given if column not in names]
    if other:
        what = f"columns that the {name} was not trained on: {some(other)}"
    else:
        what = f"its columns in another order than the {name} was trained on: {some(names)}"
    columns = f"X[{names!r}]" if len(names) <= MAX_WRITTEN else "X[names], with the names of these"
    raise InputError(f"X has {what}. Give fit the columns that the model takes, in its order: {columns}.")


def is_about_columns(error: Exception) -> bool:
    """Whether a model seems to complain about the columns that it was given."""
    return _ABOUT_COLUMNS.search(str(error)) is not None


def reads_by_place(model: Any, X: Any) -> bool:
    """Whether a model would take columns for others of its own: lightgbm never looks at names."""
    parts = (model, *list(getattr(model, "estimators_", ()))[:1])  # such as of a MultiOutputClassifier
    if not any(base.__module__.split(".")[0] == "lightgbm" for part in parts for base in type(part).__mro__):
        return False
    wanted, given = trained_columns(model) or trained_columns(parts[-1]), _columns(X)
    if wanted is None or given is None:
        return False
    keys, own = list(map(_key, given)), list(map(_key, wanted))
    return keys != own and sorted(keys) == sorted(own)


def _columns(X: Any) -> list[str] | None:
    if not (containers.is_frame(X) or containers.backend_of(X) is not None):
        return None
    return [str(column) for column in (X.column_names if containers.backend_of(X) == "pyarrow" else X.columns)]


def _key(name: str) -> str:
    """What two ways to write a name have in common: lightgbm puts underscores for blanks."""
    return re.sub(r"\s", "_", name)
