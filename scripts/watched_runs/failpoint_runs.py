"""36 points of an enactment at which a process dies, and what has become of the plan ten seconds later.

A point is where a controller, an agent or a worker is with one phase of the enactment; agents die once on a
VM whose threads leave and once on one that gets threads. Used by bench_failpoints.py and tests/scenarios.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from headgate.controller.models.plans import Placement
from headgate.topology_runtime.errors import HeadgateError
from watched_runs.counted_run import CountedRun

ENDED_S = 10.0  # then the plan must be the old or the new one
REACHED_S = 300.0  # COMMITTED comes after three windows of probation
SETTLED_S = 300.0
RATE_TPS = 40.0
LOW, HIGH = 1.3, 2.4  # of the offered rate: neither makes the controller plan by itself
PHASES = ("prepared", "switched", "committed")
MOMENTS = {
    "controller": ("unwritten", "written", "told-one"),  # before and after the journal, one agent was told
    "agent": ("heard", "obeyed", "reported"),
    "worker": ("heard", "obeyed", "reported"),
}
VICTIMS = ("controller", "old agent", "new agent", "worker")


@dataclass(frozen=True)
class Point:
    """`victim` dies at `moment` of `phase`."""

    victim: str
    phase: str
    moment: str

    def __str__(self) -> str:
        return f"{self.victim}: {self.phase}-{self.moment}"

    def file(self, vm: str) -> str:
        """The name by which that process knows it (topology_runtime/platform/processes.py)."""
        role = f"agent.{vm}" if self.victim.endswith("agent") else self.victim
        return f"{role}.{self.phase}-{self.moment}"


POINTS = tuple(
    Point(victim, phase, MOMENTS[victim.split()[-1]][number])
    for phase in PHASES
    for number in range(3)
    for victim in VICTIMS
)


@dataclass(frozen=True)
class Outcome:
    """What became of the plan. `ended`: OLD, NEW or what else; within so many seconds of the death."""

    point: Point
    ended: str
    seconds: float
    waited_for: str = ""

    @property
    def whole(self) -> bool:
        return self.ended in ("OLD", "NEW")

    @property
    def good(self) -> bool:
        return self.whole and self.seconds <= ENDED_S


class Enactments:
    """One run that is planned up and down, with a death in every plan."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.armed = folder / "failpoints"
        self.armed.mkdir(parents=True)
        before = os.environ.get("HEADGATE_FAILPOINTS")
        os.environ["HEADGATE_FAILPOINTS"] = str(self.armed)
        try:
            self.running = CountedRun(folder, RATE_TPS, seconds)
        finally:
            if before is None:
                del os.environ["HEADGATE_FAILPOINTS"]
            else:
                os.environ["HEADGATE_FAILPOINTS"] = before
        self.everyone: set[int] = set()
        self._high = False

    def begin(self) -> None:
        self.running.wait_for_rows()
        self._settled()

    def die_at(self, point: Point) -> Outcome:
        """Enact a plan in which that happens, and see how it ends."""
        self._settled()
        self._high = not self._high
        if (point.victim == "old agent" and self._high) or (point.victim == "new agent" and not self._high):
            self._replan()  # threads leave when the plan shrinks, and come when it grows
            self._settled()
            self._high = not self._high
        old, plan = self._propose()
        epoch = old["plan"]["epoch"]
        armed = self.armed / point.file(self._vm(point, old, plan))
        armed.write_text(str(epoch + 1))
        self._apply(plan)
        hit = armed.with_name(armed.name + ".hit")
        try:
            wait(hit.exists, REACHED_S)
        except TimeoutError:
            armed.unlink(missing_ok=True)
            return Outcome(point, "never reached", 0.0, str(self._asked("enactment")))
        died_s = time.monotonic()
        hit.unlink()
        return self._ended(point, died_s, epoch, old["plan"]["id"], plan["id"])

    def finish(self) -> dict[str, Any]:
        """The verdict over all rows, and what is left behind."""
        self.everyone |= set(self.running.everyone())
        self.running.end()
        summary = self.running.finish()
        time.sleep(1.0)
        left = self.running.leftovers(summary["run"], sorted(self.everyone))
        return self.running.verdict(summary) | {"left_behind": left, "plans": len(summary["plans"])}

    # ── steps ───────────────────────────────────────────────────────────────────────────────────

    def _propose(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """(status, the plan that waits for our word)."""
        rate = RATE_TPS * (HIGH if self._high else LOW)
        found: list[dict[str, Any]] = []

        def asked() -> bool:
            with contextlib.suppress(HeadgateError):  # a busy machine: no answer in time
                found[:] = [self.running.command("plan", rate_tps=rate, propose=True)]
                found.append(self.running.command("status"))
            return len(found) == 2

        wait(asked, SETTLED_S)
        plan, status = found
        return status, plan

    def _apply(self, plan: dict[str, Any]) -> None:
        try:
            self.running.command("apply", id=plan["id"])
        except HeadgateError:
            return  # it may die before it answers

    def _replan(self) -> None:
        _, plan = self._propose()
        self._apply(plan)

    def _vm(self, point: Point, status: dict[str, Any], plan: dict[str, Any]) -> str:
        """For an agent: the VM with the most threads that leave (old), or come (new)."""
        now = Counter[str]()
        for vm in status["vms"]:
            now[vm["vm"]] = sum(sum(slot["threads"].values()) for slot in vm["slots"])
        then = Counter[str]()
        for bundle in msgspec.convert(plan["placement"], Placement).bundles:
            then[bundle.slot.vm] += bundle.threads
        sign = -1 if point.victim == "old agent" else 1
        return max(sorted(now), key=lambda vm: sign * (then[vm] - now[vm]))

    def _ended(self, point: Point, died_s: float, epoch: int, old: str, new: str) -> Outcome:
        before = self.running.checker.rows
        try:
            wait(lambda: self._whole() and self.running.checker.rows > before, SETTLED_S, self._look)
        except TimeoutError:
            return Outcome(point, "neither", SETTLED_S, str(self._asked("enactment")))
        seconds = time.monotonic() - died_s
        plan = self._asked("plan")
        if plan["id"] == new and plan["epoch"] == epoch + 1:
            return Outcome(point, "NEW", seconds)
        if plan["id"] == old or plan["reason"] == "rolled_back":
            return Outcome(point, "OLD", seconds)
        return Outcome(point, f"plan {plan['epoch']} ({plan['reason']})", seconds)

    def _whole(self) -> bool:
        """A plan is in force, and every slot that it uses has a worker that runs."""
        status = self._status()
        if status is None or status["plan"]["phase"] not in ("probation", "committed"):
            return False
        slots = [slot for vm in status["vms"] for slot in vm["slots"] if slot["threads"]]
        up = all(vm["state"] == "joined" for vm in status["vms"])
        return up and status["stage"] != "adopting" and all(slot["state"] == "running" for slot in slots)

    def _settled(self) -> None:
        """In force, and nothing leaves any more: the next PREPARED is one on the wire too."""

        def settled() -> bool:
            status = self._status()
            return status is not None and not status["enactment"]["leaving"] and self._whole()

        wait(settled, SETTLED_S, self._look)

    def _look(self) -> None:
        self.running.segments.drain()
        self.everyone |= set(self.running.everyone())

    def _status(self) -> dict[str, Any] | None:
        """None while there is no controller."""
        try:
            found: dict[str, Any] = self.running.command("status")
        except HeadgateError:
            return None
        return found if found["plan"] else None

    def _asked(self, what: str) -> Any:
        return (self._status() or {}).get(what)


def wait(condition: Callable[[], bool], seconds: float, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Raises TimeoutError when it does not come true."""
    deadline_s = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline_s:
            raise TimeoutError(f"not in {seconds:g} s")
        meanwhile()
        time.sleep(0.02)


def share_of(day: int, parts: int) -> tuple[Point, ...]:
    """One part of the points, another one each day."""
    return POINTS[day % parts :: parts]


def told(outcomes: Sequence[Outcome]) -> str:
    lines = [f"{one.seconds:6.2f} s  {one.ended:14} {one.point}  {one.waited_for}" for one in outcomes]
    return "\n".join(lines)


def as_data(outcome: Outcome) -> dict[str, Any]:
    return {"point": str(outcome.point), "ended": outcome.ended, "seconds": round(outcome.seconds, 2)} | (
        {"waited_for": json.dumps(outcome.waited_for)} if outcome.waited_for else {}
    )
