"""Run by a Python that has PyFlink: one job on its mini-cluster, with settings and operators as JSON on standard input.

Prints as JSON what Flink's REST interface tells: the job as it began, as it is after the printed request, its metrics.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from importlib.metadata import version
from typing import Any

from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource

STARTED_S, MEASURED_S = 90.0, 120.0


def environment(asked: dict[str, Any]) -> StreamExecutionEnvironment:
    settings = {
        **asked["settings"],
        "rest.port": asked["port"],
        "rest.bind-port": asked["port"],
        "local.number-taskmanager": asked["task_managers"],
        "jobmanager.scheduler": "adaptive",
        "parallelism.default": 1,
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
    }
    found = Configuration()
    for key, value in settings.items():
        found.set_string(key, str(value))
    return StreamExecutionEnvironment.get_execution_environment(found)


def work_for(seconds: float) -> Any:
    def work(row: int) -> int:
        ends = time.perf_counter() + seconds
        while time.perf_counter() < ends:
            pass
        return row

    return work


def flow(env: StreamExecutionEnvironment, groups: dict[str, str]) -> None:
    """source → parse → count → sink, which gets no row: each with its task's name as uid, none chained."""
    numbers = NumberSequenceSource(0, 10**12)
    stream = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "source", Types.LONG())
    stream = stream.uid("source").slot_sharing_group(groups["source"]).disable_chaining()
    stream = stream.rebalance().map(work_for(0.002), Types.LONG()).name("parse").uid("parse")
    stream = stream.slot_sharing_group(groups["parse"]).disable_chaining()
    stream = stream.rebalance().filter(lambda row: work_for(0.0005)(row) < 0).name("count").uid("count")
    stream = stream.slot_sharing_group(groups["count"]).disable_chaining()
    stream.print().name("sink").uid("sink").slot_sharing_group(groups["sink"]).disable_chaining()


def main() -> None:
    asked = json.load(sys.stdin)
    env = environment(asked)
    flow(env, asked["groups"])
    client = env.execute_async("flow")
    job = str(client.get_job_id())

    def get(path: str) -> Any:
        with urllib.request.urlopen(
            f"http://localhost:{asked['port']}/jobs/{job}{path}", timeout=10
        ) as answer:
            return json.load(answer)

    def until(fits: Any, within_s: float, path: str = "") -> Any:
        ends = time.monotonic() + within_s
        while not fits(found := get(path)):
            if time.monotonic() > ends:
                raise SystemExit(f"not within {within_s:g} s: {json.dumps(found)}")
            time.sleep(0.5)
        return found

    def running(found: dict[str, Any]) -> bool:
        return all(one["status"] == "RUNNING" for one in found["vertices"])

    began = until(running, STARTED_S)
    request = urllib.request.Request(
        f"http://localhost:{asked['port']}/jobs/{job}/resource-requirements",
        json.dumps(asked["requirements"]).encode(),
        {"Content-Type": "application/json"},
        method="PUT",
    )
    urllib.request.urlopen(request, timeout=10).close()
    wanted = {key: one["parallelism"]["upperBound"] for key, one in asked["requirements"].items()}

    def scaled(found: dict[str, Any]) -> bool:
        there = {one["id"]: one["parallelism"] for one in found["vertices"]}
        return running(found) and all(there[key] == count for key, count in wanted.items())

    after = until(scaled, STARTED_S)
    busy = {one["id"]: one["name"] for one in after["vertices"] if one["name"] in ("parse", "count")}

    def measured(found: dict[str, Any]) -> bool:
        metrics = {one["id"]: one["metrics"] for one in found["vertices"]}
        return all(
            float(metrics[key]["accumulated-busy-time"]) > 3000 and metrics[key]["read-records"] > 0
            for key in busy
        )

    until(measured, MEASURED_S)
    names = "busyTimeMsPerSecond", "numRecordsInPerSecond"
    of_all = {key: get(f"/vertices/{key}/subtasks/metrics?get={','.join(names)}") for key in busy}
    each = {
        key: get(
            f"/vertices/{key}/metrics?get="
            + ",".join(f"{part}.{name}" for part in range(wanted[key]) for name in names)
        )
        for key in busy
    }
    told = {"version": version("apache-flink"), "began": began, "after": after, "job": get("")}
    print("\n" + json.dumps({**told, "of_all": of_all, "each": each}))
    client.cancel().result()


if __name__ == "__main__":
    main()
