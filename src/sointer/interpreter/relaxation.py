"""Ways to choose k features: the paper's Gumbel k-hot, which is differentiable, and the k largest."""

from __future__ import annotations

import torch
from torch import Tensor


def gumbel_noise(u: Tensor) -> Tensor:
    """Eq. 13: g = -log(-log(u)) for u uniform on (0, 1)."""
    tiny = torch.finfo(u.dtype).tiny
    return -torch.log(-torch.log(u.clamp(min=tiny, max=1 - 1e-7)))


def gumbel_softmax(log_w: Tensor, noise: Tensor, temperature: float) -> Tensor:
    """Eq. 14 as it must read: softmax((log w_i + g_i) / tau), w a distribution over features."""
    return torch.softmax((log_w + noise) / temperature, dim=-1)


def k_hot(draws: Tensor) -> Tensor:
    """Eq. 15: the element-wise maximum of the draws, (draws, rows, features) -> (rows, features)."""
    return draws.amax(dim=0)


def gumbel_k_hot(logits: Tensor, k: int, temperature: float, generator: torch.Generator) -> Tensor:
    """Eqs. 13 to 15: k relaxed draws from softmax(logits), combined by maximum."""
    u = torch.rand((k, *logits.shape), generator=generator)
    return k_hot(gumbel_softmax(torch.log_softmax(logits, dim=-1), gumbel_noise(u), temperature))


def hard_top_k(scores: Tensor, k: int, allowed: Tensor | None = None, sizes: Tensor | None = None) -> Tensor:
    """Boolean mask of the k largest scores of each row, among the allowed features only; `sizes` keeps fewer."""
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    best = scores.topk(min(k, scores.shape[1]), dim=1).indices
    kept = torch.ones_like(best, dtype=torch.bool)
    if sizes is not None:
        kept = torch.arange(best.shape[1]) < sizes.unsqueeze(1)
    chosen = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, best, kept)
    return chosen if allowed is None else chosen & allowed
