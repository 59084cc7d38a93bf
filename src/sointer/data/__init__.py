"""How X and Y look to their owner and to the networks."""
