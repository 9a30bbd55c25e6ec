"""As in test_called_alike.py, by real workers: profiled, and run by `headgate up`."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from called_flow import INNER, called_flow
from msgspec.structs import replace
from patience import PATIENCE_S

from headgate import testing
from headgate.tasks import CollectToFile
from headgate.topology_runtime.measuring.bench import FAST_TPS, SINK, Bench, BenchPlace, bench_topology
from headgate.topology_runtime.measuring.collect_rows import collect
from headgate.topology_runtime.measuring.measuring_slots import Quotas
from headgate.topology_runtime.worker.meters import sample_rows

pytestmark = pytest.mark.live
HERE = str(Path(__file__).parent)
COLLECT = f"{CollectToFile.__module__}:{CollectToFile.__name__}"

FLOW = """
import sys
sys.path.insert(0, {here!r})
from called_flow import called_flow
flow = called_flow({folder!r})
"""


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory) -> testing.Result:
    return testing.run(called_flow(tmp_path_factory.mktemp("tested")))


def plain(rows: list[Any]) -> list[Any]:
    """As they are in JSON."""
    return [json.loads(json.dumps(row)) for row in rows]


def written(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture(scope="module")
def quotas() -> Iterator[Quotas]:
    made = Quotas()
    yield made
    made.remove()


def test_a_profiled_task_gives_what_a_test_of_the_flow_gives(
    tested: testing.Result, quotas: Quotas, tmp_path: Path
) -> None:
    flow = called_flow(tmp_path).build()
    samples = collect(flow, set(INNER), str(tmp_path), lambda task: None)
    for name in INNER:
        task, file = flow.by_name[name], tmp_path / f"{name}.rows"
        sample_rows.write(file, samples[name])
        small = bench_topology(flow, task, file)
        sink = replace(
            small.by_name[f"{SINK}-0"], kind="map", run=COLLECT, params={"path": str(tmp_path / name)}
        )
        small = replace(small, tasks=(*small.tasks[:-1], sink))
        place = BenchPlace(str(tmp_path), (HERE,), slot_cores=0.5)
        bench = Bench(small, name, 1, 8, place, threading.Event())
        rows = plain(tested.rows[f"store-{name}"])
        try:
            bench.begin(quotas, "contract", 0)
            bench.offer([(0.0, FAST_TPS)])
            bench.until(lambda: len(written(tmp_path / name)) >= len(rows), PATIENCE_S, "give its rows")  # noqa: B023
            errors = {letter.error for letter in bench.letters()}
        finally:
            bench.end()
        assert written(tmp_path / name)[: len(rows)] == rows, name
        assert errors == ({"ZeroDivisionError: division by zero"} if name == "fails" else set()), name


def test_a_run_gives_what_a_test_of_the_flow_gives(tested: testing.Result, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    Path(tmp_path, "flow.py").write_text(FLOW.format(here=HERE, folder=str(folder)))
    command = [sys.executable, "-P", "-m", "headgate", "up", "flow.py:flow", "--rates", "40", "-o", "json"]
    ran = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    for name in INNER:
        rows = plain(tested.rows[f"store-{name}"])
        assert Counter(map(str, written(folder / name))) == Counter(map(str, rows)), name
    tuples = json.loads(ran.stdout)["tuples"]
    assert tuples["lost"] == 0 and tuples["dead_lettered"] == len(tested.dead_letters)
