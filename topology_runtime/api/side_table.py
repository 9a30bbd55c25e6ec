"""A table beside the rows of a task: the newest row of each key of a stream, read whole by every worker. Import it from
``headgate``.

As a GlobalKTable of Kafka Streams: what is kept is the stream itself (a compacted topic, a file), so the table is in no
snapshot and in no checkpoint, and a worker that starts reads it from the beginning. Rows of the task wait until it is
up to date. From then on it is read beside them: a row sees the table as it is when the row is processed.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from headgate.topology_runtime.api.logic import Context, Exhausted, OffsetSource, Source, batched_of
from headgate.topology_runtime.api.task_functions import key_function
from headgate.topology_runtime.api.user_metrics import UserGauge
from headgate.topology_runtime.errors import InvalidInput, ServiceAway
from headgate.topology_runtime.wording import counted, error_text

READ_ROWS = 1024  # at once
EMPTY_S = 0.05  # between two looks at a stream without new rows
AGAIN_S = 1.0  # until one that cannot be read is read again
LINGER_S = 10.0  # a table that nobody uses is read on for so long: a task that waits for it opens it again
MISSING = object()

Key = str | int | Callable[[Any], Any]


class SideTable(Mapping[Any, Any]):
    """The newest row of each key. Threads of one worker share one copy of the same table.

    source: a class of sources with offsets, or of sources by position (a file), made as `source(**params)`, in
    `threads` partitions. key, value: a field's name, a position or a function of a row; value: what is kept of it
    (None: the whole row). A row whose value is None takes its key away. wait_s: `open` waits so long for the table;
    then the task's rows wait, and `headgate status` says for what.

    Raises InvalidInput of a source that cannot be read twice. In `open`, ServiceAway while the table is not up to date.

    >>> from headgate import Exhausted, Source
    >>> class Rates(Source):
    ...     def read(self, position, limit):
    ...         if position >= 3:
    ...             raise Exhausted
    ...         return [("usd", 1.1), ("gbp", 0.8), ("usd", 1.2)][position : position + limit]
    >>> class InEuros:
    ...     def __init__(self):
    ...         self.rates = SideTable(Rates, key=0, value=1)
    ...     def open(self, context):
    ...         self.rates.open(context)
    ...     def __call__(self, price):
    ...         return price["amount"] / self.rates[price["currency"]]
    ...     def close(self):
    ...         self.rates.close()
    >>> task = InEuros()
    >>> task.open(Context("euros", 1, 0, 1, "."))
    >>> task({"amount": 6.0, "currency": "usd"}), len(task.rates)
    (5.0, 2)
    >>> task.close()
    """

    def __init__(
        self,
        source: type[Any],
        params: Mapping[str, Any] | None = None,
        *,
        key: Key,
        value: Key | None = None,
        threads: int = 1,
        wait_s: float = 5.0,
    ) -> None:
        if not (isinstance(source, type) and issubclass(source, OffsetSource | Source)):
            raise InvalidInput(
                f"a side table is read from a class of OffsetSource or Source, and got {source!r}",
                cause="every worker reads it from the beginning, so it must be read twice",
            )
        if batched_of(source) == "columns":
            raise InvalidInput(f"a side table takes rows one by one, and {source.__name__} gives columns")
        if threads < 1:
            raise InvalidInput(f"a side table is read by at least one thread, and got {threads!r}")
        self._source, self._params, self._threads = source, dict(params or {}), threads
        self._key, self._value, self._wait_s = key, value, wait_s
        self._reading: _TableReading | None = None
        self._parts: Sequence[dict[Any, Any]] = ()

    def open(self, context: Context) -> None:
        """Call it in the task's `open`: the table is up to date when it returns."""
        reading = _reading_of(self._name, self._made)
        reading.join(self, context)
        if not reading.wait(self._wait_s):
            reading.leave(self)
            raise ServiceAway(reading.state(), cause=reading.trouble or None)
        self._reading, self._parts = reading, reading.parts

    def close(self) -> None:
        """Call it in the task's `close`."""
        reading, self._reading, self._parts = self._reading, None, ()
        if reading is not None:
            reading.leave(self)

    def get(self, key: Any, default: Any = None) -> Any:
        for part in self._parts:
            found = part.get(key, MISSING)
            if found is not MISSING:
                return found
        return default

    def __getitem__(self, key: Any) -> Any:
        found = self.get(key, MISSING)
        if found is MISSING:
            raise KeyError(key)
        return found

    def __contains__(self, key: object) -> bool:
        return any(key in part for part in self._parts)

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(list(part) for part in self._parts)

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)

    @property
    def _name(self) -> Hashable:
        """Tables of the same name are one."""
        params = json.dumps(self._params, sort_keys=True, default=repr)
        return self._source, params, self._key, self._value, self._threads

    def _made(self) -> _TableReading:
        sources = [self._source(**self._params) for _ in range(self._threads)]
        key = self._key if callable(self._key) else key_function(self._key)
        value = self._value if callable(self._value) or self._value is None else key_function(self._value)
        return _TableReading(self._name, sources, key, value)


# ── The readings of this process ────────────────────────────────────────────────────────────────────

_READINGS: dict[Hashable, _TableReading] = {}
_LOCK = threading.Lock()


def _reading_of(name: Hashable, made: Callable[[], _TableReading]) -> _TableReading:
    with _LOCK:
        if name not in _READINGS:
            _READINGS[name] = made()
        return _READINGS[name]


class _TableReading:
    """One table, and the threads that read it."""

    def __init__(
        self,
        name: Hashable,
        sources: Sequence[Any],
        key: Callable[[Any], Any],
        value: Callable[[Any], Any] | None,
    ) -> None:
        self.name, self.sources, self._key, self._value = name, sources, key, value
        self.parts: list[dict[Any, Any]] = [{} for _ in sources]
        self._troubles = [""] * len(sources)
        self._ready = [threading.Event() for _ in sources]
        self._rows = [0] * len(sources)  # read
        self._users: dict[int, UserGauge] = {}
        self._left_s = time.monotonic()
        self._bad = 0
        self._begun = False

    def join(self, user: SideTable, context: Context) -> None:
        with _LOCK:
            self._users[id(user)] = context.metrics.gauge("side_table_keys")
            if self._begun:
                return
            self._begun = True
        for number in range(len(self.sources)):
            name = f"side table {type(self.sources[number]).__name__} {number}"
            threading.Thread(target=self._run, args=(number, context), name=name, daemon=True).start()

    def leave(self, user: SideTable) -> None:
        with _LOCK:
            self._users.pop(id(user), None)
            self._left_s = time.monotonic()

    def wait(self, most_s: float) -> bool:
        """Until all is read that there was; False: it takes longer."""
        until_s = time.monotonic() + most_s
        return all(one.wait(max(0.0, until_s - time.monotonic())) for one in self._ready)

    def state(self) -> str:
        kind = type(self.sources[0]).__name__
        return f"the side table of {kind} is not up to date yet: {counted(sum(self._rows), 'row')} read"

    def _over(self) -> bool:
        """Does nobody use it any more?"""
        with _LOCK:
            over = not self._users and time.monotonic() - self._left_s >= LINGER_S
            if over and _READINGS.get(self.name) is self:
                del _READINGS[self.name]
            return over

    def _run(self, number: int, context: Context) -> None:
        source, partitions = self.sources[number], len(self.sources)
        here = Context(context.task, context.thread, number, partitions, context.directory)
        opened = False
        while not self._over():
            try:
                if not opened and hasattr(source, "open"):
                    source.open(here)
                opened = True
                self._follow(number, source)
                break
            except BaseException as error:  # code of the source: told, and tried again
                self._say(number, f"cannot be read: {error_text(error)}; tried again every second")
                time.sleep(AGAIN_S)
        try:
            if opened and hasattr(source, "close"):
                source.close()
        except BaseException as error:  # code of the source
            self._say(number, f"cannot be closed: {error_text(error)}")

    @property
    def trouble(self) -> str:
        return next(filter(None, self._troubles), "")

    def _say(self, number: int, trouble: str) -> None:
        """Once for each trouble of a partition, not once a second."""
        if trouble != self._troubles[number]:
            self._troubles[number] = trouble
            kind = type(self.sources[0]).__name__
            print(f"headgate: the side table of {kind} {trouble}", file=sys.stderr, flush=True)

    def _follow(self, number: int, source: Any) -> None:
        """From the beginning, into a table of its own until that is up to date: after an error, what was taken away
        meanwhile may not be in the stream any more."""
        fresh, position = dict[Any, Any](), 0
        offsets = isinstance(source, OffsetSource)
        self._rows[number] = 0
        if offsets:
            source.seek(None)
        while not self._over():
            call = partial(source.poll, READ_ROWS) if offsets else partial(source.read, position, READ_ROWS)
            rows, ended = _given(call)
            self._take(number, fresh, [row for _, row in rows] if offsets else rows)
            position += len(rows)
            if ended or not (rows or (offsets and source.lag())):
                self._is_whole(number, fresh)
            if ended:
                return
            if not rows:
                time.sleep(EMPTY_S)

    def _is_whole(self, number: int, fresh: dict[Any, Any]) -> None:
        self.parts[number], self._troubles[number] = fresh, ""
        self._ready[number].set()
        self._count()

    def _take(self, number: int, into: dict[Any, Any], rows: Sequence[Any]) -> None:
        for row in rows:
            try:
                if isinstance(row, Exception):
                    raise row
                key, kept = self._key(row), row if self._value is None else self._value(row)
                if kept is None:
                    into.pop(key, None)
                else:
                    into[key] = kept
            except BaseException as error:  # the user's code, or a row without a key: it changes nothing
                self._bad += 1
                if self._bad == 1:
                    self._say(number, f"has a row that is left out, and others may be: {error_text(error)}")
        self._rows[number] += len(rows)
        if into is self.parts[number]:
            self._count()

    def _count(self) -> None:
        """Of one of its users, for their sums are of all threads."""
        with _LOCK:
            gauge = next(iter(self._users.values()), None)
        if gauge is not None:
            gauge.set(sum(len(part) for part in self.parts))


def _given(call: Callable[[], Iterable[Any]]) -> tuple[list[Any], bool]:
    """What a call gave, and whether it said behind it that nothing follows."""
    found: list[Any] = []
    try:
        found.extend(call())
    except Exhausted:
        return found, True
    return found, False
