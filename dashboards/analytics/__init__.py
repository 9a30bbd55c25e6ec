"""Traces of runs to answers, with PySpark: raw segments → curated tables → aggregates → results.

data_places        folders, here or in an object store
trace_runs         the runs that TRACE arguments name, and what their `run.json` says
judging, clocks    which files of a run are used, by their footers alone, and why the others are left out
curate             segments of a run and date → curated parts, once; `compaction` makes them in Spark's tasks,
                   `manifest` says which there are
schemas            the tables of a trace for Spark
aggregates         all rows to small tables, which everything after reads; `aggregating` makes those that are not there,
                   by `aggregate_parts`
follow             all of it again and again, while a run goes on: `analyze --follow`
unchanged          is what an analysis was made of still the same?
asked, analyses    what an analysis is given, and one small file for each question
answering          every question asked
results            the rows that the report is made from
spark              the session; `spark_connect`: one on a server that runs already
output_folder      where an analysis goes: one process at a time, results replaced as a whole
pipeline           all of it; `analyze_cli` is `headgate analyze`
"""
