"""Bugs to plant: the stories at the end of protocol.md, each put into the real classes by a patch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from controller import deciding
from controller.execute import executor, steps, watching
from controller.knowledge.knowledge import SourceKnown
from controller.knowledge.records import Record
from controller.knowledge.turns import JournalFailed
from controller.loop import Loop
from controller.simulation.controller import Disk
from controller.simulation.world import Options
from topology_runtime.logic import Hold
from topology_runtime.messages import Ack, Mark, RootPart
from topology_runtime.worker.flow import HoldFlow
from topology_runtime.worker.ledger import Ledger, Root
from topology_runtime.worker.outputs import Buffer, Outputs, Shares
from topology_runtime.worker.source_core import SourceCore
from topology_runtime.worker.task_core import TaskCore

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Story:
    """A bug, the seeds' options under which it shows, and words of the invariants that catch it."""

    plant: Patch
    words: tuple[str, ...]
    options: Options = field(default_factory=Options)
    seeds: int = 12
    both: Patch | None = None  # holds for the planted and the sound run alike


# ── tuples ──────────────────────────────────────────────────────────────────────────────────────


def a1_one_share_for_two_input_frames(patch: pytest.MonkeyPatch) -> None:
    """An open buffer gives rows of a second input frame the share that its root has already."""
    real = Outputs._share

    def shared(self: Outputs, buffer: Buffer, root: RootPart, given: Shares) -> int:
        known = buffer.roots.get(root.key)
        if known is None:
            return real(self, buffer, root, given)
        given[root.key] = given.get(root.key, 0) ^ known[1].id
        return known[0]

    patch.setattr(Outputs, "_share", shared)


def a2_kept_rows_are_acked_at_once(patch: pytest.MonkeyPatch) -> None:
    """Rows that a batch keeps have no share in the ack."""
    real = TaskCore.make_flow

    def make_flow(self: TaskCore, around: Any, logic: Any, pause: Any) -> Any:
        flow = real(self, around, logic, pause)
        if isinstance(flow, HoldFlow) and isinstance(logic, Hold):
            flow.random64 = lambda: 0
        return flow

    patch.setattr(TaskCore, "make_flow", make_flow)


def a3_a_leaver_ends_with_a_full_ledger(patch: pytest.MonkeyPatch) -> None:
    """A source has no upstream, so it takes itself for empty as soon as it reads no more."""
    patch.setattr(SourceCore, "empty", property(lambda self: self.outputs.empty))
    patch.setattr(SourceCore, "stopped", property(lambda self: self.stopped_reading))


def b3_late_acks_never_count(patch: pytest.MonkeyPatch) -> None:
    """Only the newest attempt may complete a root; whatever is past its deadline is sent again, and no expiry
    lengthens that."""
    real = Ledger.ack

    def ack(self: Ledger, ack: Ack, now_ns: int) -> bool:
        root = self._open.get(ack.key.sequence)
        return root is not None and ack.key.attempt == root.attempt and real(self, ack, now_ns)

    def deadline_of(self: Ledger, root: Root) -> int:
        return self._deadline_ns

    def lost(self: Ledger, root: Root, now_ns: int) -> bool:
        return now_ns >= root.deadline_ns

    patch.setattr(Ledger, "ack", ack)
    patch.setattr(Ledger, "_lost", lost)
    patch.setattr(Ledger, "_deadline_of", deadline_of)


def short_deadlines(patch: pytest.MonkeyPatch) -> None:
    """The first deadline is a second, not half a minute."""
    patch.setattr("topology_runtime.worker.ledger.FIRST_DEADLINE_NS", 1_000_000_000)


# ── plans ───────────────────────────────────────────────────────────────────────────────────────


def b1_marks_are_sent_once(patch: pytest.MonkeyPatch) -> None:
    """A mark is an event: sent when the routes change under a thread, so never by one that started anew."""
    real = TaskCore.obey

    def obey(self: TaskCore, orders: Any, now_ns: int) -> bool:
        swapped = self.orders is not None and self.orders.number != orders.number
        post, self.post = self.post, _Quiet(self.post, allow=swapped)
        try:
            return real(self, orders, now_ns)
        finally:
            self.post = post

    patch.setattr(TaskCore, "obey", obey)


class _Quiet:
    """A Post that sends marks only if allowed."""

    def __init__(self, post: Any, allow: bool) -> None:
        self._post, self._allow = post, allow

    def __getattr__(self, name: str) -> Any:
        return getattr(self._post, name)

    def send_word(self, word: Any) -> None:
        if self._allow or not isinstance(word, Mark):
            self._post.send_word(word)


def b2_a_dead_vm_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    """Threads on VMs that are lost stay part of the next enactment."""

    def none(*_: object) -> frozenset[Any]:
        return frozenset()

    patch.setattr(executor, "dead_slots", none)
    patch.setattr(deciding, "dead_slots", none)


def b2_lost_leavers_are_waited_for(patch: pytest.MonkeyPatch) -> None:
    """As the code was before a seed found it: only the VMs of threads that stay count as lost."""

    def staying(k: Any) -> frozenset[Any]:
        newest = k.durable.waiting or k.durable.reign
        return newest.staying_slots if newest else frozenset()

    patch.setattr(watching, "planned_slots", staying)
    patch.setattr(executor, "_leavers_over", lambda *_: False)


def b1_ended_leavers_are_waited_for(patch: pytest.MonkeyPatch) -> None:
    """As the code was before a seed found it: a thread that has ended is still to mark others."""
    patch.setattr(steps, "said_ended", lambda *_: False)


# ── positions and journal ───────────────────────────────────────────────────────────────────────


def b5_saved_positions_go_back(patch: pytest.MonkeyPatch) -> None:
    """Whatever was reported last is taken for the position, also of a source that starts anew."""
    real = SourceKnown.hear

    def hear(self: SourceKnown, now: Any) -> None:
        real(self, now)
        self.acked = now.acked

    patch.setattr(SourceKnown, "hear", hear)


def b5_read_is_taken_for_done(patch: pytest.MonkeyPatch) -> None:
    """The position saved is the one that was read, not the one below which all is acked."""
    real = SourceKnown.hear

    def hear(self: SourceKnown, now: Any) -> None:
        real(self, now)
        self.acked = max(self.acked, now.emitted)

    patch.setattr(SourceKnown, "hear", hear)


def b6_sent_before_it_is_synced(patch: pytest.MonkeyPatch) -> None:
    """Records are written and not synced before the state is sent."""

    def append(self: Disk, records: tuple[Record, ...]) -> None:
        self.unsynced += records

    patch.setattr(Disk, "append", append)


def b6_a_failed_journal_is_shrugged_off(patch: pytest.MonkeyPatch) -> None:
    """The state of a turn that could not be journaled is kept in mind, and told."""

    def shrug(self: Loop, turn: Any, event: JournalFailed) -> None:
        return None

    patch.setattr(Loop, "_on_journal_failed", shrug)


LOSING = Options(kinds=("lose_vm", "kill_worker"), faults=2)

STORIES: dict[str, Story] = {
    "A1": Story(a1_one_share_for_two_input_frames, ("counts", "not yet"), Options(shape="diamond")),
    "A2": Story(a2_kept_rows_are_acked_at_once, ("counts",), Options(shape="batch")),
    "A3": Story(
        a3_a_leaver_ends_with_a_full_ledger,
        ("full ledger", "unaccounted", "reached no sink"),
        Options(shape="line", queue_ms=1800, faults=0),
    ),
    "B1": Story(b1_marks_are_sent_once, ("not yet", "no re-plan"), Options(kinds=("kill_worker_at_mark",))),
    "B1 ended": Story(
        b1_ended_leavers_are_waited_for, ("not yet", "no re-plan"), Options(faults=0), seeds=40
    ),
    "B2": Story(b2_a_dead_vm_is_waited_for, ("not yet", "no re-plan"), LOSING),
    "B2 leavers": Story(b2_lost_leavers_are_waited_for, ("not yet", "no re-plan"), LOSING, seeds=40),
    "B3": Story(
        b3_late_acks_never_count,
        ("replay storm",),
        Options(shape="line", queue_ms=1800, faults=0),
        both=short_deadlines,
    ),
    "B5 back": Story(b5_saved_positions_go_back, ("goes back",), Options(kinds=("kill_agent",))),
    "B5 read": Story(b5_read_is_taken_for_done, ("saved as acked",)),
    "B6 unsynced": Story(b6_sent_before_it_is_synced, ("journaled", "in mind")),
    "B6 shrug": Story(
        b6_a_failed_journal_is_shrugged_off, ("journaled", "in mind"), Options(kinds=("fail_journal",))
    ),
}
