"""One question each, answered from the aggregates. Each takes `Asked` and gives rows of `results`."""
