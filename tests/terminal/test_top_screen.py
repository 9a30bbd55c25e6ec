"""`headgate top` as it is used: keys pressed, the screen read. No controller: readings of a real run."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Footer, Input, Static

from headgate.dashboards import headgate_command as cli
from headgate.dashboards.runs.live_view import headline
from headgate.dashboards.runs.run_tables import VIEWS, SortOrder, StatusReading, ordered, table
from headgate.dashboards.terminal import top_app
from headgate.dashboards.terminal.status_commands import check_stable, print_status
from headgate.dashboards.terminal.top_app import Help, Top
from headgate.topology_runtime import errors
from headgate.topology_runtime.errors import CheckFailed

# ── What `headgate top` makes of a controller's answers, recorded from a real run ───────────────────────

RECORDED = [
    StatusReading(**one)
    for one in json.loads((Path(__file__).parent / "recorded_run.json").read_text("utf-8"))
]
FIRST, ENACTING, STABLE = RECORDED  # before any sample, after a re-plan, at the end
TASKS, SLOTS, VMS, DECISIONS, EVENTS = VIEWS
NOTHING = StatusReading({})


def texts(view, reading, order=None, words=""):
    return table(view, reading, order or SortOrder(), words)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
@pytest.mark.parametrize("reading", [*RECORDED, NOTHING])
def test_every_row_fills_every_column(view, reading):
    for row in texts(view, reading):
        assert len(row) == len(view.columns)
        assert not {"", "None", "nan"} & set(row)


def test_the_run_is_told_in_a_sentence():
    assert headline(STABLE.status) == (
        "trial: stable, slope -2.1 ms/s, plan #2 committed, 3 of 8 slots, 120 rows/s in, headroom 30 rows/s, "
        "p50 26.4 ms, p99 1,047.3 ms, 0 lost"
    )
    assert headline({}).startswith("no topology yet: unknown, plan #0 unknown, 0 of 0 slots, N/A rows/s in")


def test_tasks_stand_beside_their_models():
    rows = {row[0]: row for row in texts(TASKS, STABLE)}
    assert list(rows) == ["source", "work", "wait", "store"]
    assert rows["work"][1:6] == ("3.0", "69.6", "69.6", "+19%", "0.0")
    assert rows["source"][4] == "N/A"


def test_a_task_is_as_loaded_as_the_controller_says():
    titles = [column.title for column in TASKS.columns]
    status = json.loads(json.dumps(STABLE.status))
    for task in status["tasks"]:
        if task["task"] != "source":
            task |= {"load": 0.58, "load_slot": "vm1/0", "grows": False}
    shown = {row[0]: dict(zip(titles, row, strict=True)) for row in texts(TASKS, StatusReading(status))}
    assert (shown["store"]["load"], shown["store"]["of slot"]) == ("58%", "vm1/0")
    assert (shown["source"]["busy"], shown["source"]["load"], shown["source"]["of slot"]) == ("N/A",) * 3


def test_slots_show_measured_beside_predicted_and_what_runs_there():
    rows = {row[0]: row for row in texts(SLOTS, STABLE)}
    assert len(rows) == 8
    assert rows["vm1/0"] == ("vm1/0", "running", "58%", "40%", "5%", "26%", "0", "source×1 wait×4 store×1")
    assert rows["vm2/3"] == ("vm2/3", "empty", "N/A", "N/A", "N/A", "N/A", "0", "–")


def test_vms_are_summed_up():
    assert texts(VMS, STABLE)[0][:6] == ("vm1", "joined", "3", "4", "8", "38%"), "the idle slot counts"
    assert texts(VMS, STABLE)[1][:6] == ("vm2", "joined", "0", "4", "0", "N/A")
    gone = json.loads(json.dumps(STABLE.status))
    gone["vms"][1]["state"] = "left"
    assert [row[0] for row in texts(VMS, StatusReading(gone))] == ["vm1"]


def test_decisions_and_events_come_newest_first():
    assert [row[2] for row in texts(DECISIONS, STABLE)] == ["fine", "rate_changed", "start"]
    numbers = [int(row[0]) for row in texts(EVENTS, STABLE)]
    assert numbers == sorted(numbers, reverse=True) and numbers[-1] == 1
    assert [row[2] for row in texts(DECISIONS, FIRST)].count("start") == 1, "not twice"


@pytest.mark.parametrize("descending", [False, True])
def test_numbers_are_sorted_as_numbers_and_unknown_ones_come_last(descending):
    rows = [(9.0, "b"), (None, "a"), (10.0, "c")]
    found = [row[0] for row in ordered(rows, SortOrder(0, descending))]
    assert found == ([10.0, 9.0, None] if descending else [9.0, 10.0, None])
    assert ordered(rows, SortOrder(None, descending)) == (rows[::-1] if descending else rows)


def test_only_rows_with_all_the_words_are_shown_whatever_their_case():
    assert [row[0] for row in texts(SLOTS, STABLE, words="VM1 work")] == ["vm1/1", "vm1/2"]
    assert texts(SLOTS, STABLE, words="nothing has this") == []


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

Act = Callable[[Top, "Pilot[None]"], Awaitable[None]]


class Stand:
    """What the app reads, and a clock that stands still."""

    def __init__(self, reading: StatusReading | None = STABLE) -> None:
        self.reading = reading
        self.now_s = 100.0
        self.asked = 0

    def read(self) -> StatusReading | None:
        self.asked += 1
        return self.reading

    def run(self, act: Act, size: tuple[int, int] = (140, 40)) -> None:
        async def whole() -> None:
            app = Top(self.read, lambda: self.now_s)
            async with app.run_test(size=size) as pilot:
                await settled(app, pilot)
                await act(app, pilot)

        asyncio.run(whole())


def on_screen(act: Act) -> Callable[[], None]:
    """A test of what is shown of the last reading."""
    return lambda: Stand().run(act)


async def settled(app: Top, pilot: Pilot[None]) -> None:
    """What was asked has been answered and drawn."""
    await app.workers.wait_for_complete()
    await pilot.pause()


async def asked(app: Top, pilot: Pilot[None]) -> None:
    """A second has gone by."""
    app.ask()
    await settled(app, pilot)


def rows(app: Top) -> list[list[str]]:
    found = app.query_one(DataTable)
    return [[str(cell) for cell in found.get_row_at(n)] for n in range(found.row_count)]


def titles(app: Top) -> list[str]:
    return [str(column.label) for column in app.query_one(DataTable).ordered_columns]


def badge(app: Top) -> str:
    return str(app.query_one("#badge", Static).render())


def first(app: Top) -> list[str]:
    return [row[0] for row in rows(app)]


@on_screen
async def test_it_begins_with_the_tasks_and_a_sentence(app: Top, pilot: Pilot[None]) -> None:
    assert "trial: stable, slope -2.1 ms/s, plan #2" in str(app.query_one("#head", Static).render())
    assert badge(app) == "live 18:23:43Z"
    assert first(app) == ["source", "work", "wait", "store"]
    shown = {binding.description for _, binding, _, _ in app.active_bindings.values() if binding.show}
    assert {*(view.name for view in VIEWS), "freeze", "sort", "filter", "help", "quit"} <= shown
    assert app.query_one(Footer).region.y == app.size.height - 1


def test_event_time_stands_above_the_tables_where_there_is_any():
    tasks = [
        {"task": f"task{n}", "watermark": 1.79e9 - n, "lag_s": n + 0.5, "held_by": None, "late_rows": 0}
        for n in range(5)
    ]
    stand = Stand()

    async def act(app: Top, pilot: Pilot[None]) -> None:
        head = app.query_one("#head", Static)
        assert "event time" not in str(head.render())
        stand.reading = StatusReading({**STABLE.status, "event_time": tasks})
        await asked(app, pilot)
        lines = str(head.render()).splitlines()[1:]
        assert lines[0] == (
            "event time of task4: watermark 2026-09-21 14:13:16 UTC, 4.5 s behind now; 0 rows late"
        )
        assert len(lines) == 4 and "2 more tasks" in lines[3]
        assert first(app) == ["source", "work", "wait", "store"]

    stand.run(act)


@on_screen
async def test_each_number_shows_its_view_and_tab_the_next_one(app: Top, pilot: Pilot[None]) -> None:
    for n, view in enumerate(VIEWS, 1):
        await pilot.press(str(n))
        await pilot.pause()
        assert titles(app) == [column.title for column in view.columns]
        assert rows(app)
    await pilot.press("tab")
    await pilot.pause()
    assert titles(app)[0] == "task"


def test_what_comes_is_drawn_and_a_frozen_picture_stays_with_its_time():
    stand = Stand(FIRST)

    async def act(app: Top, pilot: Pilot[None]) -> None:
        assert "plan #1" in str(app.query_one("#head", Static).render())
        await pilot.press("space")
        stand.reading = STABLE
        await asked(app, pilot)
        assert badge(app) == "FROZEN at 18:23:19Z (space: go on)"
        assert "plan #1" in str(app.query_one("#head", Static).render())
        await pilot.press("space")
        assert badge(app) == "live 18:23:43Z"
        assert "plan #2" in str(app.query_one("#head", Static).render())

    stand.run(act)


def test_a_controller_that_is_silent_is_said_within_three_seconds_and_its_return_too():
    stand = Stand()

    async def act(app: Top, pilot: Pilot[None]) -> None:
        stand.reading = None
        stand.now_s += 1.0
        await asked(app, pilot)
        assert badge(app).startswith("live")
        stand.now_s += 1.5
        await asked(app, pilot)
        app.tell_age()
        assert badge(app) == "STALE: the controller has not answered for 2 s"
        assert app.query_one("#badge").has_class("stale")
        assert first(app) == ["source", "work", "wait", "store"]  # the last picture stays
        await pilot.press("space")
        assert badge(app).startswith("FROZEN at 18:23:43Z") and "STALE" in badge(app)
        await pilot.press("space")
        stand.reading = ENACTING
        await asked(app, pilot)
        assert badge(app) == "live 18:23:31Z"
        assert not app.query_one("#badge").has_class("stale")

    stand.run(act)


def test_before_the_first_answer_it_says_that_it_waits():
    async def act(app: Top, pilot: Pilot[None]) -> None:
        assert badge(app) == "waiting for the controller"
        assert rows(app) == []
        await pilot.press("2", "s", "r", "space", "slash", "x", "escape")
        assert badge(app) == "waiting for the controller"

    Stand(None).run(act)


@on_screen
async def test_columns_are_sorted_one_after_the_other_each_way(app: Top, pilot: Pilot[None]) -> None:
    await pilot.press("s")
    assert titles(app)[0] == "task ▲"
    assert first(app) == ["source", "store", "wait", "work"]
    await pilot.press("r")
    assert titles(app)[0] == "task ▼"
    assert first(app) == ["work", "wait", "store", "source"]
    await pilot.press("s")
    assert titles(app)[:2] == ["task", "threads ▼"]
    assert first(app)[0] == "wait"  # four threads
    await pilot.press("2")
    await pilot.pause()
    assert titles(app)[0] == "slot"  # each view has its own order
    await pilot.press("1")
    await pilot.pause()
    assert titles(app)[1] == "threads ▼"
    await pilot.press("S", "S")
    assert not any(mark in title for title in titles(app) for mark in "▲▼")


@on_screen
async def test_rows_are_filtered_while_typing_and_the_words_stay_until_forgotten(
    app: Top, pilot: Pilot[None]
) -> None:
    await pilot.press("2", "slash")
    await pilot.press(*"work")
    assert first(app) == ["vm1/1", "vm1/2"]
    await pilot.press("enter")
    assert not app.query_one("#words", Input).display
    assert "only rows with: work" in badge(app)
    await pilot.press("r")  # a key again, not a letter
    assert first(app) == ["vm1/2", "vm1/1"]
    await pilot.press("escape")
    assert len(rows(app)) == 8 and "only rows" not in badge(app)
    await pilot.press("down", "down", "down")
    await asked(app, pilot)
    assert app.query_one(DataTable).cursor_row == 3, "the cursor stays"
    await pilot.press("slash", "[", "b", "]")
    assert "only rows with: [b]" in badge(app), "markup is shown as it is"


@on_screen
async def test_help_lists_the_keys_and_any_key_closes_it(app: Top, pilot: Pilot[None]) -> None:
    await pilot.press("question_mark")
    assert isinstance(app.screen, Help)
    text = str(app.screen.query_one(Static).render())
    assert all(f"  {key}" in text for key in ("1 … 5, Tab", "space", "s, S", "r", "/", "?", "q"))
    await asked(app, pilot)  # the picture behind it goes on
    await pilot.press("x")
    assert not isinstance(app.screen, Help)


def test_q_quits_and_an_answer_that_comes_after_that_is_dropped():
    ended: list[Top] = []

    async def act(app: Top, pilot: Pilot[None]) -> None:
        ended.append(app)
        await pilot.press("q")
        await pilot.pause()
        assert app.return_code == 0 and not app.is_running

    stand = Stand()
    stand.run(act)
    ended[0].take(STABLE)
    ended[0].tell_age()


def test_a_slow_controller_is_not_asked_twice_at_once(monkeypatch):
    monkeypatch.setattr(top_app, "EVERY_S", 3600.0)
    stand = Stand()

    async def act(app: Top, pilot: Pilot[None]) -> None:
        before = stand.asked
        app.ask()
        app.ask()
        await settled(app, pilot)
        assert stand.asked == before + 1

    stand.run(act)


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (220, 60)])
def test_it_fits_any_terminal(size):
    async def act(app: Top, pilot: Pilot[None]) -> None:
        for key in "12345":
            await pilot.press(key)
            await pilot.pause()
            assert rows(app)

    Stand().run(act, size)


# ── the command ─────────────────────────────────────────────────────────────────────────────────────


def test_off_a_terminal_it_says_what_to_use_instead(capsys):
    assert cli.main(["top"]) == errors.UsageError.exit_code
    assert "headgate status --watch" in capsys.readouterr().err


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)


def test_without_a_controller_it_says_so(capsys, tmp_path, monkeypatch):
    on_a_terminal(monkeypatch)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["top"]) == errors.Unreachable.exit_code
    assert "no running controller is found" in capsys.readouterr().err


def test_without_textual_it_says_what_to_install(capsys, monkeypatch):
    on_a_terminal(monkeypatch)
    monkeypatch.delitem(sys.modules, "headgate.dashboards.terminal.top_app", raising=False)
    monkeypatch.setitem(sys.modules, "textual.app", None)
    assert cli.main(["top"]) == errors.UsageError.exit_code
    assert "pip install 'headgate[top]'" in capsys.readouterr().err


# ── `headgate status --check`, and what a shell completes of the commands of the terminal ───────────────


@pytest.mark.parametrize(
    "verdict", [{"verdict": "unstable", "text": "latency grows"}, {"verdict": "unknown"}, None]
)
def test_any_other_verdict_ends_8_and_says_why(verdict):
    with pytest.raises(CheckFailed) as caught:
        check_stable({**FIRST.status, "verdict": verdict})
    assert caught.value.exit_code == 8
    assert (verdict or {}).get("text") == caught.value.cause
    check_stable(STABLE.status)


def test_at_80_columns_every_task_has_a_line_with_all_its_figures(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    print_status(STABLE.status)
    lines = capsys.readouterr().out.splitlines()
    head = next(n for n, line in enumerate(lines) if line.startswith("task "))
    assert " ".join(lines[head].split()) == "task threads in rows/s out rows/s queue busy p50 ms p99 ms cores"
    for number, task in enumerate(STABLE.status["tasks"], start=1):
        words = lines[head + number].split()
        assert words[0] == task["task"]
        assert len(words) == 9


def completed(monkeypatch, capsys, words: str) -> str:
    for name, value in (
        ("_HEADGATE_COMPLETE", "bash_complete"),
        ("COMP_WORDS", words),
        ("COMP_CWORD", str(len(words.split(" ")) - 1)),
    ):
        monkeypatch.setenv(name, value)
    cli.main([])
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("headgate to", "plain,top"),
        ("headgate top --contr", "plain,--controller"),
        ("headgate status --ch", "plain,--check"),
        ("headgate up --metri", "plain,--metrics-port"),
        ("headgate controller run --metrics-p", "plain,--metrics-port"),
        ("headgate agent run --state", "plain,--state-dir"),
    ],
)
def test_a_shell_completes_commands_and_options(monkeypatch, capsys, words, found):
    assert found in completed(monkeypatch, capsys, words).split()
