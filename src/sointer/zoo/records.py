"""What the loaders of real data return: inputs, labels, names, and the split into parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from sointer.errors import InputError

ByteArray: TypeAlias = npt.NDArray[np.uint8]
StringArray: TypeAlias = npt.NDArray[np.str_]
CsrMatrix: TypeAlias = "sparse.csr_matrix[np.float32]"


class Rows(NamedTuple):
    """Rows of a multi-label data set."""

    X: CsrMatrix
    Y: ByteArray


class Images(NamedTuple):
    """Images of a segmentation data set, and their masks."""

    images: ByteArray
    masks: ByteArray


@dataclass(frozen=True, eq=False)
class MultiLabelData:
    """Documents, songs or photographs as rows of features, each with any number of labels."""

    name: str
    X: CsrMatrix = field(repr=False)
    """One row per sample, one column per feature."""
    Y: ByteArray = field(repr=False)
    """One row per sample, one column per label; 1 where the sample has the label."""
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
        """The training rows."""
        return self.part("train")

    @property
    def test(self) -> Rows:
        """The test rows."""
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
    """Shape (images, 3, height, width); red, green, blue from 0 to 255."""
    masks: ByteArray = field(repr=False)
    """Shape (images, height, width); 1 on the object, 0 elsewhere."""
    split: StringArray = field(repr=False)
    """"train", "val" or "test" for each image."""
    file_names: tuple[str, ...] = field(repr=False)
    source: str
    """The file that was read."""
    citation: str = field(repr=False)

    @property
    def train(self) -> Images:
        """The training images."""
        return self.part("train")

    @property
    def val(self) -> Images:
        """The validation images."""
        return self.part("val")

    @property
    def test(self) -> Images:
        """The test images."""
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


ENRON_LABELS: Mapping[str, str] = {
    "A.A1": "Company Business, Strategy, etc. (elaborate in Section 3 [Topics])",
    "A.A2": "Purely Personal",
    "A.A3": "Personal but in professional context (e.g., it was good working with you)",
    "A.A4": "Logistic Arrangements (meeting scheduling, technical support, etc)",
    "A.A5": "Employment arrangements (job seeking, hiring, recommendations, etc)",
    "A.A6": "Document editing/checking (collaboration)",
    "A.A7": "Empty message (due to missing attachment)",
    "A.A8": "Empty message",
    "B.B1": "Includes new text in addition to forwarded material",
    "B.B2": "Forwarded email(s) including replies",
    "B.B3": "Business letter(s) / document(s)",
    "B.B4": "News article(s)",
    "B.B5": "Government / academic report(s)",
    "B.B6": "Government action(s) (such as results of a hearing, etc)",
    "B.B7": "Press release(s)",
    "B.B8": "Legal documents (complaints, lawsuits, advice)",
    "B.B9": "Pointers to url(s)",
    "B.B10": "Newsletters",
    "B.B11": "Jokes, humor (related to business)",
    "B.B12": "Jokes, humor (unrelated to business)",
    "B.B13": "Attachment(s) (assumed missing)",
    "C.C1": "regulations and regulators (includes price caps)",
    "C.C2": "internal projects -- progress and strategy",
    "C.C3": "company image -- current",
    "C.C4": "company image -- changing / influencing",
    "C.C5": "political influence / contributions / contacts",
    "C.C6": "california energy crisis / california politics",
    "C.C7": "internal company policy",
    "C.C8": "internal company operations",
    "C.C9": "alliances / partnerships",
    "C.C10": "legal advice",
    "C.C11": "talking points",
    "C.C12": "meeting minutes",
    "C.C13": "trip reports",
    "D.D1": "jubilation",
    "D.D2": "hope / anticipation",
    "D.D3": "humor",
    "D.D4": "camaraderie",
    "D.D5": "admiration",
    "D.D6": "gratitude",
    "D.D7": "friendship / affection",
    "D.D8": "sympathy / support",
    "D.D9": "sarcasm",
    "D.D10": "secrecy / confidentiality",
    "D.D11": "worry / anxiety",
    "D.D12": "concern",
    "D.D13": "competitiveness / aggressiveness",
    "D.D14": "triumph / gloating",
    "D.D15": "pride",
    "D.D16": "anger / agitation",
    "D.D17": "sadness / despair",
    "D.D18": "shame",
    "D.D19": "dislike / scorn",
}
"""Labels A: genre; B: what is included or forwarded; C: topic; D: emotional tone (the publishers' categories)."""

OHSUMED_LABELS: Mapping[str, str] = {
    "C01": "Bacterial Infections and Mycoses",
    "C02": "Virus Diseases",
    "C03": "Parasitic Diseases",
    "C04": "Neoplasms",
    "C05": "Musculoskeletal Diseases",
    "C06": "Digestive System Diseases",
    "C07": "Stomatognathic Diseases",
    "C08": "Respiratory Tract Diseases",
    "C09": "Otorhinolaryngologic Diseases",
    "C10": "Nervous System Diseases",
    "C11": "Eye Diseases",
    "C12": "Urologic and Male Genital Diseases",
    "C13": "Female Genital Diseases and Pregnancy Complications",
    "C14": "Cardiovascular Diseases",
    "C15": "Hemic and Lymphatic Diseases",
    "C16": "Neonatal Diseases and Abnormalities",
    "C17": "Skin and Connective Tissue Diseases",
    "C18": "Nutritional and Metabolic Diseases",
    "C19": "Endocrine Diseases",
    "C20": "Immunologic Diseases",
    "C21": "Disorders of Environmental Origin",
    "C22": "Animal Diseases",
    "C23": "Pathological Conditions, Signs and Symptoms",
}
"""Labels: the MeSH categories of disease C01 to C23, under their usual names."""


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
    """Images as rows of pixels, their segments as rows of seven 0/1 labels, and the digits behind both."""

    X_train: FloatArray = field(repr=False)
    X_test: FloatArray = field(repr=False)
    Y_train: IntArray = field(repr=False)
    Y_test: IntArray = field(repr=False)
    digits_train: IntArray = field(repr=False)
    digits_test: IntArray = field(repr=False)
    output_names: tuple[str, ...]
    feature_names: tuple[str, ...] = field(repr=False)
    image_shape: tuple[int, int]


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
