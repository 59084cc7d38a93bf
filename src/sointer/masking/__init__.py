"""What "removed" means, what can be selected, and from scores to a selection."""
