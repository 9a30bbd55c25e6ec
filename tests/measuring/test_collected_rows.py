"""Sample rows reach every task as they would in a run, and survive the way to the bench."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from patience import PATIENCE_S

from headgate.topology_runtime.api.logic import Context, Window, flat_map, keep_if
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.api.validate import faults_of
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.measuring import bench
from headgate.topology_runtime.measuring import collect_rows as collect
from headgate.topology_runtime.measuring import collected_rows as json_lines
from headgate.topology_runtime.tasks.row_sources import Counter
from headgate.topology_runtime.tasks.stateful import CountByKey, Join
from headgate.topology_runtime.worker.meters import sample_rows

TOLD: list[str] = []


class TakesFour(Window):
    def ready(self, key: Hashable, rows: Sequence[Any]) -> bool:
        return len(rows) == 4

    def finish(self, key: Hashable, rows: Sequence[Any]) -> Iterable[Any]:
        return [sum(rows)]


def left(row: int) -> dict[str, Any]:
    return {"id": row, "left": row}


def right(row: int) -> dict[str, Any]:
    if row % 4 == 3:
        raise ValueError("every fourth is bad")
    return {"id": row, "right": -row}


@flat_map
def twice(row: int) -> list[int]:
    return [row, row]


@keep_if
def even(row: int) -> bool:
    return row % 2 == 0


def fails(row: Any) -> Any:
    raise KeyError(row)


CODE: dict[str, Any] = {
    "source": Counter,
    "twice": twice,
    "even": even,
    "left": left,
    "right": right,
    "fails": fails,
    "four": TakesFour,
    "join": Join,
    "count": CountByKey,
    "slow": lambda row: time.sleep(0.001) or row,
    "last": lambda row: row,
}


def topology(*edges: tuple[str, str], limit: int | None = None) -> Topology:
    names = list(dict.fromkeys(name for edge in edges for name in edge))
    params = {"source": {"limit": limit}, "join": {"fields": ["left", "right"], "max_age_s": None}}
    kinds: dict[str, Any] = {"four": "hold", "join": "hold", "count": "keyed", "twice": "flat_map"}
    kinds["source"] = "source"
    static = {"source": Static()}
    tasks = [
        Task(name, kinds.get(name, "map"), f"x:{name}", params.get(name, {}), static=static.get(name))
        for name in names
    ]
    keyed = {"join": "id", "count": 0}
    made = [Edge(a, b, grouping="fields" if b in keyed else "shuffle", key=keyed.get(b)) for a, b in edges]
    return Topology("t", tuple(tasks), tuple(made))


def collected(t: Topology, *desired: str) -> dict[str, list[sample_rows.Sample]]:
    return collect.collect(t, set(desired), "", TOLD.append, lambda run: CODE[run.removeprefix("x:")])


def test_rows_pass_maps_flat_maps_and_filters() -> None:
    t = topology(("source", "even"), ("even", "twice"), ("twice", "last"), limit=20)
    t = msgspec.structs.replace(
        t, tasks=tuple(msgspec.structs.replace(x, kind="filter") if x.name == "even" else x for x in t.tasks)
    )
    found = collected(t, "twice", "last")
    assert found["twice"] == [("even", n) for n in range(0, 20, 2)]
    assert found["last"] == [("twice", n) for n in range(0, 20, 2) for _ in range(2)]


def test_a_join_gets_whole_pairs_in_the_order_of_a_run() -> None:
    t = topology(
        ("source", "left"), ("source", "right"), ("left", "join"), ("right", "join"), ("join", "last")
    )
    found = collected(t, "join", "last")
    ids: dict[str, list[int]] = {"left": [], "right": []}
    for source, row in found["join"]:
        ids[source].append(row["id"])
    assert ids["left"] == ids["right"] != []  # what lost its other half to an error is left out
    assert not any(n % 4 == 3 for n in ids["left"])
    assert all({"left", "right"} <= row.keys() for _, row in found["last"])


def test_windows_keep_their_rest() -> None:
    found = collected(topology(("source", "four"), ("four", "last"), limit=10), "four", "last")
    assert found["last"] == [("four", 6), ("four", 22)]


def test_keyed_tasks_see_their_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CODE, "left", lambda row: (row % 2, row))
    found = collected(topology(("source", "left"), ("left", "count"), ("count", "last"), limit=4), "last")
    assert [row for _, row in found["last"]] == [(0, 1), (1, 1), (0, 2), (1, 2)]


def test_a_slow_task_gives_fewer_rows_and_not_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "SECONDS_A_TASK", 0.01)
    found = collected(topology(("source", "slow"), ("slow", "last")), "last")
    assert 0 < len(found["last"]) < collect.ROWS


def test_a_task_that_fails_is_named_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the first row, whichever thread came to its row first."""

    def fails_later(row: Any) -> Any:
        time.sleep(0.05 if row == 0 else 0)
        return fails(row)

    monkeypatch.setitem(CODE, "fails", fails_later)
    with pytest.raises(HeadgateError, match="'fails'") as caught:
        collected(topology(("source", "fails"), ("fails", "last")), "last")
    line = fails.__code__.co_firstlineno + 1
    assert caught.value.cause == f"{__file__}:{line}: task 'fails' failed on 0: KeyError: 0", (
        "as a dead letter"
    )


class AsksSqlite:
    """Its connection is of use in the thread that made it alone, for calls as for the end."""

    def open(self, context: Context) -> None:
        self.database = sqlite3.connect(":memory:")

    def __call__(self, row: int) -> int:
        return int(self.database.execute("select ? + 1", (row,)).fetchone()[0])

    def close(self) -> None:
        self.database.close()


class KeepsSqlite(TakesFour):
    def open(self, context: Context) -> None:
        self.asks = AsksSqlite()
        self.asks.open(context)

    def finish(self, key: Hashable, rows: Sequence[Any]) -> Iterable[Any]:
        return [self.asks(sum(rows))]

    def close(self) -> None:
        self.asks.close()


def test_user_code_has_one_thread_for_its_whole_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a worker: opened, called and closed in it."""
    monkeypatch.setitem(CODE, "slow", AsksSqlite)
    monkeypatch.setitem(CODE, "four", KeepsSqlite)
    found = collected(
        topology(("source", "slow"), ("slow", "four"), ("four", "last"), limit=8), "four", "last"
    )
    assert [row for _, row in found["four"]] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [row for _, row in found["last"]] == [11, 27]


def test_a_source_without_rows_is_named() -> None:
    with pytest.raises(HeadgateError, match="'source'"):
        collected(topology(("source", "last"), limit=0), "last")


@pytest.mark.parametrize("row", [1, "a", b"\xff", None, (1, (2, [3])), {"a": datetime(2020, 1, 1)}])
def test_types_survive_the_file(tmp_path: Path, row: Any) -> None:
    sample_rows.write(tmp_path / "rows", [("a", row), ("b", row)])
    assert sample_rows.read(tmp_path / "rows") == [("a", row), ("b", row)]
    replay = sample_rows.Replay(str(tmp_path / "rows"))
    assert list(replay.read(3, 3)) == [row] * 3


def test_the_bench_keeps_the_names_above_a_task(tmp_path: Path) -> None:
    t = topology(
        ("source", "left"), ("source", "right"), ("left", "join"), ("right", "join"), ("join", "last")
    )
    small = bench.bench_topology(t, t.by_name["join"], tmp_path / "join.rows")
    assert faults_of(small) == []
    assert {edge.source for _, edge in small.in_edges("join")} == {"left", "right"}
    assert small.rates(1.0)["join"] == 2.0
    only = sample_rows.Only("left")
    assert [list(only(row)) for row in (["left", 5], ["right", 6])] == [[5], []]
    assert faults_of(bench.bench_topology(t, t.by_name["left"], tmp_path / "left.rows")) == []


# ── JSON lines between a calibration's processes: errors, silence, and users who print ──────────────────

SPEAK = "from headgate.topology_runtime.measuring.collected_rows import Speaker\n"


@contextmanager
def child(code: str) -> Iterator[tuple[subprocess.Popen[bytes], Any]]:
    command = [sys.executable, "-P", "-c", code]
    with (
        tempfile.TemporaryFile() as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, stdin=subprocess.DEVNULL) as process,
    ):
        try:
            yield process, stderr
        finally:
            process.kill()


@pytest.mark.live
def test_what_user_code_prints_stays_apart() -> None:
    code = SPEAK + "s = Speaker()\nprint('a user')\ns.say(a=1)\ns.say(b='\\n')\nprint('more')\n"
    with child(code) as (process, stderr):
        assert list(json_lines.heard(process, 10.0)) == [{"a": 1}, {"b": "\n"}]
        assert process.wait(5.0) == 0
        assert json_lines.last_line(stderr) == "more"


@pytest.mark.live
def test_what_user_code_prints_last_has_no_secrets() -> None:
    code = SPEAK + (
        "import sys\nfrom headgate.topology_runtime.wording import hide\n"
        "Speaker()\nhide('s3cret-word')\nprint('a s3cret-word')\nprint('no s3cret-word', file=sys.stderr)\n"
    )
    with child(code) as (process, stderr):
        assert process.wait(PATIENCE_S) == 0
        stderr.seek(0)
        assert stderr.read() == b"a ***\nno ***\n"


@pytest.mark.live
def test_an_error_is_raised_with_all_it_says_and_silence_is_noticed() -> None:
    code = SPEAK + (
        "from headgate.topology_runtime.errors import HeadgateError\n"
        "Speaker().say_error(HeadgateError('what', cause='why', hint='try', faults=['one']))\n"
    )
    with child(code) as (process, _), pytest.raises(HeadgateError) as caught:
        list(json_lines.heard(process, 10.0))
    assert caught.value.lines() == ["error[HG-FAILED]: what", "  - one", "cause: why", "try: try"]
    with child("import time\ntime.sleep(60)") as (process, _), pytest.raises(TimeoutError):
        list(json_lines.heard(process, 0.05))
