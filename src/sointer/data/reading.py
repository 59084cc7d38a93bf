"""Read off replies what the outputs are: their kind, the values they take, and their classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sointer._support.validation import check_unique_names, some
from sointer.data.images import pixel_names
from sointer.data.labels import Classes, Label, Quantiles, column_labels, table_labels
from sointer.errors import BlackBoxError, InputError

Kind = Literal["binary", "categorical", "probability", "continuous"]
KINDS: tuple[Kind, ...] = ("binary", "categorical", "probability", "continuous")
GRADED: tuple[Kind, ...] = ("probability", "continuous")
Table = npt.NDArray[Any]

NO_CLASSES = "no classes"
"""What a regressor declares: outputs of few whole numbers, such as counts, are numbers too."""
MAX_CLASSES, MAX_MASK_CLASSES = 32, 256
"""Of an output, and of masks, which are known to be labels: photographs are divided into 150 kinds of things."""
DEFAULT_TOLERANCE = 0.1
"""Numbers within this share of a standard deviation count as the same."""


def check_table(Y: npt.ArrayLike) -> Table:
    """A table of outputs (samples, outputs); InputError if it is none."""
    table = np.asarray(Y)
    if table.ndim != 2 or 0 in table.shape or table.dtype.kind not in "biufUO":
        raise InputError(
            f"Y has shape {table.shape} and dtype {table.dtype}, expected (n samples, n outputs) of numbers, "
            "booleans or strings. Give the replies that a BlackBox returns."
        )
    if table.dtype.kind == "f" and not np.isfinite(table).all():
        raise InputError("Y has NaN or infinite values, expected finite ones. Check the model's replies.")
    return table


def values_seen(table: Table, *, shared: bool) -> list[list[Label]]:
    """The different values of every output; one list for all of them if they share their labels."""
    if shared:
        return [table_labels(table)]
    return [column_labels(table[:, j]) for j in range(table.shape[1])]


def only_values(table: Table, values: list[list[Label]]) -> tuple[Label | None, ...]:
    """For every output the one value that it has, or None if it has several."""
    if len(values) == table.shape[1]:
        return tuple(found[0] if len(found) == 1 else None for found in values)
    same = (table == table[:1]).all(axis=0)
    return tuple(value if one else None for value, one in zip(table[0].tolist(), same.tolist(), strict=True))


def wanted_kinds(kind: Any, names: Sequence[str]) -> list[str | None]:
    """What the user said of each output: one kind for all, a list with one for each, or a dictionary by name."""
    if kind is None or isinstance(kind, str):
        return [kind] * len(names)
    if isinstance(kind, Mapping):
        unknown = [name for name in kind if name not in names]
        if unknown:
            raise InputError(f"output_kind names {unknown[0]!r}, which is no output; expected some of {some(names)}.")
        return [kind.get(name) for name in names]
    if isinstance(kind, (list, tuple)) and len(kind) == len(names):
        return list(kind)
    raise InputError(
        f"output_kind must be one of {KINDS}, a list with one for each of the {len(names)} outputs, or a dictionary "
        f"by name, got {kind!r:.80}. Leave it out to have it inferred."
    )


def decide_kinds(table: Table, values: list[list[Label]], wanted: list[str | None], names: Sequence[str]) -> list[Kind]:
    """The kind of each output (of masks, one for all), as wanted or as its values look."""
    is_shared = len(values) != table.shape[1]
    columns = [table] if is_shared else [table[:, [j]] for j in range(table.shape[1])]
    is_text = [any(isinstance(value, str) for value in found) for found in values]
    fractions = [not text and not _are_whole(part) for text, part in zip(is_text, columns, strict=True)]
    inside = all(_is_inside(part) for part, own in zip(columns, fractions, strict=True) if own)
    most = MAX_MASK_CLASSES if is_shared else MAX_CLASSES
    kinds: list[Kind] = []
    for j, (part, found) in enumerate(zip(columns, values, strict=True)):
        likely = _likely_kind(part, found, is_text[j], fractions[j], inside, any(fractions), most)
        if wanted[j] == NO_CLASSES:
            kinds.append("continuous" if likely == "categorical" and not is_text[j] else likely)
            continue
        kinds.append(likely if wanted[j] is None else _check_kind(wanted[j], part, found, is_text[j], likely, names[j]))
    return kinds


def _likely_kind(
    part: Table, found: list[Label], is_text: bool, is_fraction: bool, inside: bool, any_fraction: bool, most: int
) -> Kind:
    """Fractions are probabilities if all fractions of the table lie in [0, 1]; so are zeros and ones beside them.

    Whole numbers are classes if there are at most `most` of them, and they repeat.
    """
    if is_text:
        return "binary" if len(found) <= 2 else "categorical"
    if is_fraction:
        return "probability" if inside else "continuous"
    if len(found) <= 2:
        beside = any_fraction and inside and all(type(value) is float and value in (0, 1) for value in found)
        return "probability" if beside else "binary"
    return "categorical" if len(found) <= most and len(found) < part.size / 2 else "continuous"


def _check_kind(kind: Any, part: Table, found: list[Label], is_text: bool, likely: Kind, name: str) -> Kind:
    for known in KINDS:
        if kind == known:
            break
    else:
        raise InputError(f"output_kind must be one of {KINDS}, got {kind!r}. Leave it out to have it inferred.")
    problem = None
    if known in ("probability", "continuous") and is_text:
        problem = "the replies hold strings"
    elif known == "probability" and not _is_inside(part):
        numbers = part.astype(np.float64)
        raise InputError(
            f"output {name!r} cannot be a probability: the model returned numbers from {numbers.min():g} to "
            f"{numbers.max():g}, outside [0, 1]. Set output_kind={likely!r} to explain them as they are, or have the "
            "model return probabilities."
        )
    elif known == "binary" and len(found) > 2:
        problem = f"output {name!r} has {len(found)} different values"
    elif known == "categorical" and not is_text and len(found) > MAX_CLASSES and not _are_whole(part):
        problem = f"output {name!r} has {len(found)} different fractions"
    if problem is not None:
        raise InputError(
            f"output_kind={kind!r} does not fit: {problem}. Leave it out (it would be inferred as {likely!r}), or "
            "change what the model returns."
        )
    return known


def refuse_too_many_mask_classes(n_classes: int) -> None:
    """InputError if masks have more classes than can be learned."""
    if n_classes > MAX_MASK_CLASSES:
        raise InputError(
            f"the black box returned masks with {n_classes:,} different values, expected at most {MAX_MASK_CLASSES} "
            "classes. Join rare classes inside your function, or return the probability of the one that interests you; "
            "masks of numbers, such as depths, are not supported."
        )


def make_classes(kinds: Sequence[Kind], values: list[list[Label]]) -> list[Classes | None]:
    """The labels of each output that has any; binary ones share theirs, so that all of them are coded alike."""
    binary = [value for kind, found in zip(kinds, values, strict=True) if kind == "binary" for value in found]
    together = column_labels(np.array(binary, dtype=object)) if binary else []
    return [_classes(kind, found, together) for kind, found in zip(kinds, values, strict=True)]


def _classes(kind: Kind, found: list[Label], together: list[Label]) -> Classes | None:
    if kind == "continuous":
        return None
    if kind == "probability":
        return Classes((0, 1))
    if kind == "binary" and len(together) == 2:
        return Classes(tuple(together))  # a constant output shares the others' two labels
    # A constant 0 or 1 among other labels still gets its opposite, so that it can be modelled.
    return Classes((_like(found[0], 0), _like(found[0], 1))) if set(found) <= {0, 1} else Classes(tuple(found))


def as_numbers(table: Table) -> npt.NDArray[np.float64]:
    """Outputs as numbers, which outputs that are numbers or probabilities must stay."""
    if table.dtype.kind == "O" and not any(isinstance(value, str) for value in table.ravel().tolist()):
        return table.astype(np.float64)  # a number beside labels
    if table.dtype.kind not in "biuf":
        raise BlackBoxError(
            f"The outputs have dtype {table.dtype}, expected numbers as before. "
            "Return the same kind of outputs on every call, or set output_kind."
        )
    return table.astype(np.float64)


def nearly_linear(curves: Sequence[Quantiles | None], table: Table) -> list[Quantiles | None]:
    """Curves that encode numbers nearly in proportion, judging by outputs (n, n_outputs)."""
    return [one and one.nearly_linear(as_numbers(table[:, [j]])[:, 0]) for j, one in enumerate(curves)]


def ranks(curves: Sequence[Quantiles | None], codes: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Codes (n, n_outputs) with those of numbers as the shares of all numbers that lie below."""
    columns = [codes[:, j] if one is None else one.rank(codes[:, j]) for j, one in enumerate(curves)]
    return np.stack(columns, axis=1).astype(np.float64)


def as_probabilities(table: Table) -> npt.NDArray[np.float64]:
    """Outputs as numbers in [0, 1]."""
    numbers = as_numbers(table)
    if numbers.size and not (numbers.min() >= 0 and numbers.max() <= 1):
        raise BlackBoxError(
            f"The outputs range from {numbers.min():g} to {numbers.max():g}, expected probabilities in [0, "
            "1]. Return probabilities on every call, or set output_kind='continuous'."
        )
    return numbers


def check_codes(codes: Table, known: Classes, name: str) -> None:
    """Refuse what are no class indices of an output."""
    if codes.dtype.kind not in "iu" or codes.min(initial=0) < 0 or codes.max(initial=0) >= len(known):
        raise InputError(
            f"decode got values outside the {len(known)} classes of output {name!r}, "
            f"expected integers from 0 to {len(known) - 1}. Give codes as encode returns them."
        )


def _are_whole(table: Table) -> bool:
    if table.dtype.kind in "biu":
        return True
    numbers = table.astype(np.float64)
    return bool((numbers == np.rint(numbers)).all())


def _is_inside(table: Table) -> bool:
    """Whether all numbers lie in [0, 1]."""
    numbers = table.astype(np.float64)
    return bool(numbers.min() >= 0 and numbers.max() <= 1)


def _like(label: Label, value: int) -> Label:
    kind = type(label)
    return kind(value)


def infer_fields(
    Y: npt.ArrayLike, names: Sequence[str] | None, kind: Any, tolerance: float | None, shape: tuple[int, int] | None
) -> dict[str, Any]:
    """The fields of `Outputs`, by observed outputs: see `Outputs.infer`."""
    table = check_table(Y)
    n_outputs = table.shape[1]
    default = [f"y{j}" for j in range(n_outputs)] if shape is None else pixel_names(shape)
    checked = check_unique_names(default if names is None else names, n_outputs, "output_names")
    values = values_seen(table, shared=shape is not None)
    wanted = wanted_kinds(kind, checked if shape is None else checked[:1])
    kinds = decide_kinds(table, values, wanted, checked)
    seen = only_values(table, values)
    if "continuous" not in kinds and tolerance is not None:
        raise InputError(
            f"tolerance is for continuous outputs, got {tolerance!r} with {' and '.join(sorted(set(kinds)))} ones. "
            "Leave it out, or set output_kind='continuous'."
        )
    share = DEFAULT_TOLERANCE if tolerance is None else tolerance
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share < np.inf:
        raise InputError(
            f"tolerance must be a number of at least 0, got {tolerance!r}. "
            "Give the share of each output's standard deviation that counts as no change."
        )
    classes = make_classes(kinds, values)
    if shape is not None:
        kinds, classes = kinds * n_outputs, classes * n_outputs
    return {
        "kinds": tuple(kinds),
        "names": checked,
        "label_sets": classes,
        "seen": seen,
        "quantiles": [Quantiles.of(table[:, j]) if kinds[j] == "continuous" else None for j in range(n_outputs)],
        "tolerance": float(share) if "continuous" in kinds else None,
        "shape": shape,
    }


def equal_values(a: Table, b: Table) -> npt.NDArray[np.bool_]:
    """Where two tables hold the same values; a string never equals a number."""
    if (a.dtype.kind in "biuf") != (b.dtype.kind in "biuf") or "O" in (a.dtype.kind, b.dtype.kind):
        a, b = a.astype(object), b.astype(object)  # numpy refuses to compare strings with numbers
    return np.asarray(a == b, dtype=bool)
