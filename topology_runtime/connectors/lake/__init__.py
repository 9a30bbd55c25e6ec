"""Folders of files as sinks, which other engines read."""
