"""Traces as tables for people: views in SQL over what runs have recorded, one text for DuckDB and for Spark.

`catalogue` knows the views and says what is in them, `raw_tables` what they stand on, `trace_files` which files of a
trace those are, `heads` makes rows of its JSON. `duckdb_views` and `spark_views` put all of it into an engine.
"""
