"""Scores of the units of samples: what explainers ask of their networks."""

from sointer.scoring.images import ImageScorer
from sointer.scoring.rows import RowScorer
from sointer.scoring.scorer import Scorer
from sointer.scoring.sparse_rows import SparseRowScorer
from sointer.scoring.tables import TableScorer

__all__ = ["ImageScorer", "RowScorer", "Scorer", "SparseRowScorer", "TableScorer"]
