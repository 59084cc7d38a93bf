"""Which files can be read, by their names alone."""

from __future__ import annotations

from pathlib import Path

from sointer.errors import InputError

PARQUET, CSV, ARRAYS = (
    (".parquet", ".pq"),
    (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.bz2", ".csv.zst"),
    (".npy", ".npz"),
)
TOKENS = (".jsonl",)
"""Sequences of tokens."""
KNOWN = "Parquet (.parquet, a folder of them), CSV (.csv, .tsv, .csv.gz), .npy or .npz; of sequences .jsonl"


def check_readable(path: Path) -> None:
    """Refuse a path to nothing, or to a file that is not known."""
    if path.is_dir():
        return
    if not path.name.lower().endswith((*PARQUET, *CSV, *ARRAYS, *TOKENS)):
        raise InputError(
            f"{path} is an unsupported file type; expected {KNOWN}. Convert it, or iterate over its parts."
        )
    if not path.exists():
        raise InputError(f"{path} does not exist. Check the path; it is looked up from {Path.cwd()}.")
