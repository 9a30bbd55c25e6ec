"""Random events in random order: the agent's mind stays consistent and comes to rest."""

from __future__ import annotations

from agent_world import NS, Mind, only, slot, thread
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from headgate.agent.core import agent_events as e
from headgate.topology_runtime.wire import messages as m

SLOTS = 3
numbers = st.integers(0, SLOTS - 1)
actions = st.one_of(
    st.tuples(st.just("want"), st.integers(1, 4), st.sets(numbers)),
    st.tuples(st.just("up"), numbers),
    st.tuples(st.just("dies"), numbers, st.booleans()),
    st.tuples(st.just("leaves"), numbers),
    st.tuples(st.just("hangs"), numbers),
    st.tuples(st.just("welcome"), st.integers(1, 3)),
    st.tuples(st.just("tick"), st.floats(0.0, 3.0)),
    st.tuples(st.just("stale"), numbers),
)


class Machine:
    """Plays the operating system to a mind: which worker processes exist."""

    def __init__(self) -> None:
        self.mind = Mind(SLOTS)
        self.alive: dict[int, int] = {}
        self.highest: dict[int, int] = {}
        self.counter = 0

    def perform(self, out: list[e.Instruction]) -> None:
        for order in only(out, e.SpawnWorker):
            number = order.slot.number
            assert number not in self.alive, "two workers in one slot"
            assert order.incarnation > self.highest.get(number, 0), "incarnations must rise"
            self.alive[number] = self.highest[number] = order.incarnation
        for kill in only(out, e.KillWorker):
            if self.alive.get(kill.slot.number) == kill.incarnation:
                self.end(kill.slot.number, clean=False)

    def end(self, number: int, clean: bool) -> None:
        if number in self.alive:
            incarnation = self.alive.pop(number)
            self.perform(self.mind.tell(e.WorkerExited(slot(number), incarnation, "gone", clean)))

    def act(self, action: tuple[object, ...]) -> None:
        mind = self.mind
        match action:
            case ("want", int(epoch), set(used)):
                self.counter += 1
                threads = (thread(10 * epoch + n, n) for n in sorted(used))
                self.perform(mind.want(*threads, epoch=epoch, counter=self.counter))
            case ("up", int(n)) if n in self.alive:
                self.perform(mind.up(n))
            case ("dies", int(n), bool(clean)):
                self.end(n, clean)
            case ("leaves", int(n)) if n in self.alive:
                self.perform(mind.report(n, leaving=True))
            case ("hangs", int(n)) if n in self.alive:
                self.perform(mind.tell(e.WorkerHung(slot(n), self.alive[n], "x")))
            case ("welcome", int(boot)):
                self.perform(mind.tell(m.Welcome(boot, "run", 0)))
            case ("tick", float(seconds)):
                self.perform(mind.tick(seconds))
            case ("stale", int(n)):
                self.perform(mind.tell(e.WorkerExited(slot(n), self.highest.get(n, 0) - 1, "old")))
        self.check()

    def check(self) -> None:
        for number, state in self.mind.state.slots.items():
            assert state.live == (number in self.alive)
            if state.open_threads and not state.live:
                assert state.status == "quarantined"


@examples(120)
@given(st.lists(actions, max_size=60))
def test_one_worker_per_desired_slot_whatever_happens(script: list[tuple[object, ...]]) -> None:
    machine = Machine()
    for action in script:
        machine.act(action)
    reports = [report.sequence for report in only(machine.mind.all, m.Report)]
    assert reports == sorted(set(reports))


@examples(60)
@given(st.lists(actions, max_size=40))
def test_asked_to_stop_it_always_ends_within_the_limit(script: list[tuple[object, ...]]) -> None:
    machine = Machine()
    for action in script:
        machine.act(action)
    machine.perform(machine.mind.tell(e.StopAsked("SIGTERM")))
    until_ns = machine.mind.now_ns + 6 * NS
    while not only(machine.mind.all, e.Exit):
        assert machine.mind.state.wake_ns < until_ns
        machine.perform(machine.mind.tick(0.1))
    assert not machine.alive
    assert len(only(machine.mind.all, e.Exit)) == 1
