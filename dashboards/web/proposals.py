"""What is to be changed waits here between being shown and being done. Pure.

Nothing is changed by one request: the first says what would change (a diff and an id), the second does it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from headgate.topology_runtime.errors import Conflict
from headgate.topology_runtime.wording import counted, significant

NS = 1_000_000_000
EXPIRES_S = 300
WAITING_MOST = 32
SAME_TPS = 1e-3  # rates of plans are told to a thousandth

Kind = Literal["rate", "stop", "approve"]


class PageProposal(msgspec.Struct, frozen=True):
    """To ask the controller for `command` with `arguments`; made at `epoch` of its life `boot`."""

    id: str
    kind: Kind
    command: str
    arguments: dict[str, Any]
    summary: str
    diff: tuple[str, ...]
    boot: int
    epoch: int
    made_ns: int

    def data(self) -> dict[str, Any]:
        return {
            "schema": "headgate/proposal/v1",
            "id": self.id,
            "kind": self.kind,
            "summary": self.summary,
            "diff": list(self.diff),
            "expires_s": EXPIRES_S,
        }


class Proposals:
    """Those that wait to be applied, each once."""

    def __init__(self) -> None:
        self._waiting: dict[str, PageProposal] = {}

    def add(self, proposal: PageProposal) -> None:
        while len(self._waiting) >= WAITING_MOST:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[proposal.id] = proposal

    def take(self, id_: str, now: Mapping[str, Any], now_ns: int) -> PageProposal:
        """The proposal, which then waits no more. Raises Conflict when it does not wait, is too old, or the
        run is not what it was made for."""
        found = self._waiting.pop(id_, None)
        if found is None or now_ns - found.made_ns > EXPIRES_S * NS:
            raise Conflict("this proposal does not wait any more", hint="propose it again")
        if (found.boot, found.epoch) != place_of(now):
            raise Conflict(
                "the run has changed since this was proposed", hint="look at it and propose it again"
            )
        return found


def place_of(now: Mapping[str, Any]) -> tuple[int, int]:
    """(boot, epoch) of a snapshot."""
    return now["boot"], (now.get("plan") or {}).get("epoch", 0)


def rate_proposal(rate_tps: float, now: Mapping[str, Any], needs: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a proposal to offer another rate says. needs: the what-if row of what would be planned for then, if
    it is known."""
    before = (now.get("rates") or {}).get("offered_tps")
    diff = [] if before is None else [f"- {before:g} rows/s offered"]
    diff.append(f"+ {significant(rate_tps, 6)} rows/s offered")
    if needs is not None:
        diff.append(needed(needs, now.get("plan") or {}))
    was = "the present rate" if before is None else f"{before:g} rows/s"
    return {
        "kind": "rate",
        "command": "rate_set",
        "arguments": {"rate_tps": rate_tps},
        "summary": f"offer {significant(rate_tps, 6)} rows/s instead of {was}",
        "diff": tuple(diff),
    }


def needed(row: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    """What the planner says of the rate that would be planned for, in one line of a diff. plan: the present one."""
    planned = f"planned for {significant(row['rate_tps'])} rows/s"
    if row.get("slots") is None:
        return f"~ no plan carries it, {planned}: {row.get('reason')}"
    used, slots = plan.get("slots", {}).get("used"), row["slots"]["used"]
    if used is not None and abs(row["rate_tps"] - plan["rate_tps"]) <= SAME_TPS:
        return f"~ the plan stays: {counted(used, 'slot')}, {planned}"
    told = counted(slots, "slot") if used is None else f"{used} → {counted(slots, 'slot')}"
    fits = "" if row.get("fits") else ", more than may be had here"
    return f"~ {told}, {planned}{fits}"


def stop_proposal(now: Mapping[str, Any]) -> dict[str, Any]:
    run = now["run"]
    return {
        "kind": "stop",
        "command": "stop",
        "arguments": {},
        "summary": f"end run {run}",
        "diff": (f"- run {run}: its sources stop, what is in flight is finished, then everything ends",),
    }


def approve_proposal(now: Mapping[str, Any], plan: str | None) -> dict[str, Any]:
    """Raises Conflict when that plan does not wait for approval."""
    waiting = now.get("proposal")
    if waiting is None or plan not in (None, waiting["id"]):
        which = f"plan {plan} does not wait" if plan else "no plan waits"
        raise Conflict(f"{which} for approval", hint="`headgate status` shows what does")
    return {
        "kind": "approve",
        "command": "apply",
        "arguments": {"id": waiting["id"]},
        "summary": f"bring plan {waiting['id']} into force: {waiting['text']}",
        "diff": tuple(waiting.get("diff", ())),
    }
