"""`testing.run`: a flow over rows that a test gives, with the workers' own operators."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

from headgate import (
    Context,
    Exhausted,
    Keyed,
    LiveSource,
    Source,
    To,
    Window,
    batched,
    flat_map,
    keep_if,
    testing,
    topology,
)
from headgate.tasks import CountByKey, Join
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.testing import input_rows


class Numbers(Source):
    """0, 1, 2 … up to a number."""

    def __init__(self, upto: int = 1000) -> None:
        self.upto = upto

    def read(self, position: int, limit: int) -> Sequence[int]:
        if position >= self.upto:
            raise Exhausted
        return range(position, min(self.upto, position + limit))


class Lines(Source):
    """Any rows: they come from the tests."""

    def read(self, position: int, limit: int) -> Sequence[Any]:
        raise Exhausted


def parse(line: str) -> dict[str, Any]:
    name, value = line.split(",")
    return {"name": name, "value": int(value)}


def keep(row: Any) -> None:
    """A sink that returns nothing."""


def line_of(*tasks: Any, **params: Any) -> Any:
    """A flow: numbers → these tasks, named by their places."""
    flow = topology("line")
    end = flow.source("numbers", Numbers)
    for number, run in enumerate(tasks):
        end = end >> flow.task(f"task{number}", run, **(params if number == len(tasks) - 1 else {}))
    return flow


def last(result: testing.Result) -> list[Any]:
    (rows,) = result.rows.values()
    return rows


# ── rows of sinks ───────────────────────────────────────────────────────────────────────────────


def test_a_task_that_lacks_its_return_is_told_of_and_a_sink_is_not() -> None:
    def forgets(row: int) -> None:
        """Lacks its return."""

    @batched
    def forgets_all(rows: list[int]) -> list[None]:
        return [None for _ in rows]

    for forgetful in (forgets, forgets_all):
        with pytest.warns(UserWarning, match="task 'task0' .* return the row") as told:
            flow = line_of(forgetful, lambda row: row, lambda row: row)  # the second passes on what it got
            assert last(testing.run(flow, {"numbers": [1, 2]})) == [None, None]
        place = f"({__file__}:{forgetful.__code__.co_firstlineno})"
        assert len(told) == 1 and place in str(told[0].message) and told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        testing.run(line_of(lambda row: row, forgets), {"numbers": [1, 2]})


def test_a_sink_gives_what_it_returned_or_the_row_where_that_is_none() -> None:
    def some(row: int) -> str | None:
        return "even" if row % 2 == 0 else None

    assert last(testing.run(line_of(some), {"numbers": [1, 2, 3]})) == [1, "even", 3]


def test_sinks_of_every_form_are_seen() -> None:
    @flat_map
    def twice(row: int) -> Iterable[int]:
        yield row
        yield row

    @keep_if
    def odd(row: int) -> bool:
        return row % 2 == 1

    @batched
    def halves(rows: list[int]) -> list[float]:
        return [row / 2 for row in rows]

    @batched(columns=True)
    def squares(rows: Any) -> Any:
        return rows * rows

    for run, rows in ((twice, [1, 1, 2, 2]), (odd, [1]), (halves, [0.5, 1.0]), (squares, [1, 4])):
        assert last(testing.run(line_of(run), {"numbers": [1, 2]})) == rows


def test_a_source_that_is_not_given_is_read_to_its_end() -> None:
    assert last(testing.run(line_of(keep))) == list(range(1000))


def test_a_given_source_is_not_even_opened() -> None:
    class Broker(Source):
        def open(self, context: Context) -> None:
            raise AssertionError("no broker here")

        def read(self, position: int, limit: int) -> Sequence[int]:
            raise AssertionError("no broker here")

    flow = topology("broker")
    flow.source("broker", Broker) >> flow.task("keep", keep)
    assert testing.run(flow, {"broker": [7]}).rows == {"keep": [7]}


def test_sources_take_turns() -> None:
    flow = topology("two")
    [flow.source("left", Lines), flow.source("right", Lines)] >> flow.task("keep", keep)
    rows = testing.run(flow, {"left": [1] * 300, "right": [2] * 300}).rows["keep"]
    assert rows == [1] * 256 + [2] * 256 + [1] * 44 + [2] * 44


def test_rows_that_are_addressed_arrive() -> None:
    flow = topology("direct")
    (
        flow.source("numbers", Numbers)
        >> flow.task("send", lambda row: To(row, row))
        >> flow.task("k", keep).direct()
    )
    assert testing.run(flow, {"numbers": [5, 6]}).rows == {"k": [5, 6]}


# ── failing rows ────────────────────────────────────────────────────────────────────────────────


def test_a_row_that_fails_is_a_dead_letter_with_task_row_file_and_line() -> None:
    flow = topology("parse")
    flow.source("lines", Lines) >> flow.task("parse", parse) >> flow.task("keep", keep)
    result = testing.run(flow, {"lines": ["a,1", "b;2", "c,3"]})
    assert [row["name"] for row in result.rows["keep"]] == ["a", "c"]
    (letter,) = result.dead_letters
    assert (letter.task, letter.row, letter.source, letter.position) == ("parse", "b;2", "lines", 1)
    assert "ValueError" in letter.error and "ValueError" in letter.traceback
    assert Path(letter.file) == Path(__file__)
    assert letter.line == parse.__code__.co_firstlineno + 1
    assert str(letter).startswith(f"{__file__}:{letter.line}: task 'parse' failed on 'b;2'")


def test_a_row_is_tried_three_times() -> None:
    tried: list[int] = []

    def shaky(row: int) -> int:
        tried.append(row)
        if tried.count(row) < row:
            raise OSError("not yet")
        return row

    result = testing.run(line_of(shaky), {"numbers": [1, 3, 4]})
    assert (last(result), [letter.row for letter in result.dead_letters]) == ([1, 3], [4])
    assert tried == [1, 3, 3, 3, 4, 4, 4]


def test_a_row_that_cannot_travel_is_a_dead_letter_of_who_gave_it() -> None:
    result = testing.run(line_of(lambda row: object() if row == 2 else row, keep), {"numbers": [1, 2, 3]})
    assert last(result) == [1, 3]
    assert [letter.task for letter in result.dead_letters] == ["task0"]


def test_leaving_a_debugger_ends_the_run() -> None:
    from bdb import BdbQuit

    def stopped(row: int) -> int:
        raise BdbQuit

    with pytest.raises(BdbQuit):
        testing.run(line_of(stopped), {"numbers": [1]})


def test_leaving_a_debugger_in_an_async_task_ends_the_run_too() -> None:
    from bdb import BdbQuit

    async def quits(row: int) -> int:
        await asyncio.sleep(0)
        raise BdbQuit

    with pytest.raises(BdbQuit):
        testing.run(line_of(quits, keep), {"numbers": [1, 2]})


# ── state, windows, time ────────────────────────────────────────────────────────────────────────


class Totals(Keyed):
    closed: list[Any] = []

    def new(self, key: Any) -> int:
        return 0

    def process(self, key: Any, row: Any, state: int) -> tuple[int, list[Any]]:
        return state + row["value"], []

    def finish(self, key: Any, state: int) -> Iterable[Any]:
        if key == "bad":
            raise ValueError("no total")
        yield {"name": key, "total": state}


def totals() -> Any:
    flow = topology("totals")
    flow.source("rows", Lines) >> flow.task("total", Totals).by("name") >> flow.task("keep", keep)
    return flow


def of(name: str, *values: int) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for value in values]


def test_states_are_seen_and_keyed_tasks_finish_at_the_end() -> None:
    result = testing.run(totals(), {"rows": [*of("a", 1, 2), *of("b", 5), *of("a", 10)]})
    assert result.states == {"total": {"a": 13, "b": 5}}
    rows = sorted(result.rows["keep"], key=lambda row: row["name"])
    assert rows == [{"name": "a", "total": 13}, {"name": "b", "total": 5}]


def test_a_key_whose_finish_fails_is_a_dead_letter() -> None:
    result = testing.run(totals(), {"rows": [*of("bad", 1), *of("a", 2)]})
    assert result.rows["keep"] == [{"name": "a", "total": 2}]
    assert [(letter.task, "bad" in str(letter.row)) for letter in result.dead_letters] == [("total", True)]


@flat_map
def gives_a_dict(row: int) -> Any:
    return {"row": row}


@flat_map
async def soon_gives_nothing(row: int) -> Any:
    return None


class LooseEnds(Keyed):
    """Of key 0 its rows, of key 1 its end."""

    def new(self, key: int) -> int:
        return key

    def process(self, key: int, row: int, state: int) -> Any:
        return state, "text" if key == 0 else []

    def finish(self, key: int, state: int) -> Any:
        return {"key": key} if key == 1 else []


class LooseWindow(Window):
    def key(self, row: int, source: str) -> int:
        return row

    def ready(self, key: int, rows: Sequence[int]) -> bool:
        return key == 0

    def finish(self, key: int, rows: Sequence[int]) -> Any:
        return b"bytes" if key == 0 else 5


@pytest.mark.parametrize(
    ("run", "returned"),
    [
        (gives_a_dict, ["a dict", "a dict"]),
        (soon_gives_nothing, ["None", "None"]),
        (LooseEnds, ["a str", "a dict"]),
        (LooseWindow, ["a bytes", "an int"]),
    ],
)
def test_what_is_no_list_of_rows_does_not_go_on_in_pieces(run: Any, returned: list[str]) -> None:
    flow = topology("line")
    flow.source("numbers", Numbers) >> flow.task("loose", run).by(whole) >> flow.task("keep", keep)
    result = testing.run(flow, {"numbers": [0, 1]})
    assert result.rows["keep"] == []
    told = [f"BadRow: the task returned {what} for its rows" for what in returned]
    assert [letter.error for letter in result.dead_letters] == told
    assert all("return [row], or [] for none" in letter.traceback for letter in result.dead_letters)


def whole(row: int) -> int:
    return row


def test_a_state_that_cannot_be_saved_costs_its_row() -> None:
    class Objects(Totals):
        def process(self, key: Any, row: Any, state: Any) -> tuple[Any, list[Any]]:
            return object(), []

    flow = topology("objects")
    flow.source("rows", Lines) >> flow.task("objects", Objects).by("name")
    (letter,) = testing.run(flow, {"rows": of("a", 1)}).dead_letters
    assert letter.task == "objects" and "the state of key 'a' cannot be saved" in letter.error


class AsksSoon:
    """Its loop is that of its calls, from `open` to `close`."""

    loops: list[Any] = []

    async def open(self, context: Any) -> None:
        self.loops.append(asyncio.get_running_loop())
        self.asked = context.metrics.counter("asked")

    async def __call__(self, row: int) -> int:
        await asyncio.sleep(0)
        self.loops.append(asyncio.get_running_loop())
        self.asked.add()
        return 10 // row

    async def close(self) -> None:
        self.loops.append(asyncio.get_running_loop())


@flat_map
async def both(row: int) -> list[int]:
    return [row, -row]


def test_async_tasks_are_awaited() -> None:
    AsksSoon.loops.clear()
    result = testing.run(line_of(AsksSoon, both, keep), {"numbers": [1, 0, 5]})
    assert last(result) == [10, -10, 2, -2]
    (letter,) = result.dead_letters
    assert letter.row == 0 and "ZeroDivisionError" in letter.error and letter.file == __file__
    assert len(set(map(id, AsksSoon.loops))) == 1 and len(AsksSoon.loops) == 1 + 2 + 3 + 1


class Sums(Window):
    max_age_s = 10.0

    def key(self, row: Any, source: str) -> Any:
        return row["name"]

    def ready(self, key: Any, rows: Sequence[Any]) -> bool:
        return len(rows) == 3

    def finish(self, key: Any, rows: Sequence[Any]) -> Iterable[Any]:
        return [(key, sum(row["value"] for row in rows))]


class OpenSums(Sums):
    max_age_s = None


def sums(run: type[Window]) -> Any:
    flow = topology("sums")
    flow.source("rows", Lines) >> flow.task("sums", run).by("name") >> flow.task("keep", keep)
    return flow


def test_time_passes_between_rows_where_a_test_says_so() -> None:
    early = [*of("a", 1), testing.wait(9), *of("a", 2)]
    assert testing.run(sums(Sums), {"rows": early}).rows["keep"] == [("a", 3)]
    late = [*of("a", 1), testing.wait(11), *of("a", 2)]
    assert testing.run(sums(Sums), {"rows": late}).rows["keep"] == [("a", 1), ("a", 2)]


def test_panes_fire_in_order_of_time_over_all_sources() -> None:
    flow = topology("two")
    sources = [flow.source("left", Lines), flow.source("right", Lines)]
    sources >> flow.task("sums", Sums).by("name") >> flow.task("keep", keep)
    left, right = [testing.wait(2), *of("b", 1), testing.wait(30), *of("a", 4)], [*of("a", 1)]
    assert testing.run(flow, {"left": left, "right": right}).rows["keep"] == [("a", 1), ("b", 1), ("a", 4)]


def test_open_panes_fire_at_the_end_of_the_input() -> None:
    rows = testing.run(sums(OpenSums), {"rows": of("a", 1, 2, 3, 4)}).rows["keep"]
    assert rows == [("a", 6), ("a", 4)]


def test_a_window_at_the_end_is_a_sink_too() -> None:
    flow = topology("sums")
    flow.source("rows", Lines) >> flow.task("sums", OpenSums).by("name")
    assert testing.run(flow, {"rows": of("a", 1, 2)}).rows == {"sums": [("a", 3)]}


def test_ready_made_tasks_run() -> None:
    flow = topology("ready")
    pairs = [flow.source("left", Lines), flow.source("right", Lines)]
    (
        pairs
        >> flow.task("join", Join, key="id", fields=["id"]).by("id")
        >> flow.task("count", CountByKey).by("id")
    )
    result = testing.run(flow, {"left": [{"id": 1}], "right": [{"id": 1}]})
    assert sum(result.states["count"].values()) == len(result.rows["count"]) > 0


def test_the_same_input_gives_the_same_result() -> None:
    inputs = {"rows": [*of("a", *range(500)), *of("b", *range(500)), testing.wait(3), *of("c", 1)]}
    first, second = testing.run(sums(Sums), inputs), testing.run(sums(Sums), inputs)
    assert first == second


# ── one thread, objects ─────────────────────────────────────────────────────────────────────────


def test_everything_runs_in_this_thread_and_objects_are_opened_and_closed() -> None:
    said: list[Any] = []

    class Sink:
        def open(self, context: Context) -> None:
            assert Path(context.directory).is_dir()
            said.append(("open", context.task, threading.get_ident()))

        def __call__(self, row: int) -> None:
            said.append((row, threading.get_ident()))

        def close(self) -> None:
            said.append(("close", threading.get_ident()))

    here = threading.get_ident()
    testing.run(line_of(Sink), {"numbers": [1]})
    assert said == [("open", "task0", here), (1, here), ("close", here)]


# ── what goes wrong ─────────────────────────────────────────────────────────────────────────────


class Endless(Source):
    def read(self, position: int, limit: int) -> Sequence[int]:
        return [0] * limit


class Broken(Source):
    def read(self, position: int, limit: int) -> Sequence[int]:
        if position:
            raise OSError("the disk is gone")
        return [1]


class Silent(LiveSource):
    def poll(self, limit: int) -> Sequence[int]:
        return []


def reads(source: Any) -> Any:
    flow = topology("reads")
    flow.source("source", source) >> flow.task("keep", keep)
    return flow


@pytest.mark.parametrize(
    ("source", "said"),
    [(Endless, "'source' does not end"), (Broken, "'source' raised OSError at position 1")],
)
def test_a_source_that_does_not_end_well_is_an_error(source: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        testing.run(reads(source))


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"number": [1]}, "no source 'number'.*numbers"),
        ({"numbers": "123"}, "inputs of 'numbers' are of type str"),
        ({"numbers": {1: 2}}, "inputs of 'numbers' are of type dict"),
        ({"numbers": 5}, "inputs of 'numbers' are of type int"),
    ],
)
def test_inputs_that_are_none_are_refused(inputs: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        testing.run(line_of(keep), inputs)


@pytest.mark.parametrize("seconds", [-1, "5", float("nan"), float("inf"), True])
def test_waits_that_are_none_are_refused(seconds: Any) -> None:
    with pytest.raises(InvalidInput, match="cannot wait"):
        testing.wait(seconds)


@pytest.mark.parametrize("where", ["open", "close"])
def test_an_object_that_does_not_open_or_close_is_an_error(where: str) -> None:
    class Sink:
        def open(self, context: Context) -> None:
            assert where != "open"

        def __call__(self, row: int) -> None: ...

        def close(self) -> None:
            assert where != "close"

    with pytest.raises(InvalidInput, match=rf"task 'task0': {where}\(\) raised AssertionError"):
        testing.run(line_of(Sink), {"numbers": [1]})


def test_a_task_without_code_is_an_error() -> None:
    flow = topology("planned")
    flow.source("numbers", Numbers) >> flow.task("later")
    with pytest.raises(InvalidInput, match="planned") as raised:
        testing.run(flow, {"numbers": [1]})
    assert "'later' can be planned, not run" in "".join(raised.value.faults)


def test_a_flow_runs_where_an_event_loop_runs_already() -> None:
    """As in a notebook, or in a test that is async itself."""

    async def cell() -> testing.Result:
        return testing.run(line_of(AsksSoon, both, keep), {"numbers": [1, 2]})

    result = asyncio.run(cell())
    assert last(result) == [10, -10, 5, -5] and result.dead_letters == []


def test_a_test_imports_what_workers_need_only_when_it_runs_something() -> None:
    """So that it begins at once."""
    code = "import sys, headgate.testing\nprint([name for name in sys.modules if 'wire' in name or 'worker' in name])"
    said = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    ).stdout
    assert said == "[]\n"


def test_a_look_at_a_flow_ends_where_its_source_gives_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    """Though it says no end, as at first; how long that is waited for is no matter here."""

    class Three(Source):
        def read(self, position: int, limit: int) -> Sequence[int]:
            return [1, 2, 3][position : position + limit]

    waited: list[float] = []
    assert [rows for _, rows in input_rows.read("numbers", Three(), 100, waited.append)] == [[1, 2, 3]]
    assert sum(waited) >= input_rows.QUIET_S
    assert "gives no more rows after 3 and has not ended: raise `Exhausted` there" in capsys.readouterr().err
