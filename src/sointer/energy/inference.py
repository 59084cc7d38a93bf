"""Inference where outputs are too many to be listed: mean-field and by gradient; best other output; interactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from sointer.energy.image import ImageEnergy
from sointer.energy.networks import Coupled, Energy
from sointer.energy.space import OutputSpace
from sointer.energy.sparse import Inputs, product, product_and

MIN_PROBABILITY = 1e-30
LOG_OF_NOTHING = -1e30
MIN_EXPONENT = -80.0
"""Of what is less, exp is too small for ordinary floats, takes a hundred times as long, and does not count anyway."""
TABLE_ENTRIES = 2**17
"""Tables that fit the processor's cache are several times faster than one large table."""


def rows_at_once(space: OutputSpace) -> int:
    """How many rows have their energies of all configurations in memory at a time."""
    return max(16, TABLE_ENTRIES // len(space.configurations))


def coupling_energies(energy: Energy) -> Tensor:
    """The part of E(x, y) that does not depend on x, for every configuration."""
    y = energy.space.configuration_columns
    if energy.coupling is None:
        return torch.zeros(len(y))
    weight, offset, b = energy.coupling
    return F.softplus(y @ weight.T + offset) @ b


def energy_table(energy: Energy, unary: Tensor) -> Tensor:
    """E(x, y) for every row and every configuration of the outputs: (rows, configurations)."""
    return product_and(coupling_energies(energy), unary, energy.space.configuration_columns.T)


def exact_log_marginals(energy: Energy, x: Inputs) -> Tensor:
    """log p_E(y_i = c | x) for every label, summed over all configurations: (rows, labels)."""
    space, couplings = energy.space, coupling_energies(energy)
    y, labels = space.configuration_columns.T, space.configuration_labels
    pieces = energy.unary(x).split(rows_at_once(space))
    parts = [product(torch.softmax(-product_and(couplings, unary, y), dim=1), labels) for unary in pieces]
    return torch.cat(parts).clamp_min(MIN_PROBABILITY).log()


def target_log_weights(energy: Energy, x: Inputs, label: Tensor) -> tuple[Tensor, Tensor]:
    """Per row, log of the summed weights exp(-E) of the configurations with the label, and of those without.

    Gradients reach x, but not what couples the outputs.
    """
    with torch.no_grad():
        couplings = coupling_energies(energy)
    found: Tensor = _TargetLogWeights.apply(energy.unary(x), couplings, energy.space, label)  # type: ignore[no-untyped-call]
    return found[0], found[1]


class _TargetLogWeights(torch.autograd.Function):
    """How the log of a sum of weights changes with the unary part is known: by less the mean y of these weights.

    So no table has to be kept for the way back.
    """

    @staticmethod
    def forward(ctx: Any, unary: Tensor, couplings: Tensor, space: OutputSpace, label: Tensor) -> Tensor:
        parts = [torch.stack(part) for part in _sides(unary, couplings, space, label)]
        sums = torch.cat(parts, dim=1)  # (with and without, rows, 1 + columns)
        ctx.save_for_backward(sums[:, :, 1:])
        return sums[:, :, 0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (mean,) = ctx.saved_tensors
        return -(gradients[0].unsqueeze(2) * mean).sum(dim=0), None, None, None


def _sides(unary: Tensor, couplings: Tensor, space: OutputSpace, label: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """For some rows at a time, of the configurations with the label and of those without: log weight, and mean y."""
    y = space.configuration_columns
    counted = torch.cat([torch.ones(len(y), 1), y], dim=1)
    away = space.configuration_labels.T * LOG_OF_NOTHING
    n_rows = rows_at_once(space)
    for chunk, own in zip(unary.split(n_rows), label.split(n_rows), strict=True):
        without = away[own]
        log_weight = product_and(couplings, chunk, y.T).neg_()
        yield _summed(log_weight + (LOG_OF_NOTHING - without), counted), _summed(log_weight.add_(without), counted)


def _summed(log_weight: Tensor, counted: Tensor) -> Tensor:
    """Log of the sum of weights, and the mean of y by these weights; spoils its first argument."""
    largest = log_weight.amax(dim=1, keepdim=True)
    sums = product(log_weight.sub_(largest).clamp_min_(MIN_EXPONENT).exp_(), counted)
    return torch.cat([sums[:, :1].log() + largest, sums[:, 1:] / sums[:, :1]], dim=1)


sigmoid_backward = torch.ops.aten.sigmoid_backward
"""From gradients in sigmoid(x), and what that is, to gradients in x."""


def label_energies(energy: Energy, unary: Tensor, q: Tensor) -> Tensor:
    """The energy of giving output i class c while the other outputs stay at their mean: (rows, labels)."""
    space = energy.space
    own = product(unary, space.label_columns.T)
    if energy.coupling is None:
        return own
    weight, offset, b = energy.coupling
    label_shift = space.label_columns @ weight.T  # what each label adds to B y
    contribution = q.unsqueeze(2) * label_shift  # (rows, labels, units)
    by_output = torch.zeros(q.shape[0], space.n_outputs, weight.shape[0])
    by_output = by_output.index_add(1, space.label_output, contribution)
    others = by_output.sum(dim=1, keepdim=True) - by_output + offset
    return own + F.softplus(others[:, space.label_output] + label_shift) @ b


def conditional_log_probabilities(energy: Energy, x: Inputs, q: Tensor) -> Tensor:
    """log p_E(y_i = c | x, other outputs) for every label: the terms of the pseudo-likelihood."""
    return energy.space.normalise(-label_energies(energy, energy.unary(x), q))


def slope_at(energy: Energy, unary: Tensor, y: Tensor) -> Tensor:
    """The derivative of the energy in every column of y."""
    if energy.coupling is None:
        return unary
    weight, offset, b = energy.coupling
    return product_and(unary, torch.sigmoid(product_and(offset, y, weight.T)) * b, weight)


def mean_field_log_marginals(energy: Energy, x: Inputs, *, n_steps: int = 6, damping: float = 0.5) -> Tensor:
    """Approximate log p_E(y_i = c | x): damped, differentiable mean-field steps: (rows, labels).

    Each step takes the energy to be linear around the mean of all outputs, which costs two matrix
    products whatever the number of outputs; energies are trained through these very steps.
    """
    space = energy.space
    unary = energy.unary(x)
    if space.is_binary:
        return space.from_log_odds(mean_field_log_odds(energy, unary, n_steps=n_steps, damping=damping))
    logits = product(-unary, space.label_columns.T)
    log_q = space.normalise(logits)
    if energy.coupling is None:
        return log_q
    for _ in range(n_steps):
        slope = slope_at(energy, unary, product(log_q.exp(), space.label_columns))
        update = product(-slope, space.label_columns.T)
        logits = damping * logits + (1 - damping) * update
        log_q = space.normalise(logits)
    return log_q


def mean_field_log_odds(energy: Energy, unary: Tensor, *, n_steps: int, damping: float) -> Tensor:
    """The same steps where every output is a yes or no: log-odds of "yes" (rows, outputs).

    They stay -(unary + pull B) throughout, so what is damped is the pull, which is as wide as the coupling has units.
    """
    own = log_odds = -unary
    if energy.coupling is None:
        return own
    weight, offset, b = energy.coupling
    pull, towards = torch.zeros_like(b), (damping - 1) * b
    for _ in range(n_steps):
        pull = damping * pull + torch.sigmoid(product_and(offset, torch.sigmoid(log_odds), weight.T)) * towards
        log_odds = product_and(own, pull, weight)
    return log_odds


def target_log_odds(energy: Energy, unary: Tensor, targets: Tensor, *, n_steps: int, damping: float) -> Tensor:
    """Of these log-odds, that of each row's target, in less time: (rows,).

    Gradients reach the unary part, but not what couples the outputs.
    """
    if energy.coupling is None:
        return -unary.gather(1, targets.unsqueeze(1)).squeeze(1)
    found: Tensor = _TargetLogOdds.apply(unary, energy.coupling, targets, n_steps, damping)  # type: ignore[no-untyped-call]
    return found


class _TargetLogOdds(torch.autograd.Function):
    """The steps of `mean_field_log_odds`, and the same steps backwards; of the last one, one output is all it takes."""

    @staticmethod
    def forward(
        ctx: Any, unary: Tensor, coupling: tuple[Tensor, Tensor, Tensor], targets: Tensor, n_steps: int, damping: float
    ) -> Tensor:
        weight, offset, b = (part.detach() for part in coupling)
        pull, towards, of_target = torch.zeros_like(b), (damping - 1) * b, weight.T[targets]
        own = log_odds = -unary
        steps: list[tuple[Tensor, Tensor]] = []
        for number in range(n_steps):
            share = torch.sigmoid(log_odds)
            bent = torch.sigmoid(product_and(offset, share, weight.T))
            steps.append((share, bent))
            pull = torch.addcmul(damping * pull, bent, towards)
            if number < n_steps - 1:
                log_odds = product_and(own, pull, weight)
        if ctx.needs_input_grad[0]:
            slope, of_pull = torch.zeros_like(unary), of_target
            for number, (share, bent) in reversed(list(enumerate(steps))):
                of_bent = sigmoid_backward(of_pull * towards, bent)
                of_odds = sigmoid_backward(product(of_bent, weight), share)
                slope -= of_odds
                if number:
                    of_pull = product_and(damping * of_pull, of_odds, weight.T)
            ctx.save_for_backward(slope.scatter_add_(1, targets.unsqueeze(1), slope.new_full((len(slope), 1), -1.0)))
        return own.gather(1, targets.unsqueeze(1)).squeeze(1) + (pull * of_target).sum(dim=1)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (slope,) = ctx.saved_tensors
        return gradients[0].unsqueeze(1) * slope, None, None, None, None


def gradient_inference(energy: Energy, x: Inputs, *, n_steps: int = 30, step_size: float = 0.5) -> Tensor:
    """Minimise the energy over relaxed outputs by gradient steps, then round: class codes (rows, outputs)."""
    space = energy.space
    with torch.no_grad():
        unary = energy.unary(x)
        logits = torch.zeros(len(x), space.n_labels)
        for _ in range(n_steps):
            # A step on the logits of q along the gradient in q (mirror descent) stays inside the simplex.
            y = space.normalise(logits).exp() @ space.label_columns
            logits = logits - step_size * slope_at(energy, unary, y) @ space.label_columns.T
    return space.most_likely(logits)


def cheapest_change(energy: Energy, x: Inputs, codes: Tensor) -> Tensor:
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


def best_other(energy: Energy, x: Inputs, codes: Tensor, *, exact: bool) -> Tensor:
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


N_INTERACTION_SAMPLES = 128
MAX_CHANGES_COMPARED = 256
"""Pairs of changes are compared one by one up to here; beyond, each is small beside all others together."""


def output_interactions(energy: Coupled | ImageEnergy) -> NDArray[np.float32]:
    """(outputs, outputs): mean size of the change in b' softplus(B y) when two outputs move together.

    For classes a of output i and b of output j it is |g(a, b) - g(a, 0) - g(0, b) + g(0, 0)|, 0 being each
    output's first class and the other outputs having random values; of all pairs (a, b) the largest
    counts; among very many, the size of the second derivative. Symmetric, zero on the
    diagonal, zero without coupling. For masks, where in the image a pixel looks, by displacement: a map.
    """
    if isinstance(energy, ImageEnergy):
        return energy.neighbours()
    space = energy.space
    result = torch.zeros(space.n_outputs, space.n_outputs)
    if energy.coupling is not None:
        weight, offset, b = (part.detach() for part in energy.coupling)
        generator = torch.Generator().manual_seed(0)
        result = _of_classes(space, weight, offset, b, generator).fill_diagonal_(0.0)
    return np.asarray(result.numpy())


def _of_classes(space: OutputSpace, weight: Tensor, offset: Tensor, b: Tensor, generator: torch.Generator) -> Tensor:
    shift = space.label_columns @ weight.T  # what each label adds to B y
    first = shift[space.first_label]
    draws = torch.rand(N_INTERACTION_SAMPLES, space.n_outputs, generator=generator) * torch.tensor(space.n_classes)
    own = shift[space.first_label + draws.long()]  # (samples, outputs, units)
    total = own.sum(dim=1) + offset
    to_first = first - own  # added to B y, it puts an output at its first class
    changes = [label for label in range(space.n_labels) if label not in set(space.first_label.tolist())]
    result = torch.zeros(space.n_outputs, space.n_outputs)
    if not changes:
        return result
    changed = torch.tensor(changes)
    owner = space.label_output[changed]
    moves = shift[changed] - first[owner]  # (changes, units)
    if len(changes) > MAX_CHANGES_COMPARED:
        mixed = _to_second_order(total, moves, b)
        rows = torch.zeros(space.n_outputs, len(changes))
        rows = rows.scatter_reduce(0, owner.unsqueeze(1).expand_as(mixed), mixed, reduce="amax")
        return result.scatter_reduce(1, owner.expand_as(rows), rows, reduce="amax")
    for change, i in enumerate(owner.tolist()):
        base = (total + to_first[:, i]).unsqueeze(1) + to_first[:, owner]  # (samples, changes, units)
        moved = base + moves[change]
        mixed = (F.softplus(moved + moves) - F.softplus(moved) - F.softplus(base + moves) + F.softplus(base)) @ b
        row = torch.zeros(space.n_outputs).scatter_reduce(0, owner, mixed.abs().mean(dim=0), reduce="amax")
        result[i] = torch.maximum(result[i], row)
    return result


def _to_second_order(total: Tensor, moves: Tensor, b: Tensor) -> Tensor:
    """The mean size of that change, by the curvature of b' softplus(B y) at each sample: (changes, changes)."""
    slope = torch.sigmoid(total)  # (samples, units)
    result = torch.zeros(len(moves), len(moves))
    for curvature in slope * (1 - slope) * b:
        result += ((moves * curvature) @ moves.T).abs()
    return result / len(total)
