"""Explaining data larger than memory: rows are read in parts, what was selected is written as it is found."""

from sointer.streaming.parquet_files import write_sparse_parquet
from sointer.streaming.sources import read_chunks, read_table
from sointer.streaming.stream import StreamResult, stream_explain

__all__ = ["StreamResult", "read_chunks", "read_table", "stream_explain", "write_sparse_parquet"]
