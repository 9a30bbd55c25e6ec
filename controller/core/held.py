"""Where a controller plans nothing by itself, what an operator orders would be waited for in vain. Pure."""

from __future__ import annotations

from headgate.controller.knowledge.knowledge import Knowledge
from headgate.topology_runtime.errors import Conflict


def refuse_held(k: Knowledge) -> None:
    """Raises Conflict where nothing would be moved, so that nobody waits for it."""
    if k.mode == "advise":
        raise Conflict("nothing is moved in mode advise", hint="`headgate resume --mode auto`")
    if k.settings.plan is not None:
        raise Conflict("the plan was given and is held, so nothing is moved")
    if k.durable.held_plan is not None:
        raise Conflict(f"nothing is moved: {k.hold}", hint="`headgate resume` ends it")
