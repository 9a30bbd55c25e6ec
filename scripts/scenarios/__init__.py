"""Rates and machines to try following a rate with, live and in virtual time, and what came of each: one row.

shapes    which there are: what is offered, on what machines
course    what was seen of one from outside, and the row of the table that it comes to   (pure)
virtual   the controller's own loop among machines of a made world, half an hour in seconds
live      a real sender process, `headgate up` with real agents, and a sink that keeps the time
"""
