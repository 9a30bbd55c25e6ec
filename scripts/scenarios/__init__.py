"""Rates and machines to try following a rate with, live and in virtual time, and what came of each: one row."""
