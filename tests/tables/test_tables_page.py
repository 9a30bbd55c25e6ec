"""docs/reference/tables.md, the comments of the views and what DuckDB says of them are one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headgate.dashboards.tables import trace_files
from headgate.dashboards.tables.table_catalogue import TYPES, needed, shared, tables
from headgate.topology_runtime.traces.trace_tables import TABLES
from made_traces.generate_trace import Wanted, generate
from makers.write_tables_page import PAGE, written

UNITS = {"_s": "s", "_bytes": "bytes", "_tps": "rows/s", "_ms": "ms"}


def test_the_page_is_what_the_code_says() -> None:
    text = PAGE.read_text("utf-8")
    assert text == written(text), "run scripts/makers/write_tables_page.py"


def test_raw_tables_are_those_that_are_recorded() -> None:
    for name, columns in TABLES.items():
        kinds = {"time": "timestamp", "text": "string", "count": "bigint", "number": "double"}
        told = [(column.name, column.type) for column in tables()[name].columns]
        assert told == [("run", "string"), *((of, kinds[kind]) for of, kind in columns.items())]


def test_every_column_has_a_meaning_and_the_unit_that_its_name_has() -> None:
    for table in tables().values():
        assert (
            table.about.endswith(".") and table.columns[0].name == "run" and table.columns[0].type == "string"
        )
        assert len({column.name for column in table.columns}) == len(table.columns)
        for column in table.columns:
            assert column.about and column.type in TYPES, (table.name, column.name)
            for end, unit in UNITS.items():
                if column.name.endswith(end):
                    assert column.unit == unit, (table.name, column.name)


def test_what_a_query_needs_is_what_it_names_and_what_that_reads() -> None:
    assert needed("select * from dim_run") == {"dim_run", "dim_vm", "runs", "vms", "slots", "tasks"}
    assert needed("select 1") == set()
    assert needed("show tables") == set(tables())


def test_views_that_others_read_twice_are_shared_and_no_others() -> None:
    among = needed("select * from mart_bottlenecks")
    views = {name: re.sub(r"--.*", "", tables()[name].sql or "") for name in among}
    times = {name: sum(len(re.findall(rf"\b{name}\b", text)) for text in views.values()) for name in among}
    assert (
        shared(among)
        == {name for name in among if times[name] > 1 and tables()[name].sql is not None}
        != set()
    )
    assert shared({"mart_bottlenecks"}) == set()


def test_duckdb_has_every_column_as_it_is_told(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    from headgate.dashboards.tables.duckdb_tables import connected

    generate(tmp_path / "traces", Wanted(rows=2_000, threads=20, slots=8, epochs=2, segment_rows=1_000))
    runs, left = trace_files.found(str(tmp_path / "traces"))
    connection = connected(runs, left, set(tables()))
    types = {"timestamp": "timestamp[us, tz=UTC]", "string": "string", "bigint": "int64", "double": "double"}
    for table in tables().values():
        schema = connection.sql(f"select * from {table.name}").to_arrow_table().schema
        found = [(field.name, str(field.type)) for field in schema]
        told = [(column.name, types.get(column.type, "bool")) for column in table.columns]
        assert found == told, table.name
    connection.close()
