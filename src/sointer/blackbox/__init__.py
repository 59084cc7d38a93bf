"""The black box: batched calls, counting, budget, cache, and checks of the outputs."""

from sointer.blackbox.box import BlackBox

__all__ = ["BlackBox"]
