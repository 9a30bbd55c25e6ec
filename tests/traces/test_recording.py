"""A trace's segments are rotated by size and age, complete on their own, and a full disk costs one at most."""

from __future__ import annotations

import gzip
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from patience import PATIENCE_S, until

from headgate.controller.recording.recorder import Recorder, shorten, words_of
from headgate.controller.recording.trace_writer import (
    ROTATE_BYTES,
    ROTATE_S,
    LineFile,
    PartedLines,
    Segments,
    TraceWriter,
)
from headgate.dashboards import headgate_command as cli
from headgate.topology_runtime.errors import UsageError
from headgate.topology_runtime.traces.line_parts import number_of, parts_of
from headgate.topology_runtime.traces.old_traces import BUSY_S, DAY_S, remove_old
from headgate.topology_runtime.traces.trace_tables import TABLES, TEXT
from headgate.topology_runtime.wire.run_options import DEFAULT_KEEP, Keep, parse_keep

RUN = {"schema": "headgate/trace/v1", "run": "r"}


def rows(table: str, count: int, start: int = 0) -> dict[str, object]:
    """So many rows, told apart by their time."""
    return {
        name: ["x"] * count if kind == TEXT else np.arange(start, start + count)
        for name, kind in TABLES[table].items()
    }


def rates(number: int) -> dict[str, Any]:
    row: dict[str, Any] = {name: "x" if kind == TEXT else 1 for name, kind in TABLES["rates"].items()}
    return row | {"time": number * 10**6}


@contextmanager
def files_at_most(size_bytes: int) -> Iterator[None]:
    """The disk is full for every file beyond this size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


def test_a_segment_is_due_by_its_age_from_its_first_row_on(tmp_path: Path) -> None:
    segments = Segments(tmp_path, "rates", "1")
    assert not segments.is_due(1e9)
    segments.add(rows("rates", 1), 100.0)
    segments.add(rows("rates", 1), 105.0)
    assert not segments.is_due(100.0 + ROTATE_S - 0.1)
    assert segments.is_due(100.0 + ROTATE_S)
    assert segments.write() == 2
    assert not segments.is_due(1e9)


def test_a_segment_is_due_by_its_size(tmp_path: Path) -> None:
    segments = Segments(tmp_path, "samples", "1")
    most = ROTATE_BYTES // 8 // len(TABLES["samples"])
    segments.add(rows("samples", most - 1), 0.0)
    assert not segments.is_due(0.0)
    segments.add(rows("samples", 2), 0.0)
    assert segments.is_due(0.0)


def test_every_segment_is_complete_on_its_own(tmp_path: Path) -> None:
    segments = Segments(tmp_path, "links", "7")
    for number in range(3):
        segments.add(rows("links", 4, 10 * number), 0.0)
        segments.write()
    files = sorted((tmp_path / "links").iterdir())
    assert [file.name for file in files] == [f"7-{number:06d}.parquet" for number in range(3)]
    for number, file in enumerate(files):
        table = pq.ParquetFile(file).read()
        assert table.column_names == list(TABLES["links"])
        assert table["tuples"].to_pylist() == list(range(10 * number, 10 * number + 4))


def test_a_full_disk_costs_the_open_segment_and_no_other(tmp_path: Path) -> None:
    segments = Segments(tmp_path, "samples", "1")
    segments.add(rows("samples", 5), 0.0)
    segments.write()
    segments.add(rows("samples", 50_000, 5), 0.0)
    with files_at_most(10_000), pytest.raises(OSError):
        segments.write()
    segments.add(rows("samples", 3, 90_000), 0.0)
    assert segments.write() == 3
    files = sorted((tmp_path / "samples").iterdir())
    assert [pq.read_metadata(file).num_rows for file in files] == [5, 3]


def test_lines_that_a_full_disk_does_not_take_leave_no_half_line(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "inputs.jsonl")
    file.append(b'{"n":1}\n')
    with files_at_most(100), pytest.raises(OSError):
        file.append(b'{"n":"%b"}\n' % (b"x" * 200))
    file.append(b'{"n":2}\n')
    file.close()
    assert (tmp_path / "inputs.jsonl").read_bytes() == b'{"n":1}\n{"n":2}\n'


def part(folder: Path, name: str) -> bytes:
    return gzip.decompress((folder / f"{name}.jsonl.gz").read_bytes())


def test_inputs_are_put_aside_in_compressed_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.controller.recording.trace_writer.PART_BYTES", 1000)
    grown: list[int] = []
    writer = TraceWriter(tmp_path, RUN, lambda: grown.append(len(list(tmp_path.glob("inputs-*")))))
    lines = [b'{"n":%d}' % number for number in range(300)]
    for number in range(0, 300, 10):
        for line in lines[number : number + 10]:
            writer.add_line("inputs.jsonl", line)
            writer.add_line("decisions.jsonl", line)
        writer.write(final=False)
    writer.close()
    found = parts_of(tmp_path / "inputs.jsonl")
    assert len(found) == len(grown) + 1 >= 3 and grown == sorted(set(grown))
    assert [number_of(path) for path in found] == [*range(1, len(found)), 0]
    parts = [gzip.decompress(path.read_bytes()) for path in found[:-1]] + [found[-1].read_bytes()]
    assert all(len(part) >= 1000 and part.endswith(b"\n") for part in parts[:-1])
    assert b"".join(parts).splitlines() == lines
    assert parts_of(tmp_path / "decisions.jsonl") == [tmp_path / "decisions.jsonl"]
    assert writer.state() == (600, 0, ())


def test_a_restarted_controller_goes_on_with_the_next_part(tmp_path: Path) -> None:
    path = tmp_path / "inputs.jsonl"
    for number in range(3):
        lines = PartedLines(path)
        lines.append(b"%d\n" % number)
        lines.put_aside()
        lines.close()
    assert [part(tmp_path, f"inputs-00000{n}") for n in (1, 2, 3)] == [b"0\n", b"1\n", b"2\n"]


def test_what_a_kill_left_of_a_part_is_made_good(tmp_path: Path) -> None:
    path = tmp_path / "inputs.jsonl"
    path.write_bytes(b"3\n")
    (tmp_path / "inputs-000001.jsonl").write_bytes(b"1\n")  # killed before its end was compressed …
    (tmp_path / "inputs-000001.jsonl.gz").write_bytes(gzip.compress(b"1\n"))  # … and after
    (tmp_path / "inputs-000002.jsonl").write_bytes(b"2\n")
    (tmp_path / "_inputs-000002.jsonl.gz").write_bytes(b"half")
    assert [number_of(found) for found in parts_of(path)] == [1, 2, 0]
    lines = PartedLines(path)
    assert not (tmp_path / "_inputs-000002.jsonl.gz").exists()
    lines.put_aside()
    lines.close()
    assert [part(tmp_path, f"inputs-00000{n}") for n in (1, 2, 3)] == [b"1\n", b"2\n", b"3\n"]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_part_for_which_there_is_no_room_stays_as_it_is_until_the_next(tmp_path: Path) -> None:
    path = tmp_path / "inputs.jsonl"
    lines = PartedLines(path)
    data = os.urandom(20_000).hex().encode() + b"\n"
    lines.append(data)
    with files_at_most(1000), pytest.raises(OSError):
        lines.put_aside()
    assert [found.name for found in tmp_path.iterdir()] == ["inputs-000001.jsonl"]
    lines.append(b"2\n")
    assert [found.read_bytes() for found in parts_of(path)] == [data, b"2\n"]
    lines.put_aside()
    lines.close()
    assert (part(tmp_path, "inputs-000001"), part(tmp_path, "inputs-000002")) == (data, b"2\n")


def test_what_was_not_written_is_counted_and_said(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, RUN)
    for number in range(4000):
        writer.add_line("decisions.jsonl", b'{"n":%d}' % number)
    writer.add_rates(rates(1))
    with files_at_most(3000):
        writer.write(final=True)
    written, dropped, troubles = writer.state()
    assert dropped >= 4000 and written + dropped == 4001
    assert any("decisions.jsonl" in trouble for trouble in troubles)
    writer.add_line("decisions.jsonl", b"{}")
    writer.add_rates(rates(2))
    writer.write(final=True)
    writer.close()
    assert writer.state()[2] == ()


def test_lines_wait_for_a_full_disk_and_come_in_their_order(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, RUN)
    with files_at_most(1000):
        for number in range(300):
            writer.add_line("inputs.jsonl", b'{"n":%d}' % number)
            writer.write(final=False)
        assert writer.state()[1] == 0 and any("inputs.jsonl" in trouble for trouble in writer.state()[2])
    writer.write(final=False)
    writer.close()
    lines = (tmp_path / "inputs.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["n"] for line in lines] == list(range(300))
    assert writer.state() == (300, 0, ())


def test_lines_do_not_wait_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.controller.recording.trace_writer.LINES_WAIT_BYTES", 500)
    writer = TraceWriter(tmp_path, RUN)
    with files_at_most(0):
        for _ in range(6):
            writer.add_line("inputs.jsonl", b"x" * 99)
            writer.write(final=False)
    assert writer.state()[:2] == (0, 6)
    writer.write(final=True)
    writer.close()


def test_nothing_that_records_waits_for_the_disk(tmp_path: Path) -> None:
    """With its thread held up, the recorder takes what fits its queue and counts the rest."""
    old = tmp_path / "old"
    old.mkdir()
    (old / "run.json").write_text('{"schema": "headgate/trace/v1"}')
    os.utime(old / "run.json", (1e9, 1e9))
    held, free = threading.Event(), threading.Event()

    def hold(text: str) -> None:
        held.set()
        free.wait(PATIENCE_S)

    recorder = Recorder(tmp_path / "new", RUN, queue_items=10, keep=Keep(runs=1), tell=hold)
    assert held.wait(PATIENCE_S)
    for number in range(1000):
        recorder.rates(rates(number))
    free.set()
    recorded = recorder.close()
    assert (recorded.written, recorded.dropped) == (10, 990)
    assert "faster than the disk" in recorded.trouble


def test_what_a_killed_controller_left_unfinished_goes(tmp_path: Path) -> None:
    (tmp_path / "samples").mkdir()
    torn = tmp_path / "samples" / "_1-000000.parquet"
    torn.write_bytes(b"PAR1 torn")
    TraceWriter(tmp_path, RUN)
    assert not torn.exists()


KILLED = """
import sys, time
from pathlib import Path
import headgate.controller.recording.trace_writer as segments
segments.ROTATE_S = 0.05
from headgate.controller.recording.recorder import Recorder
from headgate.topology_runtime.traces.old_traces import BUSY_S, DAY_S, remove_old
from headgate.topology_runtime.traces.trace_tables import TABLES, TEXT
row = {name: "s" if kind == TEXT else 1 for name, kind in TABLES["rates"].items()}
recorder = Recorder(Path(sys.argv[1]), {"schema": "headgate/trace/v1"})
for number in range(10**9):
    recorder.rates(row | {"time": number})
    recorder.decision({"n": number})
    time.sleep(0.001)
"""


@pytest.mark.live
def test_kill_minus_9_leaves_finished_segments_and_whole_lines(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-P", "-c", KILLED, str(tmp_path)])
    try:
        until(lambda: len(list(tmp_path.glob("rates/[!_]*.parquet"))) >= 3, str, process)
    finally:
        process.kill()
        process.wait()
    tables = [pq.ParquetFile(file).read() for file in sorted(tmp_path.glob("rates/[!_]*.parquet"))]
    numbers = pa.concat_tables(tables)["time"].cast("int64").to_pylist()
    assert numbers == list(range(len(numbers))) and len(tables) >= 3
    file = LineFile(tmp_path / "decisions.jsonl")
    file.close()
    lines = (tmp_path / "decisions.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["n"] for line in lines] == list(range(len(lines)))


@pytest.mark.live
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_on_a_disk_that_is_full_for_a_while_only_what_came_then_is_lost(tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(tmp_path)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        (tmp_path / "t").mkdir()
        writer = TraceWriter(tmp_path / "t", RUN)
        writer.add_rates(rates(1))
        writer.write(final=True)
        fill = tmp_path / "fill"
        with open(fill, "wb", buffering=0) as file, pytest.raises(OSError):
            while True:
                file.write(b"x" * 4096)
        writer.add_rates(rates(2))
        writer.write(final=True)
        assert writer.state()[1] == 1
        fill.unlink()
        writer.add_rates(rates(3))
        writer.write(final=True)
        writer.close()
        segments = sorted((tmp_path / "t" / "rates").iterdir())
        times = [pq.ParquetFile(s).read()["time"].cast("int64").to_pylist() for s in segments]
        assert times == [[10**6], [3 * 10**6]]
        assert writer.state()[2] == ()
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


# ── Which traces of earlier runs stay when a new one begins ─────────────────────────────────────────────

NOW_S = 1_900_000_000.0


def trace(folder: Path, age_s: float, size_bytes: int = 0) -> Path:
    """A trace whose newest file is so old and that is about so large."""
    (folder / "samples").mkdir(parents=True)
    head = json.dumps({"schema": "headgate/trace/v1"}).encode()
    for name, data in (("run.json", head), ("samples/1.parquet", b"x" * (size_bytes - len(head)))):
        (folder / name).write_bytes(data)
        os.utime(folder / name, (NOW_S - age_s, NOW_S - age_s))
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Ten traces of 1,000 bytes, run-1 an hour old … run-10 ten days, and the one that begins."""
    for number in range(1, 11):
        trace(tmp_path / f"run-{number}", DAY_S * number, 1000)
    return trace(tmp_path / "now", 0.0)


def left(current: Path) -> list[str]:
    return sorted(path.name for path in current.parent.iterdir())


def test_the_oldest_go_until_as_many_are_left_as_shall_be(runs: Path) -> None:
    removed = remove_old(runs, Keep(runs=3), NOW_S)
    assert left(runs) == ["now", "run-1", "run-2"]
    assert [old.folder.name for old in removed] == [f"run-{n}" for n in range(10, 2, -1)]


def test_the_oldest_go_until_the_rest_is_small_enough(runs: Path) -> None:
    remove_old(runs, Keep(total_bytes=4500), NOW_S)
    assert left(runs) == ["now", "run-1", "run-2", "run-3", "run-4"]


def test_what_the_run_itself_has_written_counts(runs: Path) -> None:
    (runs / "samples" / "2.parquet").write_bytes(b"x" * 2000)
    remove_old(runs, Keep(total_bytes=4500), NOW_S)
    assert left(runs) == ["now", "run-1", "run-2"]


def test_a_run_that_is_too_large_by_itself_loses_its_oldest_inputs(runs: Path) -> None:
    for name in ("inputs-000001.jsonl.gz", "inputs-000002.jsonl.gz", "inputs-000003.jsonl", "inputs.jsonl"):
        (runs / name).write_bytes(b"x" * 1000)
    assert shorten(runs, Keep()) == shorten(runs, Keep(total_bytes=5000)) == 0
    assert shorten(runs, Keep(total_bytes=2500)) == 2
    assert [path.name for path in parts_of(runs / "inputs.jsonl")] == ["inputs-000003.jsonl", "inputs.jsonl"]
    assert shorten(runs, Keep(total_bytes=1)) == 1 and (runs / "inputs.jsonl").exists()
    assert (runs / "samples" / "1.parquet").exists()


def test_a_run_that_is_too_large_by_itself_loses_inputs_and_views_as_they_grew_old(runs: Path) -> None:
    names = ("inputs-000001.jsonl.gz", "views-000001.jsonl.gz", "inputs-000002.jsonl.gz", "views.jsonl")
    for age, name in enumerate(names):
        (runs / name).write_bytes(b"x" * 1000)
        os.utime(runs / name, (1e9 + age, 1e9 + age))
    assert shorten(runs, Keep(total_bytes=2500)) == 2
    assert sorted(path.name for path in runs.glob("*.jsonl*")) == ["inputs-000002.jsonl.gz", "views.jsonl"]


def test_what_is_too_old_goes(runs: Path) -> None:
    remove_old(runs, Keep(days=2.5), NOW_S)
    assert left(runs) == ["now", "run-1", "run-2"]


def test_the_run_that_begins_stays_whatever_is_asked(runs: Path) -> None:
    remove_old(runs, Keep(runs=1, total_bytes=1, days=1e-9), NOW_S)
    assert left(runs) == ["now"]


def test_a_trace_that_is_still_written_to_stays(runs: Path) -> None:
    trace(runs.parent / "other", BUSY_S / 2)
    remove_old(runs, Keep(runs=1), NOW_S)
    assert left(runs) == ["now", "other"]


def test_what_is_no_trace_is_never_touched(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    mine = runs.parent / "my-notes"
    mine.mkdir()
    (mine / "run.json").write_text('{"schema": "something/else"}')
    (runs.parent / "readme.txt").write_text("mine")
    elsewhere = trace(tmp_path_factory.mktemp("elsewhere") / "kept", 99 * DAY_S)
    (runs.parent / "link").symlink_to(elsewhere)
    remove_old(runs, Keep(runs=1), NOW_S)
    assert left(runs) == ["link", "my-notes", "now", "readme.txt"]
    assert (elsewhere / "run.json").exists()


def test_a_removal_that_was_broken_off_is_finished(runs: Path) -> None:
    (runs.parent / ".removed-run-11").mkdir()
    assert remove_old(runs, Keep(), NOW_S) == ()
    assert ".removed-run-11" not in left(runs) and len(left(runs)) == 11


def test_the_recorder_removes_and_says_so(tmp_path: Path) -> None:
    trace(tmp_path / "old", 0.0, 2_500_000)
    for name in ("run.json", "samples/1.parquet"):
        os.utime(tmp_path / "old" / name, (1e9, 1e9))
    said: list[str] = []
    run = {"schema": "headgate/trace/v1"}
    Recorder(tmp_path / "new", run, keep=Keep(runs=1), tell=said.append).close()
    assert said == ["removed 1 old trace, 2.5 MB (old): --set trace-keep"]
    assert left(tmp_path / "new") == ["new"]


def test_many_are_said_in_few_words(runs: Path) -> None:
    words = words_of(remove_old(runs, Keep(runs=1), NOW_S))
    assert words == "removed 10 old traces, 0.0 MB (run-10, run-9, run-8, run-7, run-6, …): --set trace-keep"


@pytest.mark.parametrize(
    ("text", "keep"),
    [
        ("all", Keep()),
        ("runs=5", Keep(runs=5)),
        ("gb=0.5, days=7", Keep(total_bytes=500_000_000, days=7.0)),
        (DEFAULT_KEEP, Keep(runs=100, total_bytes=20 * 10**9)),
    ],
)
def test_limits_are_read(text: str, keep: Keep) -> None:
    assert parse_keep(text) == keep


@pytest.mark.parametrize("words", [["up"], ["controller", "run"]])
def test_wrong_limits_are_refused_before_anything_starts(
    words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main([*words, "--set", "trace-keep=weeks=2"]) == 2
    assert "'weeks=2': not one of runs=N, gb=N, days=N" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_every_fault_of_the_limits_is_said() -> None:
    with pytest.raises(UsageError) as caught:
        parse_keep("runs=1.5,gb=nan,gb=1,gb=2,weeks=3,days=-1,")
    assert len(caught.value.faults) == 6
