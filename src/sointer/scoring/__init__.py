"""From a fitted energy and interpreter to scores: of rows of a table, and of images."""

from sointer.scoring.images import ImageScorer
from sointer.scoring.rows import RowScorer
from sointer.scoring.scorer import Scorer

__all__ = ["ImageScorer", "RowScorer", "Scorer"]
