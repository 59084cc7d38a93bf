"""The recipes: what is queried, in which order what is learned."""
