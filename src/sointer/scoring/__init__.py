"""From a fitted energy and interpreter to scores: of rows of a table, of sparse ones, and of images."""

from sointer.scoring.images import ImageScorer
from sointer.scoring.rows import RowScorer
from sointer.scoring.scorer import Scorer
from sointer.scoring.sparse_rows import SparseRowScorer

__all__ = ["ImageScorer", "RowScorer", "Scorer", "SparseRowScorer"]
