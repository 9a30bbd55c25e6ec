"""The services for real: both backends under one contract, their limits, and that `stop` leaves nothing."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from patience import until

from emulated_services import service_processes as azurite
from emulated_services import service_processes as processes
from emulated_services.proxy import ProxyRoute
from emulated_services.request_limits import Terms
from emulated_services.seeding import BLOB_BYTES, blob_bytes, row_of
from headgate.topology_runtime.api.logic import Context
from headgate.topology_runtime.api.task_functions import build
from headgate.topology_runtime.errors import InvalidInput, Unreachable
from headgate.topology_runtime.tasks import representative
from headgate.topology_runtime.tasks.ready_made import CONTAINER, blob_name, number_of
from headgate.topology_runtime.tasks.service_addresses import address_of, connection_string
from headgate.topology_runtime.tasks.service_clients import open_blobs, open_table

pytestmark = pytest.mark.live
BLOBS, ROWS, LATENCY_MS, MBPS, RPS = 3, 250, 20, 40, 100
SMALL = ["--blobs", str(BLOBS), "--rows", str(ROWS), "--latency-ms", str(LATENCY_MS)]
LIMITS = ["--blob-mbps", str(MBPS), "--table-rps", str(RPS), "--blob-port", "0", "--table-port", "0"]
Rows = list[dict[str, Any]]


def command(word: str, folder: Path, *more: str, **env: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-P", "-m", "emulated_services.control", word, "--folder", str(folder)]
    env["PYTHONPATH"] = os.pathsep.join([str(processes.PACKAGES), env.get("PYTHONPATH", "")])
    return subprocess.run(
        [*words, *more], capture_output=True, text=True, timeout=120, env={**os.environ, **env}
    )


def status(folder: Path) -> Rows:
    found: Rows = json.loads(command("status", folder, "-o", "json").stdout)["services"]
    return found


def have_azurite() -> str | None:
    """Why there is no Azurite here; None when there is."""
    if not (shutil.which("node") and (azurite.installed() or shutil.which("npm"))):
        return "no Node on this machine"
    with contextlib.suppress(ImportError):
        import azure.data.tables
        import azure.storage.blob  # noqa: F401

        return None
    return "Azure's SDKs are an extra"


@pytest.fixture(scope="module", params=[pytest.param("azurite", marks=pytest.mark.full), "embedded"])
def services(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "azurite" and (why := have_azurite()):
        pytest.skip(why)
    flags = ["--embedded"] if request.param == "embedded" else []
    started = command("start", folder, *SMALL, *LIMITS, *flags)
    if "npm could not install" in started.stderr:
        pytest.skip("npm cannot install azurite here")
    assert started.returncode == 0, started.stderr
    pids = [record.pid for record in processes.records(folder)]
    yield folder
    stopped = command("stop", folder)
    assert stopped.returncode == 0, stopped.stderr
    assert [pid for pid in pids if processes.started(pid)] == []
    assert processes.records(folder) == [] and status(folder) == []


@pytest.fixture
def addresses(services: Path) -> tuple[str, str]:
    blob, table = status(services)
    return blob["address"], table["address"]


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


# ── the contract of the clients ─────────────────────────────────────────────────────────────────


def test_a_blob_is_what_was_stored_after_the_latency(addresses: tuple[str, str]) -> None:
    client = open_blobs(addresses[0])
    for number in range(BLOBS):
        began_s = time.monotonic()
        assert client.get(blob_name(number)) == blob_bytes(number)
        assert time.monotonic() - began_s >= LATENCY_MS / 1000
    client.close()


def test_a_row_is_what_was_stored_with_its_types(addresses: tuple[str, str]) -> None:
    client = open_table(addresses[1])
    for key in (0, 99, 100, ROWS - 1):
        row = client.get(key)
        assert row == row_of(key)
        assert [type(value) for value in row.values()] == [type(value) for value in row_of(key).values()]
    client.close()


def test_what_is_absent_is_one_line_and_the_client_goes_on(addresses: tuple[str, str]) -> None:
    blobs, table = open_blobs(addresses[0]), open_table(addresses[1])
    with pytest.raises(InvalidInput, match=r"no blob 'blob-9999'.*--blobs"):
        blobs.get("blob-9999")
    with pytest.raises(InvalidInput, match=rf"no row {ROWS} .*--rows"):
        table.get(ROWS)
    assert len(blobs.get(blob_name(0))) == BLOB_BYTES and table.get(1) == row_of(1)
    blobs.close()
    table.close()


def test_another_table_or_container_is_not_this_one(addresses: tuple[str, str]) -> None:
    blobs, table = open_blobs(addresses[0], "other"), open_table(addresses[1], "other")
    with pytest.raises(InvalidInput, match=r"no blob 'blob-0000' in 'other'"):
        blobs.get(blob_name(0))
    with pytest.raises(InvalidInput, match="no row 1 in 'other'"):
        table.get(1)
    blobs.close()
    table.close()


def test_a_client_keeps_its_connection(addresses: tuple[str, str]) -> None:
    def open_ports() -> set[int]:
        ends = psutil.Process().net_connections("tcp")
        open_ends = (end for end in ends if end.status == psutil.CONN_ESTABLISHED and end.raddr)
        return {end.laddr.port for end in open_ends if end.raddr.port == port_of(addresses[1])}

    before = open_ports()  # an error of the SDK keeps its connection as long as it lives itself
    client = open_table(addresses[1])
    client.get(0)
    kept = open_ports() - before
    for key in range(5):
        client.get(key)
    assert len(kept) == 1 and open_ports() - before == kept
    client.close()
    assert not open_ports() & kept


# ── the limits ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.full  # it measures a rate
@pytest.mark.alone
def test_all_connections_together_keep_the_blob_services_limit(addresses: tuple[str, str]) -> None:
    def work(_: int) -> None:
        client = open_blobs(addresses[0])
        for number in range(5):
            client.get(blob_name(number % BLOBS))
        client.close()

    began_s = time.monotonic()
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    rate_bytes_s = 30 * BLOB_BYTES / (time.monotonic() - began_s)
    assert (
        0.4 * MBPS < rate_bytes_s / 1e6 < 1.05 * MBPS
    )  # at 1.5 s, with one burst; the lower end: a busy machine


@pytest.mark.full  # it measures a rate
@pytest.mark.alone
def test_all_connections_together_keep_the_table_services_limit(addresses: tuple[str, str]) -> None:
    def work(_: int) -> None:
        client = open_table(addresses[1])
        for key in range(20):
            client.get(key)
        client.close()

    began_s = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    rate_tps = 160 / (time.monotonic() - began_s)
    assert 0.4 * RPS < rate_tps < 1.1 * RPS


# ── every task, in every shape ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shape", ["linear", "diamond", "star"])
def test_every_task_of_the_micro_topologies_takes_rows(
    shape: str, addresses: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_BLOB_SERVICE", addresses[0])
    monkeypatch.setenv("HEADGATE_TABLE_SERVICE", addresses[1])
    monkeypatch.setenv("HEADGATE_BLOBS", str(BLOBS))
    monkeypatch.setenv("HEADGATE_TABLE_ROWS", str(ROWS))
    topology = getattr(representative, shape)()
    logic = {task.name: build(task) for task in topology.tasks}
    for number, (name, task) in enumerate(logic.items()):
        if hasattr(task, "open"):
            task.open(Context(name, number, 0, 1, str(tmp_path)))
    came: dict[str, Rows] = {name: [] for name in logic}
    came["source"] = list(logic["source"].read(0, 3))
    for name in list(logic)[1:]:
        before = [edge.source for edge in topology.edges if edge.target == name]
        came[name] = [logic[name](row) for source in before for row in came[source]]
    assert [row["bytes"] for row in came["blob"]] == [BLOB_BYTES] * 3
    assert [row["columns"] for row in came["table"]] == [20] * 3
    assert all(
        sorted({number_of(row) for row in came[name]}) == [0, 1, 2] for name in ("blob", "pi", "xml", "file")
    )
    for task in logic.values():
        if hasattr(task, "close"):
            task.close()


# ── HTTP as strangers speak it ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("request_bytes", "statuses"),
    [
        (b"nonsense\r\n\r\n", (400,)),
        (b"PUT /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", (411,)),
        (b"GET /" + b"x" * 80_000 + b" HTTP/1.1\r\n\r\n", (431,)),
        (b"GET /../../etc/passwd HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", (400, 403, 404)),
    ],
)
def test_strange_requests_get_an_answer_and_others_are_served_on(
    addresses: tuple[str, str], request_bytes: bytes, statuses: tuple[int, ...]
) -> None:
    with socket.create_connection(("127.0.0.1", port_of(addresses[0])), 10.0) as connection:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            connection.sendall(request_bytes)  # it may answer and close before it has all
        answer = connection.recv(4096)
    assert int(answer.split()[1]) in statuses
    client = open_blobs(addresses[0])
    assert len(client.get(blob_name(0))) == BLOB_BYTES
    client.close()


def test_a_client_that_leaves_in_the_middle_disturbs_nobody(addresses: tuple[str, str]) -> None:
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", port_of(addresses[0])), 10.0) as connection:
            connection.sendall(b"GET /headgate/blob-0000 HTTP/1.1\r\nHost: h\r\n\r\n")
    client = open_blobs(addresses[0])
    assert client.get(blob_name(1)) == blob_bytes(1)
    client.close()


def test_the_embedded_service_gives_parts(services: Path, addresses: tuple[str, str]) -> None:
    if not addresses[0].startswith("embedded"):
        pytest.skip("plain HTTP only")
    desired = blob_bytes(2)[10:30]
    text = b"GET /headgate/blob-0002 HTTP/1.1\r\nHost: h\r\nRange: bytes=10-29\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port_of(addresses[0])), 10.0) as connection:
        connection.sendall(text)
        answer = b""
        while part := connection.recv(4096):
            answer += part
    assert answer.startswith(b"HTTP/1.1 206 ") and answer.endswith(b"\r\n\r\n" + desired)
    assert b"Content-Range: bytes 10-29/2000000" in answer


def test_what_is_written_through_the_limits_comes_back(addresses: tuple[str, str]) -> None:
    if not addresses[0].startswith("azurite"):
        pytest.skip("the embedded service only reads")
    from azure.storage.blob import ContainerClient

    place = connection_string(address_of(addresses[0], 0))
    data = blob_bytes(77, 3_000_000)
    with ContainerClient.from_connection_string(place, CONTAINER) as container:
        container.upload_blob("mine", data, overwrite=True)
    client = open_blobs(addresses[0])
    assert client.get("mine") == data
    client.close()


def test_with_nothing_behind_it_the_proxy_says_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        listen, upstream = one.getsockname()[1], other.getsockname()[1]
    route = msgspec.json.encode(ProxyRoute(listen, upstream, Terms())).decode()
    words = [sys.executable, "-P", "-m", "emulated_services.proxy", route]
    record = processes.spawn("limits", words, tmp_path)
    try:
        client = open_blobs(f"embedded://127.0.0.1:{listen}")

        def said() -> str:
            with pytest.raises(Unreachable) as error:
                client.get("any")
            return str(error.value)

        until(lambda: "502" in said())
        client.close()
        assert processes.lives(record)
    finally:
        processes.end(record, tmp_path)


# ── start and stop ──────────────────────────────────────────────────────────────────────────────


def test_starting_again_changes_nothing_and_other_settings_conflict(services: Path) -> None:
    flags = ["--embedded"] if "embedded" in status(services)[0]["address"] else []
    before = status(services)
    again = command("start", services, *SMALL, *LIMITS, *flags)
    assert again.returncode == 0 and "already running" in again.stderr and status(services) == before
    other = command("start", services, *SMALL, *LIMITS, *flags, "--table-rps", "7")
    assert other.returncode == 6 and "scripts/services stop" in other.stderr and status(services) == before


def test_without_node_it_says_what_to_do(tmp_path: Path) -> None:
    none = command("start", tmp_path, *SMALL, *LIMITS, PATH=str(tmp_path))
    assert none.returncode == 1 and "needs Node" in none.stderr and "--embedded" in none.stderr
    assert "Traceback" not in none.stderr and processes.records(tmp_path) == []


def test_without_azures_sdks_npm_is_not_asked(tmp_path: Path) -> None:
    """The emulator is not installed yet, and `azure` is a package without the SDKs."""
    (tmp_path / "azure").mkdir()
    (tmp_path / "azure" / "__init__.py").touch()
    for name in ("node", "npm"):
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path)}
    none = command("start", tmp_path / "data", *SMALL, *LIMITS, **env, XDG_CACHE_HOME=str(tmp_path))
    assert none.returncode == 1 and "headgate[azure]" in none.stderr and not (tmp_path / "asked").exists()


def test_a_taken_port_starts_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = command("start", tmp_path, "--embedded", *SMALL, *LIMITS, "--table-port", str(port))
    assert refused.returncode == 6 and str(port) in refused.stderr
    assert "Traceback" not in refused.stderr and processes.records(tmp_path) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--rows", "0"], "--rows 0"), (["--rows", "200001"], "200,000"), (["--blob-mbps", "nan"], "--blob-mbps"),
     (["--latency-ms", "-1", "--blobs", "0"], "--blobs 0")],
)  # fmt: skip
def test_impossible_settings_are_all_told(tmp_path: Path, words: list[str], said: str) -> None:
    refused = command("start", tmp_path, *words)
    assert refused.returncode == 3 and said in refused.stderr and "Traceback" not in refused.stderr


def test_only_the_very_process_of_a_record_is_ended(tmp_path: Path) -> None:
    record = processes.spawn("sleeper", [sys.executable, "-c", "import time; time.sleep(60)"], tmp_path)
    stranger = msgspec.structs.replace(record, started="1")
    from_before = msgspec.structs.replace(record, boot="another start of the machine")
    assert not processes.end(stranger, tmp_path) and not processes.end(from_before, tmp_path)
    assert processes.lives(record)
    assert processes.end(record, tmp_path) and not processes.lives(record)


def test_what_died_is_seen_and_started_again(tmp_path: Path) -> None:
    words = [*SMALL, *LIMITS, "--embedded"]
    assert command("start", tmp_path, *words).returncode == 0
    (record,) = processes.records(tmp_path)
    os.kill(record.pid, signal.SIGKILL)
    until(lambda: not processes.lives(record))
    assert [row["state"] for row in status(tmp_path)] == ["down", "down"]
    assert command("start", tmp_path, *words).returncode == 0
    assert [row["state"] for row in status(tmp_path)] == ["up", "up"]
    stopped = command("stop", tmp_path, "-o", "json")
    assert [row["ended"] for row in json.loads(stopped.stdout)["processes"]] == [True]


def test_rows_are_added_to_those_that_are_there(tmp_path: Path) -> None:
    for rows in (150, 320):
        words = [*SMALL, *LIMITS, "--rows", str(rows), "--embedded"]
        assert command("start", tmp_path, *words).returncode == 0
        client = open_table(status(tmp_path)[1]["address"])
        assert client.get(rows - 1) == row_of(rows - 1) and client.get(3) == row_of(3)
        with pytest.raises(InvalidInput):
            client.get(rows)
        client.close()
        assert command("stop", tmp_path).returncode == 0
