"""The interpreter for images: one network that scores all pixels, told by a map which of them is the target."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sointer.convolution import UNetwork, channels_last, draw_weights
from sointer.energy.image import ImageEnergy, stride_for

NEAR = 2.0
"""Pixels over which the map of nearness falls off; of large images, blocks of pixels, here and below."""
FAR = 16.0
"""Pixels that make the maps of direction 1."""
SOME = 4.0
"""Pixels over which nearness loses 1 of a score, before that is learned."""
MARK = 3.0
"""What stands at the target in the map of it."""


class ImageInterpreter(nn.Module):
    """Scores of pixels = a U-Net's + those of nearness to the target + the energy's saliency for the target's value.

    The U-Net sees the image, what the energy expects the mask to be, the target and its value, how near and in which
    direction the target is, and the saliency. A target is a map of weights: one pixel, or a region.
    """

    def __init__(self, energy: ImageEnergy, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.energy = energy
        image, n_maps = energy.image, energy.n_maps
        n_channels = image.channels + 3 * n_maps + 4
        self.block = stride_for(image)
        self.network = UNetwork(n_channels, 1, widths, stride=self.block)
        self.gains = nn.Parameter(torch.tensor([1.0, 0.5]))
        """Of distance, in units of some pixels, and of saliency."""

    def initialise(self, generator: torch.Generator) -> ImageInterpreter:
        """Draw all weights."""
        draw_weights(self.network, generator)
        channels_last(self.network)
        return self

    def folded(self) -> ImageInterpreter:
        """The same function for answering alone, which is quicker."""
        twin = copy.deepcopy(self).eval().requires_grad_(False)
        twin.network, twin.energy.unary = twin.network.folded(), twin.energy.unary.folded()
        return twin

    def forward(self, x: Tensor, absent: Tensor, region: Tensor, codes: Tensor, distance: Tensor) -> Tensor:
        """Scores of pixels, the larger the more they decide the target: (n, pixels).

        x, absent : rows, and what stands in for what is removed from them (n, columns).
        region : weights of the pixels that are the target (n, pixels); its value is that of `codes` (n, pixels).
        distance : of every pixel from the region (n, pixels).
        """
        (gradient,), expected = self.gradients(x, [region], codes)
        return self.scores(x, region, codes, distance, self.saliency(gradient, x - absent), expected)

    def scores(
        self, x: Tensor, region: Tensor, codes: Tensor, distance: Tensor, salient: Tensor, expected: Tensor
    ) -> Tensor:
        """The same from what the energy says: `salient`, of saliency, and `expected`, of gradients."""
        own = self.network(self._maps(x, region, codes, distance, salient, expected)).flatten(1)
        scores: Tensor = own - self.gains[0] * distance / (SOME * self.block) + self.gains[1] * salient
        return scores

    def gradients(self, x: Tensor, regions: Sequence[Tensor], codes: Tensor) -> tuple[list[Tensor], Tensor]:
        """How the evidence for each of several targets' values moves with the images; and what mask is expected.

        The energy is passed forwards once, and backwards once for every target (each of them one of every image).
        """
        image = self.energy.image
        with torch.enable_grad():
            point = x.detach().requires_grad_(True)
            logits = self.energy.log_odds(point).flatten(2)
            if self.energy.n_maps == 1:
                evidence = logits[:, 0] * (2 * codes - 1)
            else:
                own = logits.gather(1, codes.unsqueeze(1)).squeeze(1)
                evidence = own - logits.logsumexp(1)
            last = len(regions) - 1
            gradients = [
                torch.autograd.grad((evidence * region).sum(), point, retain_graph=number < last)[0]
                for number, region in enumerate(regions)
            ]
        expected = logits.detach().view(-1, self.energy.n_maps, *image.size)
        return gradients, expected.clamp(-8, 8) / 4

    def saliency(self, gradient: Tensor, difference: Tensor) -> Tensor:
        """How much every pixel speaks for the target's value, in [-1, 1], from the difference that removal makes."""
        image = self.energy.image
        of_pixel = (gradient * difference).view(-1, image.channels, image.n_pixels).sum(1)
        share = of_pixel / of_pixel.abs().amax(1, keepdim=True).clamp_min(1e-12)
        return share.sign() * share.abs().sqrt()

    def _maps(
        self, x: Tensor, region: Tensor, codes: Tensor, distance: Tensor, salient: Tensor, expected: Tensor
    ) -> Tensor:
        image, n_maps = self.energy.image, self.energy.n_maps
        height, width = image.size
        target = region / region.amax(1, keepdim=True) * MARK
        if n_maps == 1:
            told = (target * (2 * codes - 1)).unsqueeze(1)
        else:
            told = torch.zeros(len(x), n_maps, image.n_pixels).scatter_(1, codes.unsqueeze(1), target.unsqueeze(1))
        share = region / region.sum(1, keepdim=True)
        # Everywhere, for what is marked at one pixel only is lost on the way to pixels far from it.
        value = (told * (share / MARK).unsqueeze(1)).sum(2, keepdim=True).expand(-1, -1, image.n_pixels)
        rows = torch.arange(height, dtype=torch.float32).repeat_interleave(width)
        columns = torch.arange(width, dtype=torch.float32).repeat(height)
        down = (rows - (share * rows).sum(1, keepdim=True)) / (FAR * self.block)
        right = (columns - (share * columns).sum(1, keepdim=True)) / (FAR * self.block)
        near = torch.exp(-distance.square() / (2 * (NEAR * self.block) ** 2))
        flat = torch.cat([told, value, torch.stack([near, down, right, 2 * salient], 1)], 1)
        return torch.cat([self.energy.as_maps(x), expected, flat.view(len(x), -1, height, width)], 1)
