"""What OpenLineage's own client sends to a receiver on loopback, of analyses that end well or not."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

pytest.importorskip("openlineage.client", reason="it is not installed: pip install 'headgate[openlineage]'")

from headgate.dashboards import headgate_command as cli
from headgate.dashboards.analytics.analysis_pipeline import AnalysisSettings
from headgate.dashboards.analytics.analysis_pipeline import run as analyse
from headgate.dashboards.analytics.storage.data_folders import place
from headgate.dashboards.traces.lineage import lineage, named, wanted
from headgate.topology_runtime.errors import InvalidInput
from made_traces.generate_trace import Wanted, generate


class Receiver:
    """Takes events; status: what it answers."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.paths: set[str] = set()
        self.status = 201
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.events.append(json.loads(body))
                outer.paths.add(self.path)
                self.send_response(outer.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(PATIENCE_S)

    @property
    def states(self) -> list[str]:
        return [event["eventType"] for event in self.events]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Receiver]:
    found = Receiver()
    monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{found.server.server_port}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield found
    found.close()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "traces" / "flow" / "run-1"
    (folder / "samples").mkdir(parents=True)
    (folder / "run.json").write_text('{"schema": "headgate/trace/v1", "topology": {"name": "flow"}}')
    return folder


def datasets(event: dict[str, Any], kind: str) -> set[tuple[str, str]]:
    return {(one["namespace"], one["name"]) for one in event[kind]}


def test_begin_and_end_are_told_with_what_was_read_and_written(
    receiver: Receiver, run: Path, tmp_path: Path
) -> None:
    to = tmp_path / "out"
    with lineage([str(run)], str(to)):
        for folder in ("curated/samples", "results"):
            (to / folder).mkdir(parents=True)
        (to / "results" / "leaks.json").write_text("[]")
    start, complete = receiver.events
    assert receiver.states == ["START", "COMPLETE"] and receiver.paths == {"/api/v1/lineage"}
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert (start["job"]["namespace"], start["job"]["name"]) == ("headgate", "analyze.flow")
    assert datasets(start, "inputs") == datasets(complete, "inputs") == {("file", f"{run}/samples")}
    assert datasets(start, "outputs") == set()
    assert datasets(complete, "outputs") == {
        ("file", f"{to}/curated/samples"),
        ("file", f"{to}/results/leaks.json"),
    }
    fields = {one["name"]: one["type"] for one in start["inputs"][0]["facets"]["schema"]["fields"]}
    assert fields["time"] == "timestamp[us, tz=UTC]" and fields["cpu_s"] == "double"
    assert start["run"]["facets"]["processing_engine"]["name"] == "headgate"


@pytest.mark.parametrize(
    ("error", "state"), [(InvalidInput("no rows"), "FAIL"), (KeyboardInterrupt(), "ABORT")]
)
def test_an_analysis_that_ends_otherwise_says_so(
    receiver: Receiver, run: Path, error: BaseException, state: str
) -> None:
    with pytest.raises(type(error)), lineage([str(run)], "out"):
        raise error
    assert receiver.states == ["START", state]
    assert receiver.events[1]["outputs"] == []
    message = receiver.events[1]["run"]["facets"]["errorMessage"]["message"]
    assert message.startswith(type(error).__name__)


def test_the_command_tells_of_a_run_without_rows(
    receiver: Receiver, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["analyze", str(run), "--set", "against=none"]) == 3
    assert receiver.states == ["START", "FAIL"]
    assert datasets(receiver.events[0], "inputs") == {("file", f"{run}/samples")}
    message = receiver.events[1]["run"]["facets"]["errorMessage"]["message"]
    assert message.removeprefix("InvalidInput: ") in capsys.readouterr().err


def test_a_receiver_that_refuses_is_named_once_and_the_analysis_goes_on(
    receiver: Receiver, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    receiver.status = 400
    with lineage([str(run)], "out"):
        pass
    assert capsys.readouterr().err.startswith("no lineage is told: HTTPError: 400 Client Error")
    assert receiver.states == ["START"]


def test_settings_that_are_wrong_end_no_analysis(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "pigeon")
    with lineage([str(run)], "out"):
        pass
    assert capsys.readouterr().err.startswith("no lineage is told: ")


@pytest.mark.parametrize(
    ("settings", "on"),
    [
        ({}, False),
        ({"OPENLINEAGE_URL": ""}, False),
        ({"OPENLINEAGE_NAMESPACE": "mine"}, False),
        ({"OPENLINEAGE_URL": "http://127.0.0.1:1"}, True),
        ({"OPENLINEAGE_URL": "http://127.0.0.1:1", "OPENLINEAGE_DISABLED": "True"}, False),
        ({"OPENLINEAGE_CONFIG": "mine.yml"}, True),
        ({"OPENLINEAGE__TRANSPORT__TYPE": "console"}, True),
    ],
)
def test_only_openlineages_own_settings_turn_it_on(
    settings: dict[str, str], on: bool, tmp_path: Path
) -> None:
    assert wanted(settings, [tmp_path]) == on
    (tmp_path / "openlineage.yml").write_text("transport: {type: console}\n")
    assert wanted(settings, [tmp_path]) == (settings.get("OPENLINEAGE_DISABLED") is None)


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("/data/traces", ("file", "/data/traces")),
        ("s3a://bucket/traces/demo", ("s3://bucket", "traces/demo")),
        ("gs://bucket/traces", ("gs://bucket", "traces")),
        ("hdfs://host:8020/traces", ("hdfs://host:8020", "/traces")),
        ("abfss://c@account.dfs.core.windows.net/t", ("abfss://c@account.dfs.core.windows.net", "/t")),
    ],
)
def test_names_are_those_that_others_give_the_same_data(where: str, name: tuple[str, str]) -> None:
    assert named(place(where)) == name


def test_a_whole_analysis_tells_its_tables(receiver: Receiver, tmp_path: Path) -> None:
    pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'headgate[sql]'")
    wanted_trace = Wanted(rows=500, threads=5, slots=4, epochs=1, segment_rows=500, planted=())
    generate(tmp_path / "traces", wanted_trace)
    out = tmp_path / "out"
    traces = [str(tmp_path / "traces")]
    with lineage(traces, str(out)):
        analyse(traces, out, AnalysisSettings(memory="1g"))
    assert receiver.states == ["START", "COMPLETE"]
    made = datasets(receiver.events[1], "outputs")
    assert {("file", f"{out}/curated/samples"), ("file", f"{out}/results/leaks.json")} <= made
    assert ("file", f"{tmp_path}/traces/made/run-1/samples") in datasets(receiver.events[0], "inputs")
