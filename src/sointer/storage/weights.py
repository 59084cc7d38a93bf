"""What weights read from a file must fulfil before a network takes them."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn


def need(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)


def check_shapes(network: nn.Module, state: Mapping[str, Tensor]) -> None:
    """ValueError if the weights are not those of such a network, which may be one without memory (device "meta")."""
    wanted = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in network.state_dict().items()}
    found = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in state.items()}
    different = [name for name in sorted(wanted.keys() | found.keys()) if wanted.get(name) != found.get(name)]
    need(not different, f"weights are not of the size that the settings say: {', '.join(different[:3])}")
