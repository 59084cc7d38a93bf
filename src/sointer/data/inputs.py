"""How X looks to its owner, and the numeric matrix that the networks see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

from sointer._support import containers
from sointer._support.validation import _some, check_unique_names
from sointer.data.columns import FrameColumn, integers_to_float, plain_label, restore_dtype
from sointer.data.images import ImageShape, PixelRange, check_range, find_range, image_hint, refuse_mixed_ranges
from sointer.errors import InputError, LoadError


def check_container(X: Any, caller: str) -> Any:
    """X as numpy, DataFrame, CSR or tensor with at least one row and column; numpy and tensors may be images."""
    if isinstance(X, (list, tuple)) or (isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1):
        _refuse_images_of_different_sizes(X, caller)
        try:
            X = np.asarray(X)
        except ValueError as exc:
            raise InputError(
                f"{caller}: X is {containers.describe(X)} with rows of different lengths, expected equal "
                "ones. Give a rectangular table."
            ) from exc
    if isinstance(X, np.ma.MaskedArray):
        raise InputError(f"{caller}: X is a masked array, expected plain numbers. Fill it with X.filled(value).")
    known = isinstance(X, np.ndarray) or containers.is_sparse(X) or containers.is_frame(X) or containers.is_tensor(X)
    if not known:
        raise InputError(
            f"{caller}: X is {containers.describe(X)}, expected a numpy array, a pandas DataFrame, a scipy "
            "CSR matrix or a torch tensor. Convert it; one row of a DataFrame is X.iloc[[0]]."
        )
    if len(X.shape) not in (2, 4):
        hint = (
            "Use x.reshape(1, -1) for one sample, x.reshape(-1, 1) for one feature."
            if len(X.shape) < 2
            else f"Flatten a table to (n_samples, -1). {image_hint(X)}"
        )
        raise InputError(
            f"{caller}: X has {len(X.shape)} dimensions (shape {tuple(X.shape)}), expected 2: samples and "
            "features. " + hint
        )
    if 0 in X.shape:
        least = "one sample and one feature" if len(X.shape) == 2 else "one image, one channel and one pixel"
        raise InputError(
            f"{caller}: X is empty (shape {tuple(X.shape)}), expected at least {least}. Check how X was selected."
        )
    if containers.is_sparse(X):
        X = X if X.format == "csr" else X.tocsr()
    elif isinstance(X, np.ndarray):
        X = np.asarray(X)  # np.matrix indexes differently
    return X


def _refuse_images_of_different_sizes(X: Any, caller: str) -> None:
    shapes = [tuple(one.shape) for one in X if hasattr(one, "shape")]
    if len(shapes) < len(X) or any(len(shape) not in (2, 3) for shape in shapes) or len(set(shapes)) < 2:
        return
    sizes = " and ".join(str(shape) for shape in sorted(set(shapes))[:2])
    raise InputError(
        f"{caller}: X has {len(X)} images of {len(set(shapes))} different shapes, such as {sizes}; expected one shape "
        "(channels, height, width) for all. Resize or crop them, for example with torch.nn.functional.interpolate, and "
        "let the model get them in that size."
    )


def to_float(X: Any, caller: str) -> Any:
    """A numpy array, CSR or tensor as float64; only numbers that float64 holds exactly are accepted."""
    values = containers.tensor_to_numpy(X) if containers.is_tensor(X) else X
    dtype = values.dtype
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        hint = "Give a pandas DataFrame for strings and categories." if dtype.kind in "OUSTV" else "Use float64."
        raise InputError(f"{caller}: X has dtype {dtype}, expected numbers or booleans. {hint}")
    if containers.is_sparse(values):
        copied = containers.csr_array(values, copy=True)
        copied.sum_duplicates()  # on the copy: the owner's matrix stays as it was
        data = copied.data
        numbers = integers_to_float(data, f"{caller}: X") if dtype.kind in "iu" else data.astype(np.float64)
        return containers.csr_array((numbers, copied.indices, copied.indptr), shape=copied.shape)
    if dtype.kind in "iu":
        return integers_to_float(values, f"{caller}: X")
    return values.astype(np.float64)


Kind = Literal["numpy", "pandas", "csr", "torch", "text"]
MAX_COLUMNS = 2**28  # of saved formats of images


@dataclass(frozen=True, eq=False)
class InputFormat:
    """The container, dtypes and names of X, with the way to numbers (`encode`) and back (`decode`).

    Examples
    --------
    >>> import numpy as np
    >>> format = InputFormat.infer(np.array([[1, 2], [3, 4]]))
    >>> format.feature_names, format.encode(np.array([[5, 6]]))
    (['x0', 'x1'], array([[5., 6.]]))
    >>> format.decode(np.array([[5.0, 6.0]]))
    array([[5, 6]])
    """

    kind: Kind
    feature_names: list[str]
    dtype: str
    columns: tuple[FrameColumn, ...] = ()  # of a DataFrame only
    is_matrix: bool = False  # csr_matrix rather than csr_array
    device: str = "cpu"  # of a torch tensor
    image: ImageShape | None = None  # where every row is an image
    pixel_range: PixelRange = "any"  # of the images given to fit
    column_feature: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        if self.image is not None:
            object.__setattr__(self, "column_feature", self.image.column_pixel)
            return
        widths = [c.width for c in self.columns] if self.columns else [1] * len(self.feature_names)
        object.__setattr__(self, "column_feature", np.repeat(np.arange(len(widths)), widths))

    @classmethod
    def infer(cls, X: Any, feature_names: Sequence[str] | None = None) -> InputFormat:
        """Read the format of X (n samples, n features), or of images (n, channels, height, width).

        `feature_names` wins over names that X carries; images have one name per pixel.
        """
        X = check_container(X, "fit")
        if len(X.shape) == 4:
            return cls._infer_images(X, feature_names)
        if containers.is_frame(X):
            labels = [plain_label(label) for label in X.columns]
            names = [str(label) for label in labels] if feature_names is None else feature_names
            check_unique_names([str(label) for label in labels], X.shape[1], "The column names of X")
            columns = tuple(FrameColumn.infer(X.iloc[:, j]) for j in range(X.shape[1]))
            dtypes = {column.dtype for column in columns}
            made = cls(
                "pandas",
                check_unique_names(names, X.shape[1], "feature_names"),
                dtypes.pop() if len(dtypes) == 1 else "mixed",
                tuple(
                    FrameColumn(label, c.dtype, c.categories, c.categories_dtype, c.ordered)
                    for label, c in zip(labels, columns, strict=True)
                ),
            )
        else:
            default = [f"x{j}" for j in range(X.shape[1])]
            names = check_unique_names(default if feature_names is None else feature_names, X.shape[1], "feature_names")
            if containers.is_sparse(X):
                made = cls("csr", names, str(X.dtype), is_matrix=isinstance(X, sparse.spmatrix))
            elif containers.is_tensor(X):
                made = cls("torch", names, str(X.dtype).removeprefix("torch."), device=str(X.device))
            else:
                made = cls("numpy", names, str(X.dtype))
        made.encode(X, caller="fit")
        return made

    @classmethod
    def _infer_images(cls, X: Any, feature_names: Sequence[str] | None) -> InputFormat:
        image = ImageShape.of(X, "fit")
        default = image.pixel_names()
        names = check_unique_names(default if feature_names is None else feature_names, image.n_pixels, "feature_names")
        if containers.is_tensor(X):
            made = cls("torch", names, str(X.dtype).removeprefix("torch."), device=str(X.device), image=image)
        else:
            made = cls("numpy", names, str(X.dtype), image=image)
        rows = made.encode(X, caller="fit")
        refuse_mixed_ranges(rows, "fit")
        return replace(made, pixel_range=find_range(rows))

    @property
    def n_features(self) -> int:
        """How many features the owner sees."""
        return len(self.feature_names)

    @property
    def n_columns(self) -> int:
        """How many numeric columns the networks see: one-hot blocks make it larger than `n_features`."""
        return len(self.column_feature)

    @property
    def is_categorical(self) -> npt.NDArray[np.bool_]:
        """For each feature, whether it is a one-hot block inside: (n_features,)."""
        if not self.columns:
            return np.zeros(self.n_features, dtype=bool)
        return np.array([column.is_categorical for column in self.columns], dtype=bool)

    @staticmethod
    def rows(X: Any, index: npt.ArrayLike) -> Any:
        """The rows of any container at integer positions."""
        return containers.rows(X, index)

    @staticmethod
    def n_rows(X: Any) -> int:
        """How many rows any container holds."""
        return containers.n_rows(X)

    def encode(self, X: Any, caller: str = "explain") -> Any:
        """X as float64 numbers (n samples, n columns); a `csr_array` when the format is CSR, else dense."""
        X = check_container(X, caller)
        if self.image is not None:
            return self._encode_images(X, self.image, caller)
        if len(X.shape) == 4:
            raise InputError(
                f"{caller}: X has 4 dimensions (shape {tuple(X.shape)}), but a table of {self.n_features} features was "
                "fitted. Give such a table, or fit on images."
            )
        Z: Any
        frame = containers.is_frame(X)
        if frame and self.columns:
            X = self._match_columns(X, caller)
        elif X.shape[1] != self.n_features:
            raise InputError(
                f"{caller}: X has {X.shape[1]} features, but {self.n_features} were expected "
                f"({_some(self.feature_names)}). Give the same features as in fit, in the same order."
            )
        if self.columns:
            if frame:
                Z = self._encode_frame(X)
            elif self.is_categorical.any():
                names = [n for n, c in zip(self.feature_names, self.is_categorical, strict=True) if c]
                raise InputError(
                    f"{caller}: X is {containers.describe(X)}, but a DataFrame was fitted and {_some(names)} "
                    "are categories, which plain numbers cannot name. Give a DataFrame with the same columns."
                )
            else:
                Z = to_float(X, caller)
        elif frame:
            names = [str(label) for label in X.columns]
            nameless = self.feature_names == [f"x{j}" for j in range(self.n_features)]
            if not nameless and sorted(names) != sorted(self.feature_names):
                raise InputError(
                    f"{caller}: X has columns {_some(names)}, but the features are {_some(self.feature_names)}. "
                    "Give the same names, or an array in the same order."
                )
            if names != self.feature_names and sorted(names) == sorted(self.feature_names):
                X = X.iloc[:, [names.index(name) for name in self.feature_names]]
            Z = np.column_stack([FrameColumn(label, "float64").encode(X[label]) for label in X.columns])
        else:
            Z = to_float(X, caller)
        if self.kind == "csr":
            Z = Z if containers.is_sparse(Z) else containers.csr_array(Z)
        elif containers.is_sparse(Z):
            Z = Z.toarray()
        self._check_finite(Z, caller)
        return Z

    def decode(self, Z: Any) -> Any:
        """Numbers (n samples, n columns), dense or CSR, as the owner's model expects them."""
        if Z.ndim != 2 or Z.shape[1] != self.n_columns:
            raise InputError(
                f"decode got {containers.describe(Z)}, expected 2 dimensions with {self.n_columns} columns. "
                "Give numbers in the layout that encode returns."
            )
        if self.kind == "csr":
            made = containers.csr_matrix(Z) if self.is_matrix else containers.csr_array(Z)
            data = restore_dtype(np.asarray(made.data, dtype=np.float64), np.dtype(self.dtype))
            shell = containers.csr_matrix if self.is_matrix else containers.csr_array
            return shell((data, made.indices.copy(), made.indptr.copy()), shape=made.shape)
        dense = np.asarray(Z.toarray() if containers.is_sparse(Z) else Z, dtype=np.float64)
        dense = dense if self.image is None else self.image.unflatten(dense)
        if self.kind == "pandas":
            return self._decode_frame(dense)
        if self.kind == "torch":
            return self._decode_tensor(dense)
        return restore_dtype(dense, np.dtype(self.dtype))

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        facts = {
            "kind": self.kind,
            "feature_names": list(self.feature_names),
            "dtype": self.dtype,
            "columns": [column.to_json() for column in self.columns],
            "is_matrix": self.is_matrix,
            "device": self.device,
        }
        if self.image is not None:
            facts |= {"image": list(astuple(self.image)), "pixel_range": self.pixel_range}
        return facts

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> InputFormat:
        """The inverse of `to_json`."""
        try:
            columns = tuple(FrameColumn.from_json(column) for column in data["columns"])
            names = list(data["feature_names"])
            image = None if data.get("image") is None else ImageShape(*(int(side) for side in data["image"]))
            if image is not None and (image.n_pixels != len(names) or image.n_columns > MAX_COLUMNS):
                raise TypeError(f"{image} has not {len(names)} pixels, or too many channels")
            more = data["is_matrix"], data["device"], image, data.get("pixel_range", "any")
            return cls(data["kind"], names, data["dtype"], columns, *more)
        except (KeyError, TypeError) as exc:
            raise LoadError(
                f"The saved input format is incomplete or of another version: {exc!r}; expected what "
                "InputFormat.to_json writes. Save it again with this version."
            ) from exc

    def _encode_images(self, X: Any, image: ImageShape, caller: str) -> npt.NDArray[np.float64]:
        image.check(X, caller)
        Z: npt.NDArray[np.float64] = to_float(X, caller).reshape(len(X), -1)
        self._check_finite(Z, caller)
        check_range(Z, self.pixel_range, caller)
        return Z

    def _match_columns(self, X: Any, caller: str) -> Any:
        given, wanted = [plain_label(label) for label in X.columns], [c.label for c in self.columns]
        missing = [label for label in wanted if label not in given]
        extra = [label for label in given if label not in wanted]
        if missing or extra or len(given) != len(wanted):
            raise InputError(
                f"{caller}: X must have the {len(wanted)} columns seen in fit; missing: "
                f"{_some(missing) or 'none'}; not expected: {_some(extra) or 'none'}; {len(given)} given. "
                "Give exactly the fitted columns."
            )
        return X if given == wanted else X.iloc[:, [given.index(label) for label in wanted]]

    def _encode_frame(self, X: Any) -> npt.NDArray[np.float64]:
        Z = np.empty((len(X), self.n_columns))
        start = 0
        for j, column in enumerate(self.columns):
            Z[:, start : start + column.width] = column.encode(X.iloc[:, j])
            start += column.width
        return Z

    def _decode_frame(self, Z: npt.NDArray[np.float64]) -> Any:
        import pandas as pd

        labels = pd.Index([column.label for column in self.columns])
        if self.dtype in ("float64", "float32"):  # one block is far faster than thousands of columns
            return pd.DataFrame(Z.astype(self.dtype), columns=labels)
        starts = np.searchsorted(self.column_feature, np.arange(self.n_features + 1))
        parts = [c.decode(Z[:, starts[j] : starts[j + 1]]) for j, c in enumerate(self.columns)]
        frame = pd.DataFrame(dict(enumerate(parts)), index=pd.RangeIndex(len(Z)))
        frame.columns = labels
        return frame

    def _decode_tensor(self, Z: npt.NDArray[np.float64]) -> Any:
        import torch

        dtype = getattr(torch, self.dtype)
        device = "cpu" if self.device.startswith("cuda") and not torch.cuda.is_available() else self.device
        if not dtype.is_floating_point:
            Z = restore_dtype(Z, np.dtype(self.dtype))
            dtype = dtype if Z.dtype != np.float64 else torch.get_default_dtype()
        return torch.tensor(Z, dtype=dtype, device=device)

    def _check_finite(self, Z: Any, caller: str) -> None:
        values = Z.data if containers.is_sparse(Z) else Z
        if np.isfinite(values).all():
            return
        if containers.is_sparse(Z):
            entries = Z.tocoo()
            bad = ~np.isfinite(entries.data)
            at_rows, at_columns = entries.row[bad], entries.col[bad]
        else:
            at_rows, at_columns = np.nonzero(~np.isfinite(Z))
        features = [self.feature_names[j] for j in np.unique(self.column_feature[at_columns])]
        where = "columns" if self.image is None else "pixels"
        remedy = (
            "Impute them (for example with sklearn.impute.SimpleImputer), or drop those rows."
            if self.image is None
            else "Replace them, for example with numpy.nan_to_num(X), or drop those images."
        )
        raise InputError(
            f"{caller}: X has {len(at_rows)} NaN or infinite values, in rows "
            f"{_some(np.unique(at_rows).tolist())} and {where} {_some(features)}; expected finite numbers. {remedy}"
        )
