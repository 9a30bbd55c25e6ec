"""Paper 0 on this machine: its tables from the planner, its experiments run again, and what predictions are worth."""
