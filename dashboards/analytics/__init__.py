"""Traces of runs to answers, with PySpark: raw segments → curated tables → aggregates → results.

sources, footers   what there is to read, and which files are left out, and why
curate             segments of a run and date → one curated partition, once
aggregates         the one pass over all rows; everything after it reads these small tables
analyses           one small file for each question
pipeline           all of it; `headgate analyze`
results            the rows that the report is made from
"""
