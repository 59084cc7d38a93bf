"""A request: rows, a target for each, how many features; validated before it waits for its turn."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from starlette.exceptions import HTTPException

from sointer._support import containers
from sointer._support.validation import brief, check_k, is_integer, some
from sointer.apps.serve.rows import MAX_NAME_LENGTH, hint, read_rows, strings_in
from sointer.errors import BlackBoxError, InputError, QueryBudgetExceeded
from sointer.explainers.base import Explainer
from sointer.masking.rows import ExplainedRows

if TYPE_CHECKING:
    from sointer.apps.serve.security import Limits

log = logging.getLogger("sointer.apps.serve")
MAX_MESSAGE_LENGTH = 500
MAX_FEATURES = 100_000
"""In one response: about 150 bytes each."""
ROWS_SCHEMA = {
    "description": "Records, columns with data, lists in the order of the features, or texts.",
    "oneOf": [
        {"type": "array", "items": {"type": "object"}},
        {"type": "array", "items": {"type": "array"}},
        {"type": "array", "items": {"type": "string"}},
        {
            "type": "object",
            "required": ["columns", "data"],
            "properties": {
                "columns": {"type": "array", "items": {"type": "string"}},
                "data": {"type": "array", "items": {"type": "array"}},
            },
        },
    ],
}


class Options(BaseModel):
    """How to explain, in both protocols."""

    target: Any = Field(None, description="The name or number of an output; or a list, one for each row.")
    k: Any = Field(None, description='How many features to select, or "auto".')
    query: bool = Field(True, description="Query the model, if there is one, for what it predicts.")
    verify: bool = Field(False, description="Query the model whether it predicts the same from these alone.")


class ExplainBody(Options):
    """The body of a request to /explain."""

    model_config = ConfigDict(extra="forbid")

    rows: Annotated[Any, WithJsonSchema(ROWS_SCHEMA)]
    predicted: Any = Field(
        None, description="The model's outputs for each row, if they are known.", json_schema_extra={"type": "array"}
    )
    format: Literal["rows", "table", "records"] = Field(
        "rows", description="One entry per row, one per row and feature, or a record of each, to check it later."
    )
    ids: Any = Field(None, description="A name for each row, for its record.", json_schema_extra={"type": "array"})


AnyOptions = TypeVar("AnyOptions", bound=Options)


@dataclass(frozen=True, eq=False)
class ExplainRequest:
    """What is to be explained."""

    X: Any
    """The rows, as they are shown."""
    source: ExplainedRows
    """The same encoded, and the model's outputs for them, where the client knows them."""
    targets: list[Any]
    """One for each row."""
    k: int | Literal["auto"]
    verify: bool = False
    format: str = "rows"
    query: bool = True
    """Whether the model, if there is one, is queried for what it predicts."""
    has_model: bool = False
    queries_for_size: bool = False
    """Whether the model is queried for how many features are enough."""
    ids: list[str] | None = None
    """A name for each row, for its record."""
    recorded: bool = False
    """Whether records are made."""

    @property
    def n_rows(self) -> int:
        """How many explanations are asked for."""
        return len(self.targets)

    @property
    def queries_model(self) -> bool:
        """Whether the model is queried at all."""
        return self.queries_masked or (self.has_model and self.query and self.source.predicted is None)

    @property
    def queries_masked(self) -> bool:
        """Whether the model is queried with masked rows."""
        return self.verify or self.queries_for_size

    def can_join(self, other: Any) -> bool:
        """Whether both can be explained in one go.

        Not where masked rows are queried, predictions are given, only one leaves the size open, or regions are counted.
        """
        is_image = self.source.input_format.image is not None
        if self.recorded or other.recorded or is_image:
            return False
        if self.query != other.query or (self.k == "auto") != (other.k == "auto"):
            return False
        return not any(one.queries_masked or one.source.predicted is not None for one in (self, other))


def validate(model: type[AnyOptions], content: dict[str, Any]) -> AnyOptions:
    """The options in a JSON object; InputError says which of them is wrong."""
    try:
        return model.model_validate(content, strict=True)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        expected = wrong.get("ctx", {}).get("expected", "true or false")
        raise InputError(f"{wrong['loc'][0]} must be {expected}, got {brief(wrong['input'])}.") from None


def check_keys(model: type[Options], content: dict[str, Any], example: str) -> None:
    """InputError for a body with unknown fields, or without rows."""
    # Not left to pydantic, which would note every unknown field of a hostile body.
    keys = list(model.model_fields)
    unknown = sorted(set(content) - set(keys))
    if unknown:
        raise InputError(f"the body has {brief(unknown[0])}, which is not known. {hint(unknown[0], keys)}")
    if "rows" not in content:
        raise InputError(f'the body lacks "rows": what is to be explained, such as {example}.')


def read_request(explainer: Explainer, content: dict[str, Any], limits: Limits) -> ExplainRequest:
    """Read the body of a request to explain."""
    check_keys(ExplainBody, content, '[{"name": value, ...}]')
    rows, predicted = content.pop("rows"), content.pop("predicted", None)
    body = validate(ExplainBody, {"rows": None, **content})
    X = read_rows(explainer, rows, limits.max_rows)
    del rows  # what follows takes memory too
    request = make_request(explainer, X, body, predicted, body.format)
    return replace(request, ids=read_ids(body.ids, request.n_rows), recorded=body.format == "records")


def make_request(
    explainer: Explainer, X: Any, options: Options, predicted: Any = None, format: str = "rows"
) -> ExplainRequest:
    """A request about rows of any container; whatever explain would refuse is refused here."""
    k = check_k(explainer.k if options.k is None else options.k, explainer.groups_.n_units)
    n_rows = containers.n_rows(X)
    if k != "auto":
        check_size(n_rows, n_rows * k)
    queries_for_size = k == "auto" and explainer.queries_for_sizes
    if (queries_for_size or options.verify) and explainer.black_box_ is None:
        what = "verify" if options.verify else 'k="auto"'
        raise InputError(f"{what} needs the model, and this server has none; it was started without --model.")
    if explainer.queries_to_explain and not options.query and predicted is None:
        raise InputError(f"query is false, but {type(explainer).__name__} cannot explain without the model.")
    source, has_model = explainer._source(X, None), explainer.black_box_ is not None
    targets = _targets(explainer, options.target, source.n_samples)
    if predicted is not None:
        source = replace(source, predicted=_read_predicted(explainer, predicted, source.n_samples))
    return ExplainRequest(X, source, targets, k, options.verify, format, options.query, has_model, queries_for_size)


def read_ids(ids: Any, n_rows: int) -> list[str] | None:
    """A name for each row, if there are any."""
    if ids is None:
        return None
    if not isinstance(ids, list) or len(ids) != n_rows or not all(isinstance(one, str | int) for one in ids):
        raise InputError(f"ids must be a list with a name for each row ({n_rows}), got {brief(ids)}.")
    if max(map(len, map(str, ids))) > 10 * MAX_NAME_LENGTH:
        raise InputError(f"ids holds a name of more than {10 * MAX_NAME_LENGTH} characters; give shorter ones.")
    return [str(one) for one in ids]


def check_size(n_rows: int, n_features: int) -> None:
    """Refuse requests for responses that are too large."""
    if n_features > MAX_FEATURES:
        raise InputError(
            f"{n_features:,} features for {n_rows:,} rows are more than the {MAX_FEATURES:,} that fit into a response. "
            "Lower k, or send fewer rows at a time."
        )


def _read_predicted(explainer: Explainer, predicted: Any, n_rows: int) -> Any:
    """Rows of outputs as lists in their order, or as objects by name; masks as nested lists."""
    if not isinstance(predicted, list | np.ndarray):
        raise InputError(
            f"predicted must be a list with the model's outputs for each of {n_rows} rows, got {brief(predicted)}."
        )
    if len(predicted) and all(isinstance(row, dict) for row in predicted):
        names = explainer.output_names_
        for number, row in enumerate(predicted):
            if set(row) != set(names):
                raise InputError(
                    f"predicted: row {number} names the outputs {some(sorted(map(str, row)))}, expected {some(names)}."
                )
        predicted = [[row[name] for name in names] for row in predicted]
    if isinstance(predicted, list):  # numpy gives every string the room of the longest
        texts, n_outputs = list(map(len, strings_in(predicted))), explainer.n_outputs_
        longest = max([MAX_NAME_LENGTH, *(len(str(label)) for label in explainer.outputs_.all_labels)])
        if texts and (max(texts) > longest or len(texts) > n_rows * n_outputs):
            raise InputError(
                f"predicted holds {len(texts):,} strings of up to {max(texts):,} characters, expected {n_rows} rows of "
                f"{n_outputs} outputs, with labels that the model has."
            )
    return explainer._read_predicted(predicted, n_rows)


def _targets(explainer: Explainer, target: Any, n_rows: int) -> list[Any]:
    shape = explainer.outputs_.shape
    each = target if isinstance(target, list) else [target]
    longest = max([10 * MAX_NAME_LENGTH, *map(len, explainer.output_names_)])
    if any(isinstance(one, str) and len(one) > longest for one in each):
        raise InputError("target is very long, and no output is called like that.")
    if isinstance(target, list) and not _is_pixel(target) and len(target) != n_rows:
        raise InputError(f"target must hold one output per row ({n_rows}), got {len(target)}.")
    if shape is None:
        return [int(number) for number in explainer._resolve(target, n_rows).index]
    if target is None or not isinstance(target, list) or _is_pixel(target):
        made = [_place(target)] * n_rows
    else:
        made = [_place(one) for one in target]
    explainer._resolve(None if target is None else made, n_rows)
    return [explainer.targets_[0]] * n_rows if target is None else made


def _is_pixel(target: Any) -> bool:
    return isinstance(target, list) and len(target) == 2 and all(is_integer(one) for one in target)


def _place(target: Any) -> Any:
    """A pixel [row, column], or a box {"rows": [from, to], "columns": [from, to]}, as explain takes it."""
    if _is_pixel(target):
        return tuple(target)
    if isinstance(target, dict):
        spans = [target.get(side) for side in ("rows", "columns")]
        if set(target) == {"rows", "columns"} and all(_is_pixel(span) for span in spans):
            return tuple(slice(*span) for span in spans if span is not None)
        raise InputError('target: a box is {"rows": [from, to], "columns": [from, to]}, in whole numbers.')
    return target


def one_line(text: str) -> str:
    """A message without line breaks and control characters, and not too long."""
    text = text[: 2 * MAX_MESSAGE_LENGTH]
    words = "".join(character if character.isprintable() else "?" for character in " ".join(text.split()))
    return words if len(words) <= MAX_MESSAGE_LENGTH else f"{words[: MAX_MESSAGE_LENGTH - 1]}…"


def as_http_error(error: BaseException) -> HTTPException:
    """What to say about an error; what went wrong on our side goes to the log only."""
    if isinstance(error, HTTPException):
        return error
    if isinstance(error, InputError):
        return HTTPException(422, str(error).removeprefix("explain: "))
    if isinstance(error, QueryBudgetExceeded):
        return HTTPException(
            503,
            "The model may not be queried any more: its query budget is used up. Send its outputs as predicted, or "
            "query: false to explain what is expected of it.",
        )
    if isinstance(error, BlackBoxError):
        log.warning("the model failed: %s", one_line(str(error)))
        return HTTPException(
            502, "The model that is explained failed or gave no usable answer; the server's log says more."
        )
    log.error("a request failed unexpectedly", exc_info=error)
    return HTTPException(500, "Something went wrong in the server; its log says what.")
