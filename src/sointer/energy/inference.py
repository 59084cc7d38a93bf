"""Inference under an energy: exact, mean-field and by gradient; and the best output other than y."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sointer.energy.networks import Energy
from sointer.energy.space import OutputSpace

SMALLEST_PROBABILITY = 1e-30
TABLE_ENTRIES = 2**17


def energy_table(energy: Energy, unary: Tensor) -> Tensor:
    """E(x, y) for every row and every configuration of the outputs: (rows, configurations)."""
    y = energy.space.configuration_columns
    table = unary @ y.T
    if energy.coupling is not None:
        weight, offset, b = energy.coupling
        table = table + F.softplus(y @ weight.T + offset) @ b
    return table


def exact_log_marginals(energy: Energy, x: Tensor) -> Tensor:
    """log p_E(y_i = c | x) for every label, summed over all configurations: (rows, labels)."""
    labels = energy.space.configuration_labels
    # Tables that fit the processor's cache are several times faster than one large table.
    n_rows = max(16, TABLE_ENTRIES // len(labels))
    parts = [torch.softmax(-energy_table(energy, unary), dim=1) @ labels for unary in energy.unary(x).split(n_rows)]
    return torch.cat(parts).clamp_min(SMALLEST_PROBABILITY).log()


def label_energies(energy: Energy, unary: Tensor, q: Tensor) -> Tensor:
    """The energy of giving output i class c while the other outputs stay at their mean: (rows, labels)."""
    space = energy.space
    own = unary @ space.label_columns.T
    if energy.coupling is None:
        return own
    weight, offset, b = energy.coupling
    label_shift = space.label_columns @ weight.T  # what each label adds to B y
    contribution = q.unsqueeze(2) * label_shift  # (rows, labels, units)
    by_output = torch.zeros(q.shape[0], space.n_outputs, weight.shape[0])
    by_output = by_output.index_add(1, space.label_output, contribution)
    others = by_output.sum(dim=1, keepdim=True) - by_output + offset
    return own + F.softplus(others[:, space.label_output] + label_shift) @ b


def conditional_log_probabilities(energy: Energy, x: Tensor, q: Tensor) -> Tensor:
    """log p_E(y_i = c | x, other outputs) for every label: the terms of the pseudo-likelihood."""
    return energy.space.normalise(-label_energies(energy, energy.unary(x), q))


def mean_field_log_marginals(energy: Energy, x: Tensor, *, n_steps: int = 6, damping: float = 0.5) -> Tensor:
    """Approximate log p_E(y_i = c | x): damped, differentiable mean-field steps: (rows, labels)."""
    space = energy.space
    unary = energy.unary(x)
    log_q = space.normalise(-unary @ space.label_columns.T)
    if energy.coupling is None:
        return log_q
    for _ in range(n_steps):
        update = space.normalise(-label_energies(energy, unary, log_q.exp()))
        log_q = space.normalise(damping * log_q + (1 - damping) * update)
    return log_q


def conditional_means(energy: Energy, unary: Tensor, y: Tensor, own: Tensor) -> Tensor:
    """Continuous outputs: where the energy in y_i alone is least, the others held at y, y_i near `own`."""
    if energy.coupling is None:
        return -unary
    weight, offset, b = energy.coupling
    shift = (own - y).unsqueeze(2) * weight.T  # (rows, outputs, units)
    slope = torch.sigmoid((y @ weight.T + offset).unsqueeze(1) + shift)
    return -(unary + (slope * b * weight.T).sum(dim=2))


def mean_field_means(energy: Energy, x: Tensor, *, n_steps: int = 6, damping: float = 0.5) -> Tensor:
    """Continuous outputs: the fixed point of every output at its conditional mean: (rows, outputs)."""
    unary = energy.unary(x)
    mean = -unary
    if energy.coupling is None:
        return mean
    weight, offset, b = energy.coupling
    for _ in range(n_steps):
        update = -(unary + (torch.sigmoid(mean @ weight.T + offset) * b) @ weight)
        mean = damping * mean + (1 - damping) * update
    return mean


def gradient_inference(energy: Energy, x: Tensor, *, n_steps: int = 30, step_size: float = 0.5) -> Tensor:
    """Minimise the energy over relaxed outputs by gradient steps, then round: class codes (rows, outputs)."""
    space = energy.space
    unary = energy.unary(x).detach()
    logits = torch.zeros(x.shape[0], space.n_labels)
    coupling = energy.coupling
    for _ in range(n_steps):
        q = space.normalise(logits).exp()
        slope = unary
        if coupling is not None:
            weight, offset, b = (part.detach() for part in coupling)
            slope = unary + (torch.sigmoid(q @ space.label_columns @ weight.T + offset) * b) @ weight
        # A step on the logits of q along the gradient in q (mirror descent) stays inside the simplex.
        logits = logits - step_size * slope @ space.label_columns.T
    return space.most_likely(logits)


def cheapest_change(energy: Energy, x: Tensor, codes: Tensor) -> Tensor:
    """The outputs that differ from `codes` in one place, where that costs the least energy."""
    space = energy.space
    q = space.one_hot(codes)
    cost = label_energies(energy, energy.unary(x), q).masked_fill(q.bool(), torch.inf)
    current = (label_energies(energy, energy.unary(x), q) * q) @ _label_to_output(space)
    best = (cost - current[:, space.label_output]).argmin(dim=1)
    output = space.label_output[best]
    changed = codes.clone()
    changed[torch.arange(len(codes)), output] = best - space.first_label[output]
    return changed


def best_other(energy: Energy, x: Tensor, codes: Tensor, *, exact: bool) -> Tensor:
    """y' = argmin_y E(x, y) subject to y != codes (paper, below eq. 10 and appendix B)."""
    with torch.no_grad():
        if exact:
            table = energy_table(energy, energy.unary(x))
            table.scatter_(1, energy.space.configuration_index(codes).unsqueeze(1), torch.inf)
            return energy.space.configurations[table.argmin(dim=1)]
        found = gradient_inference(energy, x)
        same = (found == codes).all(dim=1, keepdim=True)
        return torch.where(same, cheapest_change(energy, x, codes), found)


def _label_to_output(space: OutputSpace) -> Tensor:
    return torch.zeros(space.n_labels, space.n_outputs).scatter_(1, space.label_output.unsqueeze(1), 1.0)
