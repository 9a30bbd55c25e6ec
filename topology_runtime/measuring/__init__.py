"""Models of tasks: each measured in a real worker in a real slot, for seconds on first use, thoroughly when asked."""
