"""Getting and giving back VMs: the provider's contract, and two providers.

`request` and `release` are idempotent and return at once; `list` says what is asked for and what runs.
The controller journals its intent first and reconciles with `list`, so a crash leaks no VM.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.errors import HeadgateError, Infeasible
from headgate.topology_runtime.platform.disk import write_whole

if TYPE_CHECKING:
    import subprocess


@dataclass(frozen=True, slots=True)
class Listing:
    """Names of VMs asked for, and of VMs that run; trouble: why it is not as it should be, in words."""

    desired: tuple[str, ...]
    running: tuple[str, ...]
    trouble: str = ""


class Machines:
    """A machines provider. This one has none: the VMs are what they are."""

    def start(self) -> None:
        """The controller begins: it has the state directory for itself now."""

    def request(self, vm: Vm) -> None:
        """Start this VM with its agent, unless it is asked for already."""
        raise Infeasible(
            f"VM {vm.vm} cannot be had: this controller has no machines provider",
            hint="start an agent there with `headgate agent run`",
        )

    def release(self, name: str) -> None:
        """Stop it, if it is there."""

    def list(self) -> Listing:
        """What is asked for and what runs now."""
        return Listing((), ())

    def close(self) -> tuple[str, ...]:
        """The controller ends: names of VMs that are to be given back and are not yet."""
        return ()


class FileMachines(Machines):
    """VMs on this machine, kept by `headgate up`: it runs an agent for every `<vm>.desired` in
    `directory` and says so in `<vm>.running`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def request(self, vm: Vm) -> None:
        path = self._desired(vm.vm)
        if path.exists():
            return
        new = path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(vm))
        os.replace(new, path)

    def release(self, name: str) -> None:
        self._desired(name).unlink(missing_ok=True)

    def list(self) -> Listing:
        names = sorted(path.name for path in self._directory.iterdir())
        return Listing(
            tuple(name.removesuffix(".desired") for name in names if name.endswith(".desired")),
            tuple(name.removesuffix(".running") for name in names if name.endswith(".running")),
        )

    def _desired(self, name: str) -> Path:
        return self._directory / f"{name}.desired"


# ── A command of the user's, called once: bytes in, bytes out, in time, and nothing of it left behind ───

OUTPUT_MOST_BYTES = 1024 * 1024
GRACE_S = 2.0  # between SIGTERM and SIGKILL
SAID_MOST = 300  # characters of what a command says of its failure


class CommandFailed(HeadgateError):
    """Nobody knows whether the command did what was asked."""


class CommandRefusal(CommandFailed):
    """The command says that it did not: it ended with an exit code."""


def run_command(words: Sequence[str], said: bytes, timeout_s: float, what: str) -> bytes:
    """What the command writes; it and all that it started ends in time. Raises CommandFailed."""
    import subprocess  # few controllers have such a command, and all would wait for it to load

    try:
        child = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise CommandRefusal(
            f"the machines command cannot be started: {error.strerror} ({words[0]})"
        ) from error
    with _Reader(child.stdout) as out, _Reader(child.stderr) as err:
        late = False
        try:
            assert child.stdin is not None
            threading.Thread(target=_write, args=(child.stdin, said), daemon=True).start()
            child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            _end(child)
    if late:
        raise CommandFailed(
            f"the machines command did not end `{what}` within {timeout_s:g} s, and was killed"
        )
    told = err.text.strip().rpartition("\n")[2][:SAID_MOST]
    if child.returncode != 0:
        why = told or "it says nothing"
        failed = CommandRefusal if child.returncode > 0 else CommandFailed
        raise failed(f"the machines command failed at `{what}` with {child.returncode}: {why}")
    if out.over:
        raise CommandFailed(f"the machines command answers `{what}` with more than {OUTPUT_MOST_BYTES} bytes")
    return bytes(out.data)


class _Reader:
    """Reads a pipe to its end, and keeps its beginning."""

    def __init__(self, pipe: Any) -> None:
        self._pipe, self.data, self.over = pipe, bytearray(), False
        self._thread = threading.Thread(target=self._read, daemon=True)

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")

    def __enter__(self) -> _Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(GRACE_S)  # what was started may have handed the pipe on to another session

    def _read(self) -> None:
        with self._pipe:
            while part := self._pipe.read1(1 << 16):
                room = OUTPUT_MOST_BYTES - len(self.data)
                self.data += part[:room]
                self.over = self.over or len(part) > room


def _write(pipe: Any, said: bytes) -> None:
    """A command that does not read all of it is its own affair."""
    try:
        with pipe:
            pipe.write(said)
    except OSError:
        return


def _end(child: subprocess.Popen[bytes]) -> None:
    """The command and whatever of its session is left."""
    import subprocess

    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            break
        try:
            child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            continue
    child.wait()


# ── VMs from a command of the user's: `--machines-command` (docs/how-to/elastic-machines.md) ───
#
# What is asked for is files (`FileMachines`), so `request` and `release` return at once and outlive a crash;
# a thread makes the provider's machines match them, one call of the command after the other. Each look begins
# with the list. A machine has a *token* from before its first call until it is listed no more, and is asked
# for under it alone: after a call whose end is unknown the list is read before anything else is said, and a
# second call names the same token.

SCHEMA = "headgate/machines/v1"
MACHINES_MOST = 1024  # in one list
NAME_MOST, TOLD_MOST = 64, 8  # characters of a name, names in one sentence
LOOK_S, SOON_S = 15.0, 2.0  # between two lists; soon while something is on its way
SETTLED_S = 60.0  # a list may be so late
AGAIN_S, AGAIN_MOST_S = 5.0, 300.0  # after a failure, doubled with each
CLOSE_S = 15.0  # besides one call, to give machines back when the controller ends


class ListedMachine(msgspec.Struct, frozen=True):
    """One machine of the answer to `list`; more keys are allowed. One that is being ended is not listed any more."""

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
    """How the command is called. facts: what every call says besides (controller, run, …), looked up each time.
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
