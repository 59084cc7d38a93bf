"""The Weizmann horses: photographs, and which pixels are horse."""

from __future__ import annotations

import hashlib
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.io import loadmat
from scipy.io.matlab import MatReadError

from sointer.datasets import files
from sointer.datasets.files import PathLike, RemoteFile
from sointer.datasets.npz_files import read_arrays
from sointer.datasets.records import ByteArray, SegmentationData, StringArray
from sointer.errors import InputError, LoadError, SointerWarning

FOLDER = "weizmann_horses"
N_HORSES = 328

NPZ_SHA256 = {
    32: "df0b8eaaa790b5de5a9a0b6c77826c0afb91ae3c88626198325b0a3664bbc7be",
    128: "ab71762f474501e982c35511bc27cd1aaeaa1aa8fc3e45de8e6141b490abd624",
}
MAT_FILE = RemoteFile(
    "horse.mat",
    "https://raw.githubusercontent.com/iesl/seal-neurips-2022/989dc07509ce6b5705293f0784461ff9d5185c00/"
    "data_preprocessing/weizmann_horse_seg/horse.mat",
)
PIXELS_SHA256_32 = "e4c2d360a4d29a98f3edca9442f9b66f31d3164c197aac999e5fa0dce44770c3"
"""Hash of the 32 by 32 images and masks as they are returned, whatever file they came in."""

CITATION = (
    'E. Borenstein, S. Ullman, "Class-Specific, Top-Down Segmentation", ECCV 2002; Y. Li, D. Tarlow, R. Zemel, '
    '"Exploring Compositional High Order Pattern Potentials for Structured Output Learning", CVPR 2013; M. Gygli, '
    'M. Norouzi, A. Angelova, "Deep Value Networks Learn to Evaluate and Iteratively Refine Structured Outputs", '
    "ICML 2017."
)

# For each horse of the original database: 0 train, 1 validation, 2 test, as in Gygli et al. 2017.
_SPLIT = (
    "20120020002112002201000022002102212202000000202222000010222020012000202022022221022000222200020120100200000220"
    "02200002120220210200212102022022200012200001010200020000112122220000200002000212002201001200000011222222101000"
    "000022022022100012202200200000202202102110000222220201200120200022000002200010022220002110202222012022222012"
)


def load_weizmann_horses(
    data_home: PathLike | None = None, *, size: int = 32, download: bool = True
) -> SegmentationData:
    """328 horses and their masks, 32 by 32 or 128 by 128 pixels (split 160 train, 40 val, 128 test).

    The 32 by 32 pictures and the split are those of Li et al. 2013 and Gygli et al. 2017, who train on "train" and
    "val" together. The larger ones are read from a local copy only.
    """
    if size not in NPZ_SHA256:
        raise InputError(f"size must be 32 or 128, got {size!r}")
    return load_horses(size, MAT_FILE, data_home, download)


def load_horses(size: int, mat_file: RemoteFile, data_home: PathLike | None, download: bool) -> SegmentationData:
    """The `.npz` copy, else, for the small ones, a local or the public MATLAB file."""
    places = files.directories(data_home)
    npz_name = f"weizmann_horses_{size}.npz"
    npz = files.find(places, FOLDER, npz_name)
    if npz is not None:
        files.check(npz, NPZ_SHA256[size])
        return _from_npz(npz, size)
    looked_for = f"the horses of size {size} were not found. Looked in {files.described(places)} for {npz_name}"
    advice = f"Give the directory of a local copy as data_home=, or in {files.DATA_VARIABLE}."
    if size != 32:
        raise LoadError(f"{looked_for}. They cannot be downloaded in this form. {advice}")
    local = files.find_all(places, FOLDER, [mat_file])
    if local is not None:
        return _from_mat(local[0])
    looked_for += f" or {mat_file.name}"
    if not download:
        raise LoadError(f"{looked_for}; nothing was downloaded, because download=False. {advice}")
    try:
        with files.downloaded([mat_file], files.cache() / FOLDER) as paths:
            return _from_mat(paths[0])
    except LoadError as exc:
        raise LoadError(f"{looked_for}.\n{exc}\n{advice}") from exc


def _from_npz(path: Path, size: int) -> SegmentationData:
    arrays = read_arrays(path, ["images", "masks", "split", "file_names"])
    images = np.ascontiguousarray(arrays["images"].transpose(0, 3, 1, 2))
    return _checked(path, images, arrays["masks"], arrays["split"], tuple(arrays["file_names"].tolist()), size)


def _from_mat(path: Path) -> SegmentationData:
    """The file of Li et al.: `imgs` a list of pictures, `segs` one row of pixels, column by column, per mask."""
    try:
        content = loadmat(str(path), variable_names=["imgs", "segs"])
        images = np.stack([_picture(image) for image in np.ravel(content["imgs"])])
        masks = np.asarray(content["segs"], dtype=np.uint8).reshape(-1, 32, 32).transpose(0, 2, 1)
    except (OSError, ValueError, TypeError, LookupError, NameError, RuntimeError, MatReadError, zlib.error) as exc:
        raise LoadError(f"{path} cannot be read as the MATLAB file of the horses: {exc}") from exc
    split = np.array(["train", "val", "test"])[[int(part) for part in _SPLIT]]
    file_names = tuple(f"horse{number:03d}.jpg" for number in range(1, N_HORSES + 1))
    data = _checked(path, images.transpose(0, 3, 1, 2), np.ascontiguousarray(masks), split, file_names, 32)
    if pixel_hash(data) != PIXELS_SHA256_32:
        warnings.warn(f"{path} has other pixels than we tested with; look at some.", SointerWarning, stacklevel=4)
    return data


def pixel_hash(data: SegmentationData) -> str:
    digest = hashlib.sha256(np.ascontiguousarray(data.images).tobytes())
    digest.update(np.ascontiguousarray(data.masks).tobytes())
    return digest.hexdigest()


def _picture(image: Any) -> ByteArray:
    picture = np.asarray(image)
    if picture.shape != (32, 32, 3) or picture.dtype != np.uint8:
        raise ValueError(f"expected pictures of 32 by 32 by 3 bytes, got shape {picture.shape} of {picture.dtype}")
    return picture


def _checked(
    path: Path,
    images: npt.NDArray[Any],
    masks: npt.NDArray[Any],
    split: StringArray,
    file_names: tuple[str, ...],
    size: int,
) -> SegmentationData:
    expected = ((N_HORSES, 3, size, size), (N_HORSES, size, size), (N_HORSES,), N_HORSES)
    got = (images.shape, masks.shape, split.shape, len(file_names))
    if got != expected or images.dtype != np.uint8 or not np.isin(masks, (0, 1)).all():
        raise LoadError(f"{path}: images, masks, split and names should have the sizes {expected}, got {got}.")
    return SegmentationData(
        name=f"weizmann_horses_{size}",
        images=np.ascontiguousarray(images),
        masks=masks.astype(np.uint8),
        split=split,
        file_names=file_names,
        source=str(path),
        citation=CITATION,
    )
