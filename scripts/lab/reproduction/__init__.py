"""Paper 0's experiments on this runtime: cells → plans → runs → analysis → data and page."""
