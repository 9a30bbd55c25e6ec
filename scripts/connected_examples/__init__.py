"""`scripts/example NAME`: an example of `examples/connected` with real services and rows, and what came of them."""
