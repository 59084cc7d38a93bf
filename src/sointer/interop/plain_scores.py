"""The interpreter of tables written out as plain operations, without automatic gradients, loops or choices."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import SeparateEnergy, VectorEnergy
from sointer.interop.plain_energy import EnergyPasses, TargetEvidence
from sointer.interpreter.elimination import better_half, ranked_above
from sointer.interpreter.networks import Blend, PaperInterpreter, SaliencyInterpreter
from sointer.interpreter.saliency import Saliency, path_positions


class PlainScores(nn.Module):
    """`SaliencyInterpreter` (or the paper's networks) as plain operations: scores of units, and the value explained."""

    def __init__(self, interpreter: Any, energy: VectorEnergy | SeparateEnergy, likelihood: Likelihood) -> None:
        super().__init__()
        self.passes, self.evidence = EnergyPasses(energy), TargetEvidence(energy, likelihood)
        self.interpreter = interpreter
        if isinstance(interpreter, SaliencyInterpreter):
            n_columns, n_units = len(interpreter.unit_of_column), interpreter.relevance.shape[1]
            which = torch.arange(interpreter.n_path_steps) % len(interpreter.references)
            self.register_buffer("starts", interpreter.references[which])  # (steps, columns)
            self.register_buffer("positions", path_positions(interpreter.n_path_steps).view(1, -1, 1))
            alone = torch.equal(interpreter.unit_of_column, torch.arange(n_units)) and n_columns == n_units
            members = None if alone else F.one_hot(interpreter.unit_of_column, n_units).float()
            self.register_buffer("members", members)
            self.signed_only = bool((interpreter.signed == 1.0).all()) and len(interpreter.references) == 1
            with torch.no_grad():
                usual = likelihood.predict(energy, interpreter.references)
            self.register_buffer("usual", usual.mean(dim=0) if energy.space.is_continuous else usual[0])

    starts: Tensor
    positions: Tensor
    members: Tensor | None
    usual: Tensor

    def expected(self, x: Tensor, targets: Tensor) -> Tensor:
        unary, _ = self.passes.unary(self.passes.project(x.unsqueeze(1), targets), targets)
        return self.evidence.expected(unary.squeeze(1), targets)

    def forward(self, x: Tensor, targets: Tensor, values: Tensor) -> Tensor:
        interpreter = self.interpreter
        if isinstance(interpreter, PaperInterpreter):
            of_each = torch.stack([network(x) for network in interpreter.networks], dim=1)
            index = targets.view(-1, 1, 1).expand(-1, 1, of_each.shape[2])
            return of_each.gather(1, index).squeeze(1)
        scores = self.prior(x, targets, values)
        if interpreter.eliminates:
            scores = self._eliminate(x, targets, values, scores)
        final: Tensor = interpreter.with_residual(scores, x, targets)
        return final

    def prior(self, x: Tensor, targets: Tensor, values: Tensor) -> Tensor:
        """Saliency, blended with the relevance over all data: (rows, units)."""
        interpreter = self.interpreter
        signed = interpreter.signed[targets].unsqueeze(1)
        blend = Blend(signed, interpreter.shrinkage[targets].unsqueeze(1))
        return blend(self._saliency(x, targets, values), interpreter.relevance[targets])

    def _saliency(self, x: Tensor, targets: Tensor, values: Tensor) -> Saliency:
        start = self.passes.project(self.starts.unsqueeze(0), targets)
        end = self.passes.project(x.unsqueeze(1), targets)
        unary, slopes = self.passes.unary(start + self.positions * (end - start), targets)
        gradient = self.passes.back(self.evidence.slope(unary, targets, values), slopes, targets)
        if self.signed_only:
            mean = self.passes.back_to_inputs(gradient.mean(dim=1, keepdim=True), targets).squeeze(1)
            signed = self._of_units(mean * (x - self.starts[:1]))
            return Saliency(signed, signed.abs())
        contribution = self.passes.back_to_inputs(gradient, targets) * (x.unsqueeze(1) - self.starts)
        signed, size = self._of_units(contribution.mean(dim=1)), self._of_units(contribution.abs().mean(dim=1))
        if self.evidence.space.is_continuous:
            signed = signed * torch.sign(values - self.usual[targets]).unsqueeze(1)
        return Saliency(signed, size)

    def _of_units(self, of_columns: Tensor) -> Tensor:
        return of_columns if self.members is None else of_columns @ self.members

    def _eliminate(self, x: Tensor, targets: Tensor, values: Tensor, scores: Tensor) -> Tensor:
        """As `eliminate`, with as many halvings as the longest row could need; those too many change nothing."""
        reference = self.starts[:1]
        alive = self._of_units((x != reference).float()) > 0
        prior, final = scores, scores
        n_units = scores.shape[1]
        for _ in range(math.ceil(math.log2(max(n_units, 2))) - 1):
            order = scores.masked_fill(~alive, -math.inf).topk(n_units, dim=1).indices
            n_kept = better_half(alive.sum(dim=1, keepdim=True))
            first = (torch.arange(n_units).unsqueeze(0) < n_kept).float()
            kept = (torch.zeros_like(scores).scatter(1, order, first) > 0) & alive
            reduced = torch.where(kept if self.members is None else self._columns(kept), x, reference)
            scores = self.prior(reduced, targets, values)
            final = ranked_above(scores, final, kept, alive & ~kept)
            alive = kept
        if self.evidence.space.is_continuous:
            return final
        return torch.where((self.usual[targets] != values).unsqueeze(1), final, prior)

    def _columns(self, kept: Tensor) -> Tensor:
        assert self.members is not None
        return kept.float() @ self.members.T > 0
