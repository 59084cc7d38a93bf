"""What the loaders of real data return: inputs, labels, names, and the split into parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from sointer.errors import InputError

ByteArray: TypeAlias = npt.NDArray[np.uint8]
StringArray: TypeAlias = npt.NDArray[np.str_]
CsrMatrix: TypeAlias = "sparse.csr_matrix[np.float32]"


class Rows(NamedTuple):
    """Some rows of a multi-label data set."""

    X: CsrMatrix
    Y: ByteArray


class Images(NamedTuple):
    """Some images of a segmentation data set, and their masks."""

    images: ByteArray
    masks: ByteArray


@dataclass(frozen=True, eq=False)
class MultiLabelData:
    """Documents, songs or pictures as rows of features, each with any number of labels."""

    name: str
    X: CsrMatrix = field(repr=False)
    """One row per sample, one column per feature."""
    Y: ByteArray = field(repr=False)
    """One row per sample, one column per label: 1 where the sample has the label."""
    feature_names: tuple[str, ...] = field(repr=False)
    label_names: tuple[str, ...] = field(repr=False)
    split: StringArray = field(repr=False)
    """"train" or "test" for each row."""
    split_is_official: bool
    """False where the publishers give no split, and ours is drawn at random with a fixed seed."""
    source: str
    """The files that were read."""
    citation: str = field(repr=False)
    label_descriptions: tuple[str, ...] | None = field(default=None, repr=False)
    """What each label means, where its name is a code."""

    @property
    def train(self) -> Rows:
        return self.part("train")

    @property
    def test(self) -> Rows:
        return self.part("test")

    def part(self, *names: str) -> Rows:
        """The rows of one part of the split, or of several together."""
        rows = rows_of(self.split, names)
        return Rows(self.X[rows], self.Y[rows])

    @property
    def cardinality(self) -> float:
        """How many labels a sample has on average."""
        return float(self.Y.sum(axis=1).mean())


@dataclass(frozen=True, eq=False)
class SegmentationData:
    """Colour images, and for each of their pixels whether it belongs to the object."""

    name: str
    images: ByteArray = field(repr=False)
    """Shape (images, 3, height, width): red, green, blue from 0 to 255."""
    masks: ByteArray = field(repr=False)
    """Shape (images, height, width): 1 on the object, 0 elsewhere."""
    split: StringArray = field(repr=False)
    """"train", "val" or "test" for each image."""
    file_names: tuple[str, ...] = field(repr=False)
    source: str
    """The file that was read."""
    citation: str = field(repr=False)

    @property
    def train(self) -> Images:
        return self.part("train")

    @property
    def val(self) -> Images:
        return self.part("val")

    @property
    def test(self) -> Images:
        return self.part("test")

    def part(self, *names: str) -> Images:
        """The images of one part of the split, or of several: `part("train", "val")`."""
        rows = rows_of(self.split, names)
        return Images(self.images[rows], self.masks[rows])


def rows_of(split: StringArray, names: tuple[str, ...]) -> npt.NDArray[np.intp]:
    """The numbers of the rows that belong to the named parts, in their order in the data."""
    known = np.unique(split).tolist()
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise InputError(f"part() takes names of parts of the split, {known}; got {list(names)}")
    rows: npt.NDArray[np.intp] = np.flatnonzero(np.isin(split, names))
    return rows


def random_split(n_rows: int) -> StringArray:
    """Two thirds "train", one third "test", drawn with a fixed seed: the same rows on every machine."""
    # The legacy generator is the one whose stream numpy promises never to change.
    order: npt.NDArray[Any] = np.random.RandomState(0).permutation(n_rows)
    split = np.full(n_rows, "test", dtype="<U5")
    split[order[: round(n_rows * 2 / 3)]] = "train"
    return split
