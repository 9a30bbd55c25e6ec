"""How fast this machine is just now: a fixed loop, run again and again beside each measurement.

Shared machines drift by a fifth within minutes. Rates of computing tasks are divided by this speed, so that models
measured at different times can be compared.

Where a slot can be limited, the loop runs in a small slot of its own (decision 18): what drifts most is what it costs
to begin again after the quota's pause, which a loop on a free core does not see.
"""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
import sys
import tempfile
import threading
from statistics import median
from time import thread_time_ns
from types import TracebackType
from typing import Protocol, Self

from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.measuring.measuring_slots import Quotas
from headgate.topology_runtime.platform.processes import die_with

ROUNDS = 20_000  # about a millisecond
EVERY_S = 0.1  # on a free core
CORES = 0.1  # of the reference's slot
SLOT = "reference"
CORE_SPEED, SLOT_SPEED = "core", "slot"  # a model's `speed_of`: two scales; a model without it: a core's
COUNTS = struct.Struct("<qq")  # rounds, ns of CPU


class SpeedSource(Protocol):
    """Tells the speed while the `with` block lasts."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @property
    def rounds_per_s(self) -> float:
        """Rounds per second of CPU time, so far."""


class SpeedMeter:
    """Runs the loop ten times a second, on whatever core is free; the median."""

    def __init__(self) -> None:
        self._speeds: list[float] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="speed", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        self._speeds.append(rounds_per_s())
        while not self._end.wait(EVERY_S):
            self._speeds.append(rounds_per_s())

    @property
    def rounds_per_s(self) -> float:
        return median(self._speeds)


class Reference:
    """The loop in a slot of a tenth of a core, in a process of its own, for as long as the `with` block lasts. Enter it
    in the main thread. Where no slot can be limited it is not run, and meters use a free core."""

    def __init__(self, quotas: Quotas, cores: float = CORES) -> None:
        self._quotas, self._cores = quotas, cores
        self._counts: mmap.mmap | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if self._quotas.enforced:
            try:
                self._start()
            except BaseException:
                self.__exit__(None, None, None)
                raise
        return self

    def _start(self) -> None:
        with tempfile.NamedTemporaryFile(prefix="headgate-reference-") as file:
            file.write(bytes(COUNTS.size))
            file.flush()
            self._counts = mmap.mmap(file.fileno(), COUNTS.size)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, file.name, str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                process_group=0,  # Ctrl-C on the terminal is for us
            )
            assert self._process.stdout is not None
            if not self._process.stdout.readline():  # else the file is open, and its name may go
                code = self._process.wait()
                raise HeadgateError(
                    "the loop that measures the machine's speed does not start", cause=f"exit code {code}"
                )
        self._quotas.bind(self._process.pid, SLOT, self._cores, None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    @property
    def so(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def speed_of(self) -> str:
        return SLOT_SPEED if self.so else CORE_SPEED

    def meter(self) -> SpeedSource:
        return SlotMeter(self) if self.so else SpeedMeter()

    def counts(self) -> tuple[int, int]:
        """(rounds, ns of CPU they took) so far."""
        assert self._counts is not None
        rounds, used_ns = COUNTS.unpack(self._counts[:])
        return rounds, used_ns


class SlotMeter:
    """What the reference did meanwhile; the mean, pauses' ends included."""

    def __init__(self, of: Reference) -> None:
        self._of = of
        self._began = self._ended = (0, 0)

    def __enter__(self) -> Self:
        self._began = self._ended = self._of.counts()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = self._of.counts()

    @property
    def rounds_per_s(self) -> float:
        rounds, used_ns = (b - a for a, b in zip(self._began, self._ended, strict=True))
        return rounds / used_ns * 1e9 if used_ns else rounds_per_s()


def rounds_per_s() -> float:
    """Rounds of a small loop of arithmetic and a dictionary per second of CPU time."""
    return ROUNDS / (loop_ns() / 1e9)


def loop_ns(rounds: int = ROUNDS) -> int:
    """CPU that so many rounds take, in ns."""
    began_ns = thread_time_ns()
    kept: dict[int, int] = {}
    total = 0
    for number in range(rounds):
        total += number * number & 1023
        kept[number & 63] = total
    return thread_time_ns() - began_ns


def run(path: str, owner: int) -> None:
    """The reference's process: the loop, for ever, counted in the file."""
    die_with(owner)
    with open(path, "r+b") as file:
        counts = mmap.mmap(file.fileno(), COUNTS.size)
    print("ready", flush=True)
    rounds = used_ns = 0
    while True:
        used_ns += loop_ns()
        rounds += ROUNDS
        counts[:] = COUNTS.pack(rounds, used_ns)


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]))
