"""From an energy to relevance, and the scoring of samples."""
