"""One turn of the controller: an event and the time in, instructions out. Pure; `loop.py` is the outline."""
