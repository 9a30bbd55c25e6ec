"""Decides: a MAPE-K loop (monitor, analyze, plan, execute over knowledge)."""
