"""What makes a snapshot of a run the same thing live and over a trace: patches, words, history. Pure."""
