"""Plots, notebook cards and HTML reports."""
