"""States of a checkpoint for code that has another `state_version`: migrated before anything begins.

`migrate` is the user's, so it is called in a process of its own, which reads and writes copies in a folder for the
purpose: what it prints goes to our stderr, what it breaks is its own, and the checkpoint stays as it was.
"""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from headgate.topology_runtime.api.logic import Keyed
from headgate.topology_runtime.api.references import last_lines, use_paths
from headgate.topology_runtime.api.task_functions import build
from headgate.topology_runtime.api.timed import Timed
from headgate.topology_runtime.api.topology import Task, Topology
from headgate.topology_runtime.errors import BadRow, HeadgateError, InvalidInput
from headgate.topology_runtime.platform.processes import die_with
from headgate.topology_runtime.wire.report_messages import KEY_TEXT_MOST
from headgate.topology_runtime.worker.calls import attempts
from headgate.topology_runtime.worker.keyed_state import state_snapshots as form
from headgate.topology_runtime.worker.keyed_state.checkpoints import Checkpoint, other_versions, ranges_of
from headgate.topology_runtime.worker.keyed_state.state_snapshots import KeyedSnapshot
from headgate.topology_runtime.worker.rows import row_values as wire

WORK, ANSWER = "work", "answer"
UNTOUCHED = "the checkpoint is as it was, and nothing has begun"

Migrate = Callable[[Any, int], Any]


class Part(msgspec.Struct, frozen=True):
    """A file to migrate: the snapshot of a thread of `task`, whose states are of this version, and the key ranges that
    it had."""

    file: str
    task: Task
    version: int
    ranges: tuple[int, ...]


class MigrationProblem(msgspec.Struct, frozen=True):
    """A HeadgateError on its way between processes. what: empty where all went well."""

    what: str = ""
    cause: str | None = None
    hint: str | None = None
    faults: tuple[str, ...] = ()


def migrated(found: Checkpoint, topology: Topology, user_paths: Sequence[str]) -> Checkpoint:
    """The checkpoint with the states that this code takes; itself where all have its version already. Raises
    InvalidInput, OSError."""
    changes = other_versions(found, topology)
    parts = [
        Part(f"{n}", topology.by_name[task], changes[task][0], tuple(ranges_of(found.run, task)[thread]))
        for n, (task, thread) in enumerate(found.states)
        if task in changes
    ]
    if not parts:
        return found
    places = list(found.states)
    with tempfile.TemporaryDirectory(prefix="headgate-migration-") as folder:
        for part in parts:
            Path(folder, part.file).write_bytes(found.states[places[int(part.file)]])
        Path(folder, WORK).write_bytes(msgspec.msgpack.encode(parts))
        _run(folder, found.url, user_paths)
        new = {places[int(part.file)]: Path(folder, part.file).read_bytes() for part in parts}
    return replace(found, states=found.states | new)


def _run(folder: str, url: str, user_paths: Sequence[str]) -> None:
    command = [sys.executable, "-P", "-m", __name__, folder, str(os.getpid()), *user_paths]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
    try:
        problem = msgspec.json.decode(Path(folder, ANSWER).read_bytes(), type=MigrationProblem)
    except OSError as error:
        raise InvalidInput(
            f"the states of checkpoint {url} cannot be migrated",
            cause=f"the process that did ended with exit code {done.returncode}",
            hint=f"its words are above; {UNTOUCHED}",
        ) from error
    if problem.what:
        raise InvalidInput(problem.what, cause=problem.cause, hint=problem.hint, faults=problem.faults)


# ── the process ─────────────────────────────────────────────────────────────────────────────────────


def main(folder: str, owner: str, *user_paths: str) -> NoReturn:
    """Its life: files of `folder` are written anew, then its answer."""
    die_with(int(owner))
    faulthandler.enable()
    use_paths(user_paths)
    try:
        migrate_files(Path(folder))
        problem = MigrationProblem()
    except HeadgateError as error:
        problem = MigrationProblem(error.what, error.cause, error.hint, error.faults)
    except BaseException as error:  # importing user code may raise anything
        problem = MigrationProblem(
            f"states cannot be migrated: {type(error).__name__}", last_lines(error), UNTOUCHED
        )
    Path(folder, ANSWER).write_bytes(msgspec.json.encode(problem))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads and exit handlers of user code do not keep us


def migrate_files(folder: Path) -> None:
    """Raises HeadgateError."""
    parts = msgspec.msgpack.decode((folder / WORK).read_bytes(), type=list[Part])
    known: dict[str, Migrate] = {}
    for part in parts:
        if part.task.name not in known:
            known[part.task.name] = migrate_of(part.task, part.version)
        file = folder / part.file
        saved = migrated_snapshot(form.read(file.read_bytes()), part, known[part.task.name])
        file.write_bytes(form.whole(saved))


def migrate_of(task: Task, version: int) -> Migrate:
    """The `migrate` of the task's object. Raises InvalidInput where it has none."""
    logic = build(task)
    base = Timed if isinstance(logic, Timed) else Keyed
    if not isinstance(logic, base) or type(logic).migrate is base.migrate:
        name = type(logic).__name__
        raise InvalidInput(
            f"the states of task {task.name} are of version {version}, and its code is of version {task.state_version}",
            cause=f"{name} has no migrate, so nobody can make the one of the other",
            hint=f"give {name} a migrate(self, old, version), or begin with the code of version {version}",
        )
    return logic.migrate


def migrated_snapshot(snapshot: KeyedSnapshot, part: Part, migrate: Migrate) -> KeyedSnapshot:
    """With the ranges that its thread had, each state as `migrate` gives it. Raises InvalidInput that names the key and
    the user's line."""
    kept, done, copies = set(part.ranges), 0, []
    for copy in snapshot.copies:
        if copy.key_range not in kept:
            continue
        contents, rows = form.contents_of(copy), list[list[Any]]()
        for key, saved in form.of_range(contents.states):
            done += 1
            try:
                rows += [[key, new] for new in _new(saved, part, migrate)]
            except BaseException as error:  # user code
                raise _failed(key, done, part, error) from error
        if copy.data:
            states = wire.write(rows, wire.NESTED)
            copy = form.copied(copy.key_range, copy.version, msgspec.structs.replace(contents, states=states))
        copies.append(copy)
    return msgspec.structs.replace(snapshot, copies=tuple(copies))


def _new(saved: Any, part: Part, migrate: Migrate) -> list[Any]:
    """What is saved of a key from now on; nothing of one that is forgotten."""
    if not part.task.timed:
        new = migrate(saved, part.version)
    elif saved is None or (state := migrate(saved[0], part.version)) is None:
        return []
    else:
        new = [state, *saved[1:]]
    wire.check([new])
    return [new]


def _failed(key: Any, number: int, part: Part, error: BaseException) -> InvalidInput:
    whose = f"the state of key {attempts.shown(key, KEY_TEXT_MOST)} of task {part.task.name}"
    if isinstance(error, BadRow):
        cause = f"what migrate gave cannot be saved: {error.what}".replace("a row", "it")
    else:
        cause = f"{attempts.failure(0, error).error}{attempts.users_line(error)}"
    return InvalidInput(
        f"{whose} cannot be migrated from version {part.version} to {part.task.state_version}",
        cause=f"{cause}; it is key number {number:,} of its thread",
        hint=f"mend migrate; {UNTOUCHED}",
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
