"""Checkpoints by name: positions of sources, and the keyed state that goes with them (docs/decisions/0098).

    URL/checkpoints/NAME/topology             JSON: names, kinds, states and partitions of tasks, and edges
    URL/checkpoints/NAME/positions            JSON: of each source partition, from where it reads on
    URL/checkpoints/NAME/run                  JSON: whose it is, and who had which key ranges
    URL/checkpoints/NAME/state/TASK~THREAD    a whole snapshot, and what changed since (state_snapshots.py)
    URL/checkpoints/NAME/complete             JSON, written last: size and SHA-256 of all others

Without `complete`, or where something does not match it, a checkpoint is damaged and nobody begins with it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from headgate.topology_runtime.api.topology import KEY_RANGES, Topology
from headgate.topology_runtime.connectors.object_folder import ObjectFolder, absolute, object_folder
from headgate.topology_runtime.errors import Conflict, InvalidInput
from headgate.topology_runtime.wire.messages import Keepers
from headgate.topology_runtime.worker.calls.router import unrolled
from headgate.topology_runtime.worker.keyed_state import state_snapshots as form
from headgate.topology_runtime.worker.keyed_state.far_snapshots import STATE
from headgate.topology_runtime.worker.keyed_state.state_snapshots import KeyedSnapshot

FOLDER = "checkpoints"
TOPOLOGY, POSITIONS, RUN, COMPLETE = "topology", "positions", "run", "complete"
SCHEMA = "headgate/checkpoint/v1"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
MAKE_ANOTHER = "`headgate checkpoint list` shows what there is; begin with another one"

T = TypeVar("T")


class TaskShape(msgspec.Struct, frozen=True):
    """What of a task the names of rows, and the places of state, depend on."""

    name: str
    kind: str
    state: str
    timed: bool
    partitions: int  # of a source
    state_version: int = 1


class CheckpointTopology(msgspec.Struct, frozen=True):
    """edges: (from, to, grouping). digest: of the topology with its code's names and parameters."""

    name: str
    digest: str
    tasks: tuple[TaskShape, ...]
    edges: tuple[tuple[str, str, str], ...]


class SourcePosition(msgspec.Struct, frozen=True):
    """All rows below `position` are done. offset: of a source that has them, where to go on, and rows from there to
    pass over (0, 0: it reads by position)."""

    source: str
    partition: int
    position: int
    offset: int = 0
    passing: int = 0


class CheckpointRun(msgspec.Struct, frozen=True):
    """run: the one that was saved. rows_of: the one in the names of its rows. next_thread, next_routes: numbers that
    it has not given. wall_ns: when it was begun (UTC)."""

    run: str
    rows_of: str
    wall_ns: int
    exactly_once: bool
    next_thread: int
    next_routes: int
    keepers: tuple[Keepers, ...]


class CheckedFile(msgspec.Struct, frozen=True):
    """A file of a checkpoint, as it was written."""

    name: str
    bytes: int
    sha256: str


class Completeness(msgspec.Struct, frozen=True):
    """The last file of a checkpoint."""

    schema: str
    files: tuple[CheckedFile, ...]


def ranges_of(run: CheckpointRun, task: str) -> dict[int, set[int]]:
    """Thread → the key ranges of a task that it had."""
    found: dict[int, set[int]] = {}
    for keepers in run.keepers:
        if keepers.task == task:
            for key_range, owner in enumerate(unrolled(keepers.ranges)):
                found.setdefault(owner, set()).add(key_range)
    return found


@dataclass(frozen=True)
class OpenCheckpoint:
    """A checkpoint whose states are read when they are asked for. files: their names, sizes and hashes."""

    place: ObjectFolder
    name: str
    topology: CheckpointTopology
    positions: tuple[SourcePosition, ...]
    run: CheckpointRun
    files: tuple[CheckedFile, ...]

    def task(self, name: str) -> TaskShape:
        """A keyed task. Raises InvalidInput."""
        keyed = [task for task in self.topology.tasks if task.state == "keyed"]
        for task in keyed:
            if task.name == name:
                return task
        there = any(task.name == name for task in self.topology.tasks)
        raise InvalidInput(
            f"{name} has no state per key" if there else f"there is no task {name}",
            cause=f"keyed tasks of checkpoint {self.name}: {', '.join(t.name for t in keyed) or 'none'}",
            hint="--task with one of these",
        )

    def snapshots(self, task: str) -> Iterator[tuple[int, set[int], KeyedSnapshot]]:
        """(thread, key ranges that it had, what it saved) of a task, one after the other. Raises InvalidInput,
        OSError."""
        for thread, kept in sorted(ranges_of(self.run, task).items()):
            yield thread, kept, self._snapshot(f"{STATE}/{task}~{thread}")

    def _snapshot(self, name: str) -> KeyedSnapshot:
        file = next((file for file in self.files if file.name == name), None)
        if file is None:
            raise _damaged(self.name, f"{name} is missing")
        try:
            return form.read(self.bytes(file))
        except msgspec.DecodeError as error:
            raise _damaged(self.name, f"{name} cannot be read: {error}") from error

    def bytes(self, file: CheckedFile) -> bytes:
        """Of a file, as they were written. Raises InvalidInput, OSError."""
        return _checked(self.place, folder_of(self.name), file, self.name)


@dataclass(frozen=True)
class Checkpoint:
    """states: (task, thread) → what it saved, as bytes."""

    url: str
    topology: CheckpointTopology
    positions: tuple[SourcePosition, ...]
    run: CheckpointRun
    states: dict[tuple[str, int], bytes]

    def snapshots(self) -> Iterator[tuple[str, int, KeyedSnapshot]]:
        """(task, thread, what it had)."""
        for (task, thread), data in sorted(self.states.items()):
            yield task, thread, form.read(data)


def shape_of(topology: Topology) -> CheckpointTopology:
    """What a checkpoint says of a topology."""
    sources = {task.name for task in topology.sources}
    tasks = tuple(
        TaskShape(t.name, t.kind, t.state, t.timed, t.partitions if t.name in sources else 0, t.state_version)
        for t in topology.tasks
    )
    edges = tuple((e.source, e.target, e.grouping) for e in topology.edges)
    return CheckpointTopology(topology.name, topology.digest, tasks, edges)


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────


def write(place: ObjectFolder, name: str, checkpoint: Checkpoint) -> tuple[CheckedFile, ...]:
    """Returns what was written. Raises Conflict where there is something of this name, OSError."""
    folder = folder_of(name)
    if place.names(folder) or place.folders(folder):
        raise Conflict(
            f"there is a checkpoint {name} already", cause=f"in {place.url}", hint="choose another name"
        )
    encode = msgspec.json.encode
    contents = {
        TOPOLOGY: encode(checkpoint.topology),
        POSITIONS: encode(checkpoint.positions),
        RUN: encode(checkpoint.run),
    }
    contents |= {
        f"{STATE}/{task}~{thread}": data for (task, thread), data in sorted(checkpoint.states.items())
    }
    files = tuple(
        CheckedFile(file, len(data), hashlib.sha256(data).hexdigest()) for file, data in contents.items()
    )
    for file, data in contents.items():
        place.put(f"{folder}/{file}", data)
    place.put(f"{folder}/{COMPLETE}", encode(Completeness(SCHEMA, files)))
    return files


def folder_of(name: str) -> str:
    """Raises InvalidInput."""
    if not NAME.fullmatch(name):
        raise InvalidInput(
            f"invalid name of a checkpoint: {name!r}",
            cause="not 1 to 64 letters, digits, '.', '_' and '-'",
            hint="for example before-upgrade",
        )
    return f"{FOLDER}/{name}"


def remove(place: ObjectFolder, name: str) -> None:
    """`complete` goes first, so that what is left is never taken for whole. Raises InvalidInput, OSError."""
    folder = folder_of(name)
    states = place.names(f"{folder}/{STATE}")
    there = place.names(folder)
    if not there and not states:
        raise _not_there(place.url, name)
    for file in [
        COMPLETE,
        *(f"{STATE}/{state}" for state in states),
        *(one for one in there if one != COMPLETE),
    ]:
        place.remove(f"{folder}/{file}")


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────


def parts_of(url: str) -> tuple[str, str]:
    """`URL/NAME` → URL, NAME. Raises InvalidInput.

    >>> parts_of("s3://bucket/states/before-upgrade")
    ('s3://bucket/states', 'before-upgrade')
    """
    place, _, name = absolute(url).rstrip("/").rpartition("/")
    folder_of(name)
    return place.removesuffix(f"/{FOLDER}"), name


def names(place: ObjectFolder) -> list[str]:
    """Of the checkpoints there, damaged ones too. Raises OSError."""
    return place.folders(FOLDER)


def begin_with(url: str) -> Checkpoint:
    """The checkpoint `URL/NAME`. Raises InvalidInput where it is not there, is damaged or cannot be read."""
    place, name = parts_of(url)
    try:
        return read(object_folder(place), name)
    except OSError as error:
        raise InvalidInput(
            f"checkpoint {name} in {place} cannot be read",
            cause=f"{type(error).__name__}: {error}",
            hint="is the store there, and may this user read it?",
        ) from error


def read(place: ObjectFolder, name: str) -> Checkpoint:
    """Whole, with every file as it was written. Raises InvalidInput, OSError."""
    found = opened(place, name)
    states = {
        _thread(file.name, name): found.bytes(file)
        for file in found.files
        if file.name.startswith(f"{STATE}/")
    }
    whole = Checkpoint(f"{place.url}/{name}", found.topology, found.positions, found.run, states)
    _check_ranges(whole, name)
    return whole


def opened(place: ObjectFolder, name: str) -> OpenCheckpoint:
    """All of it but its states. Raises InvalidInput, OSError."""
    folder = folder_of(name)
    try:
        complete = _decoded(place.get(f"{folder}/{COMPLETE}"), Completeness, name, COMPLETE)
    except FileNotFoundError as error:
        if not place.names(folder) and not place.folders(folder):
            raise _not_there(place.url, name) from error
        raise _damaged(name, f"{COMPLETE} is missing: it was never finished, or is being deleted") from error
    if complete.schema != SCHEMA:
        raise _damaged(name, f"its schema is {complete.schema!r}, and not {SCHEMA!r}")
    data = {
        file.name: _checked(place, folder, file, name)
        for file in complete.files
        if file.name in (TOPOLOGY, POSITIONS, RUN)
    }
    return OpenCheckpoint(
        place,
        name,
        _decoded(data.get(TOPOLOGY, b""), CheckpointTopology, name, TOPOLOGY),
        _decoded(data.get(POSITIONS, b""), tuple[SourcePosition, ...], name, POSITIONS),
        _decoded(data.get(RUN, b""), CheckpointRun, name, RUN),
        complete.files,
    )


def _checked(place: ObjectFolder, folder: str, file: CheckedFile, name: str) -> bytes:
    try:
        data = place.get(f"{folder}/{file.name}")
    except FileNotFoundError as error:
        raise _damaged(name, f"{file.name} is missing") from error
    if len(data) != file.bytes:
        raise _damaged(name, f"{file.name} has {len(data):,} bytes, and not {file.bytes:,}")
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise _damaged(name, f"{file.name} is not what was written: its SHA-256 differs")
    return data


def _decoded(data: bytes, kind: type[T], name: str, file: str) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise _damaged(name, f"{file} cannot be read: {error}") from error


def _thread(file: str, name: str) -> tuple[str, int]:
    task, _, thread = file.removeprefix(f"{STATE}/").rpartition("~")
    if not task or not thread.isdigit():
        raise _damaged(name, f"{file} is of no thread")
    return task, int(thread)


def _check_ranges(found: Checkpoint, name: str) -> None:
    """Every key range is with who had it."""
    try:
        there = {place: form.stream(data).ranges for place, data in found.states.items()}
    except msgspec.DecodeError as error:
        raise _damaged(name, f"a snapshot cannot be read: {error}") from error
    for keepers in found.run.keepers:
        if missing := missing_ranges(keepers, dict(_of(keepers.task, there))):
            raise _damaged(name, f"{missing} of {KEY_RANGES:,} key ranges of {keepers.task} are missing")


def _of(task: str, there: dict[tuple[str, int], T]) -> Iterator[tuple[int, T]]:
    return ((thread, found) for (of, thread), found in there.items() if of == task)


def missing_ranges(keepers: Keepers, there: dict[int, set[int]]) -> int:
    """How many ranges are not with the thread that has them by these routes. there: thread → its ranges."""
    first = missing = 0
    for thread, count in keepers.ranges:
        missing += len(set(range(first, first + count)) - there.get(thread, set()))
        first += count
    return missing + KEY_RANGES - first


def _not_there(url: str, name: str) -> InvalidInput:
    return InvalidInput(
        f"there is no checkpoint {name}", cause=f"{url} has none of this name", hint=MAKE_ANOTHER
    )


def _damaged(name: str, cause: str) -> InvalidInput:
    return InvalidInput(f"checkpoint {name} is damaged", cause=cause, hint=MAKE_ANOTHER)


# ── whose it is ─────────────────────────────────────────────────────────────────────────────────────


def check_fits(found: Checkpoint, topology: Topology, exactly_once: bool) -> None:
    """May a run of this topology begin with it? Raises InvalidInput with every difference.

    Rows are known by their source's number, state lies with tasks, and what came of rows by edges: so tasks and edges
    are to be the same. Code and parameters may be others, and so may versions of states (`other_versions`)."""
    mine, faults = shape_of(topology), []
    ours = {task.name: task for task in mine.tasks}
    for task in found.topology.tasks:
        now = ours.pop(task.name, None)
        what = f"the keyed task {task.name}" if task.state == "keyed" else f"{task.kind} {task.name}"
        if now is None:
            faults.append(f"{what} of the checkpoint is not in the topology")
        elif now.partitions != task.partitions:
            faults.append(f"{what}: {now.partitions} partitions, in the checkpoint {task.partitions}")
        elif replace(now, state_version=task.state_version) != task:
            faults.append(f"{what} is another kind of task, or keeps its state in another way")
    faults += [f"{task.kind} {task.name} is not in the checkpoint" for task in ours.values()]
    if not faults and [task.name for task in mine.tasks] != [task.name for task in found.topology.tasks]:
        faults.append("its tasks are in another order")
    if not faults and mine.edges != found.topology.edges:
        faults.append("its edges, their groupings or their order differ")
    if faults:
        raise InvalidInput(
            f"checkpoint {found.url} is of another topology: {found.topology.name}",
            faults=faults,
            cause="rows and state are known by tasks, partitions and edges",
            hint="run the topology that it was made of; code and parameters may be others",
        )
    if found.run.keepers and found.run.exactly_once != exactly_once:
        word = "with" if found.run.exactly_once else "without"
        raise InvalidInput(
            f"checkpoint {found.url} was made {word} exactly-once",
            cause="which rows its state knows depends on that",
            hint=f"begin {word} `up --exactly-once`",
        )


def other_versions(found: Checkpoint, topology: Topology) -> dict[str, tuple[int, int]]:
    """Keyed task → (version of its states in the checkpoint, version of its code), where they are not the same."""
    versions = {task.name: task.state_version for task in found.topology.tasks if task.state == "keyed"}
    return {
        name: (version, topology.by_name[name].state_version)
        for name, version in versions.items()
        if version != topology.by_name[name].state_version
    }
