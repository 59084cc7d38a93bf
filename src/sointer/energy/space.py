"""The output space as tensors: labels, their encoding, and the list of all configurations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from sointer.data.outputs import Outputs


@dataclass(frozen=True)
class OutputSpace:
    """What the energy sees of the outputs.

    An output with c classes owns c *labels*. An output with two of them enters the energy as one number, 0 or 1 or,
    where it is graded (a probability, the quantile of a number), anything between; any other output enters one-hot.
    `q` below is always a matrix (rows, labels): one-hot for known labels, probabilities for graded or uncertain
    ones, so that `q @ label_columns` is the encoded output y.
    """

    n_classes: tuple[int, ...]

    @classmethod
    def of(cls, outputs: Outputs) -> OutputSpace:
        return cls(tuple(int(c) for c in outputs.n_classes))

    @property
    def n_outputs(self) -> int:
        return len(self.n_classes)

    @cached_property
    def is_binary(self) -> bool:
        """Whether every output is a yes or no."""
        return all(c == 2 for c in self.n_classes)

    @property
    def n_labels(self) -> int:
        return sum(self.n_classes)

    @cached_property
    def first_label(self) -> Tensor:
        """The label at which each output's classes begin."""
        return torch.tensor(np.concatenate([[0], np.cumsum(self.n_classes)[:-1]]), dtype=torch.long)

    @cached_property
    def label_output(self) -> Tensor:
        """The output that owns each label."""
        return torch.tensor(np.repeat(np.arange(self.n_outputs), self.n_classes), dtype=torch.long)

    @cached_property
    def label_columns(self) -> Tensor:
        """(labels, columns): what each label adds to the encoded output."""
        rows = []
        for n_classes in self.n_classes:
            block = torch.eye(n_classes)
            rows.append(block[:, 1:] if n_classes == 2 else block)
        blocks: Tensor = torch.block_diag(*rows)
        return blocks

    @property
    def n_columns(self) -> int:
        return int(self.label_columns.shape[1])

    @cached_property
    def column_output(self) -> Tensor:
        """The output that owns each encoded column."""
        return self.label_output[self.label_columns.argmax(dim=0)]

    @property
    def n_configurations(self) -> float:
        """How many outputs there are in all."""
        return float(np.prod([float(c) for c in self.n_classes]))

    @cached_property
    def configurations(self) -> Tensor:
        """(configurations, outputs) class codes of every possible output, lexicographic."""
        grids = torch.meshgrid(*[torch.arange(c) for c in self.n_classes], indexing="ij")
        return torch.stack([g.reshape(-1) for g in grids], dim=1)

    @cached_property
    def configuration_labels(self) -> Tensor:
        """(configurations, labels) one-hot form of `configurations`."""
        return self.one_hot(self.configurations)

    @cached_property
    def configuration_columns(self) -> Tensor:
        """(configurations, columns) encoded form of `configurations`."""
        return self.configuration_labels @ self.label_columns

    def one_hot(self, codes: Tensor) -> Tensor:
        """Class codes (rows, outputs) as (rows, labels) of zeros and ones."""
        q = torch.zeros(codes.shape[0], self.n_labels)
        return q.scatter_(1, codes + self.first_label, 1.0)

    def probabilities(self, codes: Tensor) -> Tensor:
        """Class codes as (rows, labels); codes of graded outputs are the probability of their second label."""
        if not codes.dtype.is_floating_point:
            return self.one_hot(codes)
        if self.is_binary:
            return torch.stack([1 - codes, codes], dim=2).flatten(1)
        blocks = [
            torch.stack([1 - own, own], dim=1) if c == 2 else F.one_hot(own.long(), c).float()
            for c, own in zip(self.n_classes, codes.unbind(dim=1), strict=True)
        ]
        return torch.cat(blocks, dim=1)

    def encode(self, codes: Tensor) -> Tensor:
        """Codes as the y that enters the energy: (rows, columns)."""
        return self.probabilities(codes) @ self.label_columns

    def labels(self, codes: Tensor) -> Tensor:
        """Class codes; of graded outputs, the label that is more likely."""
        if not codes.dtype.is_floating_point:
            return codes
        two = torch.tensor(self.n_classes) == 2
        return torch.where(two, (codes > 0.5).float(), codes).long()

    def configuration_index(self, codes: Tensor) -> Tensor:
        """The row of `configurations` that equals each row of codes."""
        return (codes * self._strides).sum(dim=1)

    @cached_property
    def _strides(self) -> Tensor:
        return torch.tensor(np.concatenate([np.cumprod(self.n_classes[::-1])[::-1][1:], [1]]).astype(np.int64))

    def normalise(self, label_logits: Tensor) -> Tensor:
        """Log-probabilities of labels: a softmax over each output's own classes."""
        if self.is_binary:
            pairs = label_logits.reshape(label_logits.shape[0], -1, 2)
            return torch.log_softmax(pairs, dim=2).reshape(label_logits.shape)
        blocks = label_logits.split(list(self.n_classes), dim=1)
        return torch.cat([torch.log_softmax(block, dim=1) for block in blocks], dim=1)

    def from_log_odds(self, log_odds: Tensor) -> Tensor:
        """Binary outputs: log-probabilities of labels (rows, labels) from log-odds of "yes" (rows, outputs)."""
        return torch.stack([F.logsigmoid(-log_odds), F.logsigmoid(log_odds)], dim=2).flatten(1)

    def most_likely(self, label_log_p: Tensor) -> Tensor:
        """Class codes (rows, outputs) with the largest probability."""
        if self.is_binary:
            return label_log_p.reshape(len(label_log_p), -1, 2).argmax(dim=2)
        blocks = label_log_p.split(list(self.n_classes), dim=1)
        return torch.stack([block.argmax(dim=1) for block in blocks], dim=1)

    def codes(self, label_log_p: Tensor, graded: NDArray[np.bool_]) -> Tensor:
        """Codes (rows, outputs): the most likely class; of graded outputs, the probability of their second label."""
        labels = self.most_likely(label_log_p)
        if not graded.any():
            return labels
        second = label_log_p[:, self.first_label + (torch.tensor(self.n_classes) == 2).long()].exp()
        return torch.where(torch.from_numpy(graded), second, labels.float())
