"""The trace of a run: what is written as it goes on, in which parts, and for how long it is kept."""
