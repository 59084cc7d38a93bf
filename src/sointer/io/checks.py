"""What the metadata of a saved explainer must fulfil before anything is made from them.

Whoever wrote the file may have meant harm, so sizes are compared with those of the tensors, which are as large as their
file and no larger; what is made from metadata that pass is of that size too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from torch import Tensor

from sointer.data.columns import MISSING
from sointer.data.reading import MAX_CLASSES
from sointer.data.times import UNITS
from sointer.io.storage import need
from sointer.masking.removal import MAX_BACKGROUND_ROWS

KINDS_OF_INPUT = ("numpy", "csr", "torch", "text")
KINDS_OF_FRAME = ("pandas", "polars", "pyarrow")
KINDS_OF_OUTPUT = ("binary", "categorical", "probability", "continuous")
DTYPE = re.compile(r"(bool|bfloat16|u?int(8|16|32|64)|float(16|32|64))")
DEVICE = re.compile(r"(cpu|cuda|mps|xpu)(:\d{1,3})?")
MAX_SEGMENTS = 2**16
MAX_EDGES = 64
N_PROBES = 16
MAX_LABEL_BYTES = 2**28
MAX_BLUR_ENTRIES, MAX_BLUR_STEPS = 2**24, 2**32


def check_metadata(metadata: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """ValueError, or another error of wrong types, if metadata do not fit together or not to the tensors."""
    need(tensors["shift"].ndim == 1 and str(tensors["shift"].dtype) == "torch.float64", "shift is not a row of numbers")
    n_columns = len(tensors["shift"])
    check_input_format(metadata["input_format"], n_columns)
    n_features = len(metadata["input_format"]["feature_names"])
    image = metadata["input_format"].get("image")
    check_groups(metadata["groups"], n_columns, n_features, image)
    check_outputs(metadata["outputs"], sum(tensor.nbytes for tensor in tensors.values()))
    n_outputs = len(metadata["outputs"]["names"])
    n_values = values_beside_texts(metadata["input_format"])
    check_removal(metadata["removal"], with_prefix(tensors, "removal."), n_columns, image, n_values)
    check_background(metadata["background"], with_prefix(tensors, "background."), n_columns)
    if "parts" in metadata["input_format"]:
        known = with_prefix(tensors, "background.")
        check_values(known, metadata["background"]["shape"][0], n_values)
    check_training_codes(metadata["outputs"], tensors["training_codes"], n_outputs)
    targets = metadata["targets"]
    need(isinstance(targets, list) and all(_is_count(t) and t < n_outputs for t in targets), "targets are not outputs")
    need(len(set(targets)) == len(targets) > 0, "targets are none, or there twice")
    need(_is_count(metadata["n_queries"]), "the number of queries is none")
    numbers = [metadata["held_out_agreement"], metadata["held_out_skill"], *metadata["output_agreement"]]
    need(all(one is None or _is_number(one) for one in [*numbers, *metadata["output_skill"]]), "an agreement is none")
    n_agreements = len(metadata["output_agreement"])
    need(n_agreements == len(metadata["output_skill"]), "agreements and skills are not of the same outputs")
    need(image is not None or n_agreements == n_outputs, "agreements are of other outputs")
    history = metadata["history"]
    need(isinstance(history, list) and all(isinstance(one, dict) for one in history), "the history is none")
    if metadata.get("probe") is not None:
        check_probe(metadata["probe"], with_prefix(tensors, "probe."), n_columns, n_outputs)


def check_sequences(metadata: Mapping[str, Any]) -> None:
    """ValueError if metadata of an explainer of sequences are of wrong types, or do not fit together."""
    outputs, history = metadata["outputs"], metadata["history"]
    classes, edges = outputs["classes"], outputs["edges"]
    need(outputs["kind"] in ("label", "number", "probability"), "the kind of outputs is not known")
    need(_are_labels(classes), "the labels are none")
    need(all(map(_is_number, edges)) and all(a < b for a, b in pairwise(edges)), "bounds of numbers do not rise")
    if outputs["kind"] == "number":
        need(all(map(_is_number, classes)) and len(classes) == len(edges) + 1, "numbers have no ranges")
    need(_is_number(outputs["tolerance"]) and outputs["tolerance"] >= 0, "the tolerance is none")
    need(all(isinstance(token, str) for token in metadata["tokens"]), "tokens are not text")
    need(all(map(_is_number, metadata["held_out"])), "an agreement is none")
    need(_is_count(metadata["n_queries"]), "the number of queries is none")
    need(isinstance(history, list) and all(isinstance(one, dict) for one in history), "the history is none")


def check_input_format(data: Mapping[str, Any], n_columns: int) -> None:
    """ValueError if this describes no inputs of so many columns."""
    names, columns = data["feature_names"], data["columns"]
    is_frame = data["kind"] in KINDS_OF_FRAME
    if "parts" in data:
        check_text_table(data, n_columns)
        return
    need(is_frame or data["kind"] in KINDS_OF_INPUT, "the kind of input is not known")
    need(_are_names(names), "feature_names are not names")
    need(isinstance(data["device"], str) and bool(DEVICE.fullmatch(data["device"])), "the device is not known")
    need(isinstance(data["is_matrix"], bool), "is_matrix is not a truth value")
    need(isinstance(data["dtype"], str), "dtype is not text")
    need(is_frame or data["kind"] == "text" or bool(DTYPE.fullmatch(data["dtype"])), "dtype is not known")
    need(data.get("pixel_range", "any") in ("bytes", "unit", "any"), "the range of pixels is not known")
    image = data.get("image")
    if image is not None:
        need(_is_image(image, n_columns) and image[1] * image[2] == len(names), "the shape of images is another")
        need(data["kind"] in ("numpy", "torch") and not columns, "images have no columns")
        return
    need(isinstance(columns, list) and len(columns) == (len(names) if is_frame else 0), "no columns")
    widths = [1] * len(names)
    for place, column in enumerate(columns):
        categories = column["categories"]
        need(isinstance(column["dtype"], str), "a column's dtype is not text")
        need(_are_labels([column["label"]]) or _are_labels(column["label"]), "a column's label is not one")
        if categories is not None:
            missing = column.get("missing")
            need(_are_labels(categories), "categories are not labels")
            need(missing is None or missing in MISSING, "what is missing is not known")
            widths[place] = len(categories) + (missing is not None)
        if column.get("time") is not None:
            check_time(column["time"], is_number=categories is None)
    fills = data.get("fills", [])
    need(isinstance(fills, list) and len(fills) in (0, len(names)), "fills are not one for each feature")
    for place, fill in enumerate(fills):
        is_number = not columns or columns[place]["categories"] is None
        need(fill is None or (_is_number(fill) and is_number), "a fill is not a number")
        widths[place] += fill is not None
    need(sum(widths) == n_columns, f"there are {sum(widths)} columns, and {n_columns} in the tensors")


def check_text_table(data: Mapping[str, Any], n_columns: int) -> None:
    """ValueError if this describes no table with texts, whose words and other columns are so many."""
    names, columns, table, edges = data["feature_names"], data["columns"], data["table"], data["edges"]
    need(data["kind"] in KINDS_OF_FRAME and _are_names(names) and len(names) == n_columns, "the features are others")
    need(isinstance(columns, list) and all(isinstance(column, dict) for column in columns), "no columns")
    need(all(isinstance(column["dtype"], str) for column in columns), "a column's dtype is not text")
    need(isinstance(data["parts"], list) and len(data["parts"]) > 0, "there are no texts")
    for part in data["parts"]:
        need(part["kind"] == "text", "a text is none")
        check_input_format(part, len(part["feature_names"]))
    n_values = values_beside_texts(data)
    if table is not None:
        check_input_format(table, n_values)
    need(isinstance(edges, list) and len(edges) == n_values, "bins are of other numbers")
    for one in edges:
        need(isinstance(one, list) and len(one) <= MAX_EDGES and all(map(_is_number, one)), "bounds of bins are none")
        need(all(a < b for a, b in pairwise(one)), "bounds of bins do not rise")


def values_beside_texts(data: Mapping[str, Any]) -> int:
    """How many numbers the columns beside texts are encoded as."""
    if data.get("table") is None:
        return 0
    missing = [fill is not None for fill in data["table"].get("fills", [])]
    own = [
        1 if column["categories"] is None else len(column["categories"]) + (column.get("missing") is not None)
        for column in data["table"]["columns"]
    ]
    return sum(own) + sum(missing)


def check_time(data: Any, *, is_number: bool) -> None:
    """ValueError if this describes no column of times."""
    need(is_number and isinstance(data, dict) and data.get("unit") in UNITS, "the unit of a time is not known")
    need(all(type(data[name]) is int for name in ("origin", "step")), "a time is not counted in whole numbers")
    need(data["step"] in (1, 1000) and abs(data["origin"]) < 2**63, "a time has another step or origin")
    need(isinstance(data["is_duration"], bool), "is_duration is not a truth value")
    need(data["zone"] is None or isinstance(data["zone"], str), "a time zone is not text")


def check_groups(data: Mapping[str, Any], n_columns: int, n_features: int, image: Any) -> None:
    """ValueError if these are no groups of such features."""
    if "patches" in data or "superpixels" in data:
        shape = data["image"]
        need(image is not None and [shape[s] for s in ("channels", "height", "width")] == image, "other images")
        if "superpixels" in data:
            most = max(MAX_SEGMENTS, image[1] * image[2])
            need(_is_count(data["superpixels"]["n_segments"], most=most), "too many superpixels")
        return
    names, units, owners = data["unit_names"], data["unit_of_feature"], data["column_feature"]
    need(_are_names(names), "unit_names are not names")
    need(len(units) == n_features and len(owners) == n_columns, "groups are of another size")
    need(all(_is_count(unit) and unit < len(names) for unit in units), "a feature's unit is none")
    need(set(units) == set(range(len(names))), "a unit has no feature")
    need(all(_is_count(owner) and owner < n_features for owner in owners), "a column's feature is none")


def check_outputs(data: Mapping[str, Any], n_bytes: int) -> None:
    """`n_bytes` is how large all tensors are together."""
    names, kinds, classes, shape = data["names"], data["kinds"], data["classes"], data.get("shape")
    need(_are_names(names), "output names are not names")
    n_outputs = len(names)
    need(isinstance(data["seen"], list) and len(data["seen"]) == n_outputs, "seen is of another size")
    if shape is not None:
        need(len(shape) == 2 and all(map(_is_count, shape)) and shape[0] * shape[1] == n_outputs, "masks of other size")
    n_kept = n_outputs if shape is None else 1
    for part in (kinds, classes):
        need(isinstance(part, list) and len(part) == n_kept, "kinds or classes are of another size")
    need(isinstance(data["quantiles"], list) and len(data["quantiles"]) == n_outputs, "quantiles of another size")
    for kind, labels in zip(kinds, classes, strict=True):
        need(kind in KINDS_OF_OUTPUT, "the kind of outputs is not known")
        if kind == "continuous":
            need(labels is None, "numbers have no classes")
            continue
        need(_are_labels(labels) and len(labels) > 0, "classes are not labels")
        need(len(labels) == 2 if kind == "probability" else True, "probabilities have two classes")
        need(len(labels) <= 2 if kind == "binary" else True, "binary outputs have two classes")
    of_outputs = kinds * (1 if shape is None else n_outputs)
    for kind, curve in zip(of_outputs, data["quantiles"], strict=True):
        need((curve is not None) == (kind == "continuous"), "numbers, and they alone, have quantiles")
    if "continuous" in kinds:
        need(_is_number(data["tolerance"]) and data["tolerance"] >= 0, "no tolerance")
    # Explanations need tables of labels x labels; those of fitted explainers are at most so much larger than the file.
    n_labels = [2 if one is None else len(one) for one in classes]
    need(
        max(n_labels) <= 32 * MAX_CLASSES,  # labels that explain met later are added
        "too many classes",
    )
    need(shape is not None or 4 * sum(n_labels) ** 2 <= 64 * n_bytes + MAX_LABEL_BYTES, "too many labels")


def check_values(tensors: Mapping[str, Tensor], n_rows: int, n_values: int) -> None:
    """ValueError if there are no numbers of so many rows with texts."""
    need(tuple(tensors["values"].shape) == (n_rows, n_values), "columns beside texts are of another size")
    need(tensors["values"].is_floating_point(), "columns beside texts are no numbers")


def check_removal(
    meta: Mapping[str, Any], tensors: Mapping[str, Tensor], n_columns: int, image: Any, n_values: int = 0
) -> None:
    """ValueError if this is no removal for so many columns; beside texts, others are encoded as `n_values` numbers."""
    kind = meta["type"]
    known = ("fixed", "blur", "marginal", "conditional", "function", "text", "text table")
    need(kind in known, "the removal is not known")
    need(isinstance(meta["name"], str), "the removal has no name")
    need(meta.get("image") is None or meta["image"] == image, "the removal is for other images")
    if kind == "fixed":
        need(tuple(tensors["reference"].shape) == (n_columns,), "the reference is of another size")
    elif kind in ("text", "text table"):
        need(meta["n_columns"] == n_columns, "the removal is for other words")
        need(meta["token"] is None or isinstance(meta["token"], str), "the token is not text")
        need((kind == "text table") == (n_values > 0), "the removal is for other columns beside texts")
        if kind == "text table":
            check_background(meta, tensors, n_values)
            owners = tensors["owners"]
            need(tuple(owners.shape) == (n_values,) and not owners.is_floating_point(), "columns have no owners")
            need(int(owners.min()) >= 0 and int(owners.max()) < n_columns, "a column's owner is none")
    elif kind == "blur":
        need(image is not None and meta["image"] == image, "the removal is for images")
        height, side = image[1], max(image[1:])
        need(side * side <= MAX_BLUR_ENTRIES and height * side * side <= MAX_BLUR_STEPS, "images too large to blur")
        need(tuple(tensors["usual"].shape) == (n_columns,), "the usual image is of another size")
    else:
        check_background(meta, tensors, n_columns)
        if kind == "conditional":
            need(tuple(tensors["scale"].shape) == (n_columns,), "the scale is of another size")


def check_background(meta: Mapping[str, Any], tensors: Mapping[str, Tensor], n_columns: int) -> None:
    """ValueError if this is no background of so many columns."""
    need(tuple(tensors["varies"].shape) == (n_columns,), "varies is of another size")
    if meta["shape"] is None:
        rows = tensors["rows"]
        need(rows.ndim == 2 and rows.shape[1] == n_columns, "background rows are of another size")
        need(len(rows) <= MAX_BACKGROUND_ROWS, "background rows are of another number")
        return
    shape = meta["shape"]
    need(len(shape) == 2 and all(map(_is_count, shape)) and shape[1] == n_columns, "background rows of another size")
    data, indices, starts = (tensors[name] for name in ("data", "indices", "indptr"))
    need(all(part.ndim == 1 for part in (data, indices, starts)), "background rows are no rows")
    need(not indices.is_floating_point() and not starts.is_floating_point(), "places are not whole numbers")
    need(len(starts) == shape[0] + 1 and int(starts[0]) == 0, "background rows are of another number")
    need(shape[0] <= MAX_BACKGROUND_ROWS, "too many background rows")
    need(bool((starts[1:] >= starts[:-1]).all()) and int(starts[-1]) == len(data) == len(indices), "rows do not fit")
    need(len(indices) == 0 or (int(indices.min()) >= 0 and int(indices.max()) < n_columns), "an entry is in no column")


def check_probe(meta: Mapping[str, Any], tensors: Mapping[str, Tensor], n_columns: int, n_outputs: int) -> None:
    """ValueError if this is no probe of such a model."""
    hashes = [meta["inputs_sha256"], meta["outputs_sha256"]]
    need(_is_count(meta["n"], most=N_PROBES) and all(isinstance(one, str) for one in hashes), "the probe is none")
    outputs, texts = meta["outputs"], meta["texts"]
    if outputs is None:
        return
    need(isinstance(outputs, list) and len(outputs) == meta["n"] > 0, "outputs of the probe are of another number")
    need(all(_are_labels(row) and len(row) == n_outputs for row in outputs), "outputs of the probe are no outputs")
    if texts is not None:
        need(_are_labels(texts) and len(texts) == meta["n"], "the probe's texts are of another number")
        return
    check_background(meta, tensors, n_columns)
    n_rows = len(tensors["rows"]) if meta["shape"] is None else meta["shape"][0]
    need(n_rows == meta["n"], "the probe's rows are of another number")


def check_training_codes(outputs: Mapping[str, Any], codes: Tensor, n_outputs: int) -> None:
    """ValueError if these are no encoded outputs of the training samples."""
    need(codes.ndim == 2 and codes.shape[1] == n_outputs, "outputs of the training samples are of another size")
    graded = any(kind in ("probability", "continuous") for kind in outputs["kinds"]) and outputs.get("shape") is None
    need(codes.is_floating_point() == graded, "outputs of training samples are of another kind")
    if len(codes):
        most = np.array([2 if one is None else len(one) for one in outputs["classes"]])
        table = codes.numpy()
        need(bool((table >= 0).all() and (table < most).all()), "an output of a training sample is no class")


def with_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin so, without that beginning."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _is_count(value: Any, most: int = 2**40) -> bool:
    return type(value) is int and 0 <= value <= most


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and bool(np.isfinite(value))


def _are_names(names: Any) -> bool:
    return isinstance(names, list) and 0 < len(names) == len(set(names)) and all(isinstance(one, str) for one in names)


def _are_labels(labels: Any) -> bool:
    return isinstance(labels, list) and all(type(one) in (str, int, float, bool) for one in labels)


def _is_image(image: Any, n_columns: int) -> bool:
    fits = isinstance(image, list) and len(image) == 3 and all(_is_count(side) and side > 0 for side in image)
    return fits and image[0] * image[1] * image[2] == n_columns
