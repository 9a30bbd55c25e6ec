"""Cores are kept awake by asking the kernel for no latency, for as long as the device is open."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from headgate.topology_runtime.calibration.awake import QUALITY, Awake


def test_no_latency_is_asked_for_and_the_device_is_let_go(tmp_path: Path) -> None:
    device = tmp_path / "cpu_dma_latency"
    device.touch()
    with Awake(device) as awake:
        assert awake.so
        assert device.read_bytes() == struct.pack("=i", 0)
    assert not awake.so


def test_a_machine_without_the_device_is_measured_as_it_is(tmp_path: Path) -> None:
    with Awake(tmp_path / "none") as awake:
        assert not awake.so


def test_a_device_that_takes_nothing_is_let_go() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with Awake(Path("/dev/full")) as awake:
        assert not awake.so
        assert len(os.listdir("/proc/self/fd")) == before


def test_the_kernel_takes_it() -> None:
    if not QUALITY.exists():
        pytest.skip(f"no {QUALITY} here")
    with Awake() as awake:
        if not awake.so:
            pytest.skip(f"{QUALITY} is not for this user")
        found = QUALITY.read_bytes()
    assert struct.unpack("=i", found[:4]) == (0,)
