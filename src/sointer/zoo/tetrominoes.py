"""Images of 8 x 8 pixels with a T or an L in noise, after XAI-TRIS, and models whose decisive pixels are known."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.ndimage import gaussian_filter

from sointer._support.validation import check_positive_int
from sointer.errors import InputError
from sointer.zoo.problem import BoolArray, FloatArray
from sointer.zoo.segmenter import OutputKind

Scenario = Literal["additive", "multiplicative", "translated", "xor"]
Background = Literal["white", "correlated"]

SIDE = 8
ALPHA: dict[str, float] = {"additive": 0.4, "multiplicative": 0.9, "translated": 0.6, "xor": 0.4}
"""How strong the shape is by default, from 0 to 1."""
CORRELATION = 3.0  # standard deviation of the smoothing, in pixels
SHAPES = (((0, 0), (0, 1), (0, 2), (1, 1)), ((0, 0), (1, 0), (2, 0), (2, 1)))  # T, L
CORNERS = ((1, 1), (4, 5))
SLOPE = 10.0


class Tetrominoes(NamedTuple):
    """Generated images and their truth."""

    images: FloatArray
    """(n, 1, 8, 8)"""
    labels: npt.NDArray[np.int64]
    """(n,) 0 for T and 1 for L; of "xor", 1 where both shapes have the same sign."""
    relevant: BoolArray
    """(n, 8, 8) the pixels that hold information on the label; both places of the shapes, or the shape moved there."""


def tetrominoes(
    n_images: int,
    scenario: Scenario = "additive",
    *,
    background: Background = "white",
    alpha: float | None = None,
    random_state: int = 0,
) -> Tetrominoes:
    """Images like those of XAI-TRIS (Clark, Wilming & Haufe 2024): a T or an L on a noisy background.

    Parameters
    ----------
    n_images : int
    scenario : str
        "additive": the shape, at its own fixed place, is added to the noise. "multiplicative": it scales the noise
        down. "translated": it is moved and rotated, then added. "xor": both shapes are added, with equal or different
        signs.
    background : "white" or "correlated"
        Independent noise in all pixels, or smooth noise.
    alpha : float, optional
        Strength of the shape from 0 (noise only) to 1.
    random_state : int
        The same seed gives the same images.

    Returns
    -------
    Tetrominoes
        Images, labels and relevant pixels.

    Raises
    ------
    InputError
        If an argument is wrong.

    Examples
    --------
    >>> from sointer.zoo import TetrominoClassifier, tetrominoes
    >>> images, labels, relevant = tetrominoes(500, "xor")
    >>> model = TetrominoClassifier("xor")
    >>> bool((model(images)[:, 0] == labels).mean() > 0.9), bool((model.relevant(images) == relevant).all())
    (True, True)
    """
    n = check_positive_int(n_images, "n_images")
    _check_scenario(scenario)
    if background not in ("white", "correlated"):
        raise InputError(f"background must be 'white' or 'correlated', got {background!r}.")
    strength = ALPHA[scenario] if alpha is None else alpha
    if not 0 <= strength <= 1:
        raise InputError(f"alpha must be from 0 to 1, got {alpha!r}.")
    rng = np.random.default_rng(random_state)
    labels = rng.integers(2, size=n)
    noise = rng.standard_normal((n, SIDE, SIDE))
    if background == "correlated":
        noise = gaussian_filter(noise, (0, CORRELATION, CORRELATION))
    noise /= np.sqrt((noise**2).mean(axis=(1, 2), keepdims=True))
    pattern, relevant = _patterns(scenario, labels, rng)
    if scenario == "multiplicative":
        images = (1 - strength * pattern) * noise
    else:
        images = 4 * strength * pattern + (1 - strength) * noise
    return Tetrominoes(images[:, None], labels, relevant)


class TetrominoClassifier:
    """A model of one output that reads these images by known pixels.

    "additive": the mean over the place of the L minus that over the place of the T. "multiplicative": the mean size of
    the noise at T's place minus that at L's. "xor": the product of both means. "translated": the best match of an L,
    over all places and angles, minus the best match of a T.

    Parameters
    ----------
    scenario : str
        As in `tetrominoes`.
    output_kind : "binary" or "probability"
        Return the label, or the sigmoid of the margin.
    """

    def __init__(self, scenario: Scenario = "additive", *, output_kind: OutputKind = "binary") -> None:
        _check_scenario(scenario)
        if output_kind not in ("binary", "probability"):
            raise InputError(f"output_kind must be 'binary' or 'probability', got {output_kind!r}.")
        self.scenario = scenario
        self.output_kind = output_kind

    def __call__(self, images: npt.ArrayLike) -> npt.NDArray[Any]:
        """Labels or probabilities: (n, 1)."""
        margins = self.margins(images)[:, None]
        if self.output_kind == "probability":
            return np.asarray(1 / (1 + np.exp(-margins)))
        return (margins > 0).astype(np.int64)

    def margins(self, images: npt.ArrayLike) -> FloatArray:
        """Measure how far each image is from the threshold.

        Parameters
        ----------
        images : array (n, 1, 8, 8)

        Returns
        -------
        array (n,)
            Positive where the label is 1.
        """
        pixels = _flat(images)
        if self.scenario == "translated":
            t, el = (_matches(pixels, shape).max(axis=1) for shape in (0, 1))
            return np.asarray(SLOPE * (el - t))
        t, el = (_at_place(pixels if self.scenario != "multiplicative" else np.abs(pixels), s) for s in (0, 1))
        if self.scenario == "xor":
            return np.asarray(SLOPE * t * el)
        return np.asarray(SLOPE * (t - el if self.scenario == "multiplicative" else el - t))

    def relevant(self, X: npt.ArrayLike, target: Any = 0) -> BoolArray:
        """Mark the pixels that the model reads; of "translated", those of the best match of the label's shape.

        Parameters
        ----------
        X : array (n, 1, 8, 8)
        target : int, default 0
            The only output.

        Returns
        -------
        array of bool (n, 8, 8)
        """
        pixels = _flat(X)
        if self.scenario != "translated":
            return np.repeat((_PLACED[0] | _PLACED[1])[None], len(pixels), axis=0)
        is_l = self.margins(X) > 0
        best = [_PLACEMENTS[shape][_matches(pixels, shape).argmax(axis=1)] for shape in (0, 1)]
        return np.asarray(np.where(is_l[:, None, None], best[1], best[0]))


def _patterns(scenario: str, labels: npt.NDArray[np.int64], rng: np.random.Generator) -> tuple[FloatArray, BoolArray]:
    """What is put into the noise (n, 8, 8), and where the label shows."""
    n = len(labels)
    if scenario == "translated":
        draws = rng.random(n)
        places = [_PLACEMENTS[label][int(u * len(_PLACEMENTS[label]))] for label, u in zip(labels, draws, strict=True)]
        found = np.array(places)
        return found.astype(np.float64), found
    both = np.repeat((_PLACED[0] | _PLACED[1])[None], n, axis=0)
    if scenario != "xor":
        return np.array([_PLACED[label] for label in labels], dtype=np.float64), both
    sign = rng.choice([-1.0, 1.0], size=(n, 1, 1))
    other = np.where(labels == 1, 1.0, -1.0)[:, None, None]
    return sign * (_PLACED[0] + other * _PLACED[1]), both


def _mask(pixels: npt.ArrayLike, corner: tuple[int, int]) -> BoolArray:
    mask = np.zeros((SIDE, SIDE), dtype=np.bool_)
    rows, columns = (np.asarray(pixels) + corner).T
    mask[rows, columns] = True
    return mask


def _placements(shape: tuple[tuple[int, int], ...]) -> BoolArray:
    """The shape at every place and angle: (placements, 8, 8)."""
    found = []
    pixels = np.array(shape)
    for _ in range(4):
        pixels = np.stack([pixels[:, 1], -pixels[:, 0]], axis=1)  # a quarter turn
        pixels = pixels - pixels.min(axis=0)
        height, width = pixels.max(axis=0) + 1
        found += [_mask(pixels, (r, c)) for r in range(SIDE - height + 1) for c in range(SIDE - width + 1)]
    return np.array(found)


_PLACED = tuple(_mask(shape, corner) for shape, corner in zip(SHAPES, CORNERS, strict=True))
_PLACEMENTS = tuple(_placements(shape) for shape in SHAPES)


def _flat(images: npt.ArrayLike) -> FloatArray:
    pixels = np.asarray(images, dtype=np.float64)
    if pixels.ndim != 4 or pixels.shape[1:] != (1, SIDE, SIDE):
        raise InputError(f"expected images of shape (n, 1, {SIDE}, {SIDE}), got {pixels.shape}.")
    return pixels.reshape(len(pixels), -1)


def _at_place(pixels: FloatArray, shape: int) -> FloatArray:
    return np.asarray(pixels[:, _PLACED[shape].ravel()].mean(axis=1))


def _matches(pixels: FloatArray, shape: int) -> FloatArray:
    """The mean over every placement of a shape: (n, placements)."""
    return np.asarray(pixels @ _PLACEMENTS[shape].reshape(len(_PLACEMENTS[shape]), -1).T / 4)


def _check_scenario(scenario: str) -> None:
    if scenario not in ALPHA:
        raise InputError(f"scenario must be one of {', '.join(map(repr, ALPHA))}, got {scenario!r}.")
