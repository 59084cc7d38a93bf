"""Digits as seven segments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

IntArray: TypeAlias = npt.NDArray[np.int64]
FloatArray: TypeAlias = npt.NDArray[np.float64]

SEGMENT_NAMES: tuple[str, ...] = (
    "a (top)",
    "b (upper right)",
    "c (lower right)",
    "d (bottom)",
    "e (lower left)",
    "f (upper left)",
    "g (middle)",
)

_LIT_SEGMENTS = ("abcdef", "bc", "abdeg", "abcdg", "bcfg", "acdfg", "acdefg", "abc", "abcdefg", "abcdfg")

SEGMENTS: IntArray = np.array([[int(name in lit) for name in "abcdefg"] for lit in _LIT_SEGMENTS], dtype=np.int64)
"""One row per digit, one column per segment a to g: 1 where the segment is lit."""
SEGMENTS.setflags(write=False)


@dataclass(frozen=True, eq=False)
class SevenSegmentDigits:
    """Images as rows of pixels, their segments as rows of seven 0/1 labels, and the digits behind both.

    Attributes
    ----------
    X_train, X_test
        (images, 64) pixels from 0 to 16.
    Y_train, Y_test
        (images, 7) 1 where the segment is lit.
    digits_train, digits_test
        (images,) the digits.
    """

    X_train: FloatArray = field(repr=False)
    X_test: FloatArray = field(repr=False)
    Y_train: IntArray = field(repr=False)
    Y_test: IntArray = field(repr=False)
    digits_train: IntArray = field(repr=False)
    digits_test: IntArray = field(repr=False)
    output_names: tuple[str, ...]
    """Names of the segments."""
    feature_names: tuple[str, ...] = field(repr=False)
    """Names of the pixels."""
    image_shape: tuple[int, int]
    """Height and width."""


def load_seven_segment_digits(random_state: int = 0, test_size: float = 0.25) -> SevenSegmentDigits:
    """The 8 by 8 digits that come with scikit-learn (pixels 0 to 16), with segments a to g as outputs.

    Only 10 of the 128 patterns of segments are valid, so the outputs are correlated. The split keeps the share of every
    digit; nothing is downloaded.

    Parameters
    ----------
    random_state : int
        Seed of the split.
    test_size : float
        Share of the test images.

    Returns
    -------
    SevenSegmentDigits

    Examples
    --------
    >>> from sointer.zoo import load_seven_segment_digits
    >>> data = load_seven_segment_digits()
    >>> data.X_train.shape, data.Y_test.shape, data.output_names[0]
    ((1347, 64), (450, 7), 'a (top)')
    """
    images, labels = load_digits(return_X_y=True)
    X = np.asarray(images, dtype=np.float64)
    digits = np.asarray(labels, dtype=np.int64)
    train, test = train_test_split(
        np.arange(len(digits)), test_size=test_size, stratify=digits, random_state=random_state
    )
    n_rows, n_columns = image_shape = (8, 8)
    return SevenSegmentDigits(
        X_train=X[train],
        X_test=X[test],
        Y_train=SEGMENTS[digits[train]],
        Y_test=SEGMENTS[digits[test]],
        digits_train=digits[train],
        digits_test=digits[test],
        output_names=SEGMENT_NAMES,
        feature_names=tuple(f"row {row}, col {col}" for row in range(n_rows) for col in range(n_columns)),
        image_shape=image_shape,
    )
