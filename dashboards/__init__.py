"""Looks at runs, live or past."""
