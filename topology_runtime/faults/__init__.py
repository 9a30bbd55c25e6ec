"""The parts of `validate.py`: what can be wrong with types, tasks, edges and the graph. Pure."""
