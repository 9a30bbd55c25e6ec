"""How fast the machine is: by a loop on a free core, or in a slot of its own."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

import psutil
import pytest

from headgate.topology_runtime.measuring import machine_speed as speed
from headgate.topology_runtime.measuring.machine_speed import Reference, SlotMeter, SpeedMeter
from headgate.topology_runtime.measuring.measuring_slots import QUALITY, Awake, Quotas
from headgate.topology_runtime.platform import slot_binding as affinity

CORES = 0.05


class Counted(Reference):
    """A reference whose counts are given."""

    def __init__(self, *counts: tuple[int, int]) -> None:
        super().__init__(Quotas((affinity.probe_affinity,)))
        self._given = list(counts)

    def counts(self) -> tuple[int, int]:
        return self._given.pop(0)


class Unbindable(Quotas):
    """Slots that cannot be made any more."""

    def bind(self, pid: int, name: str, cores: float, core: int | None) -> None:
        raise OSError("no slot")


def test_the_speed_is_what_was_done_while_the_block_lasted() -> None:
    with SlotMeter(Counted((1_000, 7), (51_000, 2_000_007))) as meter:
        pass
    assert meter.rounds_per_s == pytest.approx(50_000 / 0.002)
    with SlotMeter(Counted((1_000, 7), (1_000, 7))) as meter:
        pass
    assert meter.rounds_per_s > 1e5, "too short for one loop: measured after it"
    with Reference(Quotas((affinity.probe_affinity,))) as reference:
        assert not reference.so and isinstance(reference.meter(), SpeedMeter), "no slot can be limited"


@pytest.mark.live
def test_a_reference_that_cannot_be_bound_leaves_no_process() -> None:
    quotas = Unbindable()
    if not quotas.enforced:
        pytest.skip("no slot can be limited here")
    try:
        with pytest.raises(OSError), Reference(quotas):
            raise AssertionError("it was bound")
    finally:
        quotas.remove()
    assert not [p for p in psutil.Process().children() if speed.__name__ in p.cmdline()]


@pytest.mark.live
def test_the_reference_keeps_to_its_slot_and_ends_with_its_block() -> None:
    quotas = Quotas()
    if not quotas.enforced:
        pytest.skip("no slot can be limited here")
    try:
        with Reference(quotas, CORES) as reference:
            (child,) = [p for p in psutil.Process().children() if speed.__name__ in p.cmdline()]
            began, used = time.monotonic(), sum(child.cpu_times()[:2])
            with reference.meter() as meter:
                time.sleep(1.5)
            part = (sum(child.cpu_times()[:2]) - used) / (time.monotonic() - began)
            assert reference.so
            assert 1e5 < meter.rounds_per_s < 1e9
            assert part < 2 * CORES
        assert not child.is_running()
        assert not reference.so
    finally:
        quotas.remove()


# ── Cores are kept awake by asking the kernel for no latency, for as long as the device is open ─────────


def test_no_latency_is_asked_for_and_the_device_is_let_go(tmp_path: Path) -> None:
    device = tmp_path / "cpu_dma_latency"
    device.touch()
    with Awake(device) as awake:
        assert awake.so
        assert device.read_bytes() == struct.pack("=i", 0)
    assert not awake.so
    before = len(os.listdir("/proc/self/fd"))
    for other in (tmp_path / "none", Path("/dev/full")):  # there is none; it takes nothing
        with Awake(other) as awake:
            assert not awake.so and len(os.listdir("/proc/self/fd")) == before


def test_the_kernel_takes_it() -> None:
    if not QUALITY.exists():
        pytest.skip(f"no {QUALITY} here")
    with Awake() as awake:
        if not awake.so:
            pytest.skip(f"{QUALITY} is not for this user")
        found = QUALITY.read_bytes()
    assert struct.unpack("=i", found[:4]) == (0,)
