"""Explainers: `SOInter`, sequences, and what they share."""
