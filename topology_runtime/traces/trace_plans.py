"""Plans by their ids, or the beginnings of these: those that the traces of all runs hold.

A trace names plans in its decisions (`decisions.jsonl`) and holds each whole in `plans.jsonl`, one to a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.traces.trace_tables import PLANS
from headgate.topology_runtime.wording import significant

TRACES = Path("traces")  # where `up` writes them, below where it was started
ID_LEAST, ID_SHOWN = 4, 8
CANDIDATES = 5
_ID = re.compile(r"[0-9a-f]{4,16}")


class PlanHead(msgspec.Struct, frozen=True):
    """What tells a plan from others. time: when it was decided about first (UTC)."""

    id: str
    topology: str
    rate_tps: float
    time: str = ""

    @property
    def words(self) -> str:
        return f"{self.id[:ID_SHOWN]} ({self.topology}, {significant(self.rate_tps, 6)} rows/s, {self.time[:19]})"


class KnownPlan(msgspec.Struct, frozen=True):
    """A plan that a trace holds. raw: JSON of the format `headgate/plan/v1`."""

    head: PlanHead
    folder: Path
    raw: bytes

    @property
    def data(self) -> Any:
        return msgspec.json.decode(self.raw)


class _PlanLine(msgspec.Struct):
    time: str
    plan: msgspec.Raw


_line, _head = msgspec.json.Decoder(_PlanLine), msgspec.json.Decoder(PlanHead)


def is_id(word: str) -> bool:
    """May this be (the beginning of) a plan's id? What is a file here is a file."""
    return _ID.fullmatch(word) is not None and not Path(word).exists()


def plans_in(traces: Path, beginning: str = "") -> Iterator[KnownPlan]:
    """All plans that the traces below `traces` hold, run by run; a line that cannot be read is none. Whole are those
    whose ids begin so."""
    for file in sorted(traces.glob(f"*/*/{PLANS}")):
        whole, _, _ = file.read_bytes().rpartition(b"\n")  # what a kill left half written is none
        for row in whole.splitlines():
            try:
                line = _line.decode(row)
                head = msgspec.structs.replace(_head.decode(line.plan), time=line.time)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            yield KnownPlan(head, file.parent, bytes(line.plan) if head.id.startswith(beginning) else b"")


def the_plan(beginning: str, traces: Path = TRACES) -> KnownPlan:
    """The one plan of all runs whose id begins so. Raises InvalidInput: there is none, or there are several."""
    known = {plan.head.id: plan for plan in plans_in(traces, beginning)}
    found = the_id(beginning, [plan.head for plan in known.values()], str(traces))
    return known[found]


def the_id(beginning: str, known: Iterable[PlanHead], where: str) -> str:
    """The one id of `known` that begins so. Raises InvalidInput with those that there are."""
    if len(beginning) < ID_LEAST:
        raise InvalidInput(
            f"{beginning!r} names no plan", cause=f"give at least {ID_LEAST} letters of its id"
        )
    every = {plan.id: plan for plan in known}
    found = [plan for plan in every.values() if plan.id.startswith(beginning)]
    if len(found) == 1:
        return found[0].id
    if found:
        what = f"{len(found)} plans begin with {beginning!r}"
        raise InvalidInput(what, cause=_listed(found), hint="give more letters of its id")
    newest = sorted(every.values(), key=lambda plan: plan.time, reverse=True)
    raise InvalidInput(
        f"no plan in {where} begins with {beginning!r}",
        cause=f"the newest there are {_listed(newest)}" if newest else "no plan is kept there",
        hint="`headgate history` lists the plans of all runs",
    )


def _listed(plans: list[PlanHead]) -> str:
    more = len(plans) - CANDIDATES
    return ", ".join(plan.words for plan in plans[:CANDIDATES]) + (f" and {more} more" if more > 0 else "")
