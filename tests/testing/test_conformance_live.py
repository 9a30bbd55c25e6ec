"""The scenarios that connectors pass, from outside: a connector in a package of its own passes them, and each of its
faults fails one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.live
PACKAGE = Path(__file__).with_name("tables_package")
RUN_S = 500.0
OPTIONS = ("-q", "-rA", "--tb=line", "-p", "no:cacheprovider", "--rootdir", ".")
FAULTS = """
TestTableSource::test_rows_come_whole_and_in_the_order_of_their_partition
  order by 1 limit ? → order by 1 desc limit ?
TestTableSource::test_a_row_read_again_has_the_offset_that_it_had
  self.next = first if offset is None else offset → self.next = first
TestTableSource::test_the_service_learns_which_rows_are_done
  ?)", offset) → ?)", offset + 1)
TestTableSource::test_lag_is_reported
  return self.sql("select count → return 0 and ("select count
TestTableSource::test_a_row_that_cannot_be_decoded_is_an_error_in_its_place
  return error → return 7
TestTableSource::test_rows_that_the_service_keeps_no_more_are_an_error_and_not_passed_over
  not first <= offset → not 0 <= offset
TestTableSource::test_a_missing_topic_is_named
  there is no table {self.table!r} → no such table
TestTableSink::test_a_service_that_is_away_is_waited_for
  raise ServiceAway( → raise LookupError(
TestTableSink::test_rows_are_in_the_target_when_write_returns
  (str(name), json → (str(name)[:-5], json
TestTableSink::test_rows_written_again_under_the_same_names
  (str(name), json → (str(name) + str(id(rows)), json
TestTableSink::test_a_bad_row_is_refused_alone
  row, allow_nan=False → row
"""  # scenario, then what is written in the connector → what stands there instead


def scenarios(folder: Path, site: Path, *words: str) -> str:
    """What pytest says of the tests in a folder, with a package that is in `site`."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", *OPTIONS, *words],
        cwd=folder, env=os.environ | {"PYTHONPATH": str(site)}, capture_output=True, text=True, timeout=RUN_S,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_a_connector_of_another_package_passes(tmp_path: Path) -> None:
    """It is built and installed into a folder; only what it lacks is skipped."""
    site, folder = tmp_path / "site", tmp_path / "tests"
    folder.mkdir()
    shutil.copytree(PACKAGE, tmp_path / "package")
    words = [
        "--no-deps",
        "--target",
        str(site),
        str(tmp_path / "package"),
    ]
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *words], check=True, timeout=RUN_S)
    shutil.move(tmp_path / "package" / "test_sqlite_tables.py", folder)
    said = scenarios(folder, site, "-k", "not flat")
    lines = said.splitlines()
    assert sum(line.startswith("PASSED") for line in lines) == 33, said
    lacks = sorted(line.rpartition(": ")[2] for line in lines if line.startswith("SKIPPED"))
    assert lacks == [
        "TableSink has no `wrong_secret`", "TableSource has no `add_partition`", "TableSource has no `end`",
        "TableSource has no `wrong_secret`", "its rows are read again by their offsets",
    ], said  # fmt: skip
    assert _lines(site / "sqlite_tables.py") <= 60


def _lines(file: Path) -> int:
    """Without blank ones."""
    return sum(bool(line.strip()) for line in file.read_text().splitlines())


def test_each_fault_of_a_connector_fails_its_scenario(tmp_path: Path) -> None:
    connector, its_tests = (
        (PACKAGE / name).read_text() for name in ("sqlite_tables.py", "test_sqlite_tables.py")
    )
    faults = FAULTS.strip().splitlines()
    for number, fault in enumerate(faults[1::2]):
        before, after = fault.strip().split(" → ")
        assert connector.count(before) == 1, before
        (tmp_path / f"faulty_{number}.py").write_text(connector.replace(before, after))
        (tmp_path / f"test_{number}.py").write_text(its_tests.replace("sqlite_tables:", f"faulty_{number}:"))
    module = "headgate.topology_runtime.testing.conformance.patience"
    (tmp_path / "conftest.py").write_text(f"import {module} as patience\n\npatience.PATIENCE_S = 1.0\n")
    names = [f"test_{number}.py::{scenario}" for number, scenario in enumerate(faults[::2])]
    said = scenarios(tmp_path, tmp_path, *names)
    for name in names:
        assert f"FAILED {name}" in said, f"{name} passes with its fault:\n{said}"
