"""How fast the machine is: by a loop on a free core, or in a slot of its own."""

from __future__ import annotations

import time

import psutil
import pytest

from headgate.topology_runtime.calibration import speed
from headgate.topology_runtime.calibration.quota import Quotas
from headgate.topology_runtime.calibration.speed import Reference, SlotMeter, SpeedMeter
from headgate.topology_runtime.slots import affinity

CORES = 0.05


class Counted(Reference):
    """A reference whose counts are given."""

    def __init__(self, *counts: tuple[int, int]) -> None:
        super().__init__(Quotas((affinity.probe,)))
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


def test_a_block_too_short_for_one_loop_is_measured_after_it() -> None:
    with SlotMeter(Counted((1_000, 7), (1_000, 7))) as meter:
        pass
    assert meter.rounds_per_s > 1e5


def test_without_slots_that_can_be_limited_a_free_core_tells(tmp_path) -> None:
    with Reference(Quotas((affinity.probe,))) as reference:
        assert not reference.so
        assert isinstance(reference.meter(), SpeedMeter)


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
