"""Who had a controller do what: recorded before it is done, whole lines only, chained, without secrets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from headgate.controller.files.audit_log import WHAT, AuditLog, TurnedAway, is_deed, without_secrets
from headgate.controller.monitor.admission import LOOKING
from headgate.topology_runtime.errors import Conflict, Refused
from headgate.topology_runtime.keys.audit_lines import document, encode_line, lines_of, sealed
from headgate.topology_runtime.keys.key_pairs import Who
from headgate.topology_runtime.platform.disk import DiskTroubles
from headgate.topology_runtime.wire.messages import Reply, refusal

ANN = Who("operator", "ann", "a" * 40)
NOW = "2026-01-31T12:00:00.000000Z"


def log_with(path: Path, commands: int = 3) -> AuditLog:
    log = AuditLog(path, DiskTroubles())
    for number in range(commands):
        line = log.asked(NOW, ANN, "rate_set", {"rate_tps": float(number)})
        log.answered(NOW, line, Reply(data={}))
    return log


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def test_a_command_is_there_before_it_is_done_and_its_result_after(path: Path) -> None:
    log = AuditLog(path, DiskTroubles())
    line = log.asked(NOW, ANN, "stop", {})
    [row] = document(path.read_bytes())["commands"]
    assert (row["who"], row["key"], row["command"]) == ("operator ann", ANN.key, "stop")
    assert row["time"] == NOW and row["result"] == "no answer"
    log.answered(NOW, line, refusal(Conflict("it has ended")))
    [row] = document(path.read_bytes())["commands"]
    assert row["result"] == "HG-CONFLICT: it has ended"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_later_life_goes_on_in_the_chain(path: Path) -> None:
    log_with(path)
    log_with(path)
    found = document(path.read_bytes())
    assert found["fault"] is None and found["lines"] == 12
    assert [row["n"] for row in found["commands"]] == [1, 3, 5, 7, 9, 11]


@pytest.mark.parametrize("number", range(6))
def test_a_line_that_was_changed_is_found(path: Path, number: int) -> None:
    log_with(path)
    lines = path.read_bytes().split(b"\n")
    lines[number] = lines[number].replace(b"2026", b"2025")
    assert document(b"\n".join(lines))["fault"] == f"line {number + 1} was changed"


@pytest.mark.parametrize("number", range(5))
def test_a_line_that_was_removed_is_found(path: Path, number: int) -> None:
    log_with(path)
    lines = path.read_bytes().splitlines(keepends=True)
    del lines[number]
    assert "lines were removed" in document(b"".join(lines))["fault"]


def test_a_line_that_was_changed_with_its_own_hash_is_found_by_the_next_one(path: Path) -> None:
    log_with(path)
    found, _, _ = lines_of(path.read_bytes())
    found[2] = sealed(replace(found[2], arguments={"rate_tps": 9.0}))
    told = document(b"".join(encode_line(line) + b"\n" for line in found))["fault"]
    assert told == "before line 4 lines were removed, added or moved"


def test_lines_in_another_order_and_bytes_that_are_no_line_are_found(path: Path) -> None:
    log_with(path)
    one, two, three, *rest = path.read_bytes().splitlines(keepends=True)
    assert "moved" in document(b"".join([one, three, two, *rest]))["fault"]
    assert document(b"".join([one, b"\xff\n", *rest]))["fault"] == "line 2 cannot be read"


def test_last_lines_that_were_cut_off_are_found_by_who_wrote_them(path: Path) -> None:
    log = log_with(path)
    assert log.answer(None).data["fault"] is None
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert document(path.read_bytes())["fault"] is None
    assert log.answer(None).data["fault"] == "its last lines were removed or changed"


def test_a_log_that_was_changed_is_told_when_a_controller_starts_and_goes_on(path: Path) -> None:
    log_with(path)
    path.write_bytes(path.read_bytes().replace(b"ann", b"eve"))
    log = AuditLog(path, DiskTroubles())
    assert log.fault == "line 1 was changed"
    log.asked(NOW, ANN, "stop", {})
    assert len(lines_of(path.read_bytes())[0]) == 7


def test_a_torn_last_line_goes_and_every_line_after_it_is_whole(path: Path) -> None:
    log_with(path)
    with path.open("ab") as file:
        file.write(b'{"n":7,"time":"20')
    log = AuditLog(path, DiskTroubles())
    log.asked(NOW, ANN, "stop", {})
    found = document(path.read_bytes())
    assert (found["fault"], found["lines"]) == (None, 7)


def test_what_the_disk_does_not_take_waits_in_order_and_is_said(path: Path) -> None:
    disk = DiskTroubles()
    log = AuditLog(path, disk)
    path.mkdir()
    line = log.asked(NOW, ANN, "stop", {})
    assert disk.has(WHAT) and "the audit log cannot be written" in disk.texts()[0]
    path.rmdir()
    log.answered(NOW, line, Reply())
    assert not disk.has(WHAT)
    found = document(path.read_bytes())
    assert (found["fault"], found["commands"][0]["result"]) == (None, "done")


def test_a_line_written_in_part_is_taken_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_with(path)
    real, left = os.write, [10]

    def full(fd: int, data: bytes) -> int:
        if not left:
            raise OSError(28, "No space left on device")
        return real(fd, memoryview(data)[: left.pop()])

    monkeypatch.setattr(os, "write", full)
    log.asked(NOW, ANN, "stop", {})
    monkeypatch.undo()
    assert (document(path.read_bytes())["lines"], path.read_bytes()[-1:]) == (6, b"\n")
    log.write()
    assert document(path.read_bytes())["lines"] == 7


def test_arguments_are_short_and_without_secrets() -> None:
    topology = {"name": "shop", "tasks": [{"params": {"dsn": "postgres://u:hunter2@db/x"}}]}
    given = {
        "topology": topology, "models": [{"task": "blob"}], "rate_tps": 5.0, "by": "ann@here",
        "ids": [1, 2], "vms": ["vm1"],
        "url": "amqp://guest:hunter2@mq/", "password": "hunter2", "api_token": "hunter2", "data": b"hunter2" * 99,
        "long": "hunter2" * 99,
    }  # fmt: skip
    shown = without_secrets(given)
    assert "hunter2" not in str(shown)
    assert [shown[name] for name in ("rate_tps", "by", "ids", "vms")] == [5.0, "ann@here", [1, 2], ["vm1"]]
    assert shown["topology"]["name"] == "shop" and len(shown["topology"]["sha256"]) == 64
    assert (
        shown["models"]["bytes"] == 17 and shown["data"]["bytes"] == 7 * 99 and shown["url"] == "amqp://…@mq/"
    )


def test_deeds_are_recorded_and_looking_is_not_but_where_it_is_refused() -> None:
    deed = {
        name: is_deed(name, {}, LOOKING, None) for name in ("stop", "submit", "status", "audit", "package_at")
    }
    assert deed == {"stop": True, "submit": True, "status": False, "audit": False, "package_at": False}
    assert is_deed("status", {}, LOOKING, Refused("no"))
    offsets = [is_deed("package_put", {"offset": at}, LOOKING, None) for at in (0, 65536, None)]
    assert offsets == [True, False, False]


def test_keys_that_are_turned_away_are_told_at_once_then_once_a_minute_and_many_together() -> None:
    away, second = TurnedAway(), 1_000_000_000
    for _ in range(3):
        away.again("k1")
    assert away.due(0) == [("k1", 3)]
    away.again("k1")
    assert away.due(59 * second) == []
    assert away.due(61 * second) == [("k1", 1)]
    for number in range(1000):
        away.again(f"flood{number}")
    told = [*away.due(62 * second), *away.due(200 * second)]
    assert len(told) <= 18 and sum(times for _, times in told) == 1000
