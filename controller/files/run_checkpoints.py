"""Checkpoints by name, as a run makes and begins from them: out of a state directory, and into a new one."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from headgate.controller.execute.desired_state import keepers_now
from headgate.controller.execute.end_of_input import in_order
from headgate.controller.files import journal
from headgate.controller.files.run_state_files import TallyFile
from headgate.controller.knowledge.journal_records import ALL_GO_BY_IT, BegunFrom, Durable, fold_all
from headgate.controller.knowledge.knowledge import RunCounts
from headgate.controller.knowledge.run_tallies import FinishedTally, SourceTally, Tallies
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.connectors.object_folder import ObjectFolder
from headgate.topology_runtime.errors import Conflict, InvalidInput
from headgate.topology_runtime.platform import run_ids
from headgate.topology_runtime.worker.keyed_state import far_snapshots
from headgate.topology_runtime.worker.keyed_state import state_snapshots as form
from headgate.topology_runtime.worker.keyed_state.checkpoints import (
    Checkpoint,
    CheckpointRun,
    SourcePosition,
    missing_ranges,
    shape_of,
)
from headgate.topology_runtime.worker.keyed_state.far_snapshots import FarPlace

JOURNAL, TALLIES = Path("controller") / "journal.bin", Path("controller") / "tallies.bin"
TRIES, PAUSE_S = 100, 0.1  # to read snapshots while they are written
STILL_WAIT_S, STILL_POLL_S = 60.0, 0.5  # for a plan that is being brought into force


class StateMoves(Conflict):
    """Key ranges have no single owner for the moment."""

    def __init__(self, what: str) -> None:
        super().__init__(what, hint="a plan is being brought into force; create it again in some seconds")


def once_still(
    made: Callable[[], Checkpoint], say: Callable[[str], object], wait_s: float = STILL_WAIT_S
) -> Checkpoint:
    """What `made` gives, which is tried again while a plan is brought into force; said once. Raises what it raises."""
    end_s, said = time.monotonic() + wait_s, False
    while True:
        try:
            return made()
        except StateMoves as moves:
            if time.monotonic() >= end_s:
                raise
            if not said:
                say(f"{moves.what}: waiting until a plan is in force, at most {wait_s:.0f} s")
            said = True
            time.sleep(STILL_POLL_S)


# ── out of a run ────────────────────────────────────────────────────────────────────────────────────


def make(state: Path, url: str, wall_ns: int) -> Checkpoint:
    """The run in the state directory `state`, going on or over, whose snapshots are in `url`. Raises InvalidInput,
    Conflict, OSError.

    Positions first. Then snapshots, those of a task behind those of all tasks before it: what came of a row and is done
    is in the state of tasks behind, so whoever sent it is not asked for it any more."""
    run = _run_of(state)
    d = _durable(state)
    topology = _fit(state, d)
    positions = _positions(state, d, topology)
    keepers = keepers_now(d, topology)
    ranked = {task: rank for rank, task in enumerate(in_order(topology))}
    place = FarPlace(url, run, 0).open()
    if keepers and not place.there(far_snapshots.RUN_NOTE):
        raise InvalidInput(
            f"{url} has no state of run {run}",
            cause="its snapshots are on its VMs, or elsewhere",
            hint="run it with `up --state-to URL`, and name that URL here",
        )
    states, exact = dict[tuple[str, int], bytes](), False
    for one in sorted(keepers, key=lambda one: ranked[one.task]):
        found = {thread: _snapshot(place, one.task, thread) for thread in sorted({t for t, _ in one.ranges})}
        streams = {thread: form.stream(saved) for thread, saved in found.items()}
        if missing_ranges(one, {thread: saved.ranges for thread, saved in streams.items()}):
            raise StateMoves(f"key ranges of {one.task} are on their way")
        exact = exact or any(saved.rest.exact for saved in streams.values())
        states |= {(one.task, thread): saved for thread, saved in found.items()}
    now = _durable(state)
    if _numbers(now) != _numbers(d):
        raise StateMoves("key ranges have begun to move meanwhile")
    rows_of = d.begun.rows_of if d.begun is not None else run
    about = CheckpointRun(run, rows_of, wall_ns, exact, now.next_thread, now.next_routes, keepers)
    return Checkpoint(url, shape_of(topology), positions, about, states)


def _run_of(state: Path) -> str:
    file = state / run_ids.FILE
    try:
        return file.read_text("ascii").strip()
    except OSError as error:
        raise InvalidInput(
            f"{state} holds no run",
            cause=f"{file}: {error.strerror}",
            hint="its --state-dir, on the controller's host",
        ) from error


def _durable(state: Path) -> Durable:
    """What its journal adds up to; it may be written meanwhile."""
    try:
        records, _, _ = journal.read(state / JOURNAL)
    except OSError as error:
        raise InvalidInput(
            f"{state} holds no controller", cause=f"{error.filename}: {error.strerror}"
        ) from error
    return fold_all(records)


def _numbers(d: Durable) -> tuple[int, int, bool]:
    return (d.rollout.epoch if d.rollout is not None else 0), d.next_routes, d.phase in ALL_GO_BY_IT


def _fit(state: Path, d: Durable) -> Topology:
    """Raises Conflict where a checkpoint would not be whole, InvalidInput where it never can be."""
    if d.run is None or d.rollout is None:
        raise Conflict(f"the run in {state} has not begun", hint="wait for its first plan")
    if d.phase not in ALL_GO_BY_IT or d.waiting is not None:
        raise StateMoves("key ranges are on their way")
    if d.end is not None and d.end.whole:
        raise InvalidInput(
            "the input of this run has ended, and its keyed tasks have finished",
            cause="whoever went on from there would finish them twice",
            hint="create a checkpoint while the run goes on, or stop it with `headgate stop`",
        )
    over = bool(d.lives and d.lives[-1][1]) and not d.left
    once = [task.name for task in d.run.topology.sources if task.spooled]
    if once and not over:
        raise Conflict(
            f"what came at {', '.join(once)} cannot be read again, and part of it is on a VM's disk alone",
            hint="`headgate stop`, and create the checkpoint of the run that is over",
        )
    return d.run.topology


def _positions(state: Path, d: Durable, topology: Topology) -> tuple[SourcePosition, ...]:
    tallies = TallyFile(state / TALLIES).read()
    if tallies is None:
        raise Conflict(
            "it is not known how far sources are",
            cause=f"{state / TALLIES} is not there, or does not read",
            hint="try again in some seconds",
        )
    counts, found = RunCounts(), list[SourcePosition]()
    counts.recall(tallies)
    counts.recall_apart(d.apart)
    for task in topology.sources:
        for partition in range(task.partitions):
            known = counts.source(task.name, partition)
            offset, passing = known.go_on_from(known.acked) if task.offsets else (0, 0)
            found.append(SourcePosition(task.name, partition, known.acked, offset, passing))
    return tuple(found)


def _snapshot(place: ObjectFolder, task: str, thread: int) -> bytes:
    """What a thread saved last, while it saves more."""
    steady, trouble = _SteadyFolder(place), ""
    for _ in range(TRIES):
        try:
            found, _names = far_snapshots.read(steady, task, thread)
        except (OSError, msgspec.DecodeError) as error:  # what was listed is replaced by newer ones
            trouble = f"{type(error).__name__}: {error}"
            time.sleep(PAUSE_S)
            continue
        if found is not None:
            return found
        raise StateMoves(f"thread {thread} of {task} has saved nothing yet")
    raise InvalidInput(f"the state of thread {thread} of {task} cannot be read", cause=trouble)


class _SteadyFolder:
    """A folder in which somebody writes. A list is believed once it is the same twice: while it is made, one object may
    have gone before it was listed, and come under its new name behind that. Objects never change, so what was read is
    not read again."""

    def __init__(self, place: ObjectFolder) -> None:
        self.url, self._place = place.url, place
        self._read: dict[str, bytes] = {}

    def names(self, under: str) -> list[str]:
        before = self._place.names(under)
        while (now := self._place.names(under)) != before:
            before = now
        return now

    def get(self, name: str) -> bytes:
        if name not in self._read:
            self._read[name] = self._place.get(name)
        return self._read[name]

    def there(self, name: str) -> bool:
        return self._place.there(name)

    def folders(self, under: str) -> list[str]:
        return self._place.folders(under)

    def put(self, name: str, data: bytes, same_as: str = "") -> None:
        self._place.put(name, data, same_as)

    def remove(self, name: str) -> None:
        self._place.remove(name)


# ── into a new one ──────────────────────────────────────────────────────────────────────────────────


ROUTES_FROM_S = 1_577_836_800  # 2020, UTC


def begin(
    state: Path, run: str, url: str, found: Checkpoint, topology: Topology, wall_s: float | None = None
) -> None:
    """Before the first life of a controller: state and positions of a checkpoint are those of its run, which keeps
    its snapshots in `url`. The journal is written last: until then nothing has begun. wall_s: UTC, None: now. Routes
    are numbered from then on (seconds), since rows of timers have their numbers in their names: the run that was saved
    may have gone on, and another may begin from the same place. Raises OSError, Conflict."""
    wall_s = time.time() if wall_s is None else wall_s
    place = FarPlace(url, run, 0).open()
    for (task, thread), data in found.states.items():
        far_snapshots.begin_with(place, task, thread, data)
    book = journal.Journal(state / JOURNAL.parent)
    try:
        if book.records:
            return
        TallyFile(state / TALLIES).keep(_tallies(found, topology))
        about = found.run
        base = _offered(found, topology)
        numbers = (
            about.next_thread,
            max(about.next_routes, int(wall_s - ROUTES_FROM_S)),
            base,
            about.wall_ns,
            sum(p.position for p in found.positions),
        )
        book.append([BegunFrom(found.url, about.rows_of, about.keepers, *numbers)])
    finally:
        book.close()


def has_begun(state: Path) -> bool:
    """Has a controller written in this state directory?"""
    try:
        return bool(journal.read(state / JOURNAL)[0])
    except FileNotFoundError:
        return False


def _tallies(found: Checkpoint, topology: Topology) -> Tallies:
    """Everything below the positions is done, and counted."""
    numbers = {task.name: number for number, task in enumerate(topology.sources)}
    sources, floors = [], []
    for p in found.positions:
        offsets = ((p.position - p.passing, p.offset),) if p.offset else ()
        at = p.position, p.position, p.position
        sources.append(SourceTally(p.source, p.partition, *at, replayed=0, offsets=offsets))
        floors.append((numbers[p.source], p.partition, p.position))
    return Tallies(found.run.wall_ns, tuple(sources), finished=FinishedTally(tuple(floors)))


def _offered(found: Checkpoint, topology: Topology) -> float:
    """Positions of the offer that the source which is furthest has had: it goes on at once, others catch up."""
    paced = {task.name: task.partitions for task in topology.sources if task not in topology.arriving}
    return float(max((p.position * paced[p.source] for p in found.positions if p.source in paced), default=0))
