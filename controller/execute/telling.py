"""Desired states on their way to agents: again and again, until they are obeyed. Pure."""

from __future__ import annotations

from controller.knowledge.membership import Membership
from controller.knowledge.turn import Turn
from controller.knowledge.turns import Send
from topology_runtime.messages import Token

NS = 1_000_000_000
RESEND_NS = 2 * NS
RESEND_BEHIND_NS = NS // 2  # to a VM that reports an older state


def tell(turn: Turn, members: Membership, only: str | None = None) -> None:
    """Send the desired state to every VM that does not obey it yet, and to all every 2 s. `only`: nothing
    changed but what this VM says."""
    k = turn.knowledge
    if k.desired is None or k.adopting_until_ns:
        return
    for vm in sorted(members.here if only is None else members.here & {only}):
        token, sent_ns = k.sent.get(vm, (Token(), 0))
        obeys = members.tokens.get(vm, Token()) >= k.desired.token
        quiet_ns = turn.now.mono_ns - sent_ns
        due_ns = RESEND_NS if obeys else RESEND_BEHIND_NS
        if token != k.desired.token or quiet_ns >= due_ns:
            k.sent[vm] = (k.desired.token, turn.now.mono_ns)
            turn.do(Send(vm, k.desired))
