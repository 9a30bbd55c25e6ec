"""Latency constraints on paths, met where they are violated: paper 4 (Lohrmann, Warneke and Kao, 2013)."""
