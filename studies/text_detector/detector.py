"""The model that is explained: the text detector that comes with rapidocr-onnxruntime, used as a segmenter.

It is PP-OCRv4's, a DB network (Liao et al. 2020): its output is the probability that a pixel belongs to the core of a
text line. The weights are inside the package, so nothing is fetched.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

PACKAGE = "rapidocr_onnxruntime"
MULTIPLE = 32
"""Sides of images must be multiples of it."""
N_AT_ONCE = 32
THRESHOLD = 0.5
"""Above it a pixel is called text, here as in sointer. The package's own is 0.3; few pixels lie between."""


class TextDetector:
    """From images (n, 3, height, width), RGB from 0 to 255, bytes or floats, to probabilities (n, height, width).

    Pre-processing is that of the package (BGR, from -1 to 1) but for one thing: the package enlarges small images, here
    the network sees them as they are.
    """

    def __init__(self, weights: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])
        self.input_name = self.session.get_inputs()[0].name
        self.name = weights.stem

    def __call__(self, images: NDArray[Any]) -> NDArray[np.float32]:
        if images.ndim != 4 or images.shape[1] != 3 or images.shape[2] % MULTIPLE or images.shape[3] % MULTIPLE:
            raise ValueError(f"images must be (n, 3, height, width), sides multiples of {MULTIPLE}, got {images.shape}")
        parts = [np.empty((0, *images.shape[2:]), dtype=np.float32)]
        for start in range(0, len(images), N_AT_ONCE):
            inputs = np.ascontiguousarray(images[start : start + N_AT_ONCE, ::-1], dtype=np.float32) / 127.5 - 1
            (outputs,) = self.session.run(None, {self.input_name: inputs})
            parts.append(outputs[:, 0].clip(0, 1))  # its sigmoid exceeds 1 by a rounding error at times
        return np.concatenate(parts)


def is_installed() -> bool:
    return importlib.util.find_spec(PACKAGE) is not None


@cache
def detector() -> TextDetector:
    """The detector of the installed package; the package itself, with OpenCV, is not imported."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise ModuleNotFoundError("this study needs rapidocr-onnxruntime: pip install 'sointer[ocr]'")
    (weights,) = (Path(found.origin).parent / "models").glob("*_det_*.onnx")
    return TextDetector(weights)
