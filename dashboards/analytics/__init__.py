"""Traces of runs to answers: raw segments → sums, in SQL → results → report.

data_folders       folders, here or in an object store
trace_runs         the runs that TRACE arguments name, and what their `run.json` says
trace_segments     which files of a run are used, by their footers alone, and why the others are left out; `clock_jumps`
unchanged_inputs   is what an analysis was made of still the same?
analysis_input     what an analysis is given: the sums of `dashboards/tables/views`, and an engine to ask for more
analyses           one small file for each question; `all_analyses` asks them all
result_tables      the rows that the report is made from
output_folder      where an analysis goes: one process at a time, results replaced as a whole
analysis_pipeline  all of it; `analyze_command` is `headgate analyze`
follow_run         all of it again and again, while a run goes on, of `kept_sums`
spark_session      Spark in place of DuckDB: `analyze --master`
"""
