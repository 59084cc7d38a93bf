"""The energy of tables written out as plain operations: forward, and backward by hand.

What autograd does elsewhere is done here without it, and without choices that depend on the numbers, for one graph that
any runtime can follow, whatever the number of rows. Rows come first in every tensor, points on a path second.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sointer.energy.enumeration import LOG_OF_NOTHING
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import SeparateEnergy, VectorEnergy


class EnergyPasses(nn.Module):
    """F and a of an energy, forward and backward; where outputs have networks of their own, that of the target."""

    def __init__(self, energy: VectorEnergy | SeparateEnergy) -> None:
        super().__init__()
        self.scaling = energy.scaling
        if isinstance(energy, VectorEnergy):
            layers = [layer for layer in energy.layers if isinstance(layer, nn.Linear)]
            weights = [layer.weight.unsqueeze(0) for layer in layers]
            offsets = [layer.bias.view(1, 1, -1) for layer in layers]
            self.a, self.is_shared = energy.a.weight.detach(), True
        else:
            weights, offsets = list(energy.weights), list(energy.offsets)
            self.a, self.is_shared = energy.a.detach(), False
        self.weights = nn.ParameterList(nn.Parameter(w.detach().contiguous(), requires_grad=False) for w in weights)
        self.offsets = nn.ParameterList(nn.Parameter(o.detach(), requires_grad=False) for o in offsets)

    def of(self, parameters: nn.ParameterList, layer: int, targets: Tensor) -> Tensor:
        """A layer's weights or offsets: one set for all rows (1, ...), or that of each row's target (rows, ...)."""
        every: Tensor = parameters[layer]
        return every if self.is_shared else every[targets]

    def project(self, x: Tensor, targets: Tensor) -> Tensor:
        """The first layer: (rows, points, columns) -> (rows, points, width)."""
        scaled: Tensor = self.scaling(x)
        return self._linear(scaled, 0, targets)

    def unary(self, projected: Tensor, targets: Tensor) -> tuple[Tensor, list[Tensor]]:
        """a_i' F(x) of every output column, and the slopes of all layers on the way."""
        slopes, features = [torch.sigmoid(projected)], F.softplus(projected)
        for layer in range(1, len(self.weights)):
            before = self._linear(features, layer, targets)
            slopes.append(torch.sigmoid(before))
            features = F.softplus(before)
        return features @ self.a.T, slopes

    def back(self, gradient: Tensor, slopes: list[Tensor], targets: Tensor) -> Tensor:
        """From gradients in the output columns to gradients in the projection."""
        gradient = gradient @ self.a
        for layer in range(len(self.weights) - 1, 0, -1):
            gradient = (gradient * slopes[layer]) @ self.of(self.weights, layer, targets)
        return gradient * slopes[0]

    def back_to_inputs(self, gradient: Tensor, targets: Tensor) -> Tensor:
        return gradient @ self.of(self.weights, 0, targets) * self.scaling.scale

    def _linear(self, x: Tensor, layer: int, targets: Tensor) -> Tensor:
        return x @ self.of(self.weights, layer, targets).transpose(1, 2) + self.of(self.offsets, layer, targets)


class TargetEvidence(nn.Module):
    """What is evident about a target from the unary part of the energy: its value, and the slope of its evidence."""

    def __init__(self, energy: VectorEnergy | SeparateEnergy, likelihood: Likelihood) -> None:
        super().__init__()
        space = self.space = energy.space
        self.is_coupled = energy.coupling is not None
        self.is_exact = self.is_coupled and likelihood.is_exact(energy)
        self.n_steps = likelihood.n_steps if self.is_coupled else 0
        self.damping = likelihood.damping
        self.register_buffer("first_label", space.first_label)
        self.register_buffer("same_output", space.label_output == torch.arange(space.n_outputs).unsqueeze(1))
        self.register_buffer("labels", space.label_columns)
        if energy.coupling is not None:
            weight, offset, b = (part.detach() for part in energy.coupling)
            self.register_buffer("B", weight)
            self.register_buffer("offset", offset)
            self.register_buffer("b", b)
        if self.is_exact:
            columns, rest = space.configuration_columns, energy.coupling
            assert rest is not None
            own = F.softplus(columns @ rest[0].T + rest[1]) @ rest[2]
            self.register_buffer("configurations", columns)
            self.register_buffer("configuration_labels", space.configuration_labels)
            self.register_buffer("coupling_energy", own.detach())

    first_label: Tensor
    same_output: Tensor
    labels: Tensor
    B: Tensor
    offset: Tensor
    b: Tensor
    configurations: Tensor
    configuration_labels: Tensor
    coupling_energy: Tensor

    def expected(self, unary: Tensor, targets: Tensor) -> Tensor:
        """The most likely value of each row's target, its code or mean, from unary (rows, columns)."""
        if self.is_exact:
            logits = torch.softmax(-self._table(unary), dim=-1) @ self.configuration_labels
        else:
            logits, _ = self._settle(unary)
        if self.space.is_continuous:
            return logits.gather(1, targets.unsqueeze(1)).squeeze(1)
        own = logits.masked_fill(~self.same_output[targets], -math.inf)
        return own.argmax(dim=1) - self.first_label[targets]

    def slope(self, unary: Tensor, targets: Tensor, values: Tensor) -> Tensor:
        """The gradient of the evidence for a value in the unary part: (rows, steps, columns)."""
        if self.is_exact:
            label = self.first_label[targets] + values
            here = self.configuration_labels.T[label].unsqueeze(1) > 0
            weight = -self._table(unary)
            with_value = torch.softmax(weight.masked_fill(~here, LOG_OF_NOTHING), dim=-1)
            without = torch.softmax(weight.masked_fill(here, LOG_OF_NOTHING), dim=-1)
            return (without - with_value) @ self.configurations
        logits, states = self._settle(unary)
        return self._unsettle(self._at_end(logits, targets, values), states)

    def _table(self, unary: Tensor) -> Tensor:
        return unary @ self.configurations.T + self.coupling_energy

    def _settle(self, unary: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Mean-field steps: the logits of labels (means of continuous outputs), and what each step saw."""
        logits, states = -unary @ self.labels.T, []
        for _ in range(self.n_steps):
            q = self._shares(logits)
            pull = torch.sigmoid(q @ self.labels @ self.B.T + self.offset)
            states.append((q, pull))
            slope = unary + (pull * self.b) @ self.B
            logits = self.damping * logits - (1 - self.damping) * slope @ self.labels.T
        return logits, states

    def _unsettle(self, gradient: Tensor, states: list[tuple[Tensor, Tensor]]) -> Tensor:
        """The same backwards: from gradients in the last logits to gradients in the unary part."""
        of_unary = torch.zeros_like(gradient @ self.labels)
        for q, pull in reversed(states):
            of_slope = -(1 - self.damping) * gradient @ self.labels
            of_unary = of_unary + of_slope
            of_pull = (of_slope @ self.B.T) * self.b * pull * (1 - pull)
            of_q = of_pull @ self.B @ self.labels.T
            if not self.space.is_continuous:
                of_q = q * (of_q - self._of_output(q * of_q))
            gradient = self.damping * gradient + of_q
        return of_unary - gradient @ self.labels

    def _at_end(self, logits: Tensor, targets: Tensor, values: Tensor) -> Tensor:
        """The gradient of the evidence in the last logits."""
        numbers = torch.arange(self.labels.shape[0])
        if self.space.is_continuous:
            return (numbers == targets.unsqueeze(1)).float().unsqueeze(1).expand_as(logits)
        own = numbers == (self.first_label[targets] + values).unsqueeze(1)
        others = (self.same_output[targets] & ~own).unsqueeze(1)
        return own.float().unsqueeze(1) - torch.softmax(logits.masked_fill(~others, LOG_OF_NOTHING), dim=-1)

    def _shares(self, logits: Tensor) -> Tensor:
        """Probabilities of labels, each output's own adding up to 1; means as they are."""
        if self.space.is_continuous:
            return logits
        if self.space.is_binary:
            pairs = logits.reshape(*logits.shape[:-1], self.space.n_outputs, 2)
            return torch.softmax(pairs, dim=-1).reshape(logits.shape)
        blocks = logits.split(list(self.space.n_classes), dim=-1)
        return torch.cat([torch.softmax(block, dim=-1) for block in blocks], dim=-1)

    def _of_output(self, of_labels: Tensor) -> Tensor:
        """For every label, the sum over all labels of its output."""
        member = self.same_output.float()
        return of_labels @ member.T @ member
