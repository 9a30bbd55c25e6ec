"""An agent's mind in virtual time: what it is told and what it then orders."""

from __future__ import annotations

from typing import TypeVar

from headgate.agent.core import agent_events as e
from headgate.agent.core.agent_state import AgentState
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.channels import encode

NS = 1_000_000_000
BOOT = 1_700_000_000 * NS
VM = "vm1"
Kind = TypeVar("Kind")

TOPOLOGY = Topology(
    "line",
    (
        Task("source", kind="source", run="own:Source", static=Static()),
        Task("work", run="own:work", max_call_s=5.0),
        Task("store", kind="hold", run="own:Store"),
    ),
    (Edge("source", "work"), Edge("work", "store")),
)


def slot(number: int) -> Slot:
    return Slot(VM, number)


def thread(number: int, in_slot: int, task: str = "work", leaving: bool = False) -> m.ThreadSpec:
    return m.ThreadSpec(number, task, slot(in_slot), leaving=leaving)


def desired(
    *threads: m.ThreadSpec,
    epoch: int = 1,
    counter: int = 1,
    boot: int = 1,
    phase: m.Phase = "committed",
    workers: tuple[m.WorkerAt, ...] = (),
) -> m.DesiredState:
    return m.DesiredState(
        m.Token(boot, epoch, counter), phase, "run", TOPOLOGY, (), tuple(threads), 1, (), workers=workers
    )


def hello(slots: int = 4) -> m.Hello:
    return m.Hello(VM, BOOT, slots, 0.2, 1 << 28, "none", 1)


class Mind:
    """An `AgentState` with its clock; `all` is everything it ever ordered."""

    def __init__(self, slots: int = 4, welcomed: bool = True, letters: tuple[m.DeadLetter, ...] = ()) -> None:
        self.now_ns = 5 * NS
        self.state = AgentState(hello(slots), self.now_ns)
        self.state.take_up((), letters)
        self.all: list[e.Instruction] = []
        if welcomed:
            self.tell(m.Welcome(1, "run", BOOT))

    def tell(self, event: e.Event, after_s: float = 0.0) -> list[e.Instruction]:
        """One event, so long after the one before; what is ordered."""
        self.now_ns += int(after_s * NS)
        out = self.state.step(event, self.now_ns)
        self.state.validate()
        self.all += out
        return out

    def want(self, *threads: m.ThreadSpec, after_s: float = 0.0, **more: object) -> list[e.Instruction]:
        state = desired(*threads, **more)  # type: ignore[arg-type]
        return self.tell(e.WantedArrived(state, encode(state)), after_s)

    def tick(self, after_s: float = 0.0) -> list[e.Instruction]:
        return self.tell(e.Tick(), after_s)

    def incarnation(self, number: int = 0) -> int:
        return self.state.slots[number].incarnation

    def up(self, number: int = 0, after_s: float = 0.0) -> list[e.Instruction]:
        """The worker of a slot says hello."""
        return self.tell(
            m.WorkerHello(slot(number), self.incarnation(number), 100 + number, f"tcp://w{number}"), after_s
        )

    def dies(self, number: int = 0, after_s: float = 0.0, clean: bool = False) -> list[e.Instruction]:
        how = "exit code 0" if clean else "signal 9 (SIGKILL)"
        return self.tell(e.WorkerExited(slot(number), self.incarnation(number), how, clean), after_s)

    def report(self, number: int = 0, **more: object) -> list[e.Instruction]:
        """The worker of a slot reports."""
        given = {"token": self.state.token, "ready": True, **more}
        return self.tell(m.WorkerReport(slot(number), self.incarnation(number), **given))  # type: ignore[arg-type]

    def told(self) -> m.Report:
        """The report that is due next at the latest."""
        out = self.tick(1.0)
        return only(out, m.Report)[0]


def begun(*threads: m.ThreadSpec, up: bool = True) -> Mind:
    """One that is to run these threads (thread 1 in slot 0); their workers are up."""
    mind = Mind()
    mind.want(*(threads or (thread(1, 0),)))
    for number in sorted({one.slot.number for one in threads} or {0}) if up else ():
        mind.up(number)
    return mind


def sent(instructions: list[e.Instruction], kind: type[object]) -> list[e.ToWorker]:
    """What workers are sent of this kind (bytes: desired states)."""
    return [one for one in only(instructions, e.ToWorker) if isinstance(one.message, kind)]


def only(instructions: list[e.Instruction], kind: type[Kind]) -> list[Kind]:
    return [instruction for instruction in instructions if isinstance(instruction, kind)]
