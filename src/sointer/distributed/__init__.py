"""Past one machine: explaining dask collections, and fitting many groups of outputs side by side."""

from sointer.distributed.groups import fit_groups
from sointer.distributed.lazy import explain

__all__ = ["explain", "fit_groups"]
