"""Commands that look at a run, or speak to its controller, from a terminal."""
