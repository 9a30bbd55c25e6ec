"""What keeps user code from what is not its own: what a worker gives up before it imports any."""
