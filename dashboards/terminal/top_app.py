"""The screen of `headgate top`. Imported only when it is called: it needs Textual."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static, Tab, Tabs

from headgate.dashboards.runs.live_view import event_times, headline
from headgate.dashboards.runs.run_tables import VIEWS, SortOrder, StatusReading, table

EVERY_S = 1.0
TIMES_MOST = 3  # tasks with event time that have a line above the tables
STALE_S = 2.0  # without an answer for so long, what is shown may not be so any more

HELP = """\
headgate top: a running topology, read once a second.

  1 … 5, Tab    views: tasks, slots, VMs, decisions, events
  space         freeze the picture, and go on
  s, S          sort by the next column, by the one before
  r             turn the order round
  /             only rows with these words; Enter keeps them, Esc forgets
  arrows        move through the rows and columns
  ?             this help; any key closes it
  q             quit; the run goes on

Times are UTC. N/A: not known (yet).
off model: measured rate against the predicted one.
load: how near to its limit a task is by the models, in the slot where it is
nearest: the peak of its threads there, or that slot's CPU.
watermark: no rows from before it are expected; those that come are late.
"""


class Help(ModalScreen[None]):
    CSS = "Help { align: center middle; } Help > VerticalScroll { width: 84; height: 20; border: round $primary; padding: 0 1; background: $surface; }"  # noqa: E501

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(HELP, markup=False)

    def on_key(self) -> None:
        self.dismiss()


class Top(App[None]):
    """`read` asks the controller (in a thread; None: it does not answer), `now_s` is a steady clock."""

    ENABLE_COMMAND_PALETTE = False
    TITLE = "headgate top"
    CSS = """
    #head { height: auto; padding: 0 1; }
    #badge { height: 1; padding: 0 1; text-style: bold; }
    #badge.stale { background: $error; color: $text; }
    #badge.frozen { background: $warning; color: $text; }
    #words { display: none; height: 3; }
    DataTable { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(n), f"view({n - 1})", view.name) for n, view in enumerate(VIEWS, 1)),
        Binding("tab", "next_view", "next view", show=False, priority=True),
        Binding("space", "freeze", "freeze"),
        Binding("s", "sort(1)", "sort"),
        Binding("S", "sort(-1)", "sort back", show=False),
        Binding("r", "reverse", "reverse"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("escape", "forget", "no filter", show=False),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, read: Callable[[], StatusReading | None], now_s: Callable[[], float]) -> None:
        super().__init__()
        self._read, self._now_s = read, now_s
        self.animation_level = "none"  # figures change, nothing slides
        self._head = Static("", id="head", markup=False)
        self._badge = Static("", id="badge", markup=False)
        self._table: DataTable[Text] = DataTable(cursor_type="row", zebra_stripes=True)
        self._field = Input(placeholder="only rows with these words", id="words")
        self._newest: StatusReading | None = None
        self._frozen: StatusReading | None = None
        self._heard_s = now_s()
        self._asking = False
        self.view = 0
        self.orders = [SortOrder()] * len(VIEWS)
        self.words = ""

    # ── the screen ──────────────────────────────────────────────────────────────────────────────

    def compose(self) -> ComposeResult:
        yield self._head
        yield self._badge
        yield Tabs(*(Tab(f"{n} {view.name}", id=f"view{n - 1}") for n, view in enumerate(VIEWS, 1)))
        yield self._table
        yield self._field
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(Tabs).can_focus = False
        self._table.focus()
        self.set_interval(EVERY_S, self.ask)
        self.set_interval(EVERY_S / 4, self.tell_age)
        self.ask()

    def ask(self) -> None:
        """Read in a thread, unless the last question is still open."""
        if not self._asking:
            self._asking = True
            self.run_worker(self._ask, thread=True)

    def _ask(self) -> None:
        try:
            reading = self._read()
        finally:
            self._asking = False
        if reading is not None:
            self.call_from_thread(self.take, reading)

    def take(self, reading: StatusReading) -> None:
        self._newest, self._heard_s = reading, self._now_s()
        self.draw()

    @property
    def shown(self) -> StatusReading | None:
        return self._frozen or self._newest

    def draw(self) -> None:
        """Everything anew; the cursor and what is scrolled to stay where they are."""
        self.tell_age()
        reading, found = self.shown, self._table
        if reading is None or not found.is_attached:
            return
        self._head.update("\n".join([headline(reading.status), *event_times(reading.status, TIMES_MOST)]))
        view, order = VIEWS[self.view], self.orders[self.view]
        at, x, y = found.cursor_row, found.scroll_x, found.scroll_y
        found.clear(columns=True)
        for n, column in enumerate(view.columns):
            arrow = (" ▼" if order.descending else " ▲") if n == order.column else ""
            found.add_column(Text(column.title + arrow, justify="right" if column.show else "left"))
        for row in table(view, reading, order, self.words):
            cells = zip(row, view.columns, strict=True)
            found.add_row(*(Text(cell, justify="right" if column.show else "left") for cell, column in cells))
        found.move_cursor(row=at, animate=False)
        found.scroll_to(x, y, animate=False)

    def tell_age(self) -> None:
        badge = self._badge
        if not badge.is_attached:
            return  # the screen is being given back
        silent_s = self._now_s() - self._heard_s
        stale, frozen = silent_s >= STALE_S, self._frozen is not None
        badge.set_class(stale, "stale")
        badge.set_class(frozen and not stale, "frozen")
        words = [f"FROZEN at {clock(self._frozen)} (space: go on)"] if self._frozen else []
        if stale:
            words.append(f"STALE: the controller has not answered for {silent_s:.0f} s")
        elif not words:
            words.append(f"live {clock(self._newest)}" if self._newest else "waiting for the controller")
        if self.words:
            words.append(f"only rows with: {self.words}")
        badge.update(" · ".join(words))

    # ── keys ────────────────────────────────────────────────────────────────────────────────────

    def action_view(self, number: int) -> None:
        self.query_one(Tabs).active = f"view{number}"

    def action_next_view(self) -> None:
        self.action_view((self.view + 1) % len(VIEWS))

    def on_tabs_tab_activated(self, event: Tabs.TabActivated) -> None:
        self.view = int((event.tab.id or "view0").removeprefix("view"))
        self.draw()

    def action_freeze(self) -> None:
        self._frozen = None if self._frozen else self._newest
        self.draw()

    def action_sort(self, step: int) -> None:
        """By the next column; after the last one as the rows come."""
        order, count = self.orders[self.view], len(VIEWS[self.view].columns) + 1
        now = count - 1 if order.column is None else order.column
        column = (now + step) % count
        self.orders[self.view] = replace(order, column=None if column == count - 1 else column)
        self.draw()

    def action_reverse(self) -> None:
        order = self.orders[self.view]
        self.orders[self.view] = replace(order, descending=not order.descending)
        self.draw()

    def action_filter(self) -> None:
        self._field.display = True
        self._field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.words = event.value
        self.draw()

    def on_input_submitted(self) -> None:
        self._leave_filter()

    def action_forget(self) -> None:
        self._field.value = ""
        self._leave_filter()

    def _leave_filter(self) -> None:
        self._field.display = False
        self._table.focus()

    def action_help(self) -> None:
        self.push_screen(Help())


def clock(reading: StatusReading | None) -> str:
    return f"{str(reading.status.get('time', ''))[11:19]}Z" if reading else ""
