"""Slots: a share of a core and of memory that a process is kept to, by what this machine offers for it."""
