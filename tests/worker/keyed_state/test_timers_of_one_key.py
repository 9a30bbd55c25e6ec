"""Many timers of one key: what they cost, and that they are as a plain list of them would be, also where calls fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.topology_runtime.api.timed import Time, Timed
from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.worker.calls.router import KeyRanges, range_of
from headgate.topology_runtime.worker.keyed_state.timed_states import (
    FEW,
    Fired,
    Held,
    TimedLogic,
    TimedStates,
)

RANGE = range_of("k")


class Told(Timed):
    """Does what its rows say: a list of (what, timer), and the state to give."""

    at = "at"
    fails = False

    def new(self, key: Any) -> Any:
        return []

    def process(self, key: Any, row: Any, state: Any, time: Time) -> tuple[Any, Iterable[Any]]:
        for what, timer in row["steps"]:
            getattr(time, what)(*timer)
        if row["ends"] == "raises":
            raise ValueError("told so")
        return _new(state, row), ()

    def on_timer(self, key: Any, at: int, state: Any, time: Time) -> tuple[Any, Iterable[Any]]:
        time.set(at + 1, "again")
        if self.fails:
            raise ValueError("told so")
        time.cancel(at + 1, "again")
        return [*state], [(at, time.name)]


def _new(state: Any, row: Any) -> Any:
    return {"in place": state, "new": [*state], "unsaved": [object()], "gone": None, "careful": [*state]}[
        row["ends"]
    ]


class OneByOne(TimedStates):
    """A row of key "k" at a time."""

    def take(self, row: Any) -> None:
        self._one(("k", RANGE, row))

    def take_all_of(self, row: Any) -> None:
        """As `process` does."""
        if not self.careful:
            self._good.clear()
        self.take(row)
        self._let_go()

    def look_at_next(self) -> None:
        self._looked = 0


def logic_of(timed: Timed) -> TimedLogic:
    def key_of(field: Any) -> Callable[[Any], Any]:
        return lambda row: row[field]

    return TimedLogic(timed, key_of, lambda: 0, {})


def states_of(timed: Timed) -> OneByOne:
    return OneByOne(logic_of(timed), KeyRanges())


def row(steps: list[Any], ends: str = "in place") -> dict[str, Any]:
    return {"at": 0, "steps": steps, "ends": ends}


def timers_in(states: TimedStates) -> tuple[set[Any], set[Any]]:
    """Of key "k", by event time and by the clock."""
    held = states.of(RANGE).get("k")
    return (set(held.events), set(held.clocks)) if type(held) is Held else (set(), set())


class CountedName(str):
    """How often names are compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_a_timer_is_set_and_cancelled_and_fires_without_a_look_at_all_others_of_its_key() -> None:
    logic, many = logic_of(Told()), 2000
    CountedName.compared = 0
    names, held = [CountedName(n) for n in range(many)], logic.new("k")
    for name in names:
        held, _ = logic.process("k", row([("set", (7, name))], "new"), held)
    for name in names[: many // 2]:
        held, _ = logic.process("k", row([("cancel", (7, name))]), held)
    for name in names[many // 2 :]:
        held, _ = logic.process("k", Fired(7, name, False), held)
    assert not held.events
    assert CountedName.compared < 100 * many


def test_of_many_timers_those_that_are_set_are_looked_at() -> None:
    logic = logic_of(Told())
    states = OneByOne(logic, KeyRanges())
    for n in range(FEW + 1):
        states.take(row([("set", (n, "good"))]))
    looked_at = logic.looked_at(states.of(RANGE)["k"])
    assert looked_at.events == ((FEW, "good"),) and looked_at.clocks == ()
    before = timers_in(states)
    with pytest.raises(BadRow):
        states.take(row([("set", (3, "\ud800"))], "new"))
    assert timers_in(states) == before


timers = st.tuples(st.integers(0, 3 * FEW), st.sampled_from(["", "x"]))
steps = st.lists(
    st.tuples(st.sampled_from(["set", "cancel", "set_clock", "cancel_clock"]), timers), max_size=2 * FEW
)
ends = st.sampled_from(["in place", "new", "new", "raises", "unsaved", "gone", "careful"])
calls = st.one_of(
    st.tuples(st.just("row"), steps, ends), st.tuples(st.just("fire"), st.integers(0, 99), st.booleans())
)


class PlainTimers:
    """What the timers of a key should be."""

    def __init__(self) -> None:
        self.events: tuple[Any, ...] = ()
        self.clocks: tuple[Any, ...] = ()

    def change(self, steps: list[Any]) -> None:
        for what, timer in steps:
            name = "clocks" if what.endswith("_clock") else "events"
            left = tuple(one for one in getattr(self, name) if one != timer)
            setattr(self, name, (*left, timer) if what.startswith("set") else left)


@given(st.lists(calls, max_size=30))
def test_timers_are_what_a_plain_list_of_them_would_be(calls: list[Any]) -> None:
    told = Told()
    logic, plain = logic_of(told), PlainTimers()
    states = OneByOne(logic, KeyRanges())
    for kind, what, how in calls:
        if kind == "fire":
            kept = plain.clocks if how else plain.events
            if not kept:
                continue
            timer = kept[what % len(kept)]
            told.fails = what % 3 == 0
            if told.fails:
                with pytest.raises(ValueError):
                    states.fire("k", RANGE, Fired(*timer, how))
                assert timers_in(states) == (set(plain.events), set(plain.clocks))
            told.fails = False
            assert states.has("k", RANGE, Fired(*timer, how))
            assert states.fire("k", RANGE, Fired(*timer, how)) == [timer]
            plain.change([("cancel_clock" if how else "cancel", timer)])
        elif how in ("raises", "unsaved"):
            states.look_at_next()
            with pytest.raises((ValueError, BadRow)):
                states.take(row(what, how))
        else:
            states.careful = int(how == "careful")
            states.take_all_of(row(what, how))
            states.careful = 0
            plain.change(what)
            if how == "gone":
                plain = PlainTimers()
        assert timers_in(states) == (set(plain.events), set(plain.clocks))
        again = states_of(Told())
        again.unpack(RANGE, states.pack(RANGE))
        assert timers_in(again) == timers_in(states)
    found = []
    while (due := logic.events.due(1 << 60)) is not None:
        if states.has("k", RANGE, Fired(*due[0], False)):
            found.append(due[0])
            states.fire("k", RANGE, Fired(*due[0], False))
    assert found == sorted(plain.events), "each once, in order"
