"""Real runs of `headgate up`, watched from outside and disturbed: for live tests and benchmarks."""
