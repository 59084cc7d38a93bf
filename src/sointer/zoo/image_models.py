"""Models that segment images: the format, augmentation and training that they share, and a small U-Net."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from sointer._support import containers
from sointer._support.progress import History
from sointer._support.unet import StandardisingUNetwork, channels_last
from sointer._support.validation import check_number, check_positive_int
from sointer.data.images import ImageShape, mask_iou
from sointer.errors import InputError
from sointer.zoo.model_base import TrainedModel, descend, endless_batches, one_cycle

BYTE = 255


@dataclass(frozen=True)
class ImageFormat(ImageShape):
    """Shape of the images, and the largest value of a pixel: 255 for whole numbers, 1 for others."""

    brightest: int

    @classmethod
    def infer(cls, images: Any, caller: str) -> ImageFormat:
        """The format of the images a model is fitted to."""
        pixels = _numbers(images, caller, "images")
        if pixels.ndim != 4 or not all(pixels.shape):
            raise InputError(
                f"{caller}: images is {containers.describe(images)}, expected an array (images, channels, height, "
                "width). Move the channels of (images, height, width, channels) with transpose(0, 3, 1, 2)."
            )
        brightest = BYTE if np.issubdtype(pixels.dtype, np.integer) else 1
        channels, height, width = (int(size) for size in pixels.shape[1:])
        return cls(channels, height, width, brightest)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        return self.channels, self.height, self.width

    def pixels(self, images: Any, caller: str) -> NDArray[Any]:
        """Images of this format as numpy, in the numbers they came in."""
        pixels = _numbers(images, caller, "images")
        if pixels.ndim != 4 or pixels.shape[1:] != self.shape:
            raise InputError(
                f"{caller}: images has shape {pixels.shape}, expected (images, {', '.join(map(str, self.shape))}) as "
                "in fit. Give images of that size; one image needs a first axis of length 1."
            )
        if not len(pixels):
            return pixels
        low, high = pixels.min(), pixels.max()
        if not (low >= 0 and high <= self.brightest):  # so that NaN fails, too
            wrong = low if not low >= 0 else high
            raise InputError(
                f"{caller}: images holds {wrong}, expected numbers from 0 to {self.brightest} as in fit. "
                f"{'Multiply or divide by 255' if np.isfinite(wrong) else 'Remove what is not a number'}, or clip."
            )
        if self.brightest == BYTE and 0 < high <= 1 and np.issubdtype(pixels.dtype, np.floating):
            raise InputError(
                f"{caller}: images holds {pixels.dtype} up to {high}, expected numbers from 0 to 255 as in fit, of "
                "which these would be all but black. Multiply them by 255."
            )
        return pixels

    def to_json(self) -> dict[str, int]:
        """The format as JSON types."""
        return asdict(self)


def check_masks(masks: Any, n_images: int, image_format: ImageFormat, caller: str) -> NDArray[np.int64]:
    """Masks as classes 0, 1, ...: (images, height, width)."""
    table = _numbers(masks, caller, "masks")
    expected = (n_images, image_format.height, image_format.width)
    if table.shape != expected:
        raise InputError(
            f"{caller}: masks has shape {table.shape}, expected {expected}. "
            "Give one class for each pixel of each image."
        )
    fits = (table >= 0) & (table < 256) & (table == np.floor(table))
    if not fits.all():
        raise InputError(
            f"{caller}: masks holds {table[~fits][0]}, expected the classes 0, 1, ..., 0 being the background. "
            "Round or number them so."
        )
    return table.astype(np.int64)


def _numbers(given: Any, caller: str, what: str) -> NDArray[Any]:
    """A numpy array of numbers; booleans count as integers."""
    array = containers.tensor_to_numpy(given) if containers.is_tensor(given) else np.asarray(given)
    if array.dtype == np.bool_:
        return array.astype(np.uint8)
    if not np.issubdtype(array.dtype, np.integer) and not np.issubdtype(array.dtype, np.floating):
        raise InputError(
            f"{caller}: {what} is {containers.describe(given)}, expected an array of numbers. Convert it with "
            "np.asarray, all images being of one size."
        )
    return array


ZOOM = 0.25
TURN = 0.2  # in radians
SHIFT = 0.15  # of half the width
CONTRAST = 0.3
TINT = 0.1


def distorted(images: Tensor, masks: Tensor, n_classes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Images in [0, 1] and their masks (classes), mirrored, turned, zoomed and shifted together, then coloured anew."""
    n_images, n_channels = images.shape[:2]

    def draw(size: float, *shape: int) -> Tensor:
        return size * (2 * torch.rand(n_images, *shape, generator=generator) - 1)

    mirror = draw(1.0).sign()
    zoom, turn = 1 + draw(ZOOM), draw(TURN)
    cosine, sine = zoom * turn.cos(), zoom * turn.sin()
    shift = draw(SHIFT, 2)
    rows = [torch.stack([mirror * cosine, -sine, shift[:, 0]], 1), torch.stack([mirror * sine, cosine, shift[:, 1]], 1)]
    grid = F.affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    one_hot = F.one_hot(masks, n_classes).movedim(3, 1).to(images.dtype)
    together = torch.cat([images, one_hot], 1)
    moved = F.grid_sample(together, grid, padding_mode="reflection", align_corners=False)
    images = moved[:, :n_channels] * (1 + draw(CONTRAST, 1, 1, 1)) + draw(TINT, n_channels, 1, 1)
    return images.clamp(0, 1), moved[:, n_channels:].argmax(1)


BLOCK_PIXELS = 32 * 32 * 32
"""Pixels per block: no more, as they fit a cache, and no fewer, as an image then gets the same bits alone."""

Model = TypeVar("Model", bound="ImageModel")


@dataclass(kw_only=True, eq=False, repr=False)
class ImageModel(TrainedModel):
    """A model from images (n, channels, height, width) to masks (n, height, width).

    Subclasses define the network (`_network`), its training (`_train`) and its outputs for a block of images
    (`_probabilities`).

    Attributes
    ----------
    image_format_ : ImageFormat
        Shape and range of the images.
    n_classes_ : int
    history_ : list of dict
        Loss and time of each stage of training.
    """

    n_steps: int
    batch_size: int
    learning_rate: float
    weight_decay: float = 1e-2
    augment: bool = True
    random_state: Any = None
    verbose: bool | None = None

    def fit(self: Model, images: Any, masks: Any) -> Model:
        """Learn from images and their masks.

        Parameters
        ----------
        images : array (n, channels, height, width)
            Whole numbers from 0 to 255 or floats from 0 to 1.
        masks : array (n, height, width)
            Classes: 0 for the background, 1 (and 2, ...) for the objects.

        Returns
        -------
        The fitted model.
        """
        return self._fit(images, masks)

    def _prepare(self, X: Any, Y: Any) -> tuple[Tensor, Tensor]:
        self.image_format_ = ImageFormat.infer(X, "fit")
        pixels = self.image_format_.pixels(X, "fit")
        truth = check_masks(Y, len(pixels), self.image_format_, "fit")
        self.n_classes_ = max(int(truth.max()) + 1, 2)
        self._check_images()
        return self._scaled(pixels), torch.from_numpy(truth)

    def _descend(
        self,
        stage: str,
        network: nn.Module,
        loss_of_batch: Callable[[], Tensor],
        n_steps: int,
        learning_rate: float,
        history: History,
    ) -> None:
        """AdamW with a one-cycle learning rate."""
        adamw = torch.optim.AdamW(list(network.parameters()), learning_rate, weight_decay=self.weight_decay, fused=True)
        descend(stage, network, adamw, partial(one_cycle, n_steps=n_steps), loss_of_batch, n_steps, history)

    def _adopt(self, network: Any) -> None:
        self.network_ = network.eval().requires_grad_(False)
        self.folded_ = network.folded()

    def _probabilities(self, images: Tensor) -> Tensor:
        """Probabilities for a block of images in [0, 1]: (n, height, width), or (n, classes, height, width)."""
        raise NotImplementedError

    def _check_parameters(self) -> None:
        for name in ("n_steps", "batch_size"):
            check_positive_int(getattr(self, name), name)
        check_number(self.learning_rate, "learning_rate")
        check_number(self.weight_decay, "weight_decay", zero=True)

    def _check_images(self) -> None:
        """Raise if images of this size, or masks of so many classes, are not supported."""

    # --- predictions -------------------------------------------------------------------------------------

    def predict(self, images: Any) -> NDArray[np.int64]:
        """Predict the class of every pixel.

        Parameters
        ----------
        images : as in `fit`

        Returns
        -------
        array of int (n, height, width)
        """
        relaxed = self.predict_proba(images)
        if relaxed.ndim == 3:
            return (relaxed >= 0.5).astype(np.int64)
        return np.asarray(relaxed.argmax(axis=1), dtype=np.int64)

    def predict_proba(self, images: Any) -> NDArray[np.float32]:
        """Predict the probability that a pixel is of class 1.

        Parameters
        ----------
        images : as in `fit`

        Returns
        -------
        array (n, height, width)
            With more than two classes, the probability of each: (n, classes, height, width).
        """
        check_is_fitted(self)
        pixels = self.image_format_.pixels(images, "predict")
        classes = () if self.n_classes_ == 2 else (self.n_classes_,)
        relaxed = np.empty(
            (len(pixels), *classes, self.image_format_.height, self.image_format_.width), dtype=np.float32
        )
        for block, chunk in self._blocks(pixels):
            relaxed[block] = self._probabilities(chunk)[: len(relaxed[block])].numpy()
        return relaxed

    def score(self, images: Any, masks: Any, sample_weight: Any = None) -> float:
        """Mean intersection over union of the predicted masks with the true ones, as in `sointer.metrics.iou`.

        Parameters
        ----------
        images, masks : as in `fit`
        sample_weight : array (n,), optional
            Weights of the images.

        Returns
        -------
        float
        """
        predicted = self.predict(images)
        truth = check_masks(masks, len(predicted), self.image_format_, "score")
        return float(np.average(mask_iou(predicted, truth), weights=sample_weight))

    def _blocks(self, pixels: NDArray[Any]) -> Iterator[tuple[slice, Tensor]]:
        """A few images at a time, in [0, 1], black ones added to make blocks of one size."""
        size = self._block_size()
        for start in range(0, len(pixels), size):
            block = slice(start, start + size)
            images = torch.zeros(size, *self.image_format_.shape).contiguous(memory_format=torch.channels_last)
            images[: len(pixels[block])] = self._scaled(pixels[block])
            yield block, images

    def _block_size(self) -> int:
        return min(max(BLOCK_PIXELS // (self.image_format_.height * self.image_format_.width), 2), 64)

    def _scaled(self, pixels: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(pixels, dtype=np.float32)).div(self.image_format_.brightest)

    # --- saving ------------------------------------------------------------------------------------------

    def _metadata(self) -> dict[str, Any]:
        return {"pictures": self.image_format_.to_json(), "n_classes": self.n_classes_}

    def _restore(self, metadata: dict[str, Any]) -> None:
        self.image_format_ = ImageFormat(**metadata["pictures"])
        self.n_classes_ = int(metadata["n_classes"])
        self._check_images()

    def _fingerprint(self, X: Any, Y: Any) -> tuple[list[Any], list[NDArray[Any]]]:
        image_format = ImageFormat.infer(X, "fit_or_load")
        pixels = image_format.pixels(X, "fit_or_load")
        truth = check_masks(Y, len(pixels), image_format, "fit_or_load")
        return [image_format.to_json(), len(pixels), str(pixels.dtype)], [pixels, truth.astype(np.uint8)]


@dataclass(kw_only=True, eq=False, repr=False)
class UNet(ImageModel):
    """A segmenter: convolutions on images of ever smaller size and back, with shortcuts between equal sizes.

    It is trained with AdamW, a one-cycle learning rate, cross-entropy and, for two classes, the Dice loss. Fitted
    attributes are those of `ImageModel`.

    Parameters
    ----------
    width : int
        Channels at full size; every halving adds as many again.
    depth : int
        How often the images are halved; height and width must be multiples of 2 ** depth.
    n_steps, batch_size, learning_rate, weight_decay : numbers
        Training by AdamW.
    augment : bool
        Also learn from images mirrored left to right, rotated, zoomed, shifted and recoloured.
    random_state : int, Generator or None
        An int gives the same model every time.
    verbose : bool, optional
        Show progress; by default on a terminal only.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.zoo import UNet
    >>> images = np.random.default_rng(0).random((40, 1, 8, 8))
    >>> model = UNet(width=8, depth=1, n_steps=100, augment=False, random_state=0).fit(images, images[:, 0] > 0.5)
    >>> model.predict(images).shape, model.score(images, images[:, 0] > 0.5) > 0.8
    ((40, 8, 8), True)
    """

    width: int = 16
    depth: int = 3
    n_steps: int = 1500
    batch_size: int = 32
    learning_rate: float = 4e-3

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_positive_int(self.width, "width")
        check_positive_int(self.depth, "depth")

    def _check_images(self) -> None:
        multiple = 2**self.depth
        _, height, width = self.image_format_.shape
        if height % multiple or width % multiple:
            raise InputError(
                f"images are {height} by {width} pixels, expected multiples of {multiple}: with depth={self.depth} "
                "they are halved so often. Crop or pad them, or choose a smaller depth."
            )

    def _network(self, generator: torch.Generator | None) -> StandardisingUNetwork:
        n_outputs = 1 if self.n_classes_ == 2 else self.n_classes_
        network = StandardisingUNetwork(self.image_format_.channels, n_outputs, self.width, self.depth)
        return network if generator is None else network.initialise(generator)

    def _train(self, network: Any, images: Tensor, masks: Tensor, generator: torch.Generator, history: History) -> None:
        network.standardise(images)
        channels_last(network.train())
        batches = endless_batches(len(images), self.batch_size, generator)

        def loss_of_batch() -> Tensor:
            batch = next(batches)
            x, truth = images[batch], masks[batch]
            if self.augment:
                x, truth = distorted(x, truth, self.n_classes_, generator)
            return pixel_loss(network(x.contiguous(memory_format=torch.channels_last)), truth)

        self._descend("U-Net", network, loss_of_batch, self.n_steps, self.learning_rate, history)

    @torch.inference_mode()
    def _probabilities(self, images: Tensor) -> Tensor:
        logits: Tensor = self.folded_(images)
        return logits[:, 0].sigmoid() if logits.shape[1] == 1 else logits.softmax(1)


def pixel_loss(logits: Tensor, truth: Tensor) -> Tensor:
    """Mean cross-entropy of the pixels; for two classes, whose logits are in one channel, 1 - Dice is added."""
    if logits.shape[1] > 1:
        return F.cross_entropy(logits, truth)
    y = truth.to(logits.dtype)
    p = logits[:, 0].sigmoid()
    dice = (2 * (p * y).sum((1, 2)) + 1) / ((p + y).sum((1, 2)) + 1)
    return F.binary_cross_entropy_with_logits(logits[:, 0], y) + 1 - dice.mean()
