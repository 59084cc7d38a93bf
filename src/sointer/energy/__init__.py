"""The energy E(x, y): networks, inference, likelihood."""
