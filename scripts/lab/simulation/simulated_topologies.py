"""The topologies that are simulated, and what is known of each without running it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from msgspec.structs import replace

from headgate.controller.models.plans import Placement, Plan
from headgate.controller.models.task_models import Model, ModelSlot, Point
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.logic import (
    Context,
    Exhausted,
    Keyed,
    LiveSource,
    Source,
    Window,
    batched,
    flat_map,
)
from headgate.topology_runtime.api.timed import Time, Timed
from headgate.topology_runtime.api.topology import Edge, Static, Task, Timestamps, Topology

# ── User code of the simulated topologies: small real sources, maps, joins, batches and keyed tasks ─────
#
# A row is flat: (source, partition, position, way), and behind them, three by three, what it met on its way:
# ("tally", key, rows of that key so far) of a keyed task; ("with", partition, position) of the row of another
# source that it was joined with, whose name is the word behind `with `.

Row = tuple[Any, ...]
Origin = tuple[str, int, int]  # source, partition, position
FAILS_EVERY, FAILS_AT = 17, 5  # positions that `Picky` cannot process
WITH = "with "


class Count(Source):
    """Counts; the rows at any position can be read again."""

    def __init__(self, name: str = "source") -> None:
        self.name, self.partition = name, 0

    def open(self, context: Context) -> None:
        self.partition = context.partition

    def read(self, position: int, limit: int) -> Sequence[Row]:
        return [(self.name, self.partition, p, "") for p in range(position, position + limit)]


ROWS_EACH = 90  # of a partition of a source that ends


class Few(Count):
    """Ends."""

    def read(self, position: int, limit: int) -> Sequence[Row]:
        if position >= ROWS_EACH:
            raise Exhausted
        return super().read(position, min(limit, ROWS_EACH - position))


class SimFeed(LiveSource):
    """Events that come once. `events`: their numbers, given by the world, which hands over each once."""

    events: Iterator[int]

    def __init__(self, name: str = "source") -> None:
        self.name, self.partition = name, 0

    def open(self, context: Context) -> None:
        self.partition = context.partition

    def poll(self, limit: int) -> Sequence[Row]:
        return [(self.name, self.partition, n, "") for n in islice(self.events, limit)]


MOST_LATE_S = 6  # how much older than the newest one before it a row may be


def time_of(row: Row) -> float:
    """Of a row of `Timely`, s: they are not in order, and one in each ten seconds is as old as may be."""
    position = int(row[2])
    return float(position + 100 - (position * 5) % (MOST_LATE_S + 1))


class Timely(Few):
    """Rows with event times."""


APART_S, MOST_APART_S = 40.0, 15.0  # from one partition to the next, and how far one may be ahead


def drifted_time_of(row: Row) -> float:
    """The same of partitions whose times lie apart."""
    return time_of(row) + APART_S * int(row[1])


def work(row: Row) -> Row:
    return row


@batched
def together_work(rows: list[Row]) -> list[Row]:
    return rows


@batched(columns=True)
def column_work(columns: tuple[Any, ...]) -> tuple[Any, ...]:
    return columns


def left(row: Row) -> Row:
    return (*row[:3], "left")


def right(row: Row) -> Row:
    return (*row[:3], "right")


def fails(position: int) -> bool:
    return position % FAILS_EVERY == FAILS_AT


class Picky:
    """Fails on some rows until the cause is mended. `mended`: is it? Given by the world."""

    mended: Callable[[], bool]

    def __call__(self, row: Row) -> Row:
        if fails(row[2]) and not self.mended():
            raise ValueError(f"position {row[2]} cannot be processed")
        return row


@flat_map
def twice(row: Row) -> list[Row]:
    return [(*row[:3], "first"), (*row[:3], "second")]


def identity(row: Row) -> Hashable:
    return f"{row[1]}:{row[2]}"


def together(rows: Sequence[Row]) -> Row:
    """One row that names all of these."""
    first, *others = rows
    along = [value for other in others for value in (WITH + other[0], *other[1:3])]
    return (*first[:3], "together", *along)


class Sink:
    """Where rows end. `rows`: those that came and were not yet looked at by the account."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def __call__(self, row: Row) -> Row:
        self.rows.append(row)
        return row


class Pairs(Window):
    """A row of each branch with the same identity, as one row."""

    def key(self, row: Row, source: str) -> Hashable:
        return row[:3]

    def ready(self, key: Hashable, rows: Sequence[Row]) -> bool:
        return len({row[3] for row in rows}) == 2

    def finish(self, key: Hashable, rows: Sequence[Row]) -> Iterable[Row]:
        assert sorted(row[3] for row in rows) == ["left", "right"], f"a pair of {rows}"
        assert {row[:3] for row in rows} == {key}, f"rows of others in {key}: {rows}"
        return [(*rows[0][:3], "pair")]


class Meetings(Window):
    """Rows of two sources with the same partition and position, as one row; one alone after a second."""

    max_age_s = 1.0

    def key(self, row: Row, source: str) -> Hashable:
        return row[1:3]

    def ready(self, key: Hashable, rows: Sequence[Row]) -> bool:
        return len({row[0] for row in rows}) == 2

    def finish(self, key: Hashable, rows: Sequence[Row]) -> Iterable[Row]:
        assert {row[1:3] for row in rows} == {key}, f"rows of others in {key}: {rows}"
        return [together(rows)]


class Batches(Window):
    """Rows four at a time, or after 0.2 s."""

    max_age_s = 0.2

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def ready(self, key: Hashable, rows: Sequence[Row]) -> bool:
        return len(rows) >= 4

    def finish(self, key: Hashable, rows: Sequence[Row]) -> Iterable[Row]:
        assert 0 < len(rows) <= 4
        self.rows += rows
        return ()


class Windows(Window):
    """Rows of one of forty kinds until there are many, or for longer than any deadline of a row in flight."""

    max_age_s = 40.0

    def key(self, row: Row, source: str) -> Hashable:
        return int(row[2]) % 40

    def ready(self, key: Hashable, rows: Sequence[Row]) -> bool:
        return len(rows) >= 20

    def finish(self, key: Hashable, rows: Sequence[Row]) -> Iterable[Row]:
        assert {row[2] % 40 for row in rows} == {key}, f"rows of others in {key}: {rows}"
        return [together(rows)]


class Panes(Window):
    """Rows of one of seven kinds, until the input ends: how many, and which."""

    def key(self, row: Row, source: str) -> Hashable:
        return int(row[2]) % 7

    def ready(self, key: Hashable, rows: Sequence[Row]) -> bool:
        return False

    def finish(self, key: Hashable, rows: Sequence[Row]) -> Iterable[Row]:
        return [("pane", key, *sorted(row[1] * 1000 + row[2] for row in rows))]


class Totals(Keyed):
    """All that its panes name, once the input has ended."""

    def new(self, key: Hashable) -> Row:
        return ()

    def process(self, key: Hashable, row: Row, state: Row) -> tuple[Row, Iterable[Row]]:
        return (*state, *row[2:]), []

    def finish(self, key: Hashable, state: Row) -> Iterable[Row]:
        return [("total", key, *sorted(state))]


class Last(Panes):
    """All totals in one row."""

    def key(self, row: Row, source: str) -> Hashable:
        return 0

    def finish(self, key: Hashable, rows: Sequence[Row]) -> Iterable[Row]:
        return [("last", key, *sorted(place for row in rows for place in row[2:]))]


def third(row: Row) -> Hashable:
    return int(row[1]) % 3


def all_one(row: Row) -> Hashable:
    return 0


def seventh(row: Row) -> Hashable:
    return int(row[2]) % 7


def ended_rows(partitions: int) -> list[Row]:
    """What must be at the sink of `ends`."""
    places = [(partition * 1000 + p, p % 7) for partition in range(partitions) for p in range(ROWS_EACH)]
    panes = [("pane", n, *sorted(place for place, kind in places if kind == n)) for n in range(7)]
    totals = [("total", n, *sorted(place for place, kind in places if kind % 3 == n)) for n in range(3)]
    return [*panes, *totals, ("last", 0, *sorted(place for place, _ in places))]


class TenSeconds(Timed):
    """Which rows of a key there are in each ten seconds, once no more of them is expected. A key without rows is
    forgotten."""

    at = staticmethod(time_of)

    def new(self, key: Hashable) -> dict[str, list[int]]:
        return {}

    def process(
        self, key: Hashable, row: Row, state: dict[str, list[int]], time: Time
    ) -> tuple[dict[str, list[int]], Iterable[Row]]:
        assert not time.late, f"{row} of {time.at} s is late at {time.watermark} s"
        end_us = (time.at_us // TEN_US + 1) * TEN_US
        time.set(end_us, "end")
        end = str(end_us)
        return {**state, end: [*state.get(end, ()), row[1] * 1000 + row[2]]}, []

    def on_timer(
        self, key: Hashable, at: int, state: dict[str, list[int]], time: Time
    ) -> tuple[dict[str, list[int]] | None, Iterable[Row]]:
        left = {end: places for end, places in state.items() if end != str(at)}
        return left or None, [("ten", key, at, *sorted(state[str(at)]))]


class DriftedTens(TenSeconds):
    """The same of partitions whose times lie apart."""

    at = staticmethod(drifted_time_of)


class HalfMinutes(TenSeconds):
    """All that three of those name, and again at the end."""

    at, unit = staticmethod(lambda row: row[2] - 1), "us"

    def process(
        self, key: Hashable, row: Row, state: dict[str, list[int]], time: Time
    ) -> tuple[dict[str, list[int]], Iterable[Row]]:
        assert not time.late, f"{row[:3]} is late at {time.watermark} s"
        end_us = (time.at_us // HALF_US + 1) * HALF_US
        time.set(end_us)
        state.setdefault(str(end_us), []).extend(row[3:])
        return state, []

    def on_timer(
        self, key: Hashable, at: int, state: dict[str, list[int]], time: Time
    ) -> tuple[dict[str, list[int]], Iterable[Row]]:
        assert time.at_us == at and (time.watermark_us or 0) >= at
        return state, [("half", key, at, *sorted(state[str(at)]))]

    def finish(self, key: Hashable, state: dict[str, list[int]]) -> Iterable[Row]:
        return [("all", key, *sorted(place for places in state.values() for place in places))]


TEN_US, HALF_US = 10_000_000, 30_000_000


def timed_rows(partitions: int, at: Callable[[Row], float] = time_of) -> list[Row]:
    """What must be at the sink of `times`, or of `drifts`."""
    tens: dict[tuple[int, int], list[int]] = {}
    for partition in range(partitions):
        for position in range(ROWS_EACH):
            end = int(at(("", partition, position)) * 1_000_000) // TEN_US * TEN_US + TEN_US
            tens.setdefault((position % 7, end), []).append(partition * 1000 + position)
    halves: dict[tuple[int, int], list[int]] = {}
    every: dict[int, list[int]] = {}
    for (key, end), places in tens.items():
        halves.setdefault((key % 3, (end - 1) // HALF_US * HALF_US + HALF_US), []).extend(places)
        every.setdefault(key % 3, []).extend(places)
    return [
        *(("ten", *place, *sorted(places)) for place, places in tens.items()),
        *(("half", *place, *sorted(places)) for place, places in halves.items()),
        *(("all", key, *sorted(places)) for key, places in every.items()),
    ]


class Tally(Keyed):
    """Counts the rows of a key, says so in each of them and lets them pass. Its state is the list of rows that
    it counted; `counted`: (key, row) of those, for the account."""

    def __init__(self, name: str = "tally") -> None:
        self.name = name
        self.counted: list[tuple[Hashable, Origin]] = []
        self.meets: Callable[[str], None] = lambda what: None  # given by the world; it may raise

    def new(self, key: Hashable) -> list[Origin]:
        return []

    def process(self, key: Hashable, row: Row, state: list[Origin]) -> tuple[list[Origin], Iterable[Row]]:
        origin = (row[0], row[1], row[2])
        self.meets("process")
        self.counted.append((key, origin))
        state.append(origin)
        return state, [(*row, self.name, key, len(state))]

    def snapshot(self, state: list[Origin]) -> Row:
        self.meets("snapshot")
        return tuple(state)

    def restore(self, saved: Row) -> list[Origin]:
        self.meets("restore")
        return list(saved)


class TallyTogether(Tally):
    """The same for the rows of a frame at once."""

    def process_all(
        self, keys: Sequence[Hashable], rows: Sequence[Row], states: dict[Hashable, list[Origin]]
    ) -> tuple[list[Row], None]:
        found: list[Row] = []
        for key, row in zip(keys, rows, strict=True):
            states[key], out = self.process(key, row, list(states[key]))
            found += out
        return found, None


def group(row: Row) -> Hashable:
    return f"key {row[2] % 7}"


def other_group(row: Row) -> Hashable:
    return f"key {row[2] % 5}"


def skewed(row: Row) -> Hashable:
    """Four of five rows have one key."""
    return f"key {row[2] % 25}" if row[2] % 5 == 0 else "hot"


MEMORY = 1 << 29
TPS_A_THREAD = 12.0
PARTED_TPS = 30.0  # four slots suffice
SINKS_CPU, SLOT_CPU = 0.95, 1.05  # of `parted` sinks together; of one of their threads and a source's
RATES_TPS = (8.0, 12.0, 20.0, 30.0, 45.0)
HERE = "headgate.lab.simulation.simulated_topologies"


@dataclass(frozen=True)
class Shape:
    """need: distinct rows at sinks for every source position. holds: a task keeps rows. keys: keyed task → the
    key of a row. fails: positions that must become dead letters. live: its source cannot be read again.
    machines: slots of each VM, one of these (none: two or three VMs of two to four slots). rates_tps: of which
    the seed chooses. calm_s: the run goes on so long, undisturbed, after all is settled. ends: the run
    does, as its sources do; then `expected` says what must be at the sink, by the number of partitions. far:
    snapshots are on no VM, and every second seed counts exactly once."""

    topology: Topology
    need: int = 1
    holds: bool = False
    keys: dict[str, Callable[[Row], Hashable]] = field(default_factory=dict)
    fails: Callable[[int], bool] = lambda _: False
    live: bool = False
    machines: tuple[tuple[int, ...], ...] = ()
    rates_tps: tuple[float, ...] = RATES_TPS
    calm_s: float = 0.0
    ends: bool = False
    expected: Callable[[int], list[Row]] = ended_rows
    far: bool = False

    @property
    def models(self) -> tuple[Model, ...]:
        points = tuple(Point(n, TPS_A_THREAD * n, 0.2 * n, 0.1 * n) for n in (1, 2, 3, 4))
        slot = ModelSlot(1.0, MEMORY)
        return tuple(Model(task.name, slot, points) for task in self.topology.tasks if task.static is None)


def arriving(shape: Shape) -> Shape:
    """The same with sources whose rows are taken as they come."""
    sources = shape.topology.sources
    tasks = (replace(task, arriving=True) if task in sources else task for task in shape.topology.tasks)
    return dataclasses.replace(shape, topology=replace(shape.topology, tasks=tuple(tasks)))


def parted(shape: Shape) -> Shape:
    """The same with sinks too large for a slot that a source is in: one of them dies without the other."""
    t = shape.topology
    threads = sum(sink.static.threads for sink in t.sinks if sink.static)
    sink_cpu = SINKS_CPU / threads
    cpu = dict.fromkeys([task.name for task in t.sources], SLOT_CPU - sink_cpu)
    cpu |= dict.fromkeys([task.name for task in t.sinks], sink_cpu)
    tasks = tuple(
        replace(task, static=replace(task.static, cpu=cpu[task.name]))
        if task.static and task.name in cpu
        else task
        for task in t.tasks
    )
    return dataclasses.replace(
        shape,
        topology=replace(t, tasks=tasks),
        machines=((), (1, 1, 2), (1, 2, 1)),
        rates_tps=tuple(rate for rate in shape.rates_tps if rate <= PARTED_TPS),
    )


def swapped(plan: Plan, one: str, other: str) -> Plan:
    """The same plan with two VMs of one size in each other's place."""
    to = {one: other, other: one}
    return _moved(plan, lambda slot: Slot(to.get(slot.vm, slot.vm), slot.number))


def turned(plan: Plan, vm: Vm) -> Plan:
    """The same plan with all that is in a slot of this VM in the next one."""
    return _moved(plan, lambda slot: Slot(vm.vm, (slot.number + 1) % vm.slots) if slot.vm == vm.vm else slot)


def _moved(plan: Plan, place: Callable[[Slot], Slot]) -> Plan:
    bundles = tuple(replace(b, slot=place(b.slot)) for b in plan.placement.bundles)
    order = sorted(range(len(bundles)), key=lambda n: (bundles[n].slot, n))
    p = plan.prediction
    slots = [(place(Slot(use.vm, use.slot)), use) for use in p.slots]
    prediction = replace(
        p,
        slots=tuple(replace(use, vm=slot.vm, slot=slot.number) for slot, use in slots),
        vms=tuple(replace(use, vm=place(Slot(use.vm, 0)).vm) for use in p.vms),
        shares=tuple(replace(share, slot=place(share.slot)) for share in p.shares),
    )
    return replace(plan, placement=Placement(tuple(bundles[n] for n in order)), prediction=prediction)


def machine(name: str, slots: int) -> Vm:
    return Vm(name, slots, 1.0, MEMORY)


def _source(threads: int = 1, name: str = "source", run: str = "Count") -> Task:
    static = Static(threads, 0.1, 0.1)
    return Task(name, kind="source", run=f"{HERE}:{run}", params={"name": name}, static=static)


def _task(name: str, run: str, kind: str = "map") -> Task:
    return Task(name, kind=kind, run=f"{HERE}:{run}")  # type: ignore[arg-type]


def _alone(name: str, run: str) -> Task:
    return Task(name, run=f"{HERE}:{run}", static=Static(1, 0.1, 0.1), exclusive=True)


def _keyed(name: str, run: str = "Tally") -> Task:
    return Task(name, kind="keyed", state="keyed", run=f"{HERE}:{run}", params={"name": name})


def _sink(name: str = "sink", run: str = "Sink", kind: str = "map", threads: int = 1) -> Task:
    static = Static(threads, 0.1, 0.1)
    return Task(name, kind=kind, run=f"{HERE}:{run}", static=static)  # type: ignore[arg-type]


def _edges(*pairs: str) -> tuple[Edge, ...]:
    ends = [pair.split() for pair in pairs]
    return tuple(Edge(source, target) for source, target in ends)


def _fields(source: str, target: str, key: str) -> Edge:
    return Edge(source, target, grouping="fields", key=f"{HERE}:{key}")


def _line(name: str, source: Task, work: Task) -> Topology:
    return Topology(name, (source, work, _sink()), _edges(f"source {work.name}", f"{work.name} sink"))


def _counting(name: str, key: str) -> Topology:
    return Topology(
        name,
        (_source(), _task("work", "work"), _keyed("tally"), _sink()),
        (*_edges("source work"), _fields("work", "tally", key), *_edges("tally sink")),
    )


BRANCHES = (_task("left", "left"), _task("right", "right"))
WORK = _task("work", "work")


def _of_times(name: str, tens: str, times: Timestamps, expected: Callable[[int], list[Row]]) -> Shape:
    """Two tasks with event time behind each other; `tens`: the class of the first."""
    tasks = (
        replace(_source(2, run="Timely"), timestamps=times),
        WORK,
        Task("tens", kind="keyed", state="keyed", run=f"{HERE}:{tens}", timed=True),
        Task("halves", kind="keyed", state="keyed", run=f"{HERE}:HalfMinutes", timed=True),
        _sink(),
    )
    edges = (
        *_edges("source work"),
        _fields("work", "tens", "seventh"),
        _fields("tens", "halves", "third"),
        *_edges("tens sink", "halves sink"),
    )
    topology = Topology(name, tasks, edges)
    return Shape(topology, holds=True, rates_tps=(20.0, 30.0, 45.0), ends=True, expected=expected)


SHAPES: dict[str, Shape] = {
    "line": Shape(_line("line", _source(), WORK)),
    "two sources": Shape(_line("two_sources", _source(2), WORK)),
    "failing": Shape(_line("failing", _source(), _task("work", "Picky")), fails=fails),
    "live": Shape(_line("live", replace(_source(run="SimFeed"), arriving=False), WORK), live=True),
    "one slot": Shape(
        _line("one_slot", _source(), WORK), machines=((1,), (1, 1)), rates_tps=(8.0, 12.0, 20.0)
    ),
    "twice": Shape(
        Topology(
            "twice",
            (_source(), _task("twice", "twice", "flat_map"), _sink(threads=2)),
            (Edge("source", "twice"), Edge("twice", "sink", selectivity=2.0)),
        ),
        need=2,
    ),
    "feeds": Shape(
        Topology(
            "feeds",
            (_source(), _source(name="other"), WORK, _sink()),
            _edges("source work", "other work", "work sink"),
        )
    ),
    "diamond": Shape(
        Topology(
            "diamond",
            (_source(), *BRANCHES, _task("again", "work"), _sink()),
            _edges("source left", "source right", "left again", "right again", "again sink"),
        ),
        need=2,
    ),
    "join": Shape(
        Topology(
            "join",
            (_source(), *BRANCHES, _task("join", "Pairs", "hold"), _sink()),
            (
                *_edges("source left", "source right"),
                _fields("left", "join", "identity"),
                _fields("right", "join", "identity"),
                Edge("join", "sink", selectivity=0.5),
            ),
        ),
        holds=True,
    ),
    "exclusive": Shape(
        Topology(
            "exclusive",
            (_source(), _task("work", "work"), _alone("alone", "work"), _sink()),
            _edges("source work", "work alone", "alone sink"),
        )
    ),
    "join of sources": Shape(
        Topology(
            "join_of_sources",
            (_source(), _source(name="other"), _task("join", "Meetings", "hold"), _sink()),
            (
                _fields("source", "join", "identity"),
                _fields("other", "join", "identity"),
                Edge("join", "sink", selectivity=0.5),
            ),
        ),
        holds=True,
    ),
    "keyed": Shape(_counting("keyed", "group"), holds=True, keys={"tally": group}),
    "skewed": Shape(_counting("skewed", "skewed"), holds=True, keys={"tally": skewed}),
    "keyed twice": Shape(
        Topology(
            "keyed_twice",
            (_source(), _keyed("tally"), _keyed("count", "TallyTogether"), _sink()),
            (
                _fields("source", "tally", "group"),
                _fields("tally", "count", "other_group"),
                *_edges("count sink"),
            ),
        ),
        holds=True,
        keys={"tally": group, "count": other_group},
    ),
    "batch": Shape(
        Topology(
            "batch",
            (_source(), WORK, _sink("batch", "Batches", "hold")),
            _edges("source work", "work batch"),
        ),
        holds=True,
    ),
    "batched": Shape(
        Topology(
            "batched",
            (
                _source(),
                _task("work", "together_work"),
                _task("columns", "column_work"),
                _keyed("tally", "TallyTogether"),
                _sink(),
            ),
            (
                *_edges("source work", "work columns"),
                _fields("columns", "tally", "group"),
                *_edges("tally sink"),
            ),
        ),
        holds=True,
        keys={"tally": group},
    ),
    "ends": Shape(
        Topology(
            "ends",
            (
                _source(2, run="Few"),
                _task("panes", "Panes", "hold"),
                Task("totals", kind="keyed", state="keyed", run=f"{HERE}:Totals"),
                _task("last", "Last", "hold"),
                _sink(),
            ),
            (
                _fields("source", "panes", "seventh"),
                _fields("panes", "totals", "third"),
                _fields("totals", "last", "all_one"),
                *_edges("panes sink", "totals sink", "last sink"),
            ),
        ),
        holds=True,
        rates_tps=(20.0, 30.0, 45.0),
        ends=True,
    ),
    "times": _of_times(
        "times", "TenSeconds", Timestamps(f"{HERE}:time_of", lateness=MOST_LATE_S), timed_rows
    ),
    "drifts": _of_times(
        "drifts",
        "DriftedTens",
        Timestamps(f"{HERE}:drifted_time_of", lateness=MOST_LATE_S, max_drift=MOST_APART_S),
        partial(timed_rows, at=drifted_time_of),
    ),
    "long holds": Shape(
        Topology(
            "long_holds",
            (_source(), _task("window", "Windows", "hold"), _sink()),
            _edges("source window", "window sink"),
        ),
        holds=True,
        rates_tps=(8.0, 12.0),
        calm_s=45.0,
    ),
}

SHAPES |= {f"far {name}": dataclasses.replace(SHAPES[name], far=True) for name in ("times", "drifts")}

SELDOM = ("long holds",)  # they take long
ASKED = (
    "batched",
    "drifts",
    "ends",
    "far drifts",
    "far times",
    "times",
)  # only when they are asked for: seeds stay the worlds that they were
DRAWN = (*sorted(SHAPES.keys() - {*SELDOM, *ASKED}) * 2, *SELDOM)  # shapes that seeds choose from
