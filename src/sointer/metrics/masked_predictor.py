"""A network that predicts a model's masks from parts of images, whatever parts they are (after EVAL-X)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.ndimage import gaussian_filter
from torch import Tensor, nn

from sointer._support.containers import is_sparse, slices
from sointer._support.torch_state import seeded
from sointer._support.unet import UNetwork, channels_last, draw_weights
from sointer._support.validation import check_positive_int
from sointer.errors import InputError
from sointer.masking.groups import Groups
from sointer.metrics.pixels import as_labels, read_images

RATE_OF_EVALUATOR = 4e-3
DECAY_OF_EVALUATOR = 1e-2
BLURS = (0.0, 0.7, 1.5, 3.0)
"""Widths of the blobs in random masks, in pixels of an image 32 pixels high."""
NOISE_AROUND = (0.02, 0.4)
"""How frayed the surroundings of a place are, as shares of the image's height."""
MAX_SIDE = 64  # larger images are read in blocks of pixels


class MaskedEvaluator:
    """A small U-Net that is trained to predict the model's outputs for whole images from randomly masked ones.

    Its masks are drawn independently of the image, so the shape of a mask tells it nothing (Jethani et al. 2021). If
    little is kept, it still guesses a typical mask: use it only for J (`swap_scores(evaluator=...)`), never
    for fidelity.

    Parameters
    ----------
    n_steps : int
        Training steps of 32 images.
    widths : sequence of int
        Channels of the U-Net at full size and after each halving.
    random_state : int

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.zoo import WindowSegmenter, random_scenes
    >>> images = random_scenes(60, size=16).images
    >>> labels = WindowSegmenter(images)(images)
    >>> evaluator = MaskedEvaluator(n_steps=3, widths=(4, 8)).fit(images, labels)
    >>> evaluator.predict(images[:2], np.ones((2, 16, 16), dtype=bool)).shape
    (2, 16, 16)
    """

    def __init__(self, *, n_steps: int = 500, widths: Sequence[int] = (16, 32, 48, 64), random_state: int = 0) -> None:
        self.n_steps = check_positive_int(n_steps, "n_steps")
        self.widths = tuple(widths)
        self.random_state = random_state
        self.batch_size = 32

    def fit(self, images: Any, outputs: ArrayLike) -> MaskedEvaluator:
        """Learn from images and the model's outputs for them, unmasked.

        Parameters
        ----------
        images : array (n, channels, height, width)
        outputs : array (n, height, width) of labels or probabilities

        Returns
        -------
        MaskedEvaluator
            Itself.

        Raises
        ------
        InputError
            If outputs are not masks of the images.
        """
        pixels, labels = read_images(images, "images"), as_labels(np.asarray(outputs))
        if labels.shape != (len(pixels), *pixels.shape[2:]):
            raise InputError(f"outputs must be masks of the images {pixels.shape}, got shape {labels.shape}.")
        self.classes_, codes = np.unique(labels, return_inverse=True)
        truth = torch.from_numpy(codes.reshape(labels.shape).astype(np.int64))
        channels, height, width = pixels.shape[1:]
        self.mean_ = pixels.mean(axis=(0, 2, 3), keepdims=True)[0]
        self.std_ = pixels.std(axis=(0, 2, 3), keepdims=True)[0] + 1e-8
        network = UNetwork(channels + 1, len(self.classes_), self.widths, stride=max(1, min(height, width) // MAX_SIDE))
        draw_weights(network, torch.Generator().manual_seed(self.random_state))
        self._train(channels_last(network), pixels, truth)
        self.network_ = network.folded()
        return self

    def _train(self, network: UNetwork, pixels: NDArray[Any], truth: Tensor) -> None:
        rng = np.random.default_rng(self.random_state)
        optimiser = torch.optim.AdamW(network.parameters(), lr=RATE_OF_EVALUATOR, weight_decay=DECAY_OF_EVALUATOR)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE_OF_EVALUATOR, total_steps=self.n_steps + 1)
        network.train()
        for _ in range(self.n_steps):
            rows = rng.integers(len(pixels), size=self.batch_size)
            masks = random_masks(self.batch_size, pixels.shape[2:], rng)
            loss = nn.functional.cross_entropy(network(self._inputs(pixels[rows], masks[:, None])), truth[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()

    def predict(self, images: Any, keep: NDArray[np.bool_]) -> NDArray[Any]:
        """Labels of images of which only `keep` is visible.

        Parameters
        ----------
        images : array (n, channels, height, width)
        keep : boolean array (n, height, width)

        Returns
        -------
        array (n, height, width)
        """
        pixels = read_images(images, "images")
        masks = keep.reshape(len(pixels), 1, *pixels.shape[2:])
        with torch.inference_mode():
            parts = [
                self.network_(self._inputs(pixels[batch], masks[batch])).argmax(1) for batch in slices(len(pixels), 256)
            ]
        return np.asarray(self.classes_[torch.cat(parts).numpy()])

    def _inputs(self, images: NDArray[Any], masks: NDArray[np.bool_]) -> Tensor:
        visible = np.where(masks, (images - self.mean_) / self.std_, 0.0)
        return torch.from_numpy(np.concatenate([visible, masks], axis=1).astype(np.float32))


def random_masks(n: int, size: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Pixels to keep, drawn at random: blobs of several widths or surroundings of a place, of any share (n, h, w)."""
    height, width = size
    fields = rng.random((n, height, width))
    kinds = rng.integers(len(BLURS) + len(NOISE_AROUND), size=n)
    for kind, blur in enumerate(BLURS):
        if blur and (kinds == kind).any():
            fields[kinds == kind] = gaussian_filter(fields[kinds == kind], (0, *[blur * height / 32] * 2))
    place = rng.random((n, 2)) * size
    down, right = np.arange(height) - place[:, :1], np.arange(width) - place[:, 1:]
    distance = np.hypot(down[:, :, None], right[:, None, :]) / height
    for kind, noise in enumerate(NOISE_AROUND, start=len(BLURS)):
        fields[kinds == kind] = noise * fields[kinds == kind] - distance[kinds == kind]
    share = rng.random(n) ** np.where(rng.random(n) < 0.5, 3.0, 1.0)  # small shares are the hard ones
    rank = np.argsort(np.argsort(-fields.reshape(n, -1), axis=1), axis=1)
    return np.asarray(rank < np.rint(share * height * width)[:, None]).reshape(n, height, width)


Index: TypeAlias = NDArray[np.int64]
Masks: TypeAlias = Callable[[Index, np.random.Generator], NDArray[np.bool_]]
"""For the rows at an index, which units may be seen: (rows, units)."""

HIDDEN = 100
ROWS_PER_STEP = 128
ROWS_PER_BATCH = 256
LEARNING_RATE = 2e-3
WEIGHT_DECAY = 1e-2
WHOLE_SHARE = 0.2


def mask_of_another(masks: NDArray[np.bool_]) -> Masks:
    """The explainer's mask of another row, drawn at random."""
    return lambda index, rng: masks[rng.integers(len(masks), size=len(index))]


def any_mask(masks: NDArray[np.bool_]) -> Masks:
    """Half the time that of another row, else of a random size or, now and then, all."""
    of_another = mask_of_another(masks)

    def draw(index: Index, rng: np.random.Generator) -> NDArray[np.bool_]:
        n = len(index)
        size = np.where(rng.random(n) < WHOLE_SHARE, 1.0, rng.random(n))[:, None]
        at_random = rng.random((n, masks.shape[1])) < size
        return np.where(rng.random(n)[:, None] < 0.5, at_random, of_another(index, rng))

    return draw


class Views(Protocol):
    """What a network is shown of rows under masks."""

    width: int

    def inputs(self, index: Index, keep_units: NDArray[np.bool_]) -> Tensor:
        """What a predictor sees of these samples under these masks."""


class MasksAlone:
    """No values, only which units are visible."""

    def __init__(self, n_units: int) -> None:
        self.width = n_units

    def inputs(self, index: Index, keep_units: NDArray[np.bool_]) -> Tensor:
        """The masks (rows, units) as numbers."""
        return torch.from_numpy(keep_units.astype(np.float32))


class MaskedRows:
    """The visible values of encoded rows, dense or CSR, and which units are visible."""

    def __init__(self, data: Any, groups: Groups) -> None:
        self.width = int(data.shape[1]) + groups.n_units
        self._groups = groups
        if is_sparse(data):  # only scaled, so that zero stays zero
            spread = np.sqrt(np.asarray(data.multiply(data).mean(axis=0)).ravel())
            self._values = (data @ sparse.diags_array(1 / np.where(spread > 0, spread, 1.0))).tocsr()
        else:
            spread = data.std(axis=0)
            self._values = ((data - data.mean(axis=0)) / np.where(spread > 0, spread, 1.0)).astype(np.float32)

    def inputs(self, index: Index, keep_units: NDArray[np.bool_]) -> Tensor:
        """Rows of which only `keep_units` are visible; only these are made dense."""
        rows = self._values[index]
        values = rows.toarray() if is_sparse(rows) else rows
        seen = np.concatenate([values * self._groups.to_columns(keep_units), keep_units], axis=1, dtype=np.float32)
        return torch.from_numpy(seen)


class MaskedPredictor:
    """Predicts the target's value from masked rows; every value counts the same, however rare."""

    def __init__(self, views: Views, truth: Index, n_values: int, seed: int) -> None:
        self._views = views
        self._truth = truth
        self._n_values = n_values
        with seeded(seed):
            self._network = nn.Sequential(
                nn.Linear(views.width, HIDDEN),
                nn.ReLU(),
                nn.Linear(HIDDEN, HIDDEN),
                nn.ReLU(),
                nn.Linear(HIDDEN, n_values),
            )

    def copy(self) -> MaskedPredictor:
        """One that knows as much and can be taught something else."""
        twin = copy.copy(self)
        twin._network = copy.deepcopy(self._network)
        return twin

    def train(self, index: Index, masks: Masks, n_steps: int, seed: int) -> MaskedPredictor:
        """Learn from the rows at `index`, each step with fresh masks; rows do not depend on how masks are drawn."""
        row_rng, mask_rng = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
        by_value = [index[self._truth[index] == value] for value in range(self._n_values)]
        by_value = [rows for rows in by_value if len(rows)]
        n_each = -(-ROWS_PER_STEP // len(by_value))
        optimiser = torch.optim.AdamW(
            self._network.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True
        )
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, n_steps)
        for _ in range(n_steps):
            rows = np.concatenate([subset[row_rng.integers(len(subset), size=n_each)] for subset in by_value])
            logits = self._network(self._views.inputs(rows, masks(rows, mask_rng)))
            loss = nn.functional.cross_entropy(logits, torch.from_numpy(self._truth[rows]))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        return self

    def log_probabilities(self, index: Index, keep_units: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Log-probabilities (base 2) of each value for rows of which only `keep_units` are visible."""
        parts = [slice(start, start + ROWS_PER_BATCH) for start in range(0, len(index), ROWS_PER_BATCH)]
        with torch.no_grad():
            logits = torch.cat([self._network(self._views.inputs(index[batch], keep_units[batch])) for batch in parts])
        return np.asarray(torch.log_softmax(logits.double(), dim=1).numpy() / np.log(2))
