"""Nexmark's queries on other stream processors, each run in an environment of its own; and what watches their runs."""
