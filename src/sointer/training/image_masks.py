"""Which parts of images to keep: single pixels, blobs of several sizes, and surroundings of a place."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import zoom

from sointer.interpreter.pixels import PixelUnits

CELLS = (1, 2, 4, 8)
"""Sides of the blobs, in pixels of an image 32 pixels high; larger images have larger ones."""
USUAL_HEIGHT = 32
NOISE_AROUND = (0.02, 0.4)
"""How frayed the surroundings of a place are, as shares of the image's height."""


def several_scales(
    units: PixelUnits, size: tuple[int, int], n_rows: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Random units of images to keep, the share kept anywhere between 0 and 1: (rows, units)."""
    n_kinds = len(CELLS) + len(NOISE_AROUND)
    fields = np.empty((n_rows, *size), dtype=np.float32)
    kinds = rng.integers(n_kinds, size=n_rows)
    scale = max(1, round(size[0] / USUAL_HEIGHT))
    for kind in range(n_kinds):
        chosen = np.flatnonzero(kinds == kind)
        if kind < len(CELLS):
            fields[chosen] = _blobs(len(chosen), size, CELLS[kind] * (scale if kind else 1), rng)
        else:
            fields[chosen] = _surroundings(len(chosen), size, NOISE_AROUND[kind - len(CELLS)], rng)
    height = units.means(torch.from_numpy(fields.reshape(n_rows, -1))).numpy()
    share = rng.random(n_rows)
    rank = np.argsort(np.argsort(-height, axis=1, kind="stable"), axis=1, kind="stable")
    return np.asarray(rank < np.rint(share * np.isfinite(height).sum(axis=1))[:, None])


def _blobs(n: int, size: tuple[int, int], cell: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Smooth noise whose hills are about `cell` pixels wide."""
    if cell == 1:
        return rng.random((n, *size), dtype=np.float32)
    coarse = rng.random((n, *(-(-side // cell) + 2 for side in size)), dtype=np.float32)
    fine = zoom(coarse, (1, cell, cell), order=1) if n else coarse
    top, left = rng.integers(cell, size=2)
    return np.asarray(fine[:, top : top + size[0], left : left + size[1]]) if n else np.empty((0, *size), np.float32)


def _surroundings(n: int, size: tuple[int, int], noise: float, rng: np.random.Generator) -> NDArray[np.float32]:
    """Nearness to a place of each image, with noise."""
    place = rng.random((n, 2)) * size
    down = np.arange(size[0])[None, :, None] - place[:, 0, None, None]
    right = np.arange(size[1])[None, None, :] - place[:, 1, None, None]
    frayed = noise * rng.random((n, *size))
    return np.asarray(frayed - np.hypot(down, right) / size[0], dtype=np.float32)
