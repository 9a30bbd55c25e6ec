"""A large package on its way slows neither commands nor heartbeats, and takes no memory that stays or grows with it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from shipped_hosts import Hosts

pytestmark = [pytest.mark.live, pytest.mark.alone]

SIZE = 60_000_000
MIB = 1 << 20


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(tmp_path)
    yield made
    made.close()


def test_sixty_megabytes_to_two_hosts(hosts: Hosts) -> None:
    (hosts.code / "data" / "huge.bin").write_bytes(os.urandom(SIZE))
    signer = ("--trust-signer", hosts.root / "ann" / "signing.pub")
    processes = [hosts.controller, *(hosts.start_agent(vm, *signer) for vm in ("vm1", "vm2"))]
    hosts.wait(lambda: set(hosts.vms()) >= {"vm1", "vm2"})
    made = hosts.packed()
    time.sleep(4.0)  # what is imported a while after the start
    before = [psutil.Process(process.pid).memory_info().rss for process in processes]
    most = list(before)

    def watched(over: threading.Event) -> list[float]:
        pings = []
        while not over.wait(0.02):
            began = time.perf_counter()
            assert hosts.ask("ping").error is None
            pings.append(1e3 * (time.perf_counter() - began))
            for n, process in enumerate(processes):
                most[n] = max(most[n], psutil.Process(process.pid).memory_info().rss)
        return sorted(pings)

    with ThreadPoolExecutor(1) as pool:
        pings = []
        for what in (lambda: time.sleep(5.0), lambda: hosts.submit("--package", made)):
            over = threading.Event()
            watching, began = pool.submit(watched, over), time.monotonic()
            done = what()
            took = time.monotonic() - began
            over.set()
            pings.append(watching.result())
    assert done is not None and done.returncode == 0, done
    grown = [(peak - at) / MIB for peak, at in zip(most, before, strict=True)]
    lost = [event for event in hosts.ask("events").data["events"] if event["kind"] in ("lost", "suspect")]
    for name, all_ms in zip(("quiet", "shipping"), pings, strict=True):
        p99 = all_ms[len(all_ms) * 99 // 100]
        print(
            f"{name}: ping p50 {all_ms[len(all_ms) // 2]:.1f}, p99 {p99:.1f}, max {all_ms[-1]:.0f} ms, n {len(all_ms)}"
        )
    print(f"{took:.1f} s; memory of controller and agents +{grown} MiB; {done.stderr}")
    assert lost == []
    assert pings[-1][-1] < 1000 and max(grown) < 48
