"""Timers of several keys, set, moved and cancelled by rows and by each other, as a plain set of them for each key would
have it: in which order they fire, and what is there after every step, also where calls fail and after a restart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from silent_post import SilentPost

from headgate.topology_runtime.api.timed import Time, Timed
from headgate.topology_runtime.api.topology import Edge, Task, Timestamps, Topology
from headgate.topology_runtime.wire.messages import Ack, Frame, RootKey, RootPart, ThreadSpec
from headgate.topology_runtime.wire.state_moves import Watermark
from headgate.topology_runtime.worker.calls.router import range_of
from headgate.topology_runtime.worker.keyed_state import state_snapshots as form
from headgate.topology_runtime.worker.keyed_state.savable_states import LOOKED_FIRST
from headgate.topology_runtime.worker.keyed_state.state_snapshots import SavedPart, SavedWhole
from headgate.topology_runtime.worker.keyed_state.timed_rows import TimedRows
from headgate.topology_runtime.worker.keyed_state.timed_states import Held
from headgate.topology_runtime.worker.operators.behaviours import behaviour_of
from headgate.topology_runtime.worker.operators.thread_core import ThreadCore
from headgate.topology_runtime.worker.operators.timed_task import TimedTask
from headgate.topology_runtime.worker.process.called_thread import SLOT, orders_for

S = 1_000_000_000
KEYS = ("a", "b", 1, ("t", 1))
SOURCE, TOLD = 1, 2  # threads
OTHER_ROWS = 1_000_000  # positions from there on are of rows of another key
FLOW = Topology(
    "told",
    (
        Task("source", kind="source", run="test_timers:Events", timestamps=Timestamps(1)),
        Task("told", kind="keyed", state="keyed", run="test_timers:Ten", timed=True),
        Task("after", run="test_timers:print"),
    ),
    (Edge("source", "told", grouping="fields", key=0), Edge("told", "after")),
)


class AsTold(Timed):
    """Does what its rows say, and its timers what their names do. fired: (key, at, name) of each, in order."""

    at, unit = 1, "us"

    def __init__(self) -> None:
        self.fired: list[tuple[Any, int, str]] = []

    def new(self, key: Any) -> list[int]:
        return [0]

    def process(self, key: Any, row: Any, state: list[int], time: Time) -> tuple[Any, Iterable[Any]]:
        _, _, steps, ends = row
        for what, at, name in steps:
            getattr(time, what)(at, name)
        if ends == "raises":
            raise ValueError("told so")
        if ends == "lazy":
            return [state[0] + 1], self.lazily(key, state[0] + 1, time)
        if ends == "unsaved":
            return [object()], ()
        if ends == "in place":
            state[0] += 1
            return state, [(str(key), state[0], time.late)]
        return (None if ends == "gone" else [state[0] + 1]), ()

    def lazily(self, key: Any, number: int, time: Time) -> Iterator[Any]:
        time.set(time.at_us + 2, "lazy")
        yield str(key), number, time.late

    def on_timer(self, key: Any, at: int, state: list[int], time: Time) -> tuple[Any, Iterable[Any]]:
        self.fired.append((key, at, time.name))
        what = time.name.split()[-1]
        if what == "bad":
            time.cancel(at + 1, "plain")
            raise ValueError("told so")
        if what == "again":
            time.set(at + 3, "plain")
            time.set_clock(at + 5, "clock plain")
        if what == "drop":
            time.cancel(at + 1, "plain")
            time.cancel_clock(at + 1, "clock plain")
            state[0] += 50
            return state, ()
        return (None if what == "gone" else [state[0] + 100]), [(str(key), at)]


class MemoryStore:
    """covered: how often all until then was durable."""

    under_way = late = False

    def __init__(self) -> None:
        self.stands, self.whole_due = False, True
        self.there: bytes | None = None
        self.making: bytes | None = None
        self.changes = self.covered = 0

    def load(self) -> SavedWhole | None:
        self.making = None
        return form.stream(self.there) if self.there is not None else None

    def save(self, part: SavedPart) -> None:
        self.there, self.making = form.behind(self.there, self.making, part)
        self.changes = 0 if part.ends else self.changes + 1
        self.covered += part.covers
        self.stands = self.there is not None
        self.whole_due = self.making is None and (not self.stands or self.changes >= 3)

    def look(self) -> None: ...


class ToldThread(SilentPost):
    """Thread `told`: what it sends is done at once. wall_us: its VM's clock, which timers go by."""

    slot = SLOT

    def __init__(self, store: MemoryStore, incarnation: int, now_ns: int, wall_us: int) -> None:
        self.incarnation, self.now_ns, self.wall_us = incarnation, now_ns, wall_us
        self.frames: list[Frame] = []
        self.logic = AsTold()
        ports = replace(self.ports(), snapshots=lambda task, thread: store)
        self.core = ThreadCore(ThreadSpec(TOLD, "told", SLOT), FLOW, ports)
        self.core.behaviour = behaviour_of(self.core, self.logic, lambda _: None)
        self.core.obey(orders_for(FLOW), self.now_ns)

    def wall_ns(self) -> int:
        return self.wall_us * 1000

    def deliver(self, frames: Iterable[Frame]) -> None:
        self.frames += frames

    def give(self, position: int, rows: list[Any]) -> list[Any]:
        """What comes of them at once."""
        self.sent()
        part = RootPart(RootKey(SOURCE, 1, position, 0), SLOT, 0, 0, position, 0, 0, 7)
        runs = [(0, 0, len(rows), 0)]
        self.core.take(Frame(0, SOURCE, SLOT, 1, TOLD, [part], runs, rows, 0, 0), self.now_ns)
        self.core.flush(self.now_ns, everything=True)
        return [row for frame in self.sent() for row in frame.rows]

    def sent(self) -> list[Frame]:
        found, self.frames = self.frames, []
        return found

    def look(self, watermark_us: int | None = None) -> list[tuple[Any, int, str]]:
        """Timers that fired."""
        if watermark_us is None:
            self.core.on_time(self.now_ns)
        else:
            self.core.hear(Watermark(SOURCE, TOLD, watermark_us), self.now_ns)
        self.core.flush(self.now_ns, everything=True)
        return self.fired()

    def fired(self) -> list[tuple[Any, int, str]]:
        """Timers since this was asked last; of one that was tried again, once."""
        fired, self.logic.fired = self.logic.fired, []
        return [one for n, one in enumerate(fired) if n == 0 or one != fired[n - 1]]

    def all_done(self) -> None:
        acks = [Ack(root.key, root.id) for frame in self.sent() for root in frame.roots]
        self.core.hear(acks, self.now_ns)

    @property
    def rows(self) -> TimedRows:
        behaviour = self.core.behaviour
        assert isinstance(behaviour, TimedTask)
        return behaviour.rows

    def held(self) -> dict[Any, tuple[list[int], set[Any], set[Any]]]:
        found = {}
        for key in KEYS:
            held = self.rows.states.of(range_of(key)).get(key)
            if type(held) is Held:
                found[key] = (held.state, set(held.events), set(held.clocks))
                assert len(held.events) == len(found[key][1]) and len(held.clocks) == len(found[key][2])
        return found


class PlainKeys:
    """What there should be: of each key its state, and its timers by event time and by the clock."""

    def __init__(self) -> None:
        self.held: dict[Any, tuple[list[int], set[Any], set[Any]]] = {}

    def row(self, row: Any, watermark_us: int | None) -> list[Any]:
        key, at_us, steps, ends = row
        if ends in ("raises", "unsaved"):
            return []
        late = watermark_us is not None and at_us < watermark_us
        (number,), events, clocks = self.held.get(key, ([0], set(), set()))
        for what, *timer in steps:
            timers = clocks if what.endswith("clock") else events
            (timers.add if what.startswith("set") else timers.discard)(tuple(timer))
        if ends == "lazy":
            events.add((at_us + 2, "lazy"))
        self.held[key] = [number + 1], events, clocks
        if ends == "gone":
            del self.held[key]
        return [(str(key), number + 1, late)] if ends in ("lazy", "in place") else []

    def fire(self, fired: list[Any], watermark_us: int | None, wall_us: int) -> None:
        """These did, and no others: first those by event time, then those by the clock, each in their order."""
        for kind, until_us in ((1, watermark_us), (2, wall_us)):
            while until_us is not None and (due := self._due(kind, until_us)):
                assert fired, f"{due} are due"
                key, *timer = fired.pop(0)
                assert tuple(timer) == min(due) and tuple(timer) in self.held[key][kind]
                self._fired(key, kind, *timer)
        assert not fired, "they were not due"

    def _due(self, kind: int, until_us: int) -> list[Any]:
        return [one for held in self.held.values() for one in held[kind] if one[0] <= until_us]

    def _fired(self, key: Any, kind: int, at: int, name: str) -> None:
        held, what = self.held[key], name.split()[-1]
        (number,), events, clocks = held
        held[kind].discard((at, name))
        if what == "again":
            events.add((at + 3, "plain"))
            clocks.add((at + 5, "clock plain"))
        if what == "drop":
            events.discard((at + 1, "plain"))
            clocks.discard((at + 1, "clock plain"))
        more = {"bad": 0, "drop": 50}.get(what, 100)
        self.held[key] = [number + more], events, clocks
        if what == "gone":
            del self.held[key]


NAMES = ("plain", "again", "drop", "gone", "bad")
names = st.sampled_from(["plain"] * 5 + list(NAMES))
times = st.integers(-2, 9)
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["set", "set", "cancel"]), times, names),
        st.tuples(st.sampled_from(["set_clock", "cancel_clock"]), times, names.map("clock {}".format)),
    ),
    max_size=12,
)
ends = st.sampled_from(["new", "new", "new", "in place", "lazy", "gone", "raises", "unsaved"])
rows = st.lists(st.tuples(st.sampled_from(KEYS), times, steps, ends), min_size=1, max_size=6)
turns = st.one_of(
    st.tuples(st.just("rows"), rows),
    st.tuples(st.sampled_from(["watermark", "clock"]), st.integers(1, 4)),
    st.tuples(st.sampled_from(["save", "restart", "careful"]), st.none()),
)


class Beside:
    """A thread, and beside it what it should be like. looks: every state is looked at before it is kept, or few are."""

    def __init__(self, looks: bool) -> None:
        self.looks, self.store, self.plain = looks, MemoryStore(), PlainKeys()
        self.watermark_us: int | None = None
        self.given: list[tuple[list[Any], list[Any]]] = []  # frames, and what came of each
        self.saved, self.covered, self.saves = deepcopy(self.plain), 0, 0
        self.begin(ToldThread(self.store, 1, 1000 * S, 0))

    def begin(self, thread: ToldThread) -> None:
        """By the watermark that it has kept."""
        self.thread = thread
        told_us, self.watermark_us = self.watermark_us, thread.rows.logic.watermark_us
        self.is_same(thread.fired())
        self.watermark_us = told_us
        if not self.looks:
            thread.give(OTHER_ROWS * thread.incarnation, [("other", 0, [], "new")] * (LOOKED_FIRST + 1))

    def is_same(self, fired: list[Any]) -> None:
        self.plain.fire(fired, self.watermark_us, self.thread.wall_us)
        assert self.thread.held() == self.plain.held
        if self.store.covered != self.saves:
            self.saves, self.covered, self.saved = (
                self.store.covered,
                len(self.given),
                deepcopy(self.plain),
            )

    def rows(self, rows: list[Any]) -> None:
        """Their times are from the watermark on."""
        now_us = self.watermark_us or 0
        self.give(
            [
                (
                    key,
                    now_us + at,
                    [(what, now_us + at, name) for what, at, name in steps],
                    "raises" if ends == "unsaved" and not self.looks else ends,
                )
                for key, at, steps, ends in rows
            ]
        )

    def give(self, rows: list[Any]) -> None:
        if self.looks:  # at each state, since one could not be saved
            self.thread.give(OTHER_ROWS + len(self.given) * 100, [("other", 0, [], "unsaved")])
        came = self.thread.give(len(self.given) * 100, rows)
        expected = [one for row in rows for one in self.plain.row(row, self.watermark_us)]
        assert came == expected
        self.given.append((rows, came))
        self.is_same(self.thread.look())

    def watermark(self, more_us: int) -> None:
        self.watermark_us = (self.watermark_us or 0) + more_us
        self.is_same(self.thread.look(self.watermark_us))

    def clock(self, more_us: int) -> None:
        self.thread.wall_us += more_us
        self.is_same(self.thread.look())

    def save(self, _: None) -> None:
        self.thread.now_ns += S
        self.is_same(self.thread.look())
        self.thread.all_done()
        self.is_same(self.thread.look())

    def careful(self, _: None) -> None:
        self.thread.rows.states.careful = 5

    def restart(self, _: None) -> None:
        """Killed: all its rows come again, those that the last snapshot has too."""
        before, self.plain = self.thread, deepcopy(self.saved)
        given, self.given = self.given, self.given[: self.covered]
        self.begin(ToldThread(self.store, before.incarnation + 1, before.now_ns + S, before.wall_us))
        self.is_same(self.thread.look(self.watermark_us))
        for number, (rows, came) in enumerate(self.given):
            assert self.thread.give(number * 100, rows) == came
        for rows, _ in given[len(self.given) :]:
            self.give(rows)


@given(st.lists(turns, min_size=4, max_size=30), st.booleans())
def test_timers_are_what_a_plain_set_of_them_for_each_key_would_be(turns: list[Any], looks: bool) -> None:
    beside = Beside(looks)
    for what, how in turns:
        getattr(beside, what)(how)
    beside.watermark(1000)
    beside.clock(1000)
    for _ in range(4):
        beside.is_same(beside.thread.look())
    assert not any(events or clocks for _, events, clocks in beside.plain.held.values())
