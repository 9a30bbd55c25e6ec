"""Every example by `headgate up`: what comes out is what plain Python makes of the same input."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import exp, log
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S, until

pytestmark = pytest.mark.live

FOLDER = Path(__file__).resolve().parents[2] / "examples"
FLOWS = {  # example: flow, rate, tasks that need a model
    "words": ("flow", 100, ("split", "count")),
    "sensors": ("flow", 500, ("parse", "mean")),
    "clicks": ("flow", 800, ("sessions",)),
    "fraud": ("flow", 2000, ("score", "suspicious")),
    "enrich": ("flow", 100, ("segment",)),
    "lookup": ("flow", 500, ("city",)),
    "dedup": ("flow", 1000, ("first",)),
    "topk": ("flow", 1000, ("count", "top")),
    "orders": ("flow", 400, ("join",)),
    "alerts": ("flow", 1000, ("alerts",)),
    "smooth": ("flow", 800, ("smooth",)),
    "chain": ("flow", 200, ("unpack", "brief", "count")),
    "latency": ("flow", 600, ("decode", "level")),
    "minutes": ("flow", 800, ("minutes",)),
    "micro": ("diamond", 100, ("blob", "table", "pi", "xml")),
}
EXTRA = {"chain": ("--mapper", "traffic", "--vms", "2,2")}


def rows_of(folder: Path, name: str) -> list[Any]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text("utf-8").splitlines()]


def test_every_example_gives_exact_results(tmp_path: Path) -> None:
    with service("enrich") as asked, service("lookup") as looked_up, ThreadPoolExecutor(4) as pool:
        ports = {"ENRICH_PORT": asked, "LOOKUP_PORT": looked_up}
        runs = {name: pool.submit(run, name, tmp_path / name, ports) for name in FLOWS}
        found = {name: future.result() for name, future in runs.items()}
    assert {name: (t["lost"], t["dead_lettered"]) for name, t in found.items()} == dict.fromkeys(
        FLOWS, (0, 0)
    )
    wrong = {}
    for name in FLOWS:
        try:
            globals()[f"check_{name}"](tmp_path / name)
        except AssertionError as error:
            wrong[name] = str(error)[:500]
    assert wrong == {}


def run(name: str, folder: Path, ports: dict[str, str]) -> dict[str, Any]:
    """One example in a folder of its own, with models so that nothing has to be measured."""
    flow, rate, tasks = FLOWS[name]
    models = folder / "models"
    models.mkdir(parents=True)
    for task in tasks:
        tps = 150.0 if name in ("enrich", "micro") else 4000.0
        points = [{"threads": n, "rate_tps": tps * n, "cpu": 0.5, "memory": 0.05} for n in (1, 2, 4)]
        slot = {"cores": 0.25, "memory_bytes": 536870912, "machine": "any"}
        model = {"schema": "headgate/model/v1", "task": task, "slot": slot, "points": points}
        (models / f"{task}.json").write_text(json.dumps(model))
    command = [sys.executable, "-P", "-m", "headgate", "up", f"{FOLDER / name}.py:{flow}", "-o", "json"]
    command += ["--rates", str(rate), "--seconds", "8", "--models", str(models), "--slot-cores", "0.25"]
    command += EXTRA.get(name, ())
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=2 * PATIENCE_S,
        env={**os.environ, **ports},
    )  # fmt: skip
    assert done.returncode == 0, f"{name}: {done.stderr[-3000:]}"
    tuples: dict[str, Any] = json.loads(done.stdout)["tuples"]
    return tuples


def answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def service(name: str) -> Iterator[str]:
    """The service that this example asks; its port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, str(FOLDER / f"{name}.py")],
        env={**os.environ, f"{name.upper()}_PORT": str(port)},
        stderr=subprocess.DEVNULL,  # a line for each request
    )
    try:
        until(lambda: answers(port), str, process)
        yield str(port)
    finally:
        process.terminate()
        process.wait()


# ── What each should give, computed from what its docstring says, without its code ──────────────────────


def check_words(folder: Path) -> None:
    text = "".join(c if "a" <= c <= "z" else " " for c in (FOLDER / "words.py").read_text("utf-8").lower())
    last: dict[str, int] = {}
    for word, count in rows_of(folder, "words"):
        last[word] = max(count, last.get(word, 0))
    assert last == dict(Counter(text.split()))


def check_sensors(folder: Path) -> None:
    expected = Counter[tuple[str, float, float]]()
    values: dict[str, list[float]] = defaultdict(list)
    for n in range(1000):
        for name, value in ((f"room{n % 10}/celsius", 20 + n % 7), (f"room{n % 10}/humidity", 40 + n % 11)):
            values[name].append(value)
            last = values[name][-10:]
            expected[name, value, round(sum(last) / len(last), 9)] += 1
    found = [(row["name"], row["value"], round(row["mean"], 9)) for row in rows_of(folder, "sensors")]
    assert Counter(found) == expected


def check_clicks(folder: Path) -> None:
    times: dict[str, list[int]] = defaultdict(list)
    for n in range(3000):
        times[f"u{n * 7 % 40}"].append(n * 10 + n // 500 * 3600)
    expected = []
    for user, of_user in times.items():
        cuts = [i for i in range(1, len(of_user)) if of_user[i] - of_user[i - 1] > 1800]
        for first, end in zip([0, *cuts], cuts, strict=False):
            expected.append((user, of_user[first], of_user[end - 1], end - first))
    found = [(r["user"], r["start_s"], r["end_s"], r["clicks"]) for r in rows_of(folder, "clicks")]
    assert len(expected) > 100 and sorted(found) == sorted(expected)


def check_minutes(folder: Path) -> None:
    asked: dict[tuple[str, float], list[int]] = defaultdict(list)
    for n in range(3000):
        at = 7200 + n / 2 - (3600 if n % 500 == 499 else n * 7 % 15)
        asked[("cart", "login", "search")[n % 3], at // 60 * 60].append(n * 37 % 211 + 1)
    rows = sorted(rows_of(folder, "minutes"), key=lambda row: row["pane"])  # the highest one counts
    last = {(row["key"], row["start"]): row for row in rows}
    found = {place: (row["value"]["requests"], row["value"]["slowest"]) for place, row in last.items()}
    assert found == {place: (len(each), max(each)) for place, each in asked.items()}


def check_fraud(folder: Path) -> None:
    expected = {}
    for n in range(8000):
        amount = round(5.0 + n * 37 % 1999 * 1.25, 2)
        z = -9.0 + 1.1 * log(1 + amount) + (2.5 if n % 13 == 0 else 0) + (1.5 if n % 24 < 6 else 0)
        if 1 / (1 + exp(-z)) > 0.8:
            expected[n] = 1 / (1 + exp(-z))
    rows = rows_of(folder, "fraud")
    assert len(rows) == len(expected) > 100
    assert {row["id"]: row["score"] for row in rows} == pytest.approx(expected)


def check_enrich(folder: Path) -> None:
    rows = {row["order"]: (row["customer"], row["segment"]) for row in rows_of(folder, "enrich")}
    assert rows == {n: (n * 3 % 50, ("new", "regular", "vip")[n * 3 % 50 % 3]) for n in range(200)}


def check_lookup(folder: Path) -> None:
    rows = {row["order"]: (row["customer"], row["city"]) for row in rows_of(folder, "lookup")}
    assert rows == {n: (n * 7 % 50, ("Oslo", "Lagos", "Lima", "Osaka")[n * 7 % 50 % 4]) for n in range(2000)}


def check_dedup(folder: Path) -> None:
    expected = {n // 2 if n % 4 == 3 else n for n in range(4000)}
    assert sorted(rows_of(folder, "dedup")) == sorted(expected)


def check_topk(folder: Path) -> None:
    sold = Counter(f"p{n * n % 101 * (n % 7) % 30}" for n in range(3000))
    best = sorted(sold.items(), key=lambda item: (-item[1], item[0]))[:3]
    assert rows_of(folder, "topk")[-1] == [list(item) for item in best]


def check_orders(folder: Path) -> None:
    rows = sorted((row["order"], row["customer"], row["paid"]) for row in rows_of(folder, "orders"))
    assert rows == [(n, f"c{n % 17}", n * 5 % 300) for n in range(1000)]


def check_alerts(folder: Path) -> None:
    expected = []
    for machine in range(8):
        on = False
        for step in range(500):
            degrees = 50 + abs((step + machine * 13) % 100 - 50) + step * 7 % 5
            if not on and degrees > 80:
                on = True
                expected.append((f"m{machine}", step, "on"))
            elif on and degrees <= 70:
                on = False
                expected.append((f"m{machine}", step, "off"))
    found = sorted((row["machine"], row["step"], row["alert"]) for row in rows_of(folder, "alerts"))
    assert len(expected) > 30 and found == sorted(expected)


def check_smooth(folder: Path) -> None:
    estimates = {row["n"]: row["estimate"] for row in rows_of(folder, "smooth")}
    expected = {}
    for vehicle in range(5):
        estimate, variance = 0.0, 0.0
        for n in range(vehicle, 2000, 5):
            measured = 100.0 * vehicle + n * 7919 % 21 - 10
            if n == vehicle:
                estimate, variance = measured, 36.0
            else:
                gain = (variance + 0.01) / (variance + 0.01 + 36.0)
                estimate, variance = estimate + gain * (measured - estimate), (1 - gain) * (variance + 0.01)
            expected[n] = estimate
    assert estimates == pytest.approx(expected)


def check_chain(folder: Path) -> None:
    found = sorted(tuple(row) for row in rows_of(folder, "chain"))
    assert found == sorted((f"c{camera}", n) for camera in range(6) for n in range(1, 801))


def check_latency(folder: Path) -> None:
    rows = sorted((row["id"], row["level"]) for row in rows_of(folder, "latency"))
    assert rows == [(n, "dark" if n * 29 % 256 < 76.5 else "bright") for n in range(3000)]


def check_micro(folder: Path) -> None:
    assert Counter(rows_of(folder, "diamond")) == dict.fromkeys(range(300), 3)
