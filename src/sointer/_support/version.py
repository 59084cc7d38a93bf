"""The version, alone in a module so that reading it imports nothing else."""

__version__ = "0.2.0"
