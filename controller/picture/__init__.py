"""The picture of a run that whoever watches is sent: a snapshot on request, numbered deltas in between.

`picture.py` makes it and is pure; `publisher.py` sends it. The loop knows nothing of either.
"""
