"""Removals and groups from what the user wants, or from what was saved; and drawn rows to save instead of real ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from sointer._support import containers
from sointer._support.validation import some
from sointer.data.images import ImageShape
from sointer.data.inputs import InputFormat
from sointer.data.text_tables import Records, TextTableFormat
from sointer.data.texts import TextFormat
from sointer.errors import InputError, LoadError
from sointer.masking.conditional import ConditionalRemoval
from sointer.masking.groups import FixedGroups, Groups, Patches
from sointer.masking.removal import (
    Background,
    BlurRemoval,
    FixedRemoval,
    FloatArray,
    FunctionRemoval,
    MarginalRemoval,
    Removal,
    RemovalByRows,
    RemovalFunction,
    TextRemoval,
    TextTableRemoval,
)
from sointer.masking.superpixels import SuperpixelGroups, Superpixels

SPARSE_SHARE = 0.6  # a non-negative matrix with this share of zeros is read as counts, where 0 means absent


def make_removal(spec: Any, data: Any, input_format: InputFormat, rng: np.random.Generator | None = None) -> Removal:
    """Make a removal from its name, a reference row, or a function; `data` is the encoded training matrix.

    "zero" and "mean" give a category its most frequent value, since neither 0 nor a mean of a one-hot block
    names one. "auto" is "zero" for CSR, and for non-negative numbers, that are at least 60 % zeros, else
    "marginal". "nan" makes features missing, for models that take missing values; the format must allow it. A row
    holds one value per feature (category names for categories) or one per numeric column.

    For images "auto" is "marginal", the pixels of another image; "blur" is a blurred copy of the image; an array is an
    image (channels, height, width) or one value per channel, and a function is given images. Means are rounded where
    images hold integers. Of texts, words are deleted, or replaced by a token.
    """
    rng = np.random.default_rng(0) if rng is None else rng
    if isinstance(spec, Removal):
        return spec
    if isinstance(input_format, TextFormat):
        return _of_texts(spec, data, input_format, rng)
    if callable(spec):
        name = getattr(spec, "__name__", type(spec).__name__)
        return FunctionRemoval(spec, Background.of(data, rng), name, input_format.image)
    if isinstance(spec, str):
        chosen = _auto(data, input_format) if spec == "auto" else spec
        if chosen == "marginal":
            return MarginalRemoval(Background.of(data, rng))
        if chosen == "conditional":
            return ConditionalRemoval.of(Background.of(data, rng), input_format.column_feature)
        if chosen == "nan":
            return FixedRemoval("nan", input_format.absent_row())
        if chosen in ("zero", "mean"):
            return FixedRemoval(chosen, _fixed_reference(chosen, data, input_format))
        if chosen == "blur":
            return _blur(data, input_format)
    elif isinstance(spec, (np.ndarray, list, tuple)) or hasattr(spec, "__array__"):
        return FixedRemoval("array", _given_reference(spec, input_format))
    raise InputError(
        "removal must be 'auto', 'zero', 'mean', 'marginal', 'conditional', 'nan', 'blur' (images only), an array or a "
        f"function (x, keep, rng) -> x, got {spec!r}. Choose one of these."
    )


def _of_texts(spec: Any, data: Any, input_format: TextFormat, rng: np.random.Generator) -> TextRemoval:
    """Words are deleted, or a token of the user's stands in their place; other columns come from other rows."""
    beside = isinstance(input_format, TextTableFormat) and input_format.table is not None
    if not isinstance(spec, str) or spec in ("mean", "marginal", "conditional", "nan", "blur"):
        raise InputError(
            f"removal={spec!r:.60}: of texts, expected 'delete' (the default) or the token to put in place of a word, "
            "such as '[MASK]'." + (" Columns beside texts are always drawn from other rows." if beside else "")
        )
    token = None if spec in ("auto", "delete", "zero") else spec
    if not isinstance(input_format, TextTableFormat) or not beside:
        return TextRemoval(input_format.n_columns, token)
    values = data.values if isinstance(data, Records) else None
    assert values is not None
    return TextTableRemoval(input_format.n_columns, token, Background.of(values, rng), input_format.owners)


def restore_removal(
    meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], function: RemovalFunction | None = None
) -> Removal:
    """The removal whose `state` this was. A function is never saved: give it again, or using the removal fails."""
    try:
        if meta["type"] == "fixed":
            return FixedRemoval(meta["name"], np.asarray(arrays["reference"], dtype=np.float64))
        if meta["type"] == "text":
            return TextRemoval(int(meta["n_columns"]), None if meta["token"] is None else str(meta["token"]))
        if meta["type"] == "text table":
            token = None if meta["token"] is None else str(meta["token"])
            drawn = Background.from_state(meta, arrays)
            return TextTableRemoval(int(meta["n_columns"]), token, drawn, np.asarray(arrays["owners"], dtype=np.int64))
        image = None if meta.get("image") is None else ImageShape(*(int(side) for side in meta["image"]))
        if meta["type"] == "blur" and image is not None:
            return BlurRemoval(image, np.asarray(arrays["usual"], dtype=np.float64), whole=bool(meta["whole"]))
        background = Background.from_state(meta, arrays)
        if meta["type"] == "conditional" and background.rows.shape[0]:
            return ConditionalRemoval(background, np.asarray(arrays["scale"], dtype=np.float64))
    except (KeyError, TypeError, ValueError) as exc:
        raise LoadError(
            f"The saved removal is incomplete or of another version: {exc!r}; expected what "
            "Removal.state writes. Save it again with this version."
        ) from exc
    if meta["type"] in ("marginal", "conditional"):  # the latter without its rows, so that it can draw nothing
        return MarginalRemoval(background)
    return FunctionRemoval(function, background, meta["name"], image)


def _auto(data: Any, input_format: InputFormat) -> str:
    if input_format.image is not None:
        return "marginal"
    if containers.is_sparse(data):  # numbers that are hardly ever zero may come as CSR too
        return "zero" if data.nnz <= (1 - SPARSE_SHARE) * np.prod(data.shape) else "marginal"
    # One-hot blocks are mostly zeros by construction and say nothing about what 0 means.
    values = input_format.values
    numbers = data[:, values[~input_format.is_categorical[input_format.column_feature[values]]]]
    if numbers.size and numbers.min() >= 0 and np.mean(numbers == 0) >= SPARSE_SHARE:
        return "zero"
    return "marginal"


def _fixed_reference(name: str, data: Any, input_format: InputFormat) -> FloatArray:
    means = np.asarray(data.mean(axis=0), dtype=np.float64).ravel()
    if name == "mean" and _holds_whole_images(input_format):
        return np.rint(means)
    reference = means.copy() if name == "mean" else np.zeros(len(means))
    reference[input_format.absence] = 0.0
    for feature in np.flatnonzero(input_format.is_categorical):
        block = np.flatnonzero(input_format.column_feature == feature)
        reference[block] = 0.0
        reference[block[np.argmax(means[block])]] = 1.0  # the mean of a 0/1 column is its frequency
    return reference


def _holds_whole_images(input_format: InputFormat) -> bool:
    """Whether the model is used to images of integers, which a fraction would turn into something else."""
    return input_format.image is not None and "int" in input_format.dtype


def _blur(data: Any, input_format: InputFormat) -> BlurRemoval:
    if input_format.image is None:
        raise InputError(
            "removal='blur' is for images (n, channels, height, width), but X is a table. Choose 'zero', 'mean', "
            "'marginal' or 'conditional'."
        )
    means = np.asarray(data.mean(axis=0), dtype=np.float64)
    return BlurRemoval(input_format.image, means, whole=_holds_whole_images(input_format))


def _given_image(values: npt.NDArray[Any], image: ImageShape) -> npt.NDArray[Any]:
    """An image, or a colour, as one flat row."""
    if values.shape == (image.channels,):
        return np.repeat(values, image.n_pixels)
    if values.shape not in ((image.channels, image.height, image.width), (image.n_columns,)):
        raise InputError(
            f"removal as an array must be an image of shape ({image.channels}, {image.height}, {image.width}) or one "
            f"value for each of {image.channels} channels, got shape {values.shape}."
        )
    return values.ravel()


def _given_reference(spec: Any, input_format: InputFormat) -> FloatArray:
    values = np.asarray(spec, dtype=object)
    if input_format.image is not None:
        values = _given_image(values, input_format.image)
    n_features, n_columns = input_format.n_features, input_format.n_columns
    if values.ndim == 1 and len(values) == n_features and input_format.is_categorical.any():
        return _encode_row(values.tolist(), input_format)
    if values.ndim != 1 or len(values) not in (n_features, n_columns):
        raise InputError(
            f"removal as an array must hold {n_features} values, one per feature"
            + (f", or {n_columns}, one per numeric column" if n_columns != n_features else "")
            + f"; got shape {values.shape}. Give one flat row."
        )
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError) as exc:
        raise InputError(f"removal as an array must hold numbers, got {some(values.tolist())}. Convert it.") from exc
    if len(numbers) == n_features and input_format.fills:
        row: FloatArray = input_format.encode(numbers[None], caller="removal")[0]
        return row
    if not np.isfinite(numbers).all():
        raise InputError(f"removal as an array must be finite, got {some(numbers.tolist())}. Replace NaN and inf.")
    return numbers


def _encode_row(values: list[Any], input_format: InputFormat) -> FloatArray:
    """One value per feature, with names for categories, as numeric columns."""
    import pandas as pd

    columns = input_format.columns
    frame = pd.DataFrame({j: [value] for j, value in enumerate(values)})
    frame.columns = pd.Index([column.label for column in columns])
    row: FloatArray = input_format.encode(frame, caller="removal")[0]
    return row


def make_groups(
    groups: Any,
    feature_names: Sequence[str],
    column_feature: npt.ArrayLike | None = None,
    input_format: InputFormat | None = None,
) -> Groups:
    """Make units from None (each feature alone), a dict, a list of lists, or one group id per feature.

    Members are feature indices or names; `column_feature` is the feature that owns each numeric column. Images, known
    by their `input_format`, may also be cut into `Patches` or `Superpixels`.

    Examples
    --------
    >>> groups = make_groups({"colour": ["red", "green"]}, ["red", "size", "green"])
    >>> groups.unit_names, groups.unit_of_feature
    (['colour', 'size'], array([0, 1, 0]))
    """
    image = None if input_format is None else input_format.image
    for kind in (Patches, Superpixels):
        if groups is kind:
            name = kind.__name__
            raise InputError(f"groups is the class {name}, expected an object of it, such as {name}(8).")
    if isinstance(groups, (Patches, Superpixels)):
        if image is None or input_format is None:
            raise InputError(
                f"groups={groups!r} was given with a table, but is for images (n, channels, height, width). Give "
                "groups of features as {name: features}."
            )
        if isinstance(groups, Patches):
            return groups.cut(image)
        return SuperpixelGroups(groups, image, input_format.pixel_range)
    if image is not None and isinstance(groups, np.ndarray) and groups.ndim == 2:
        if groups.shape != image.size or groups.dtype.kind not in "iu":
            raise InputError(
                f"groups as a map must be integers of shape {image.size}, one group id per pixel, got {groups.dtype} "
                f"of shape {groups.shape}."
            )
        groups = groups.ravel()
    n_features = len(feature_names)
    owner = np.asarray(np.arange(n_features) if column_feature is None else column_feature, dtype=np.int64)
    return FixedGroups.of(groups, feature_names, owner)


def restore_groups(data: dict[str, Any]) -> Groups:
    """The groups whose `to_json` this was."""
    try:
        if "patches" in data:
            return Patches(**data["patches"]).cut(ImageShape(**data["image"]))
        if "superpixels" in data:
            image = ImageShape(**data["image"])
            return SuperpixelGroups(Superpixels(**data["superpixels"]), image, data["pixel_range"])
        return FixedGroups.restore(data)
    except (KeyError, TypeError, ValueError, IndexError) as exc:
        raise LoadError(
            f"The saved groups are incomplete or of another version: {exc!r}; expected what "
            "Groups.to_json writes. Save them again with this version."
        ) from exc


MAX_LEVELS = 32
"""A column with at most so many different values keeps them; of others, numbers between two of them are drawn."""


def without_rows(background: Background) -> Background:
    """Which columns vary, and no rows."""
    return Background(background.rows[:0], background.varies)


def synthetic_background(background: Background, column_feature: npt.NDArray[np.int64], seed: int) -> Background:
    """As many rows, in which features are independent of each other; each alone is distributed as before.

    Columns of one feature, which say its category, are drawn together.
    """
    rng, rows = np.random.default_rng(seed), background.rows
    if containers.is_sparse(rows):
        return Background(_drawn_sparse(rows, rng), background.varies)
    drawn = _drawn(np.asarray(rows, dtype=np.float64), rng)
    for feature in np.flatnonzero(np.bincount(column_feature) > 1):
        block = np.flatnonzero(column_feature == feature)
        drawn[:, block] = _drawn_together(rows[np.ix_(rng.permutation(len(rows)), block)], rng)
    return Background(drawn, background.varies)


def with_background(removal: Removal, background: Background) -> Removal:
    """The removal, to be saved with other rows."""
    changed = copy(removal)
    if isinstance(changed, RemovalByRows | TextTableRemoval):
        changed.background = background
    return changed


def _drawn(rows: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Each column by itself: shuffled if it has few values, else somewhere between two values that follow another."""
    ordered = np.sort(rows, axis=0)
    place = rng.uniform(0.0, max(len(rows) - 1, 0), size=rows.shape)
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, len(rows) - 1)
    below, above = np.take_along_axis(ordered, low, axis=0), np.take_along_axis(ordered, high, axis=0)
    between = below + (place - low) * (above - below)
    between = np.where((rows == np.rint(rows)).all(axis=0), np.rint(between), between)
    n_levels = (np.diff(ordered, axis=0) > 0).sum(axis=0) + 1
    return np.where(n_levels <= MAX_LEVELS, rng.permuted(rows, axis=0), between)


def _drawn_together(block: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Columns of one feature: its category, or whether it is missing, stays; numbers are drawn among those like it."""
    made = np.array(block, dtype=np.float64)
    n_levels = (np.diff(np.sort(made, axis=0), axis=0) > 0).sum(axis=0) + 1
    for column in np.flatnonzero(n_levels > MAX_LEVELS).tolist():
        _, groups = np.unique(np.delete(block, column, axis=1), axis=0, return_inverse=True)
        for group in range(int(groups.max(initial=-1)) + 1):
            inside = np.flatnonzero(groups.ravel() == group)
            made[inside, column] = _drawn(made[inside, column, None], rng)[:, 0]
    return made


def _drawn_sparse(rows: Any, rng: np.random.Generator) -> Any:
    """The entries of each column, in other rows."""
    columns = sparse.csc_array(rows)
    indices, data = columns.indices.copy(), columns.data.copy()
    for start, end in zip(columns.indptr[:-1], columns.indptr[1:], strict=True):
        indices[start:end] = rng.choice(rows.shape[0], end - start, replace=False)
        data[start:end] = _drawn(data[start:end, None].astype(np.float64), rng)[:, 0]
    return containers.csr_array(sparse.csc_array((data, indices, columns.indptr), shape=rows.shape).tocsr())
