"""Saved explainers, readers and writers of files, streaming."""
