"""To ONNX: a fitted interpreter of tables as one graph that onnxruntime runs without Python or torch."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from sointer._version import __version__
from sointer.base import AUTO_K
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import SeparateEnergy, VectorEnergy
from sointer.errors import InputError, require_extra
from sointer.explainer import SOInter
from sointer.interop.plain_scores import PlainScores
from sointer.interpreter.networks import PaperInterpreter, SaliencyInterpreter
from sointer.removal.fixed import FixedRemoval
from sointer.removal.marginal import RemovalByRows
from sointer.validation import check_k, resolve_targets

OPSET = 18
N_TRACED_ROWS = 3


def export(
    explainer: SOInter,
    path: str | os.PathLike[str],
    *,
    target: int | str | None = None,
    k: int | None = None,
    takes_value: bool = False,
) -> Path:
    """Write the interpreter as an ONNX file, and return its path: rows in, scores and selected features out.

    Inputs of the graph are `rows`, float32 (rows, columns), as `explainer.input_format_.encode(X)` makes them (plain
    numbers stay as they are, categories are one-hot); and `target`, int64 (rows,), numbers of outputs, unless one is
    given here. Outputs are `scores`, float32 (rows, units); `selected`, int64 (rows, k), best first, -1 where there
    was no more to choose from; and `expected`, (rows,), the value that is explained: of labels their code.

    takes_value : a further input `value`, (rows,): the code (or the standardised number) of what the model said about
        the target. Without it the value is what the energy expects; the file holds no answers that `explain` may
        remember from fit.

    The metadata `sointer` of the file, JSON, names columns, units, outputs, labels and k. Images are not supported.
    """
    require_extra("onnx", "onnx")
    require_extra("onnxscript", "onnx")
    destination = Path(path)
    if not destination.parent.is_dir():
        raise InputError(f"export: there is no folder {os.fspath(destination.parent)!r} to write to; make it first.")
    graph = _graph(explainer, target, k, takes_value=takes_value)
    rows = torch.zeros(N_TRACED_ROWS, explainer.input_format_.n_columns)
    inputs: dict[str, Tensor] = {"rows": rows}
    if target is None:
        inputs["target"] = torch.full((N_TRACED_ROWS,), explainer.targets_[0])
    if takes_value:
        kind = torch.float32 if explainer.outputs_.kind == "continuous" else torch.int64
        inputs["value"] = torch.zeros(N_TRACED_ROWS, dtype=kind)
    n = torch.export.Dim("n")
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            graph,
            kwargs=inputs,
            input_names=list(inputs),
            output_names=["scores", "selected", "expected"],
            dynamic_shapes={name: {0: n} for name in inputs},
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    model = program.model_proto
    entry = model.metadata_props.add()
    entry.key, entry.value = "sointer", json.dumps(_facts(explainer, target, graph.k), ensure_ascii=False)
    destination.write_bytes(model.SerializeToString())
    return destination


@contextmanager
def _quiet() -> Iterator[None]:
    """torch's exporter warns and logs about its own machinery, of which the caller can change nothing."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(before)


class _Graph(nn.Module):
    """From rows, as they were given, to what is selected for them."""

    def __init__(self, explainer: SOInter, scores: PlainScores, target: int | None, k: int) -> None:
        super().__init__()
        self.scores, self.target, self.k = scores, target, k
        removal = explainer.removal_
        self.register_buffer("shift", torch.as_tensor(explainer.shift_, dtype=torch.float64))
        self.register_buffer("reference", torch.zeros(0))
        self.register_buffer("varies", torch.zeros(0, dtype=torch.bool))
        if isinstance(removal, FixedRemoval):
            self.reference = torch.as_tensor(removal.reference, dtype=torch.float64)
        elif isinstance(removal, RemovalByRows):
            units = explainer.groups_.any_column(removal.background.varies[None])[0]
            self.varies = torch.as_tensor(units)
        unit_of_column = torch.as_tensor(explainer.groups_.unit_of_column)
        self.register_buffer("members", nn.functional.one_hot(unit_of_column, explainer.groups_.n_units).float())

    shift: Tensor
    reference: Tensor
    varies: Tensor
    members: Tensor

    def forward(
        self, rows: Tensor, target: Tensor | None = None, value: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        exact = rows.double()
        x = (exact - self.shift).float()
        if target is None:
            assert self.target is not None
            target = torch.zeros_like(rows[:, 0], dtype=torch.int64) + self.target
        expected = self.scores.expected(x, target) if value is None else value
        scores = self.scores(x, target, expected)
        allowed = self._allowed(exact, scores)
        best = scores.masked_fill(~allowed, -torch.inf).topk(self.k, dim=1).indices
        selected = torch.where(allowed.gather(1, best), best, -1)
        return scores, selected, expected

    def _allowed(self, rows: Tensor, scores: Tensor) -> Tensor:
        """Units that differ from their reference: (rows, units)."""
        if len(self.varies):
            return self.varies.unsqueeze(0).expand(scores.shape)
        differs = (rows != self.reference).float()
        return differs @ self.members > 0


def _graph(explainer: SOInter, target: int | str | None, k: int | None, *, takes_value: bool) -> _Graph:
    if not isinstance(explainer, SOInter):
        raise InputError(f"export: explainer is a {type(explainer).__name__}, expected a fitted SOInter.")
    check_is_fitted(explainer, "interpreter_")
    energy, interpreter, removal = explainer.energy_, explainer.interpreter_, explainer.removal_
    if not (
        isinstance(energy, VectorEnergy | SeparateEnergy)
        and isinstance(interpreter, SaliencyInterpreter | PaperInterpreter)
        and isinstance(removal, FixedRemoval | RemovalByRows)
    ):
        what = "of images" if explainer.input_format_.image is not None else f"with a {type(energy).__name__}"
        raise InputError(
            f"export: this explainer {what} cannot be written as ONNX; expected one of tables or texts, with "
            "preset='default', or 'paper' and structured=True. Save it with explainer.save(path) instead."
        )
    chosen = explainer.k if k is None else k
    size = check_k(min(AUTO_K, explainer.groups_.n_units) if chosen == "auto" else chosen, explainer.groups_.n_units)
    assert size != "auto"
    number = None if target is None else int(resolve_targets(target, explainer.output_names_, 1)[0])
    if number is not None and number not in explainer.targets_:
        known = ", ".join(explainer.output_names_[t] for t in explainer.targets_[:5])
        raise InputError(f"export: target {target!r} was not among the targets given to fit; expected one of {known}.")
    scores = PlainScores(interpreter, energy, Likelihood.of(explainer.config_.energy))
    return _Graph(explainer, scores, number, size).eval().requires_grad_(False)


def _facts(explainer: SOInter, target: int | str | None, k: int) -> dict[str, Any]:
    """What a reader of the file must know to use it."""
    inputs, outputs = explainer.input_format_, explainer.outputs_
    columns = []
    for feature, name in enumerate(inputs.feature_names):
        categories = inputs.columns[feature].categories if inputs.columns else None
        columns += [name] if categories is None else [f"{name}={category}" for category in categories]
    return {
        "version": __version__,
        "columns": columns,
        "units": list(explainer.groups_.unit_names),
        "outputs": list(outputs.names),
        "output_kind": outputs.kind,
        "labels": None if outputs.label_sets is None else [one.to_json() for one in outputs.label_sets],
        "targets": [outputs.names[t] for t in explainer.targets_],
        "target": None if target is None else outputs.names[resolve_targets(target, outputs.names, 1)[0]],
        "k": k,
        "removal": explainer.removal_.name,
    }
