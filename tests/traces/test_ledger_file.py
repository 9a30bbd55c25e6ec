"""The prediction ledger on disk: whole entries, whatever else there is; bounded; several writers."""

from __future__ import annotations

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headgate.controller.knowledge.prediction_ledger import LedgerEntry, RateKept, SlotKept, TaskKept
from headgate.controller.recording import ledger_file
from headgate.controller.recording.ledger_file import LedgerFile, read_ledger


def entry(run: str = "r1", epoch: int = 1, cost: float = 1.0, **changes: Any) -> LedgerEntry:
    task = TaskKept("work", "work", "v1", 100.0, 0.5 * cost, 0.5, 0.4, 0.4, False, {"vm1": (0.5 * cost, 0.5)})
    plain = LedgerEntry(
        time=datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        topology="line",
        topology_digest="d",
        run=run,
        epoch=epoch,
        plan=f"plan{epoch}",
        headgate="0.1.0",
        seconds=20.0,
        rate=RateKept(100.0, 100.0, 150.0, None, "no"),
        latency_ms={"p50": 1.0, "p95": 2.0, "p99": 3.0},
        slots=(SlotKept("vm1", 0, 0.5 * cost, 0.5, 0.1, 0.1),),
        tasks=(task,),
        speeds={"vm1": 1.0},
    )
    return msgspec.structs.replace(plain, **changes)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


def test_what_was_appended_is_read_and_the_newest_of_a_plan_counts(path: Path) -> None:
    assert read_ledger(path).entries == ()
    file = LedgerFile(path)
    for one in (entry(), entry(epoch=2), entry(seconds=40.0)):
        file.append(one)
    read = read_ledger(path)
    assert [(e.epoch, e.seconds) for e in read.entries] == [(1, 40.0), (2, 20.0)] and not read.faults
    assert json.loads(path.read_bytes().splitlines()[0])["schema"] == "headgate/ledger/v1"


def test_a_torn_line_costs_nothing_else(path: Path) -> None:
    LedgerFile(path).append(entry())
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])  # of a machine that went down
    LedgerFile(path).append(entry(epoch=2))
    read = read_ledger(path)
    assert [e.epoch for e in read.entries] == [1, 2]
    assert len(read.faults) == 1 and f"{path}:2" in read.faults[0]


@pytest.mark.parametrize(
    "junk",
    [b"\x00" * 40, b"{}", b'{"schema":"headgate/ledger/v9"}', b"[" * 50_000, b"\xff\xfe", b"null"],
)
def test_what_is_no_entry_is_named_with_its_line_and_left_out(path: Path, junk: bytes) -> None:
    lines = [msgspec.json.encode(entry(epoch=n)) for n in (1, 2)]
    path.write_bytes(b"\n".join([lines[0], junk, lines[1]]) + b"\n")
    read = read_ledger(path)
    assert [e.epoch for e in read.entries] == [1, 2]
    assert [fault.startswith(f"{path}:2: ") for fault in read.faults] == [True]


@pytest.mark.parametrize(("key", "value"), [("cpu", -1.0), ("cpu", 1e300), ("rate_tps", -5), ("busy", "1")])
def test_numbers_that_cannot_be_are_refused(path: Path, key: str, value: object) -> None:
    plain = msgspec.to_builtins(entry())
    plain["tasks"][0][key] = value
    path.write_text(json.dumps(plain) + "\n")
    read = read_ledger(path)
    assert read.entries == () and len(read.faults) == 1


def test_it_is_bounded_and_keeps_the_newest(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_file, "MOST_BYTES", 20_000)
    file = LedgerFile(path)
    for number in range(200):
        file.append(entry(epoch=number))
    assert path.stat().st_size <= 20_000
    assert sum(f.stat().st_size for f in path.parent.iterdir()) <= 45_000
    epochs = [e.epoch for e in read_ledger(path).entries]
    assert epochs == list(range(epochs[0], 200)) and len(epochs) >= 10
    assert sorted(f.name for f in path.parent.iterdir()) == ["ledger.jsonl", "ledger.old.jsonl"]


def test_entries_of_long_ago_do_not_count(path: Path) -> None:
    old = (datetime.now(UTC) - timedelta(days=400)).isoformat()
    file = LedgerFile(path)
    file.append(entry(time=old))
    file.append(entry(epoch=2))
    read = read_ledger(path)
    assert [e.epoch for e in read.entries] == [2] and not read.faults


def test_several_writers_lose_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_file, "MOST_BYTES", 100_000)

    def write(run: int) -> None:
        file = LedgerFile(path)
        for number in range(25):
            file.append(entry(run=f"r{run}", epoch=number))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    read = read_ledger(path)
    assert not read.faults
    old = read_ledger(path.with_name("ledger.old.jsonl"))
    assert len({e.key for e in (*read.entries, *old.entries)}) == 100


def test_what_a_full_disk_does_not_take_waits_for_the_next_entry(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = LedgerFile(path)
    file.append(entry())
    real = os.pwrite

    def full(fd: int, data: Any, at: int) -> int:
        if len(data) > 100:
            return real(fd, data[:100], at)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            file.append(entry(epoch=2))
    assert [e.epoch for e in read_ledger(path).entries] == [1] and not read_ledger(path).faults
    file.append(entry(epoch=3))
    assert [e.epoch for e in read_ledger(path).entries] == [1, 2, 3]
