"""What a user's task may be. Import it from here: ``from headgate.topology_runtime.api.logic import …``.

    a function f(row) → row                  one row for each row (the fast form)
    @flat_map  f(row) → iterable of rows     none, one or many
    @keep_if   f(row) → bool                 the row goes on or not
    class C with __call__(self, row)         as a function; one instance per thread
    @batched f(rows) → rows                  of any of these: all rows of a call at once, a list;
                                             @batched(columns=True): as arrays of numpy, one for each value of a row
    Source, LiveSource                       where rows come from
    Window                                   buffers rows and fires them together: join, window, batch
    Keyed                                    state per key, with snapshot and restore
    @side_effects, @no_side_effects                    of a function or class: is what it does felt outside?
    @any_thread                              of a class: its objects may be called by other threads than their own

Rows are immutable plain values: None, bool, int (64 bits), float, str, bytes, datetime, and tuples,
lists and dicts (with string keys) of them. Task objects are built once per thread as ``C(**params)``;
those with ``open(context)`` or ``close()`` have them called in their thread.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType
from typing import Any, TypeVar, overload

Row = Any
F = TypeVar("F", bound=Callable[..., Any])
BATCHED, CALL = "__headgate_batched__", "__call__"
BATCHED_ROWS, BATCHED_COLUMNS = "rows", "columns"


@dataclass(frozen=True)
class Context:
    """Where a task object runs. `directory`: a folder of its own on this VM, kept between restarts."""

    task: str
    thread: int
    partition: int
    partitions: int
    directory: str


class Exhausted(Exception):
    """Raised by a source that will never have another row."""


class Source:
    """A replayable source: the rows at and after any position can be read again (a file, a log,
    a counter). `position` counts the rows of this thread's partition from 0."""

    def read(self, position: int, limit: int) -> Sequence[Row]:
        """At most `limit` rows from `position` on; fewer or none if there are no more *now*. After a fault it may be
        asked again for what it gave before."""
        raise NotImplementedError


class LiveSource:
    """A source that cannot be read twice (a socket, telemetry). What it hands over is written to
    a small spool on the VM's disk before it is emitted, and read from there after a crash.

    It is *arriving*: asked again and again, its rows are taken as they come, and how many come is what is
    offered. One that makes as many rows as it is asked for says `arriving = False`: it is paced by `--rates`."""

    arriving = True

    def poll(self, limit: int) -> Sequence[Row]:
        """At most `limit` new rows; none if there are none now, at once or after some milliseconds: while it
        waits, rows that it gave before wait too."""
        raise NotImplementedError

    def came(self, row: Row) -> float | None:
        """When this row came (UTC, seconds), if it says so; None: when it was taken. Latency counts from then."""
        return None


class Window:
    """A task that keeps rows in buckets and lets a bucket go at once: join, window, batch.

    The rows of a bucket are not done before `finish` returned and its output was dealt with; if the
    worker dies they come again. When a re-plan moves the bucket's key, its rows travel along."""

    max_age_s: float | None = None  # a bucket this old is finished whether `ready` or not

    def key(self, row: Row, source: str) -> Hashable:
        """The bucket of a row that came from task `source`; a plain value."""
        return None

    def ready(self, key: Hashable, rows: Sequence[Row]) -> bool:
        """Is this bucket complete? Asked after each row put into it."""
        raise NotImplementedError

    def finish(self, key: Hashable, rows: Sequence[Row]) -> Iterable[Row]:
        """The output of a bucket; its rows are let go."""
        raise NotImplementedError


class Keyed:
    """State per key of a task reached by `fields` edges. States are the runtime's: it moves them with
    their key and saves them, so `snapshot` gives a plain value and `restore` takes it back."""

    def new(self, key: Hashable) -> Any:
        """The state of a key not seen before."""
        raise NotImplementedError

    def process(self, key: Hashable, row: Row, state: Any) -> tuple[Any, Iterable[Row]]:
        """(new state, output rows) for one row."""
        raise NotImplementedError

    def process_all(
        self, keys: Sequence[Hashable], rows: Sequence[Row], states: dict[Any, Any]
    ) -> tuple[list[Row], Sequence[int] | None]:
        """The output rows of many rows: what `process` would give for one after the other; and how many of them came
        of each row, None when it is one of each. `states`: of these keys, the new state of a key is put there. A call
        that raises is tried again with the same states and with fewer rows, so states are replaced here and never
        changed. A class need not have this; it is used where no subclass has another `process`, and saves a call for
        each row."""
        raise NotImplementedError

    def snapshot(self, state: Any) -> Row:
        return state

    def restore(self, saved: Row) -> Any:
        return saved


@dataclass(frozen=True)
class To:
    """A row for one thread of a `direct` edge: number `index` modulo the receiver's threads."""

    index: int
    row: Row


def flat_map(function: F) -> F:
    """The function gives any number of rows for each row."""
    function.__headgate_kind__ = "flat_map"  # type: ignore[attr-defined]
    return function


def keep_if(function: F) -> F:
    """The function says whether the row goes on."""
    function.__headgate_kind__ = "filter"  # type: ignore[attr-defined]
    return function


@overload
def batched(run: F, /) -> F: ...
@overload
def batched(*, columns: bool = False) -> Callable[[F], F]: ...
def batched(run: Any = None, /, *, columns: bool = False) -> Any:
    """The function, class or `__call__` takes a list of rows and gives a list with what it would give for each: a row
    (with @flat_map an iterable of rows, with @keep_if a bool). How many there are in a call is the runtime's to say.

    columns: it takes and gives columns instead: an array in place of each value of a row, so dicts of arrays, tuples of
    arrays, or one array where a row is a value (docs/tasks.md, Columns). A Source may give them, too."""

    def mark(run: Any) -> Any:
        setattr(run, BATCHED, BATCHED_COLUMNS if columns else BATCHED_ROWS)
        return run

    return mark if run is None else mark(run)


def side_effects(run: F) -> F:
    """What the function or class does is felt outside (it writes, posts, pays): it is not run on sample rows unless
    asked. Sinks need no mark."""
    run.__headgate_side_effects__ = True  # type: ignore[attr-defined]
    return run


def no_side_effects(run: F) -> F:
    """A sink that may be run on sample rows: nothing of what it does is felt outside."""
    run.__headgate_side_effects__ = False  # type: ignore[attr-defined]
    return run


def any_thread(cls: F) -> F:
    """Objects of this class may be called by any thread of their worker, one at a time: they hold nothing that belongs
    to the thread that made them (a sqlite3 connection does). Functions need no mark; subclasses need their own."""
    cls.__headgate_any_thread__ = True  # type: ignore[attr-defined]
    return cls


def runs_anywhere(logic: Any) -> bool:
    """May any thread of its worker call this task?"""
    return isinstance(logic, FunctionType | BuiltinFunctionType) or "__headgate_any_thread__" in vars(
        type(logic)
    )


def batched_of(run: Any) -> str:
    """How this function, class or object takes the rows of a call together: as rows, as columns, or ("") not at all."""
    cls = run if isinstance(run, type) else type(run)
    return str(getattr(run, BATCHED, "") or getattr(getattr(cls, CALL, None), BATCHED, ""))


def processes_all(logic: Keyed) -> bool:
    """Has its class a `process_all` that does what its `process` does?"""
    found = [cls for cls in type(logic).__mro__ if vars(cls).keys() & {"process", "process_all"}]
    return found[0] is not Keyed and "process_all" in vars(found[0])


def side_effects_of(run: Any) -> bool | None:
    """As it is marked; None when it is not."""
    marked = getattr(run, "__headgate_side_effects__", None)
    return None if marked is None else bool(marked)


def arriving_of(run: Any) -> bool | None:
    """Are rows of this source taken when they come, or (False) asked for when they are due? None: it is no source, or
    one that can be read twice."""
    if isinstance(run, LiveSource) or (isinstance(run, type) and issubclass(run, LiveSource)):
        return bool(run.arriving)
    return None


def kind_of(run: Any) -> str:
    """Which kind of task this function, class or object is (see `topology.Kind`)."""
    kind = getattr(run, "__headgate_kind__", None)
    if kind is not None:
        return str(kind)
    for base, name in ((Source, "source"), (LiveSource, "source"), (Window, "hold"), (Keyed, "keyed")):
        if isinstance(run, base) or (isinstance(run, type) and issubclass(run, base)):
            return name
    return "map"
