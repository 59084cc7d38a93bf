"""Convolutional networks for images, with weights drawn by a generator of one's own, never torch's global one."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

Network = TypeVar("Network", bound=nn.Module)
AnyUTrunk = TypeVar("AnyUTrunk", bound="UTrunk")


def convolution(n_in: int, n_out: int, size: int, *, stride: int = 1, bias: bool = True) -> nn.Conv2d:
    """A convolution with zeros around the image, its weights still to be drawn."""
    layer: nn.Conv2d = nn.utils.skip_init(
        nn.Conv2d, n_in, n_out, size, stride=stride, padding=size // 2, bias=bias, device=torch.empty(0).device
    )
    return layer


def draw_weights(network: nn.Module, generator: torch.Generator) -> None:
    """Draw all weights of convolutions and linear layers: normal, with the variance 2 / number of inputs."""
    with torch.no_grad():
        for layer in network.modules():
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                layer.weight.normal_(0, math.sqrt(2 / layer.weight[0].numel()), generator=generator)
                if layer.bias is not None:
                    layer.bias.zero_()


def channels_last(network: Network) -> Network:
    """The weights laid out so that convolutions on a CPU are fastest."""
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


class UTrunk(nn.Module):
    """A U-Net (Ronneberger et al. 2015) without a last layer: from maps to features of each block of their pixels.

    widths : channels at full size and after each halving; features have as many as the first of these.
    stride : blocks of so many by so many pixels are put into the channels of one before anything else, which makes
        large images cheap.

    Maps of any size will do: they are padded with zeros to a multiple of stride * 2 ** halvings.
    """

    def __init__(self, n_channels: int, widths: Sequence[int], *, stride: int = 1) -> None:
        super().__init__()
        self.stride = stride
        ins = [n_channels * stride**2, *widths]
        self.down = nn.ModuleList(_layers(a, b, b) for a, b in zip(ins, widths, strict=False))
        self.across = nn.ModuleList(convolution(b, a, 1) for a, b in pairwise(widths))
        self.up = nn.ModuleList(_layers(2 * width, width) for width in widths[:-1])

    @property
    def multiple(self) -> int:
        """Sides that are multiples of this need no padding."""
        return int(self.stride * 2 ** len(self.up))

    def features(self, maps: Tensor) -> Tensor:
        """Of all blocks, those of the padding too: (n, channels, rows, columns)."""
        height, width = maps.shape[-2:]
        x = F.pad(maps, (0, -width % self.multiple, 0, -height % self.multiple))
        x = F.pixel_unshuffle(x, self.stride).contiguous(memory_format=torch.channels_last)
        passed = []
        for level, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if level else x)
            passed.append(x)
        for level in reversed(range(len(self.up))):
            enlarged = F.interpolate(self.across[level](x), scale_factor=2.0)
            x = self.up[level](torch.cat([passed[level], enlarged], 1))
        return x

    def folded(self: AnyUTrunk) -> AnyUTrunk:
        """The same function for answering alone, with each normalisation made part of the convolution before it."""
        twin = copy.deepcopy(self).eval()
        for blocks in (twin.down, twin.up):
            for i, block in enumerate(blocks):
                layers: list[Any] = list(block.children())
                pairs = zip(layers[0::3], layers[1::3], strict=True)
                folded = [layer for pair in pairs for layer in (fuse_conv_bn_eval(*pair), nn.ReLU(inplace=True))]
                blocks[i] = nn.Sequential(*folded)
        return channels_last(twin.requires_grad_(False))


class UNetwork(UTrunk):
    """A U-Net from maps (n, channels, height, width) to maps of the same size."""

    def __init__(self, n_channels: int, n_outputs: int, widths: Sequence[int], *, stride: int = 1) -> None:
        super().__init__(n_channels, widths, stride=stride)
        self.out = convolution(widths[0], n_outputs * stride**2, 1)

    def forward(self, maps: Tensor) -> Tensor:
        height, width = maps.shape[-2:]
        return F.pixel_shuffle(self.out(self.features(maps)), self.stride)[..., :height, :width]


def _layers(*widths: int) -> nn.Sequential:
    """Convolutions from each number of channels to the next, each normalised and cut off at 0."""
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layers += [convolution(a, b, 3, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class ChannelScaling(nn.Module):
    """A network that standardises the channels of its images."""

    shift: Tensor
    scale: Tensor

    def add_scaling(self, n_channels: int) -> None:
        """Register the shift and the scale, which change nothing until they are set."""
        self.register_buffer("shift", torch.zeros(n_channels, 1, 1))
        self.register_buffer("scale", torch.ones(n_channels, 1, 1))

    def standardise(self, images: Tensor) -> None:
        """Set the shift and the scale of each channel by these images."""
        self.shift.copy_(images.mean((0, 2, 3))[:, None, None])
        self.scale.copy_(1 / images.std((0, 2, 3), correction=0).clamp_min(1e-3)[:, None, None])

    def scaled(self, images: Tensor) -> Tensor:
        """Images with the mean and the standard deviation of every channel at 0 and 1."""
        return (images - self.shift) * self.scale


class StandardisingUNetwork(ChannelScaling, UNetwork):
    """Images in [0, 1] to logits of every pixel: (n, outputs, height, width)."""

    def __init__(self, n_channels: int, n_outputs: int, width: int, depth: int) -> None:
        super().__init__(n_channels, n_outputs, [width * (level + 1) for level in range(depth + 1)])
        self.add_scaling(n_channels)

    def initialise(self, generator: torch.Generator) -> StandardisingUNetwork:
        """Draw all weights: normal, with the variance 2 / number of inputs."""
        draw_weights(self, generator)
        return self

    def forward(self, images: Tensor) -> Tensor:
        """Logits of every pixel."""
        return super().forward(self.scaled(images))
