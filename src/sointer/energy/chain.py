"""The energy of sequences: tokens in a window speak for each label, and neighbouring labels for each other.

Inference is exact: forward-backward over the chain of labels, with transitions that may depend on the token.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sointer.data.sequences import OUTSIDE

TOKEN_WIDTH, HIDDEN_WIDTH, N_LINEAR = 48, 128, 64
N_ENDS = 6
"""Distances to both ends are distinguished up to this many."""
MAX_FULL = 64
"""Transitions of tokens are free up to so many pairs of labels; of more they are sums of RANK patterns."""
RANK = 6
TINY = 1e-30


class ChainEnergy(nn.Module):
    """Potentials of a chain of labels.

    Parameters
    ----------
    n_rows : rows of the table of token features.
    n_labels : labels that a token can have.
    window : tokens on either side that speak for a label directly.
    additive : tokens of the window speak for a label one by one, not together, and transitions are the same for all
        tokens: a linear chain CRF.
    n_linear : of the units of the hidden layer, so many more that are linear: what tokens say one by one is then
        learned as easily as by an additive energy, in which all are.
    """

    def __init__(
        self, n_rows: int, n_labels: int, *, window: int, additive: bool = False, n_linear: int = N_LINEAR
    ) -> None:
        super().__init__()
        dim, self.n_bent = TOKEN_WIDTH, 0 if additive else HIDDEN_WIDTH
        width = HIDDEN_WIDTH if additive else HIDDEN_WIDTH + n_linear
        self.n_labels, self.window, self.width, self.additive = n_labels, window, width, additive
        self.n_slots = 2 * window + 1
        self.tokens = nn.EmbeddingBag(n_rows, dim, mode="sum", padding_idx=OUTSIDE)
        nn.init.normal_(self.tokens.weight, std=0.15)
        self.ends = nn.Parameter(0.15 * torch.randn(N_ENDS * N_ENDS, dim))
        self.outside = nn.Parameter(0.15 * torch.randn(dim))
        self.hidden = nn.Linear(dim * self.n_slots, width)
        self.unary = nn.Linear(width, n_labels)
        self.static = nn.Parameter(torch.zeros(n_labels, n_labels))
        n_pairs = n_labels * n_labels
        is_full = n_pairs <= MAX_FULL
        self.mix = None if additive else nn.Linear(width, n_pairs if is_full else RANK)
        self.patterns = None if additive or is_full else nn.Parameter(0.05 * torch.randn(RANK, n_pairs))
        if self.mix is not None and self.patterns is None:
            nn.init.zeros_(self.mix.weight)
            nn.init.zeros_(self.mix.bias)

    # --- from tokens to potentials -------------------------------------------------------------------------

    def states(self, ids: Tensor, vectors: Tensor, lengths: Tensor) -> Tensor:
        """The hidden layer of every token of sequences of token numbers (sequences, n): (sequences, n, width)."""
        n, w = ids.shape[1], self.window
        placed = F.pad(F.embedding(ids, vectors) + self.ends[end_codes(n, lengths)], (0, 0, w, w))
        beyond = torch.arange(-w, n + w)
        placed = torch.where(((beyond < 0) | (beyond >= lengths[:, None]))[:, :, None], self.outside, placed)
        return self.activate(self.hidden(torch.cat([placed[:, s : s + n] for s in range(self.n_slots)], dim=2)))

    def activate(self, hidden: Tensor) -> Tensor:
        """The hidden layer from what the tokens of the window add to it."""
        if self.additive:
            return hidden
        return torch.cat([F.silu(hidden[..., : self.n_bent]), hidden[..., self.n_bent :]], dim=-1)

    def far_weights(self) -> Tensor:
        """How much tokens two or more places away speak for a label directly: the sum of the norms of their weights."""
        by_slot = self.hidden.weight.view(self.width, self.n_slots, -1)
        far = [s for s in range(self.n_slots) if abs(s - self.window) > 1]
        if not far:
            return torch.zeros(())
        return by_slot[:, far].pow(2).sum((0, 2)).clamp_min(TINY).sqrt().sum()

    def project(self, vectors: Tensor) -> Tensor:
        """What vectors of tokens add to the hidden layer from every place in the window: (n, slots, width)."""
        return torch.einsum("nd,wsd->nsw", vectors, self.hidden.weight.view(self.width, self.n_slots, -1))

    def potentials(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """For every label (..., labels), and every pair of the label before and the own one (..., labels, labels)."""
        if self.mix is None:
            return self.unary(states), self.static.expand(*states.shape[:-1], -1, -1)
        mixed = self.mix(states)
        static = self.static.flatten()
        pairs = mixed + static if self.patterns is None else F.linear(mixed, self.patterns.T, static)
        return self.unary(states), pairs.unflatten(-1, (self.n_labels, self.n_labels))

    # --- the chain -----------------------------------------------------------------------------------------

    def loss(self, ids: Tensor, vectors: Tensor, lengths: Tensor, wanted: Tensor) -> Tensor:
        """-log p of labels, per token: `wanted` are their probabilities (sequences, n, labels), 0 beyond the end."""
        unary, pairs = self.potentials(self.states(ids, vectors, lengths))
        score = (wanted * unary).sum((1, 2))
        score = score + torch.einsum("bti,btij,btj->b", wanted[:, :-1], pairs[:, 1:], wanted[:, 1:])
        by_token, scaled = unary.unbind(1), Scaled(pairs)
        alpha = by_token[0]
        for t in range(1, ids.shape[1]):
            alpha = torch.where((t < lengths)[:, None], scaled.forward(alpha, t) + by_token[t], alpha)
        return ((alpha.logsumexp(1) - score) / lengths).mean()


def end_codes(n: int, lengths: Tensor) -> Tensor:
    """How far every token is from both ends of its sequence, as one number: (sequences, n)."""
    position = torch.arange(n)
    after = (lengths[:, None] - 1 - position).clamp(0, N_ENDS - 1)
    return N_ENDS * position.clamp_max(N_ENDS - 1) + after


class Scaled:
    """Transitions as numbers of at most 1, so that sums over labels are products of matrices.

    Sums below 1e-30 of the largest term count as that: potentials that differ by more than 69 are not distinguished.
    """

    def __init__(self, pairs: Tensor) -> None:
        largest = pairs.amax((-2, -1)).detach()
        # Cut apart at once: the gradient of a slice would be a table of zeros as large as the whole, for each of them.
        self.exp = (pairs - largest[..., None, None]).exp().unbind(1)
        self.largest = largest.unbind(1)

    def forward(self, log_p: Tensor, t: int) -> Tensor:
        """Messages (sequences, labels) about the label before t, as messages about the label at t."""
        return _step(log_p, self.exp[t]) + self.largest[t][:, None]

    def backward(self, log_p: Tensor, t: int) -> Tensor:
        """Messages about the label at t, as messages about the label before it."""
        return _step(log_p, self.exp[t].transpose(1, 2)) + self.largest[t][:, None]


def _step(log_p: Tensor, matrix: Tensor) -> Tensor:
    most = log_p.amax(1, keepdim=True).detach()
    return torch.bmm((log_p - most).exp()[:, None], matrix)[:, 0].clamp_min(TINY).log() + most


def log_marginals(unary: Tensor, pairs: Tensor) -> Tensor:
    """log p of every label of every token, sequences of one length: (sequences, n, labels)."""
    n, scaled = unary.shape[1], Scaled(pairs)
    alpha, beta = [unary[:, 0]], [torch.zeros_like(unary[:, 0])]
    for t in range(1, n):
        alpha.append(scaled.forward(alpha[-1], t) + unary[:, t])
    for t in range(n - 1, 0, -1):
        beta.append(scaled.backward(beta[-1] + unary[:, t], t))
    return (torch.stack(alpha, 1) + torch.stack(beta[::-1], 1)).log_softmax(2)


def sample_labels(unary: Tensor, pairs: Tensor, generator: torch.Generator) -> Tensor:
    """Labels of every token, drawn from the chain, sequences of one length: (sequences, n)."""
    n, scaled = unary.shape[1], Scaled(pairs)
    alpha = [unary[:, 0]]
    for t in range(1, n):
        alpha.append(scaled.forward(alpha[-1], t) + unary[:, t])

    def draw(log_p: Tensor) -> Tensor:
        noise = torch.rand(log_p.shape, generator=generator).clamp_min(TINY)
        return (log_p - noise.log().neg().log()).argmax(1)  # Gumbel's noise makes the largest a draw

    labels = torch.empty(unary.shape[:2], dtype=torch.int64)
    labels[:, n - 1] = draw(alpha[n - 1])
    for t in range(n - 2, -1, -1):
        after = labels[:, t + 1, None, None].expand(-1, unary.shape[2], 1)
        labels[:, t] = draw(alpha[t] + pairs[:, t + 1].gather(2, after)[:, :, 0])
    return labels
