"""What a user's task may be. Import it from ``headgate``.

    a function f(row) → row                  one row for each row (the fast form)
    @flat_map  f(row) → iterable of rows     none, one or many
    @keep_if   f(row) → bool                 the row goes on or not
    class C with __call__(self, row)         as a function; one instance per thread
    @batched f(rows) → rows                  of any of these: all rows of a call at once, a list;
                                             @batched(columns=True): as arrays of numpy, one for each value of a row
    async def f(row), async def __call__     of any of these but @batched: many rows wait for answers in one thread;
                                             @concurrent(calls, ordered=…) says how many, and in which order they go on
    Source, LiveSource, OffsetSource         where rows come from
    Sink                                     where rows end, with the name of each, which is the same in a replay
    Window                                   buffers rows and fires them together: join, window, batch
    Keyed                                    state per key, with snapshot and restore
    @side_effects, @no_side_effects          of a function or class: is what it does felt outside?
    @any_thread                              of a class: its objects may be called by other threads than their own

Rows are immutable plain values: None, bool, int (64 bits), float, str, bytes, datetime, and tuples,
lists and dicts (with string keys) of them. Task objects are built once per thread as ``C(**params)``;
those with ``open(context)`` or ``close()`` have them called in their thread (of an async task they may be async).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

from headgate.topology_runtime.api.user_metrics import UserMetrics

Row = Any
F = TypeVar("F", bound=Callable[..., Any])
if TYPE_CHECKING:  # with defaults, so that a class without type arguments passes; Python 3.13 has them
    import typing_extensions as typing_with_defaults

    Key = typing_with_defaults.TypeVar("Key", bound=Hashable, default=Any)
    State = typing_with_defaults.TypeVar("State", default=Any)
    In = typing_with_defaults.TypeVar("In", default=Any)
    Out = typing_with_defaults.TypeVar("Out", default=Any)
    Given = typing_with_defaults.TypeVar("Given", covariant=True, default=Any)
else:
    Key, State, In, Out = TypeVar("Key"), TypeVar("State"), TypeVar("In"), TypeVar("Out")
    Given = TypeVar("Given", covariant=True)
BATCHED, CALL = "__headgate_batched__", "__call__"
BATCHED_ROWS, BATCHED_COLUMNS = "rows", "columns"
KIND = "__headgate_kind__"
CONCURRENT = "__headgate_concurrent__"
CALLS = 100  # of an async task at once in a thread, unless it says otherwise


@dataclass(frozen=True)
class Context:
    """Where a task object runs. `directory`: a folder of its own on this VM, kept between restarts. `metrics`: its own
    figures, seen in `headgate status`, on the page, in Prometheus and SQL (docs/how-to/monitor.md).

    >>> class Log:
    ...     def open(self, context: Context) -> None:
    ...         self.name = f"{context.directory}/{context.task}-{context.thread}.log"
    ...     def __call__(self, row: str) -> str:
    ...         return row
    """

    task: str
    thread: int
    partition: int
    partitions: int
    directory: str
    metrics: UserMetrics = field(default_factory=UserMetrics, compare=False, repr=False)


class Exhausted(Exception):
    """Raised by a source that will never have another row.

    >>> class Three(Source[int]):
    ...     def read(self, position: int, limit: int) -> Sequence[int]:
    ...         if position >= 3:
    ...             raise Exhausted
    ...         return range(position, min(3, position + limit))
    >>> list(Three().read(1, 10))
    [1, 2]
    """


class Source(ABC, Generic[Given]):
    """A replayable source: the rows at and after any position can be read again (a file, a log,
    a counter). `position` counts the rows of this thread's partition from 0.

    >>> class Letters(Source[str]):
    ...     def read(self, position: int, limit: int) -> Sequence[str]:
    ...         return "abc"[position : position + limit]
    >>> Letters().read(1, 10)
    'bc'

    One that sets `gives_errors` may give an exception in place of a row that it cannot read: that position becomes a
    dead letter, and the rows behind it go on.
    """

    gives_errors = False

    @abstractmethod
    def read(self, position: int, limit: int) -> Sequence[Given]:
        """At most `limit` rows from `position` on; fewer or none if there are no more *now*. After a fault it may be
        asked again for what it gave before."""


class LiveSource(ABC, Generic[Given]):
    """A source that cannot be read twice (a socket, telemetry). What it hands over is written to
    a small spool on the VM's disk before it is emitted, and read from there after a crash.

    It is *arriving*: asked again and again, its rows are taken as they come, and how many come is what is
    offered. One that makes as many rows as it is asked for says `arriving = False`: it is paced by `--rates`.

    >>> class Clicks(LiveSource[str]):
    ...     def __init__(self) -> None:
    ...         self.waiting = ["left", "right"]
    ...     def poll(self, limit: int) -> Sequence[str]:
    ...         taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
    ...         return taken
    >>> Clicks().poll(1)
    ['left']
    """

    arriving = True

    @abstractmethod
    def poll(self, limit: int) -> Sequence[Given]:
        """At most `limit` new rows; none if there are none now, at once or after some milliseconds: while it
        waits, rows that it gave before wait too. A BadRow in place of a row that cannot be read becomes a dead letter.
        """

    def came(self, row: Row) -> float | None:
        """When this row came (UTC, seconds), if it says so; None: when it was taken. Latency counts from then."""
        return None

    def durable(self, rows: int) -> None:
        """So many rows, of all that `poll` has given since it was opened, are on the VM's disk or were refused: confirm
        them to whoever sent them. Called after `poll`, in the same thread."""


class OffsetSource(ABC, Generic[Given]):
    """A source whose rows come when they come, and can be read again from an offset: a partition of Kafka, a stream of
    Redis, a log. Offsets are whole numbers (64 bits, from 0 on) that rise from row to row; there may be holes. The
    offset to go on from is kept with the run, so nothing is lost where a VM is.

    Each thread reads the partitions that are its own, as one row of offsets: mostly one partition a thread. All calls
    come in the thread of the source, one at a time. What one raises is an alarm; `seek` and the call are tried again.

    >>> class Letters(OffsetSource[str]):
    ...     def seek(self, offset: int | None) -> None:
    ...         self.next = offset or 0
    ...     def poll(self, limit: int) -> Sequence[tuple[int, str]]:
    ...         first, self.next = self.next, min(3, self.next + limit)
    ...         return [(offset, "abc"[offset]) for offset in range(first, self.next)]
    >>> letters = Letters()
    >>> letters.seek(1)
    >>> letters.poll(10)
    [(1, 'b'), (2, 'c')]
    """

    @abstractmethod
    def seek(self, offset: int | None) -> None:
        """Go on with the first row at this offset or behind it. None: nothing is known of an earlier start; begin where
        the source is set to begin. Called before the first `poll`, and before the next one after an error."""

    @abstractmethod
    def poll(self, limit: int) -> Sequence[tuple[int, Given]]:
        """At most `limit` new rows, each behind its offset; none if there are none now, at once or after some
        milliseconds. An exception in place of a row that cannot be read: that offset becomes a dead letter."""

    def came(self, row: Row) -> float | None:
        """When this row came (UTC, seconds), if it says so; None: when it was taken. Latency counts from then."""
        return None

    def done(self, offset: int) -> None:
        """All rows below this offset are done, and the run's files say so: no `seek` goes below it. Commit it to
        whoever keeps them. At most twice a second, a second late, and before the end."""

    def lag(self) -> int | None:
        """How many rows whoever keeps them has behind those that `poll` gave; None: it does not say. At most twice a
        second. What waits there is offered to the run, and planned for."""
        return None


class RowId(NamedTuple):
    """The name of a row at a sink: the same whenever the row comes again, another for every other row of every run.
    run: its id. partition, position: of the row of the source that it comes from; variant: which of those that came
    of it.

    >>> str(RowId("0192f0c1-7a3e", "orders", 0, 17, 0))
    '0192f0c1-7a3e/orders/0/17/0'
    """

    run: str
    source: str
    partition: int
    position: int
    variant: int

    def __str__(self) -> str:
        return f"{self.run}/{self.source}/{self.partition}/{self.position}/{self.variant}"


class Sink(ABC, Generic[In]):
    """Where rows end: a table, a topic, a folder of files. What `write` returned from is done: it is acknowledged to
    the source. After a fault rows may come again, under the same names.

    Rows come as they arrive, a frame at a time; of a class that sets `batch_rows`, so many together, or fewer once the
    oldest has waited for `batch_age_s`. A class that sets `one_thread` runs in one thread of one process: edges to it
    are `to_one()`, and others refused.

    >>> class Table(Sink[int]):
    ...     def __init__(self) -> None:
    ...         self.rows: dict[str, int] = {}
    ...     def write(self, rows: Sequence[int], ids: Sequence[RowId]) -> None:
    ...         self.rows |= {str(name): row for name, row in zip(ids, rows)}
    """

    batch_rows = 0
    batch_age_s = 1.0
    one_thread = False

    @abstractmethod
    def write(self, rows: Sequence[In], ids: Sequence[RowId]) -> None:
        """Write all of them; `ids`: one for each. What it raises: `ServiceAway` when the service does not answer: the
        call comes again until it does, while its rows and those behind them wait. Anything else: it is tried three
        times, then in halves, down to the row that is to blame, which becomes a dead letter."""


class Window(ABC, Generic[Key, In, Out]):
    """A task that buffers rows in panes, one for each key, and fires a pane as a whole: join, window, batch.

    The rows of a pane are not done before `finish` returned and its output was dealt with; if the
    worker dies they are replayed. When a re-plan moves the pane's key, its rows travel along.

    >>> class Pairs(Window[str, dict[str, int], int]):
    ...     def key(self, row: dict[str, int], source: str) -> str:
    ...         return source
    ...     def ready(self, key: str, rows: Sequence[dict[str, int]]) -> bool:
    ...         return len(rows) == 2
    ...     def finish(self, key: str, rows: Sequence[dict[str, int]]) -> Iterable[int]:
    ...         return [rows[0]["x"] + rows[1]["x"]]
    >>> Pairs().finish("left", [{"x": 1}, {"x": 2}])
    [3]
    """

    max_age_s: float | None = None  # a pane this old fires whether `ready` or not

    def key(self, row: In, source: str) -> Key | None:
        """The pane of a row that came from task `source`: a plain value. All rows share one pane unless this is
        defined."""
        return None

    @abstractmethod
    def ready(self, key: Key, rows: Sequence[In]) -> bool:
        """Is this pane complete? Asked after each row put into it."""

    @abstractmethod
    def finish(self, key: Key, rows: Sequence[In]) -> Iterable[Out]:
        """The output of a pane; its rows are done then."""


class Keyed(ABC, Generic[Key, State, In, Out]):
    """State per key of a task reached by `fields` edges. States are the runtime's: it moves them with
    their key and saves them, so `snapshot` gives a plain value and `restore` takes it back.

    >>> class Longest(Keyed[str, int, str, int]):
    ...     def new(self, key: str) -> int:
    ...         return 0
    ...     def process(self, key: str, row: str, state: int) -> tuple[int, Iterable[int]]:
    ...         longest = max(state, len(row))
    ...         return longest, [longest] if longest > state else []
    >>> Longest().process("a", "apple", 3)
    (5, [5])

    state_version: of what `snapshot` gives, counted up whenever older states do not fit any more.
    """

    state_version = 1

    @abstractmethod
    def new(self, key: Key) -> State:
        """The state of a key not seen before."""

    @abstractmethod
    def process(self, key: Key, row: In, state: State) -> tuple[State, Iterable[Out]]:
        """(new state, output rows) for one row."""

    def process_all(
        self, keys: Sequence[Key], rows: Sequence[In], states: dict[Key, State]
    ) -> tuple[list[Out], Sequence[int] | None]:
        """The output rows of many rows: what `process` would give for one after the other; and how many of them came
        of each row, None when it is one of each. `states`: of these keys, the new state of a key is put there. A call
        that raises is tried again with the same states and with fewer rows, so states are replaced here and never
        changed. A class need not have this; it is used where no subclass has another `process`, and saves a call for
        each row."""
        raise NotImplementedError

    def finish(self, key: Key, state: State) -> Iterable[Out]:
        """The last rows of a key, once for each: every source has ended, and all rows are processed. What it gives
        goes on like any row. When it raises, the key becomes a dead letter."""
        return ()

    def migrate(self, old: Row, version: int) -> Row:
        """What `snapshot` gave while the class had this other `state_version`, as it gives it now: called once for each
        key when a run begins from a checkpoint of that version, before `open`."""
        raise NotImplementedError

    def snapshot(self, state: State) -> Row:
        """The state as a plain value (see the top of this module)."""
        return state

    def restore(self, saved: Row) -> State:
        """The state again, from what `snapshot` gave."""
        restored: State = saved
        return restored


@dataclass(frozen=True)
class To:
    """A row for one thread of a `direct` edge: number `index` modulo the receiver's threads.

    >>> def by_region(row: dict[str, int]) -> To:
    ...     return To(row["region"], row)
    >>> by_region({"region": 3})
    To(index=3, row={'region': 3})
    """

    index: int
    row: Row


def flat_map(function: F) -> F:
    """The function gives any number of rows for each row.

    >>> @flat_map
    ... def words(line: str) -> list[str]:
    ...     return line.split()
    >>> words("to be")
    ['to', 'be']
    """
    function.__headgate_kind__ = "flat_map"  # type: ignore[attr-defined]
    return function


def keep_if(function: F) -> F:
    """The function says whether the row goes on.

    >>> @keep_if
    ... def long(word: str) -> bool:
    ...     return len(word) > 3
    >>> long("be")
    False
    """
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
    arrays, or one array where a row is a value (docs/how-to/batch-rows.md, Columns). A Source may give them, too.

    >>> @batched
    ... def halves(rows: list[float]) -> list[float]:
    ...     return [row / 2 for row in rows]
    >>> halves([1.0, 3.0])
    [0.5, 1.5]
    """

    def mark(run: Any) -> Any:
        setattr(run, BATCHED, BATCHED_COLUMNS if columns else BATCHED_ROWS)
        return run

    return mark if run is None else mark(run)


def concurrent(calls: int = CALLS, *, ordered: bool = True) -> Callable[[F], F]:
    """Of an async function, class or `__call__`: at most so many calls are under way at once in a thread. ordered: rows
    go on in the order in which they came; False: as soon as they are done.

    >>> @concurrent(200, ordered=False)
    ... async def priced(row: dict[str, int]) -> dict[str, int]:
    ...     return row  # … with what a service answered
    """
    if isinstance(calls, bool) or not isinstance(calls, int) or calls < 1:
        raise ValueError(
            f"@concurrent takes a number of calls from 1 on, and got {calls!r}: write @concurrent(100)"
        )

    def mark(run: F) -> F:
        setattr(run, CONCURRENT, (calls, ordered))
        return run

    return mark


def side_effects(run: F) -> F:
    """What the function or class does is felt outside (it writes, posts, pays): it is not run on sample rows unless
    asked. Sinks need no mark.

    >>> @side_effects
    ... def pay(order: dict[str, float]) -> dict[str, float]:
    ...     return order  # … after a call of the bank
    """
    run.__headgate_side_effects__ = True  # type: ignore[attr-defined]
    return run


def no_side_effects(run: F) -> F:
    """A sink that may be run on sample rows: nothing of what it does is felt outside.

    >>> @no_side_effects
    ... def drop(row: object) -> None:
    ...     return None
    """
    run.__headgate_side_effects__ = False  # type: ignore[attr-defined]
    return run


def any_thread(cls: F) -> F:
    """Objects of this class may be called by any thread of their worker, one at a time: they hold nothing that belongs
    to the thread that made them (a sqlite3 connection does). Functions need no mark; subclasses need their own.

    >>> @any_thread
    ... class Add:
    ...     def __init__(self, number: int) -> None:
    ...         self.number = number
    ...     def __call__(self, row: int) -> int:
    ...         return row + self.number
    """
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


def concurrency_of(run: Any) -> tuple[int, bool] | None:
    """How many calls of this function, class or object at once, and do rows stay in order? None: it does not say."""
    cls = run if isinstance(run, type) else type(run)
    found = getattr(run, CONCURRENT, None) or getattr(getattr(cls, CALL, None), CONCURRENT, None)
    return (int(found[0]), bool(found[1])) if found else None


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
    one that is read at any time."""
    if has_offsets(run):
        return True
    if isinstance(run, LiveSource) or (isinstance(run, type) and issubclass(run, LiveSource)):
        return bool(run.arriving)
    return None


def has_offsets(run: Any) -> bool:
    """Is it a source that goes on from an offset?"""
    return isinstance(run, OffsetSource) or (isinstance(run, type) and issubclass(run, OffsetSource))


def kind_of(run: Any) -> str:
    """Which kind of task this function, class or object is (see `topology.Kind`)."""
    kind = getattr(run, KIND, None)
    if kind is not None:
        return str(kind)
    if isinstance(run, Sink) or (isinstance(run, type) and issubclass(run, Sink)):
        return "hold" if run.batch_rows else "map"
    for base, name in ((Source, "source"), (LiveSource, "source"), (OffsetSource, "source"),
                       (Window, "hold"), (Keyed, "keyed")):  # fmt: skip
        if isinstance(run, base) or (isinstance(run, type) and issubclass(run, base)):
            return name
    return "map"
