"""Groups of tasks onto nodes so that little of what they say to each other crosses (paper 2). Pure.

A group's tasks are alike and each speaks with each task of a neighbouring group (Eq. 1), so a placement is how many of
a group's tasks are on each node. `placement_problem.py` is the problem and what is placed so far; then there is a file
for each algorithm.
"""
