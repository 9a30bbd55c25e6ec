"""Traces as tables: views in SQL over what runs have recorded, one text for DuckDB and for Spark.

`table_catalogue` knows the views and raw tables and says what is in them, `trace_files` which files of a trace those
are, and makes rows of its JSON. `duckdb_tables` and `spark_tables` are the engines, `table_engines` what both can.
"""
