"""A value that can travel can do so in every way that rows and states go, and comes back of the same type; one that
cannot is refused in all of them. Equal keys are one key wherever threads are."""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
import pytest
from test_keyed_frames import frame, task_of, whole_part

from headgate.topology_runtime.api.logic import Keyed
from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.tasks.stateful import CountByKey
from headgate.topology_runtime.wire.messages import Tuples
from headgate.topology_runtime.worker.calls.attempts import StartAgain
from headgate.topology_runtime.worker.calls.dead_lettering import bytes_of
from headgate.topology_runtime.worker.calls.router import range_of
from headgate.topology_runtime.worker.keyed_state import snapshot_files as files
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.keyed_state.state_snapshots import SavedPart, contents_of, of_range
from headgate.topology_runtime.worker.links import frame_encoding
from headgate.topology_runtime.worker.meters import sample_rows
from headgate.topology_runtime.worker.meters.row_copies import Copies
from headgate.topology_runtime.worker.operators.window_task import Panes
from headgate.topology_runtime.worker.rows import row_values as wire
from headgate.topology_runtime.worker.rows.acks import BufferedRow
from headgate.topology_runtime.worker.sources.source_spool import Spool


class Colour(enum.Enum):
    RED = "red"


class Text(str):
    pass


MOMENT = datetime(2026, 11, 28, 19, tzinfo=timezone(timedelta(hours=2)))
KEYS: list[Hashable] = [
    *(None, True, 7, 2.5, "a", b"a", Decimal("1.50"), MOMENT, date(2026, 11, 28), time(7, 30), timedelta(3)),
    *(UUID(int=7), (1, "a"), (Decimal("0.10"), date.min), frozenset({1, "a"})),
]
ACCEPTED: list[Any] = [
    *KEYS, [1, [Decimal("2.0")]], {"a": {"b": date.max}}, {1: UUID(int=1)}, {(1, 2): {3}}, {Decimal("1.0")}
]  # fmt: skip
REFUSED: list[Any] = [np.float64(1.5), np.int64(1), Colour.RED, Text("a"), 1j, bytearray(b"a"), object()]
REFUSED += [{"a": np.float64(0.5)}, {Colour.RED: 1}, [(1, 1j)], {np.int64(1)}, 2**64]


class Keep(Keyed):
    """The last value is the state."""

    def new(self, key: Hashable) -> Any:
        return None

    def process(self, key: Hashable, row: Any, state: Any) -> tuple[Any, Iterable[Any]]:
        return row[1], []


# ── the ways ────────────────────────────────────────────────────────────────────────────────────────


def _framed(value: Any, _: Path) -> Any:
    bad: frame_encoding.BadRows = SimpleQueue()
    (data,) = frame_encoding.written(frame([value]), bad, lambda: 1)
    told = msgspec.msgpack.decode(data, type=Tuples)
    if not bad.empty():
        raise bad.get()[1][0][1]
    found = frame_encoding.read(told)  # type: ignore[arg-type]
    assert found is not None
    return found.rows[0]


def _spooled(value: Any, folder: Path) -> Any:
    spool = Spool(str(folder / "spool"))
    for _, error in spool.append([value]):
        raise error
    return Spool(str(folder / "spool")).read(0, 1)[0]


def _dead(value: Any, _: Path) -> Any:
    shape, data = bytes_of(value)
    if not data:
        raise BadRow("has no bytes")
    return wire.read(data, shape)[0]


def _sampled(value: Any, folder: Path) -> Any:
    sample_rows.write(folder / "rows", [("a", value)])
    return sample_rows.read(folder / "rows")[0][1]


def _copied(value: Any, _: Path) -> Any:
    copies = Copies()
    copies.add("a", [value])
    if not copies.samples():
        raise BadRow("was not copied")
    return copies.samples()[0][1]


def _processed(value: Any) -> KeyedRows:
    task = task_of(Keep())
    task.take(frame([("a", value)]), 0)
    for letter in task.results.letters:
        raise BadRow(letter.error)
    return task


def _state(task: KeyedRows) -> Any:
    (state,) = task.states.of(range_of("a")).values()
    return state


def _whole(value: Any, folder: Path) -> Any:
    store = files.SnapshotFiles(str(folder), "t", 5)
    store.save(whole_part(_processed(value)))
    return _restored(store)


def _changed(value: Any, folder: Path) -> Any:
    store = files.SnapshotFiles(str(folder), "t", 5)
    task = _processed(0)
    store.save(whole_part(task))
    task.covered()
    task.take(frame([("a", value)], 1), 0)
    if task.results.letters:
        raise BadRow("is no change")
    store.save(SavedPart(task.change(task.ranges.versions)))
    return _restored(store)


def _restored(store: files.SnapshotFiles) -> Any:
    saved, again = store.load(), task_of(Keep())
    assert saved is not None
    again.restore(saved)
    return _state(again)


def _moved(value: Any, _: Path) -> Any:
    copy = _processed(value).copy(range_of("a"))
    ((_key, state),) = of_range(contents_of(copy).states)
    return state


WAYS: dict[str, Callable[[Any, Path], Any]] = {
    "frame": _framed, "spool": _spooled, "dead letter": _dead, "sample rows": _sampled, "row copies": _copied,
    "whole snapshot": _whole, "added snapshot": _changed, "moved range": _moved,
}  # fmt: skip


def told(value: Any) -> tuple[type, str]:
    """A value with its type."""
    return type(value), repr(sorted(map(repr, value)) if isinstance(value, set | frozenset) else value)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("value", ACCEPTED, ids=map(str, range(len(ACCEPTED))))
def test_what_can_travel_comes_back_of_the_same_type(way: str, value: Any, tmp_path: Path) -> None:
    found = WAYS[way](value, tmp_path)
    assert found == value and told(found) == told(value)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("value", REFUSED, ids=lambda value: type(value).__name__)
def test_what_cannot_travel_is_refused_everywhere(way: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(BadRow):
        WAYS[way](value, tmp_path)


# ── states ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_state_that_cannot_be_saved_costs_its_row_and_not_the_state() -> None:
    task = task_of(Keep())
    task.take(frame([("a", 1), ("b", 1), ("a", np.float64(2.5)), ("b", 2)]), 0)
    states = {key: state for at in task.states.filled for key, state in task.states.of(at).items()}
    assert states == {"a": 1, "b": 2}
    (letter,) = task.results.letters
    assert letter.position == 2
    assert "the state of key 'a' cannot be saved" in letter.error


class KeepAsItIs(Keep):
    """With a `snapshot` of its own: not each is looked at."""

    def snapshot(self, state: Any) -> Any:
        return state


def test_a_state_that_was_passed_over_is_never_saved_as_something_else() -> None:
    task = task_of(KeepAsItIs())
    task.take(frame([(f"k{n}", n) for n in range(64)]), 0)
    task.take(frame([("a", Colour.RED)], 64), 0)
    assert not task.results.letters, "it was not looked at"
    with pytest.raises(StartAgain):
        whole_part(task)
    with pytest.raises(StartAgain):
        task.change(task.ranges.versions)


# ── keys ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("key", KEYS, ids=map(str, range(len(KEYS))))
def test_a_key_is_the_same_after_it_crossed_a_wire_and_a_snapshot(key: Hashable, tmp_path: Path) -> None:
    store, task = files.SnapshotFiles(str(tmp_path), "t", 5), task_of(CountByKey())
    task.take(frame([(key, 0), (_framed(key, tmp_path), 1)]), 0)
    store.save(whole_part(task))
    again, saved = task_of(CountByKey()), store.load()
    assert saved is not None
    again.restore(saved)
    again.take(frame([(_framed(key, tmp_path), 2)], 2), 0)
    ((found, count),) = again.states.of(range_of(key)).items()
    assert (found, type(found), count) == (key, type(key), 3)


@pytest.mark.parametrize("key", [Colour.RED, np.int64(1), Text("a"), 1j, 2**64], ids=repr)
def test_a_key_that_cannot_travel_is_a_dead_letter(key: Hashable) -> None:
    task = task_of(CountByKey())
    task.take(frame([("a", 0), (key, 1), ("a", 2)]), 0)
    (letter,) = task.results.letters
    assert letter.position == 1 and "BadRow" in letter.error
    assert task.states.of(range_of("a")) == {"a": 2}


NAN = float("nan")
EQUAL: list[tuple[Hashable, Hashable]] = [
    (NAN, float("nan")), (NAN, -NAN), ((1, NAN), (1, float("nan"))), ((("a", NAN),), (("a", -NAN),)),
    (Decimal("NaN"), Decimal("NaN")), (0.0, -0.0), ((0.0,), (-0.0,)), (Decimal("1.0"), Decimal("1.00")),
    (Decimal(0), Decimal("-0.0")), (Decimal("1E+2"), Decimal(100)), (MOMENT, MOMENT.astimezone(UTC)),
    (time(10, tzinfo=timezone(timedelta(hours=1))), time(9, tzinfo=UTC)),
    (frozenset({1, 2, 300, "a"}), frozenset({"a", 300, 2, 1})),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_equal_keys_are_one_wherever_they_came_from(one: Hashable, other: Hashable, tmp_path: Path) -> None:
    assert range_of(one) == range_of(other)
    store, task = files.SnapshotFiles(str(tmp_path), "t", 5), task_of(CountByKey())
    keys = [one, other, _framed(one, tmp_path), _framed(other, tmp_path)]
    task.take(frame([(key, n) for n, key in enumerate(keys)]), 0)
    store.save(whole_part(task))
    again, saved = task_of(CountByKey()), store.load()
    assert saved is not None
    again.restore(saved)
    again.take(frame([(key, n) for n, key in enumerate(keys)], 4), 0)
    assert list(again.states.of(range_of(one)).values()) == [8]


def test_equal_keys_of_several_types_are_several() -> None:
    keys: list[Hashable] = [1, 1.0, True, Decimal(1), (1,), (1.0,), (True,)]
    task = task_of(CountByKey())
    task.take(frame([(key, n) for n, key in enumerate(keys)]), 0)
    assert sorted(n for at in task.states.filled for n in task.states.of(at).values()) == [1] * len(keys)
    assert sorted(size for size in _panes_of(keys)) == [1] * len(keys)


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_equal_keys_are_one_window(one: Hashable, other: Hashable, tmp_path: Path) -> None:
    assert _panes_of([one, other, _framed(one, tmp_path), "other"]) == [3, 1]


def _panes_of(keys: Iterable[Hashable]) -> list[int]:
    """How many rows are in each pane."""
    panes = Panes()
    for position, key in enumerate(keys):
        (root,) = frame([key], position).roots
        panes.keep(key, BufferedRow(key, 3, root, 0, 0, 1), 0)
    return [pane.size for pane in panes.by_key.values()]
