"""What models that segment images have in common: fitting, answers in blocks, saving."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from sointer._support.validation import check_positive_int, check_random_state
from sointer.errors import InputError
from sointer.models.checks import check_number
from sointer.models.pictures import PictureFormat, check_masks
from sointer.models.relaxed_masks import class_iou
from sointer.models.saving import SavedModel
from sointer.training.history import History

BLOCK_PIXELS = 32 * 32 * 32
"""So many pixels are answered at once, no more (they fit a cache) and no fewer (an image gets the same bits alone)."""

Model = TypeVar("Model", bound="ImageModel")


class ImageModel(SavedModel):
    """A model from images (n, channels, height, width) to masks (n, height, width).

    Subclasses say what network they have (`_network`), how to train it (`_train`), how to make it ready for
    answering (`_adopt`), and what it answers to a block of images (`_answer`).
    """

    n_steps: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    random_state: Any
    verbose: bool | None

    def fit(self: Model, images: Any, masks: Any) -> Model:
        """Learn from images (n, channels, height, width) and their masks (n, height, width).

        Images hold whole numbers from 0 to 255 or floats from 0 to 1; masks hold classes: 0 for the background, 1
        (and 2, ...) for what is to be found.
        """
        self._check_parameters()
        generator = torch.Generator().manual_seed(int(check_random_state(self.random_state).integers(2**63)))
        self.pictures_ = PictureFormat.infer(images, "fit")
        pixels = self.pictures_.pixels(images, "fit")
        truth = check_masks(masks, len(pixels), self.pictures_, "fit")
        self.n_classes_ = max(int(truth.max()) + 1, 2)
        self._check_images()
        network = self._network(generator)
        history = History(self.verbose)
        try:
            self._train(network, self._scaled(pixels), torch.from_numpy(truth), generator, history)
        finally:
            history.close()
        if not all(bool(weights.isfinite().all()) for weights in network.parameters()):
            raise InputError(f"Training diverged with learning_rate={self.learning_rate}. Choose a smaller one.")
        self.history_ = history.rows
        self._adopt(network)
        return self

    def _network(self, generator: torch.Generator | None) -> nn.Module:
        """A network for the images seen; its weights are drawn if there is a generator, else still to be loaded."""
        raise NotImplementedError

    def _train(self, network: Any, images: Tensor, masks: Tensor, generator: torch.Generator, history: History) -> None:
        """Train on images in [0, 1] and masks of classes."""
        raise NotImplementedError

    def _adopt(self, network: Any) -> None:
        """Make a trained network the one that answers."""
        self.network_ = network.eval().requires_grad_(False)

    def _answer(self, images: Tensor) -> Tensor:
        """Probabilities for a block of images in [0, 1]: (n, height, width), or (n, classes, height, width)."""
        raise NotImplementedError

    def _check_parameters(self) -> None:
        for name in ("n_steps", "batch_size"):
            check_positive_int(getattr(self, name), name)
        check_number(self.learning_rate, "learning_rate")
        check_number(self.weight_decay, "weight_decay", zero=True)

    def _check_images(self) -> None:
        """Raise if images of this size, or masks of so many classes, cannot be had."""

    # --- answers -----------------------------------------------------------------------------------------

    def predict(self, images: Any) -> NDArray[np.int64]:
        """The class of every pixel: (n, height, width)."""
        relaxed = self.predict_proba(images)
        if relaxed.ndim == 3:
            return (relaxed >= 0.5).astype(np.int64)
        return np.asarray(relaxed.argmax(axis=1), dtype=np.int64)

    def predict_proba(self, images: Any) -> NDArray[np.float32]:
        """How sure the model is that a pixel is of class 1: (n, height, width).

        With more than two classes, that it is of each: (n, classes, height, width).
        """
        check_is_fitted(self)
        pixels = self.pictures_.pixels(images, "predict")
        classes = () if self.n_classes_ == 2 else (self.n_classes_,)
        answers = np.empty((len(pixels), *classes, self.pictures_.height, self.pictures_.width), dtype=np.float32)
        for block, some in self._blocks(pixels):
            answers[block] = self._answer(some)[: len(answers[block])].numpy()
        return answers

    def score(self, images: Any, masks: Any, sample_weight: Any = None) -> float:
        """Mean intersection over union of the predicted masks with the true ones, as in `sointer.metrics.iou`."""
        predicted = self.predict(images)
        truth = check_masks(masks, len(predicted), self.pictures_, "score")
        return float(np.average(class_iou(predicted, truth), weights=sample_weight))

    def _blocks(self, pixels: NDArray[Any]) -> Iterator[tuple[slice, Tensor]]:
        """A few images at a time, in [0, 1], black ones added to make blocks of one size."""
        size = self._block_size()
        for start in range(0, len(pixels), size):
            block = slice(start, start + size)
            images = torch.zeros(size, *self.pictures_.shape).contiguous(memory_format=torch.channels_last)
            images[: len(pixels[block])] = self._scaled(pixels[block])
            yield block, images

    def _block_size(self) -> int:
        return min(max(BLOCK_PIXELS // (self.pictures_.height * self.pictures_.width), 2), 64)

    def _scaled(self, pixels: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(pixels, dtype=np.float32)).div(self.pictures_.brightest)

    # --- saving ------------------------------------------------------------------------------------------

    def _facts(self) -> dict[str, Any]:
        return {"pictures": self.pictures_.to_json(), "n_classes": self.n_classes_}

    def _restore(self, facts: dict[str, Any]) -> nn.Module:
        self.pictures_ = PictureFormat(**facts["pictures"])
        self.n_classes_ = int(facts["n_classes"])
        self._check_images()
        return self._network(None)

    def _fingerprint(self, images: Any, masks: Any) -> tuple[list[Any], list[NDArray[Any]]]:
        """What a trained model depends on besides its parameters: facts, and arrays."""
        pictures = PictureFormat.infer(images, "fit_or_load")
        pixels = pictures.pixels(images, "fit_or_load")
        truth = check_masks(masks, len(pixels), pictures, "fit_or_load")
        return [pictures.to_json(), len(pixels), str(pixels.dtype)], [pixels, truth.astype(np.uint8)]
