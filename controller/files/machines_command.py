"""VMs had by a command of the user's: `--machines-command`. What it reads and writes: docs/machines.md.

What is asked for is files (`FileMachines`), so `request` and `release` return at once and outlive a crash; a thread
makes the provider's machines match them, one call of the command after the other. Each look begins with the list. A
machine has a *token* from before its first call until it is listed no more, and is asked for under it alone: after a
call whose end is unknown the list is read before anything else is said, and a second call names the same token.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from headgate.controller.files.command_call import SAID_MOST, CommandFailed, CommandRefusal, run_command
from headgate.controller.files.machines import FileMachines, Listing
from headgate.topology_runtime.cluster import Vm
from headgate.topology_runtime.disk import write_whole
from headgate.topology_runtime.errors import HeadgateError

SCHEMA = "headgate/machines/v1"
MACHINES_MOST = 1024  # in one list
NAME_MOST, TOLD_MOST = 64, 8  # characters of a name, names in one sentence
LOOK_S, SOON_S = 15.0, 2.0  # between two lists; soon while something is on its way
SETTLED_S = 60.0  # a list may be so late
AGAIN_S, AGAIN_MOST_S = 5.0, 300.0  # after a failure, doubled with each
CLOSE_S = 15.0  # besides one call, to give machines back when the controller ends


class ListedMachine(msgspec.Struct, frozen=True):
    """One machine of the answer to `list`; more keys are allowed. One that is being ended is not told any more."""

    name: str
    state: str = "running"  # or "starting"


class MachinesAnswer(msgspec.Struct, frozen=True):
    """What the command writes. machines: only for `list`."""

    schema: str
    machines: tuple[ListedMachine, ...] | None = None


class Acquired(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A machine that is, or may be, there. seen: it was listed under this token."""

    vm: Vm
    token: str
    seen: bool = False


@dataclass(frozen=True, slots=True)
class MachinesCall:
    """How the command is called. facts: what every call tells besides (controller, run, …), looked up each time.
    key: the file of the key of a machine's agent, made if there is none. revoke: it counts no more."""

    words: tuple[str, ...]
    timeout_s: float
    facts: Callable[[], dict[str, Any]]
    key: Callable[[str], Path]
    revoke: Callable[[str], None]


class CommandMachines(FileMachines):
    """Lives in two threads: `request`, `release`, `list` in the controller's, `step` in its own."""

    def __init__(self, directory: Path, call: MachinesCall) -> None:
        super().__init__(directory)
        self._call = call
        self._wake, self._lock = threading.Event(), threading.Lock()
        self._running: tuple[str, ...] = ()
        self._trouble = self._strange = ""
        self._failures = 0
        self._since: dict[str, float] = {}  # machine → when it was asked for, or first not listed
        self._refused: set[str] = set()  # machines that are surely not there unless they are listed
        self._ending = False
        self._thread: threading.Thread | None = None

    # ── the controller's thread ─────────────────────────────────────────────────────────────────

    def start(self) -> None:
        self._thread = threading.Thread(target=self._live, name="machines", daemon=True)
        self._thread.start()

    def request(self, vm: Vm) -> None:
        super().request(vm)
        self._wake.set()

    def release(self, name: str) -> None:
        super().release(name)
        self._wake.set()

    def list(self) -> Listing:
        desired = super().list().desired
        with self._lock:
            return Listing(desired, self._running, self._trouble)

    def close(self) -> tuple[str, ...]:
        """Gives its thread a while to give back what is to be given back; what is not yet."""
        self._ending = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(self._call.timeout_s + CLOSE_S)
        desired = super().list().desired
        return tuple(name for name in self._acquired() if name not in desired)

    # ── its own thread ──────────────────────────────────────────────────────────────────────────

    def _live(self) -> None:
        while not self._over():
            pause_s = self.step(time.monotonic())
            if not self._over():
                self._wake.wait(pause_s)
                self._wake.clear()

    def _over(self) -> bool:
        return self._ending and not self._undone()

    def step(self, now_s: float) -> float:
        """One list and what follows from it; after how many seconds to look again."""
        faults: tuple[str, ...] = ()
        try:
            if (wanted := self._desired_vms()) or self._acquired():
                faults = self._match(wanted, now_s)
        except (OSError, msgspec.DecodeError, HeadgateError) as error:
            faults = (_words(error),)
        self._failures = self._failures + 1 if faults else 0
        again_s = min(AGAIN_MOST_S, AGAIN_S * 2 ** (self._failures - 1)) if faults else LOOK_S
        tries = f" ({self._failures} times)" if self._failures > 1 else ""
        words = f"{'; '.join(faults)}{tries}; tried again in {again_s:.0f} s" if faults else ""
        with self._lock:
            self._trouble = "; ".join(filter(None, (words, self._strange)))
        return again_s if faults or not self._undone() else SOON_S

    def _match(self, wanted: dict[str, Vm], now_s: float) -> tuple[str, ...]:
        """Ask for what is missing, give back what is too much; what went wrong. Raises CommandFailed without a list."""
        listed, mine = self._listed(), self._acquired()
        there = {machine.name: machine.state for machine in listed}
        self._strange = _strange(listed, mine)
        with self._lock:
            self._running = tuple(sorted(name for name in mine if there.get(name) == "running"))
        for name in mine:
            if name in there:
                self._since.pop(name, None)
                if not mine[name].seen:
                    self._note(msgspec.structs.replace(mine[name], seen=True))
            else:
                self._since.setdefault(name, now_s)
        faults = []
        for name in sorted({*mine, *wanted}):
            try:
                if name not in wanted:
                    self._give_back(mine[name], name in there, now_s)
                elif name not in there:
                    self._acquire(wanted[name], mine.get(name), now_s)
            except (OSError, HeadgateError) as error:
                faults.append(_words(error))
        return tuple(faults)

    def _acquire(self, vm: Vm, before: Acquired | None, now_s: float) -> None:
        """Its token is on disk before the command hears of it. One that was asked for and is not listed may still come:
        it is asked for again only after a while, and under another token only when it was there and is gone."""
        if (
            before is not None
            and now_s - self._since.get(vm.vm, now_s) < SETTLED_S
            and vm.vm not in self._refused
        ):
            return
        if before is None or before.seen:
            before = Acquired(vm, secrets.token_hex(16))
            self._note(before)
        self._since[vm.vm] = now_s
        self._refused.discard(vm.vm)
        shape = {name: value for name, value in msgspec.to_builtins(vm).items() if name != "vm"}
        key = str(self._call.key(vm.vm))
        try:
            self._say(
                "request", {"machine": {"name": vm.vm, **shape}, "token": before.token, "agent_key": key}
            )
        except CommandRefusal:
            self._refused.add(vm.vm)  # so it will not come by itself
            raise

    def _give_back(self, one: Acquired, there: bool, now_s: float) -> None:
        """Until it is listed no more; one that was never listed may still come, and is waited for."""
        name = one.vm.vm
        if there:
            self._say("release", {"machine": {"name": name}, "token": one.token})
            self._refused.add(name)
        elif name in self._refused or now_s - self._since[name] >= SETTLED_S:
            self._call.revoke(name)
            self._file(name).unlink(missing_ok=True)
            self._refused.discard(name)
            self._since.pop(name, None)

    def _note(self, one: Acquired) -> None:
        write_whole(self._file(one.vm.vm), msgspec.json.encode(one))

    def _undone(self) -> bool:
        """Is there something that the next steps will do?"""
        return set(super().list().desired) != self._acquired().keys()

    def _desired_vms(self) -> dict[str, Vm]:
        names = super().list().desired
        paths = [self._desired(name) for name in names]
        found = (msgspec.json.decode(path.read_bytes(), type=Vm) for path in paths if path.exists())
        return {vm.vm: vm for vm in found}

    def _acquired(self) -> dict[str, Acquired]:
        paths = sorted(self._directory.glob("*.acquired"))
        found = (msgspec.json.decode(path.read_bytes(), type=Acquired) for path in paths)
        return {one.vm.vm: one for one in found}

    def _file(self, name: str) -> Path:
        return self._directory / f"{name}.acquired"

    def _listed(self) -> tuple[ListedMachine, ...]:
        found = self._say("list", {}).machines
        if found is None or len(found) > MACHINES_MOST:
            raise CommandFailed("the machines command answers `list` without a list of machines")
        return found

    def _say(self, verb: str, more: dict[str, Any]) -> MachinesAnswer:
        """Raises CommandFailed."""
        said = {"schema": SCHEMA, "do": verb, **self._call.facts(), **more}
        what = " ".join([verb, more["machine"]["name"]] if "machine" in more else [verb])
        out = run_command(self._call.words, json.dumps(said).encode(), self._call.timeout_s, what)
        try:
            answer = msgspec.json.decode(out, type=MachinesAnswer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CommandFailed(
                f"the machines command answers `{what}` with what is no answer: {error}"
            ) from error
        if answer.schema != SCHEMA:
            raise CommandFailed(
                f"the machines command answers `{what}` in schema {answer.schema[:SAID_MOST]!r}"
            )
        return answer


def _strange(listed: tuple[ListedMachine, ...], mine: Container[str]) -> str:
    """Machines that are paid for and that nobody uses, in words."""
    names = [machine.name[:NAME_MOST] for machine in listed]
    unknown = sorted({name for name in names if name not in mine})
    twice = sorted({name for name in names if names.count(name) > 1})
    told = (("nobody asked for", unknown), ("are listed more than once", twice))
    return "; ".join(f"machines that {what}: {', '.join(some[:TOLD_MOST])}" for what, some in told if some)


def _words(error: Exception) -> str:
    return error.what if isinstance(error, HeadgateError) else str(error)
