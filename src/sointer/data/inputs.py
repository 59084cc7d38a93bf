"""How X looks to its owner, and the numeric matrix that the networks see."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

from sointer._support import containers, number_words
from sointer._support.validation import check_unique_names, some
from sointer.data.checks import check_container, places_of, to_float
from sointer.data.columns import FrameColumn, means_of, plain_label, restore_dtype
from sointer.data.images import ImageShape, PixelRange, check_range, find_range, refuse_mixed_ranges
from sointer.errors import InputError, LoadError

Kind = Literal["numpy", "pandas", "csr", "torch", "polars", "pyarrow", "text"]
MAX_COLUMNS = 2**28  # of saved formats of images
MAX_NUMBER = 1e37
"""Networks compute in single precision, which ends at 3.4e38; a little is needed above."""


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
    fills: tuple[float | None, ...] = ()
    """For each feature that is a number, what the networks see where it is missing; None if it never is."""
    column_feature: npt.NDArray[np.int64] = field(init=False)
    absence: npt.NDArray[np.int64] = field(init=False)
    """The numeric columns that say whether a feature is missing (1) or there (0), beside its value."""
    has_words: ClassVar[bool] = False
    """Whether features are the words of texts."""

    def __post_init__(self) -> None:
        if self.image is not None:
            owner, absence = self.image.column_pixel, np.zeros(0, dtype=np.int64)
        else:
            own = [c.width for c in self.columns] if self.columns else [1] * len(self.feature_names)
            may_miss = np.array([fill is not None for fill in self.fills] or [False] * len(own), dtype=bool)
            widths = np.array(own, dtype=np.int64) + may_miss
            owner, absence = np.repeat(np.arange(len(own)), widths), np.cumsum(widths)[may_miss] - 1
        object.__setattr__(self, "column_feature", owner)
        object.__setattr__(self, "absence", absence)

    @classmethod
    def infer(cls, X: Any, feature_names: Sequence[str] | None = None, *, may_miss: bool = False) -> InputFormat:
        """The format of X: see `read`."""
        return cls.read(X, feature_names, may_miss=may_miss)[0]

    @classmethod
    def read(
        cls, X: Any, feature_names: Sequence[str] | None = None, *, may_miss: bool = False
    ) -> tuple[InputFormat, Any]:
        """The format of X (n samples, n features), or of images (n, channels, height, width); and X encoded.

        `feature_names` wins over names that X carries; images have one name per pixel. Features with missing values
        get a numeric column that says so; with `may_miss` all do.
        """
        backend, enums = containers.backend_of(X), containers.enum_columns(X)
        X = check_container(X, "fit")
        if len(X.shape) == 4:
            return cls._read_images(X, feature_names)
        if containers.is_frame(X):
            labels = [plain_label(label) for label in X.columns]
            names = [str(label) for label in labels] if feature_names is None else feature_names
            check_unique_names([str(label) for label in labels], X.shape[1], "The column names of X")
            columns = tuple(FrameColumn.infer(X.iloc[:, j], may_miss=may_miss) for j in range(X.shape[1]))
            dtypes = {column.dtype for column in columns}
            columns = tuple(replace(c, is_enum=c.label in enums) for c in columns)
            kind: Any = backend or "pandas"
            made = cls(
                kind,
                check_unique_names(names, X.shape[1], "feature_names"),
                dtypes.pop() if len(dtypes) == 1 else "mixed",
                tuple(replace(column, label=label) for label, column in zip(labels, columns, strict=True)),
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
        Z = made._numbers(X, "fit")
        if made.kind == "csr":
            made._check_finite(Z, "fit")
            return made, Z
        made._check_finite(np.where(np.isnan(Z), 0.0, Z), "fit")
        may = ~made.is_categorical[made.column_feature] & (np.isnan(Z).any(axis=0) | may_miss)
        made = replace(made, fills=means_of(Z, may, made.column_feature))
        return made, made._with_absence(Z, "fit") if made.fills else Z

    @classmethod
    def _read_images(cls, X: Any, feature_names: Sequence[str] | None) -> tuple[InputFormat, Any]:
        image = ImageShape.of(X, "fit")
        default = image.pixel_names()
        names = check_unique_names(default if feature_names is None else feature_names, image.n_pixels, "feature_names")
        if containers.is_tensor(X):
            made = cls("torch", names, str(X.dtype).removeprefix("torch."), device=str(X.device), image=image)
        else:
            made = cls("numpy", names, str(X.dtype), image=image)
        rows = made.encode(X, caller="fit")
        refuse_mixed_ranges(rows, "fit")
        return replace(made, pixel_range=find_range(rows)), rows

    @property
    def n_features(self) -> int:
        """How many features the owner sees."""
        return len(self.feature_names)

    @property
    def _is_nameless(self) -> bool:
        """Whether nobody named the features."""
        return not self.columns and self.feature_names == [f"x{j}" for j in range(self.n_features)]

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
        Z = self._numbers(X, caller)
        if self.fills:
            return self._with_absence(Z, caller)
        self._check_finite(Z, caller)
        return Z

    def _numbers(self, X: Any, caller: str) -> Any:
        """A table as float64 numbers, with NaN where numbers are missing."""
        Z: Any
        frame = containers.is_frame(X)
        if frame and self.columns:
            X = self._match_columns(X, caller)
        elif frame and not (self._is_nameless and X.shape[1] == self.n_features):
            names = [str(label) for label in X.columns]
            X = X.iloc[:, places_of(self.feature_names, names, f"{caller}: X")]
        elif X.shape[1] != self.n_features:
            raise InputError(
                f"{caller}: X has {X.shape[1]} features, but {self.n_features} were expected "
                f"({some(self.feature_names)}). Give the same features as in fit, in the same order."
            )
        if self.columns:
            if frame:
                Z = self._encode_frame(X)
            elif self.is_categorical.any():
                names = [n for n, c in zip(self.feature_names, self.is_categorical, strict=True) if c]
                raise InputError(
                    f"{caller}: X is {containers.describe(X)}, but a DataFrame was fitted and {some(names)} "
                    "are categories, which plain numbers cannot name. Give a DataFrame with the same columns."
                )
            else:
                Z = to_float(X, caller)
        elif frame:
            names = [str(label) for label in X.columns]
            if sorted(names) == sorted(self.feature_names):
                X = X.iloc[:, [names.index(name) for name in self.feature_names]]
            encoded = [FrameColumn(label, "float64").encode(X.iloc[:, j]) for j, label in enumerate(X.columns)]
            Z = np.column_stack(encoded)
        else:
            Z = to_float(X, caller)
        if self.kind == "csr":
            Z = Z if containers.is_sparse(Z) else containers.csr_array(Z)
        elif containers.is_sparse(Z):
            Z = Z.toarray()
        return Z

    @property
    def values(self) -> npt.NDArray[np.int64]:
        """The numeric columns that hold values and categories: all but `absence`."""
        return np.setdiff1d(np.arange(self.n_columns), self.absence)

    @property
    def missing_columns(self) -> npt.NDArray[np.int64]:
        """The numeric columns that are 1 where a number or a category is missing."""
        ends = np.cumsum(np.bincount(self.column_feature, minlength=self.n_features)) - 1
        of_categories = [ends[j] for j, column in enumerate(self.columns) if column.missing is not None]
        return np.sort(np.concatenate([self.absence, np.array(of_categories, dtype=np.int64)]))

    def threshold_words(self, feature: int, number: float) -> str:
        """A number on the scale of a feature, for people: dates and durations as such.

        It separates the same values as the number itself: of whole numbers, those up to 2015 from those above.
        """
        column = self.columns[feature] if self.columns else None
        if column is not None and column.time is not None:
            return column.time.words(number)
        if (self.dtype if column is None else column.dtype).lower().startswith(("int", "uint")):
            return str(math.floor(number))
        return number_words(number)

    def _with_absence(self, Z: Any, caller: str) -> npt.NDArray[np.float64]:
        """Numbers with NaN as a value for each, and whether it is missing."""
        values = self.values
        feature = self.column_feature[values]
        fill = np.array([np.nan if one is None else one for one in self.fills])[feature]
        missing = np.isnan(Z)
        self._check_finite(np.where(missing & ~np.isnan(fill), 0.0, Z), caller, feature)
        made = np.zeros((len(Z), self.n_columns))
        made[:, values] = np.where(missing, fill, Z)
        made[:, self.absence] = missing[:, ~np.isnan(fill)]
        return made

    def absent_row(self) -> npt.NDArray[np.float64]:
        """The numbers of a row in which every feature is missing; refused if some never are."""
        row = np.zeros(self.n_columns)
        row[self.absence] = 1.0
        never = []
        for feature, name in enumerate(self.feature_names):
            block = np.flatnonzero(self.column_feature == feature)
            if self.columns and self.columns[feature].is_categorical:
                row[block[-1]] = 1.0
                is_able = self.columns[feature].missing is not None
            else:
                fill = self.fills[feature] if self.fills else None
                row[block[0]], is_able = fill or 0.0, fill is not None
            if not is_able:
                never.append(name)
        if never or self.image is not None:
            raise InputError(
                f"removal='nan' makes features missing, but {some(never or ['pixels'])} cannot be: fit saw them "
                "always there. Fit with removal='nan' (tables only), or choose another removal."
            )
        return row

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
        if len(self.absence):
            is_absent = dense[:, self.absence] > 0.5
            dense = dense.copy()
            dense[:, self.absence - 1] = np.where(is_absent, np.nan, dense[:, self.absence - 1])
            dense = dense[:, self.values]
        dense = dense if self.image is None else self.image.unflatten(dense)
        if self.columns:
            frame = self._decode_frame(dense)
            levels = {str(c.label): c.categories for c in self.columns if c.is_enum and c.categories is not None}
            return frame if self.kind == "pandas" else containers.to_backend(frame, self.kind, levels)
        if self.kind == "torch":
            return self._decode_tensor(dense)
        return restore_dtype(dense, np.dtype(self.dtype))

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        metadata: dict[str, Any] = {
            "kind": self.kind,
            "feature_names": list(self.feature_names),
            "dtype": self.dtype,
            "columns": [column.to_json() for column in self.columns],
            "is_matrix": self.is_matrix,
            "device": self.device,
        }
        if self.image is not None:
            metadata |= {"image": list(astuple(self.image)), "pixel_range": self.pixel_range}
        if self.fills:
            metadata["fills"] = list(self.fills)
        return metadata

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> InputFormat:
        """The inverse of `to_json`."""
        try:
            columns = tuple(FrameColumn.from_json(column) for column in data["columns"])
            names = list(data["feature_names"])
            image = None if data.get("image") is None else ImageShape(*(int(side) for side in data["image"]))
            if image is not None and (image.n_pixels != len(names) or image.n_columns > MAX_COLUMNS):
                raise TypeError(f"{image} has not {len(names)} pixels, or too many channels")
            fills = tuple(None if fill is None else float(fill) for fill in data.get("fills", ()))
            if fills and len(fills) != len(names):
                raise TypeError(f"{len(fills)} fills for {len(names)} features")
            more = data["is_matrix"], data["device"], image, data.get("pixel_range", "any"), fills
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
        return X if given == wanted else X.iloc[:, places_of(wanted, given, f"{caller}: X")]

    def _encode_frame(self, X: Any) -> npt.NDArray[np.float64]:
        Z = np.empty((len(X), sum(column.width for column in self.columns)))
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
        starts = np.cumsum([0, *(column.width for column in self.columns)])
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

    def _check_finite(self, Z: Any, caller: str, feature: npt.NDArray[np.int64] | None = None) -> None:
        """Refuse what is not finite; `feature` says which feature each column of Z is of, by default as encoded."""
        values = Z.data if containers.is_sparse(Z) else Z
        if values.size == 0 or (values.max() <= MAX_NUMBER and values.min() >= -MAX_NUMBER):
            return
        entries = Z.tocoo() if containers.is_sparse(Z) else None
        numbers = Z if entries is None else entries.data
        is_large = bool(np.isfinite(numbers).all())
        bad = np.nonzero(np.abs(numbers) > MAX_NUMBER if is_large else ~np.isfinite(numbers))
        at_rows, at_columns = bad if entries is None else (entries.row[bad], entries.col[bad])
        owner = self.column_feature if feature is None else feature
        features = [self.feature_names[j] for j in np.unique(owner[at_columns])]
        where = "columns" if self.image is None else "pixels"
        remedy = "Impute them (for example with sklearn.impute.SimpleImputer), or drop those rows."
        if self.image is not None:
            remedy = "Replace them, for example with numpy.nan_to_num(X), or drop those images."
        elif not is_large:
            other = "Give X.toarray() to a model that takes missing values."
            remedy += f" {other if self.kind == 'csr' else 'NaN is accepted only in features that had NaN in fit.'}"
        what, expected = "NaN or infinite values", "finite numbers"
        if not np.isnan(numbers).any():
            what, remedy = "infinite values", remedy.replace("Impute them (", "Make them NaN and impute (")
        if is_large:
            what, expected = f"values beyond {MAX_NUMBER:g}", "numbers that single precision holds"
            remedy = f"If they stand for missing values: {remedy} Else divide the column by a large number."
        raise InputError(
            f"{caller}: X has {len(at_rows)} {what}, in rows {some(np.unique(at_rows).tolist())} and {where} "
            f"{some(features)}; expected {expected}. {remedy}"
        )
