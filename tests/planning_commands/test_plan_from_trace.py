"""`--from-trace`: a plan by what a recorded run measured, of a trace whose rows are known."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scene import FLOW, Scene

from headgate.topology_runtime.trace_tables import TABLES

KINDS = {
    "time": pa.timestamp("us", tz="UTC"),
    "text": pa.string(),
    "count": pa.int64(),
    "number": pa.float64(),
}
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
SECONDS = 20


def table(trace: Path, name: str, rows: list[dict[str, Any]], without: str = "") -> None:
    """One finished segment; what a row does not name is null."""
    kinds = {column: KINDS[kind] for column, kind in TABLES[name].items() if column != without}
    (trace / name).mkdir(parents=True, exist_ok=True)
    schema = pa.schema(kinds)
    pq.write_table(
        pa.Table.from_pylist([{c: row.get(c) for c in kinds} for row in rows], schema),
        trace / name / "1.parquet",
    )


def recorded(
    folder: Path,
    vms: tuple[dict[str, Any], ...] = ({"vm": "vm1", "slots": 2}, {"vm": "vm2", "slots": 2, "speed": 0.5}),
) -> Path:
    """100 tuples/s; two parse threads, one beside the source; a row of parse becomes three of 250 bytes at count."""
    trace = folder / "trace"
    trace.mkdir()
    (trace / "run.json").write_text(json.dumps({"schema": "headgate/trace/v1", "vms": vms}))
    links, rates, samples = [], [], []
    for k in range(SECONDS + 1):
        at = {"time": BEGAN + timedelta(seconds=k), "window_s": 1.0, "epoch": 1}
        rates.append({**at, "source": "source", "emitted": 100})
        for of, to, one, other, tuples, size in (
            ("source", "parse", 1, 2, 60, 0),
            ("source", "parse", 1, 3, 40, 4000),
            ("parse", "count", 2, 4, 180, 45_000),
            ("parse", "count", 3, 4, 120, 30_000),
        ):
            link = {"from_task": of, "from_thread": one, "to_task": to, "to_thread": other}
            links.append({**at, **link, "tuples": tuples, "bytes": size, "frames": 1})
        samples.append({**at, "vm": "vm1", "slot": 0, "task": "parse", "thread": 2, "cpu_s": 0.30})
        samples.append({**at, "vm": "vm2", "slot": 0, "task": "parse", "thread": 3, "cpu_s": 0.40})
    for name, rows in (("links", links), ("rates", rates), ("samples", samples)):
        table(trace, name, rows)
    return trace


def test_selectivities_sizes_and_traffic_are_those_of_the_run(scene: Scene, tmp_path: Path):
    trace = recorded(tmp_path)
    told = json.loads(
        scene.run("plan", "--rate", "200", "--from-trace", str(trace), "--mapper", "traffic", "-o", "json")
    )
    traffic = told["traffic"]
    assert traffic["measured"] and traffic["rows_tps"] == pytest.approx(200 + 600)
    first, second = traffic["edges"]
    assert (first["selectivity"], first["row_bytes"], first["rows_tps"]) == pytest.approx((1.0, 100.0, 200))
    assert (second["selectivity"], second["row_bytes"], second["rows_tps"]) == pytest.approx(
        (3.0, 250.0, 600)
    )
    (count,) = [task for task in told["allocation"] if task["task"] == "count"]
    assert count["rate_tps"] == pytest.approx(600), "threads too are counted for what is really said"
    said = scene.run("plan", "--rate", "200")
    assert "Of 600 rows/s on 2 edges" in said, "the file of the topology says two rows for each"


def test_people_and_explain_are_told_what_was_measured(scene: Scene, tmp_path: Path):
    trace = recorded(tmp_path)
    for command in ("plan", "explain"):
        text = scene.run(command, "--rate", "200", "--from-trace", str(trace), "--mapper", "traffic")
        assert "Measured, parse → count: 3 rows for each, 250 bytes" in text
        assert "Of 800 rows/s on 2 edges" in text


def test_crossing_bytes_are_those_of_the_shares(scene: Scene, tmp_path: Path):
    """Counted here from the plan's own shares."""
    trace = recorded(tmp_path)
    words = ("--rate", "200", "--from-trace", str(trace), "--mapper", "dsm", "--vms", "1,1,1,1,1,1,1,1")
    told = json.loads(scene.run("plan", *words, "-o", "json"))
    share = {(s["task"], s["vm"]): s["share"] for s in told["prediction"]["shares"]}
    vms = {vm for _, vm in share}
    crossing = 0.0
    for source, target, rows, size in (("source", "parse", 200, 100), ("parse", "count", 600, 250)):
        stays = sum(share.get((source, vm), 0) * share.get((target, vm), 0) for vm in vms)
        crossing += rows * size * (1 - stays)
    assert told["traffic"]["between_vms_bytes_per_s"] == pytest.approx(crossing)


def test_cpu_is_counted_by_the_speed_of_its_vm(tmp_path: Path):
    """0.3 s on vm1 and half of 0.4 s on vm2, for 100 tuples."""
    from headgate.controller.offline.from_trace import recorded_traffic

    found = recorded_traffic(recorded(tmp_path)).traffic()
    assert found.work["parse"] == pytest.approx(0.005)
    assert found.seconds == SECONDS


def refused(scene: Scene, trace: Path, *parts: str) -> None:
    scene.run("plan", "--rate", "10", "--from-trace", str(trace), code=3)
    for part in parts:
        assert part in scene.err, scene.err


def test_a_trace_without_links_is_refused_with_what_to_do(scene: Scene, tmp_path: Path):
    trace = recorded(tmp_path)
    (trace / "links" / "1.parquet").unlink()
    refused(scene, trace, "has no links", "--trace-dir")


def test_no_trace_another_topology_or_too_few_rows_are_refused(scene: Scene, tmp_path: Path):
    refused(scene, tmp_path / "nowhere", "is no trace", "run.json")
    trace = recorded(tmp_path)
    table(trace, "rates", [{"time": BEGAN, "source": "source", "emitted": 7}])
    refused(scene, trace, "has 7 rows only", "let it run longer")
    other = FLOW | {
        "tasks": [{"name": "source", "kind": "source"}, {"name": "a"}],
        "edges": [{"from": "source", "to": "a"}],
    }
    scene.topology(other)
    scene.model("a", [{"threads": 1, "rate_tps": 50.0, "cpu": 0.3, "memory": 0.1}])
    (tmp_path / "again").mkdir()
    refused(scene, recorded(tmp_path / "again"), "of another topology", "'source' → 'parse'")


def test_a_segment_that_is_spoiled_or_of_an_older_headgate_is_refused(scene: Scene, tmp_path: Path):
    trace = recorded(tmp_path)
    table(trace, "rates", [{"time": BEGAN, "source": "source"}], without="emitted")
    refused(scene, trace, "emitted")
    (trace / "rates" / "1.parquet").write_bytes(b"no parquet")
    refused(scene, trace, "cannot be read")
