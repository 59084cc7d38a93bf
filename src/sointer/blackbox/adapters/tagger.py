"""Models that tag sequences, as a black box: one row is a sequence, its only output the outputs of all its tokens.

Rows and outputs are JSON texts, so that everything a `BlackBox` does (budget, retries, workers, checks) works for
sequences of any length too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer._support import containers
from sointer._support.validation import message_of
from sointer.blackbox.box import BlackBox
from sointer.blackbox.call import TransientError
from sointer.blackbox.mask_replies import WRONG
from sointer.blackbox.replies import MAX_OUTPUT, TokenTexts
from sointer.data.sequences import Tokens
from sointer.errors import BlackBoxError, InputError

N_SHOWN = 8
MAX_LABEL_NUMBER = 2**63


class Tagger:
    """A function from token lists to one output per token; pass it to `BlackBox` to set retries, workers or a budget.

    Parameters
    ----------
    predict : function that takes a list of token lists and returns, for each of them, one output per token: a label, a
        number, the probabilities of the classes in their order, or a dictionary from classes to probabilities.

    Examples
    --------
    >>> from sointer import BlackBox
    >>> box = BlackBox(Tagger(lambda batch: [[token.isdigit() for token in tokens] for tokens in batch]), retries=1)
    >>> query_tagger(box, [["a", "1"], ["2"]])
    [[False, True], [True]]
    """

    def __init__(self, predict: Callable[[list[Tokens]], Any]) -> None:
        self.predict = predict
        self.__name__ = str(getattr(predict, "__name__", type(predict).__name__))

    def __call__(self, rows: NDArray[Any]) -> TokenTexts:
        """The outputs of sequences, each written as JSON, as JSON."""
        batch: list[Tokens] = [json.loads(row) for row in np.ravel(rows).tolist()]
        try:
            outputs = self.predict([list(tokens) for tokens in batch])
        except Exception as error:
            raise TransientError(
                f"Your function failed: {self.__name__} raised {type(error).__name__}: {message_of(error)}. It was "
                f"given {len(batch)} token lists, the first {batch[0]!r:.80}. Call it yourself on such a list to see "
                "why: it must take any tokens, also those that replace others."
            ) from error
        read = read_tagged(outputs, batch)
        texts = [json.dumps(outputs, ensure_ascii=False) for outputs in read]
        return TokenTexts(np.array(texts, dtype=object).reshape(-1, 1))


def as_tagger(model: Any, batch_size: int | None) -> BlackBox:
    """The black box of a tagger: a function, an object with `predict`, or a BlackBox made of a `Tagger`."""
    if isinstance(model, BlackBox):
        if not isinstance(model.predict, Tagger):
            raise InputError(
                "model is a BlackBox that was not made for sequences; write BlackBox(Tagger(function), ...), with "
                "Tagger from sointer.blackbox.adapters.tagger."
            )
        if batch_size is not None:
            raise InputError(f"batch_size={batch_size!r} was given together with a BlackBox; set it there.")
        return model
    predict = getattr(model, "predict", model)
    if isinstance(model, type) or not callable(predict):
        raise InputError(
            f"model is {containers.describe(model)}, expected a function from a list of token lists to one label per "
            "token, or an object with such a predict."
        )
    options: dict[str, Any] = {} if batch_size is None else {"batch_size": batch_size}
    return BlackBox(Tagger(predict), **options)


def query_tagger(black_box: BlackBox, sequences: Sequence[Tokens]) -> list[list[Any]]:
    """What the model predicts for every token of the sequences."""
    rows = np.array([json.dumps(tokens, ensure_ascii=False) for tokens in sequences], dtype=object).reshape(-1, 1)
    return [json.loads(outputs) for outputs in black_box(rows)[:, 0].tolist()]


def read_tagged(outputs: Any, batch: Sequence[Tokens]) -> list[list[Any]]:
    """Outputs of a tagger as plain lists, one output per token, or BlackBoxError: nothing is shifted or cut."""
    outputs = _plain(outputs)
    if not isinstance(outputs, (list, tuple)):
        raise BlackBoxError(
            f"{WRONG}{containers.describe(outputs)}, expected a list with one list of labels for each of {len(batch)} "
            "sequences."
        )
    if len(outputs) != len(batch):
        raise BlackBoxError(
            f"{WRONG}{len(outputs)} lists for {len(batch)} sequences, expected one for each. The function is given a "
            "list of token lists, also where there is only one."
        )
    return [_read_sequence(_plain(one), tokens) for one, tokens in zip(outputs, batch, strict=True)]


def _read_sequence(outputs: Any, tokens: Tokens) -> list[Any]:
    about = f"for the {len(tokens)} tokens {tokens[:N_SHOWN]!r}{' ...' if len(tokens) > N_SHOWN else ''}"
    if isinstance(outputs, str) or not isinstance(outputs, (list, tuple)):
        got = f"the text {outputs!r:.60}" if isinstance(outputs, str) else containers.describe(outputs)
        raise BlackBoxError(
            f"{WRONG}{got} {about}, expected a list with one label per token. A model with one label per sequence is "
            "explained as one of texts: X as strings, and a function such as lambda texts: model([t.split() for t in "
            "texts])."
        )
    if len(outputs) != len(tokens):
        raise BlackBoxError(
            f"{WRONG}{len(outputs)} labels {about}, expected {len(tokens)}, one per token. If the model splits or "
            "cuts its input itself, give it the tokens as they are, or X in its own tokens, no longer than it reads; "
            "if it pads, leave out what it returns for padding."
        )
    read = [_read_output(_plain(one), about) for one in outputs]
    kinds = {_kind(one) for one in read}
    is_number = all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in read)
    if len(kinds) > 1 and not is_number:
        raise BlackBoxError(f"{WRONG}{' and '.join(sorted(kinds))} {about}, expected one kind of output.")
    return read


def _read_output(output: Any, about: str) -> Any:
    if isinstance(output, Mapping):
        if any(isinstance(value, str) for value in output.values()):
            key = next((key for key in ("entity", "entity_group", "label", "tag") if key in output), "label")
            raise BlackBoxError(
                f"{WRONG}records such as {dict(output)!r:.80} {about}, expected labels alone, or the probability of "
                f"each class. Return [record[{key!r}] for record in ...], and check that there is one for every token: "
                "pipelines of transformers split words into parts and leave out those without an entity."
            )
        return {str(label): _number(p, about) for label, p in output.items()}
    if isinstance(output, (list, tuple)):
        if len(output) == 2 and isinstance(output[0], str):
            raise BlackBoxError(
                f"{WRONG}pairs such as {output!r:.60} {about}, expected labels alone. Return [label for token, label "
                "in ...], and check that the tokens are those that were given."
            )
        return [_number(p, about) for p in output]
    if not isinstance(output, (str, bool, int, float)):
        raise BlackBoxError(
            f"{WRONG}{output!r:.60} of type {type(output).__name__} {about}, expected a label (text, whole number or "
            "boolean), a number, or class probabilities."
        )
    if isinstance(output, int) and abs(output) >= MAX_LABEL_NUMBER:
        raise BlackBoxError(
            f"{WRONG}a whole number of {output.bit_length()} bits {about}, expected one below 2 ** 63. Return labels "
            "as text."
        )
    if isinstance(output, float) and not math.isfinite(output):
        raise BlackBoxError(f"{WRONG}{output!r} {about}, expected finite numbers.")
    if isinstance(output, float) and abs(output) > MAX_OUTPUT:
        raise BlackBoxError(
            f"{WRONG}{output!r} {about}, expected numbers up to {MAX_OUTPUT:g}. Divide them by a constant, or take "
            "logarithms."
        )
    return output


def _number(value: Any, about: str) -> float:
    value = _plain(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < MAX_LABEL_NUMBER:
        raise BlackBoxError(f"{WRONG}{value!r:.60} as a class probability {about}, expected numbers from 0 to 1.")
    return float(value)


def _plain(value: Any) -> Any:
    """Arrays, tensors and numpy scalars as Python's own lists and numbers."""
    if containers.is_tensor(value):
        value = containers.tensor_to_numpy(value)
    if containers.is_series(value):
        value = value.to_numpy()
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def _kind(output: Any) -> str:
    if isinstance(output, (Mapping, list)):
        return "class probabilities"
    return "numbers" if isinstance(output, float) else "labels"
