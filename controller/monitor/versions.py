"""Agents of other versions: refused ones are an alarm, those that are a version behind an event. No clock, no I/O."""

from __future__ import annotations

from headgate.controller.knowledge.turn import Turn
from headgate.topology_runtime.messages import Hello
from headgate.topology_runtime.wire_version import REMEDY, WIRE, agent_fault, spoken

ALARM = "version"
FORGOTTEN_NS = 120 * 1_000_000_000  # an agent that is started again and again says who it is twice a minute


def refusal(turn: Turn, hello: Hello) -> str:
    """Why what this agent speaks is not understood; empty when it is. Its alarm comes and goes with that."""
    k = turn.knowledge
    fault = agent_fault(hello.protocol, hello.version, k.settings.version)
    if fault:
        k.foreign[hello.vm] = turn.now.mono_ns, fault
    else:
        k.foreign.pop(hello.vm, None)
    look(turn)
    return fault


def note(turn: Turn, hello: Hello) -> None:
    """An agent was taken that is not of the controller's version."""
    ours = turn.knowledge.settings.version
    if (hello.protocol, hello.version) != (WIRE, ours):
        theirs = spoken(hello.protocol, hello.version)
        text = f"the agent of {hello.vm} is {theirs}, the controller {spoken(WIRE, ours)}: {REMEDY}"
        turn.event("skew", text, vm=hello.vm)


def look(turn: Turn) -> None:
    """The alarm tells of agents that were refused lately."""
    k = turn.knowledge
    k.foreign = {vm: told for vm, told in k.foreign.items() if turn.now.mono_ns - told[0] < FORGOTTEN_NS}
    text = "; ".join(f"the agent of {vm} is refused: {fault}" for vm, (_, fault) in sorted(k.foreign.items()))
    if text == k.alarms.get(ALARM, ""):
        return
    if not text:
        del k.alarms[ALARM]
        turn.event("alarm_over", "no agent is refused for its version any more", what=ALARM)
        return
    k.alarms[ALARM] = text
    turn.event("alarm", text, level="warning", what=ALARM)
