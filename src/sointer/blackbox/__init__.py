"""The one door to the model: batching, counting, budget, cache, and checks of what it answers."""

from sointer.blackbox.box import BlackBox

__all__ = ["BlackBox"]
