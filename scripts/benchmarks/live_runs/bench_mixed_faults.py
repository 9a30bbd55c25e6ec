"""One run under faults of every kind, in a random order: is a row lost, are the duplicates those that it tells?

mixed-faults  in a network namespace and on a disk of its own, with a clock that a file sets: kills, stops of 30 s,
              `open` that fails for 10 s, a full disk, cut links between workers and to the controller, steps of the
              clock, a task that takes more memory than its slot has, keys that are rotated; rows must come again before
              the next
"""
# bench: mixed-faults – faults of fourteen kinds in one run: lost, repeated and told, how soon rows came again

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from watched_runs.counted_run import CountedRun
from watched_runs.trials import ROLES, Faults

CLONE_NEWNET, MNT_DETACH = 0x40000000, 2
DISK_BYTES = 96 << 20
STOP_S, OPEN_S, FULL_S, CUT_S = 30.0, 10.0, 10.0, 12.0
VMS = ("vm1", "vm2", "vm3")
STEPS_S = (3600, -7200, 45, -30, 0)
RECOVER_S = 180.0
CLOCK = Path(__file__).parents[3] / "tests" / "agent_live" / "another_clock.c"
_libc = ctypes.CDLL(None, use_errno=True)


def _must(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@contextlib.contextmanager
def own_machine(folder: Path) -> Iterator[None]:
    """This process and its children: alone in a network namespace, `folder`/state on a small disk of its own, the
    clock set by `folder`/clock. The namespace is this process's to its end."""
    _must(_libc.unshare(CLONE_NEWNET))
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    state = folder / "state"
    state.mkdir()
    _must(_libc.mount(b"tmpfs", os.fsencode(state), b"tmpfs", 0, f"size={DISK_BYTES}".encode()))
    library = folder / "another_clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, CLOCK, "-ldl"], check=True)
    (folder / "clock").write_text("0\n")
    os.environ |= {"ANOTHER_CLOCK": str(folder / "clock"), "LD_PRELOAD": str(library)}
    try:
        yield
    finally:
        del os.environ["LD_PRELOAD"]
        _must(_libc.umount2(os.fsencode(state), MNT_DETACH))


class MixedFaults:
    def __init__(self, folder: Path, running: CountedRun, seed: int) -> None:
        self.folder, self.running = folder, running
        self._choose = random.Random(seed)
        self._faults = Faults(running, seed)
        self.done: Counter[str] = Counter()
        self.slowest_s: dict[str, float] = {}
        self.kinds: dict[str, Callable[[], None]] = {
            **{f"kill {role}": lambda role=role: self._kill(role) for role in ROLES},
            **{f"stop {role}": lambda role=role: self._stop(role) for role in ROLES},
            "open fails": lambda: self._fails("open", OPEN_S),
            "disk full": self._full_disk,
            "cut from worker": lambda: self._cut("worker", "--sport"),
            "cut to worker": lambda: self._cut("worker", "--dport"),
            "cut from controller": lambda: self._cut("controller", "--sport"),
            "clock step": self._clock,
            "memory": self._memory,
            "key rotated": self._rotate,
        }

    def run(self, faults: int) -> None:
        self.running.wait_for_rows()
        names = [name for _ in range(-(-faults // len(self.kinds))) for name in self.kinds][:faults]
        self._choose.shuffle(names)
        for number, name in enumerate(names, 1):
            self.quiet(4.0)
            self.kinds[name]()
            self.done[name] += 1
            back_s = self.running.wait_for_rows(RECOVER_S, int(self.running.rate_tps))
            self.slowest_s[name] = max(self.slowest_s.get(name, 0.0), round(back_s, 1))
            print(
                f"{number}/{len(names)} {name}: rows again {back_s:.1f} s later", file=sys.stderr, flush=True
            )

    def quiet(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.running.segments.drain()
            time.sleep(0.2)

    def _kill(self, role: str) -> None:
        self._faults.inflict(f"kill {role}")

    def _stop(self, role: str) -> None:
        self._faults.inflict(f"stop {role}")
        self.quiet(STOP_S)
        self._faults.heal()

    def _fails(self, what: str, seconds: float) -> None:
        trouble = self.folder / "trouble" / what
        trouble.touch()
        self._kill("worker")
        self.quiet(seconds)
        trouble.unlink()

    def _memory(self) -> None:
        """The first task that finds the file takes it, and too much memory."""
        taken = self.folder / "trouble" / "memory"
        taken.touch(0o666)
        until_s = time.monotonic() + 30.0
        while taken.exists():
            if time.monotonic() > until_s:
                raise TimeoutError("no task took the memory")
            self.quiet(0.2)

    def _full_disk(self) -> None:
        filled = self.folder / "state" / "filled"
        with filled.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * (1 << 16))
        self.quiet(FULL_S)
        filled.unlink()

    def _rotate(self) -> None:
        """Of one agent; it takes the new one up by itself."""
        words = [
            "keys",
            "rotate",
            "agent",
            self._choose.choice(VMS),
            "--keys",
            str(self.folder / "state" / "keys"),
        ]
        run = [sys.executable, "-P", "-m", "headgate", *words]
        subprocess.run(run, check=True, stdout=subprocess.DEVNULL, timeout=60)
        self.quiet(5.0)

    def _clock(self) -> None:
        (self.folder / "clock.new").write_text(f"{self._choose.choice(STEPS_S)}\n")
        (self.folder / "clock.new").replace(self.folder / "clock")
        self.quiet(5.0)

    def _cut(self, role: str, direction: str) -> None:
        """What such a process sends from where it listens, or gets there, is dropped for a while."""
        pids = self.running.pids(role)
        process = psutil.Process(self._choose.choice(pids))
        ports = sorted(
            {c.laddr.port for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
        )
        rules = [["INPUT", "-p", "tcp", direction, str(port), "-j", "DROP"] for port in ports]
        for rule in rules:
            subprocess.run(["iptables", "-A", *rule], check=True)
        self.quiet(CUT_S)
        for rule in rules:
            subprocess.run(["iptables", "-D", *rule], check=True)


def mixed_faults(
    number: int = 70, rate: float = 400.0, slot_cores: float = 0.25, seed: int = 1
) -> dict[str, Any]:
    """So many faults of one run, whose order and victims follow from the seed."""
    with tempfile.TemporaryDirectory(prefix="headgate-mixed-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "trouble").mkdir()
        (folder / "trouble").chmod(0o777)
        with own_machine(folder):
            running = CountedRun(folder, rate, 4 * 3600, slot_cores=slot_cores)
            try:
                faults = MixedFaults(folder, running, seed)
                faults.run(number)
                faults.quiet(20.0)
                running.end()
                summary = json.loads(
                    (folder / "out.json").read_text()
                )  # also of one that lost keyed state: exit code 8
            finally:
                running.end()
            rows = running.verdict(summary)
        told = summary["tuples"]
        return {
            "exit_code": running.process.returncode,
            "faults": sum(faults.done.values()),
            "kinds": dict(faults.done),
            "rows_again_after_s_at_most": faults.slowest_s,
            "whole": rows["whole"],
            "rows": rows,
            "tuples": told,
        }


BENCHMARKS = {"mixed-faults": mixed_faults}
