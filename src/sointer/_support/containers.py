"""Tell numpy, pandas, polars, scipy sparse and torch apart, and slice their rows, importing none needlessly."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from sointer._support import frames

# The stubs of scipy know neither a narrowed sparse matrix's attributes nor all ways to build one.
csr_array: Any = sparse.csr_array
csr_matrix: Any = sparse.csr_matrix


def is_missing(value: Any) -> bool:
    """Whether one value is None, NaN, NA or NaT."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def is_sparse(X: object) -> bool:
    """True for any scipy sparse matrix or array."""
    return bool(sparse.issparse(X))


def is_frame(X: object) -> bool:
    """True for a pandas DataFrame; pandas is never imported for this."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(X, pandas.DataFrame)


def is_series(X: object) -> bool:
    """True for a pandas Series."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(X, pandas.Series)


def is_tensor(X: object) -> bool:
    """True for a torch tensor; torch is never imported for this."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(X, torch.Tensor)


def is_dask(X: object) -> bool:
    """True for a dask array, dataframe or series; dask is never imported for this."""
    return type(X).__module__.split(".")[0] in ("dask", "dask_expr")


def tensor_to_numpy(X: Any) -> npt.NDArray[Any]:
    """A tensor as numpy on the CPU; bfloat16, which numpy lacks, becomes float32."""
    tensor = X.detach().cpu()
    if tensor.is_sparse or str(tensor.layout) != "torch.strided":
        tensor = tensor.to_dense()
    if str(tensor.dtype) == "torch.bfloat16":
        tensor = tensor.float()
    array: npt.NDArray[Any] = tensor.resolve_conj().resolve_neg().numpy()
    return array


def dense(X: Any) -> npt.NDArray[Any]:
    """Rows of any container as one dense array; strings, alone or beside numbers, as objects."""
    X = frames.as_pandas(X)
    if is_frame(X):
        numbers = all(isinstance(dtype, np.dtype) and dtype.kind in "biuf" for dtype in X.dtypes)
        return np.asarray(X.to_numpy() if numbers else X.astype(object).to_numpy())
    if is_sparse(X):
        return np.asarray(X.toarray())
    if is_tensor(X):
        return tensor_to_numpy(X)
    array = np.asarray(X)
    return array.astype(object) if array.dtype.kind in "US" else array


def n_rows(X: Any) -> int:
    """How many rows any container holds."""
    shape = getattr(X, "shape", None)
    return int(shape[0]) if shape is not None and len(shape) else len(X)


def rows(X: Any, index: npt.ArrayLike) -> Any:
    """The rows at `index` (integer positions), copied, in the container they came in."""
    where = np.asarray(index, dtype=np.int64)
    if is_frame(X) or is_series(X):
        return X.iloc[where]
    if frames.backend_of(X) is not None:
        return frames.rows(X, where)
    if is_tensor(X):
        import torch

        return X[torch.as_tensor(where, device=X.device)]
    if is_sparse(X):
        return (X if X.format == "csr" else X.tocsr())[where]
    if isinstance(X, np.ndarray):
        return X[where]
    return [X[i] for i in where]


def row_labels(X: Any) -> Any:
    """The index of a DataFrame or Series, unless it only counts the rows; None for anything else."""
    if not (is_frame(X) or is_series(X)):
        return None
    index = X.index
    counts = type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1
    return None if counts else index


def describe(X: object) -> str:
    """A few words on what a value is, for messages: its container, shape and dtype."""
    if is_frame(X):
        return f"a pandas DataFrame of shape {X.shape}"  # type: ignore[attr-defined]
    if is_series(X):
        return f"a pandas Series of length {len(X)}"  # type: ignore[arg-type]
    if (backend := frames.backend_of(X)) is not None:
        return f"a {backend} {frames.BACKENDS[backend]} of shape {X.shape}"  # type: ignore[attr-defined]
    if is_tensor(X):
        return f"a torch tensor of shape {tuple(X.shape)} and dtype {X.dtype}"  # type: ignore[attr-defined]
    if is_sparse(X):
        return f"a scipy sparse matrix ({X.format}) of shape {X.shape} and dtype {X.dtype}"  # type: ignore[attr-defined]
    if isinstance(X, np.ndarray):
        return f"a numpy array of shape {X.shape} and dtype {X.dtype}"
    if isinstance(X, (list, tuple)):
        return f"a {type(X).__name__} of length {len(X)}"
    if X is None:
        return "None"
    return f"an object of type {type(X).__name__}"
