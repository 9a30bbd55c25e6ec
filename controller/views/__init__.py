"""What whoever watches a run is told of it: snapshots, numbered deltas, metrics. Pure.

`picture.py` makes the snapshot; `controller/publisher.py` sends it. The loop knows nothing of either.
"""
