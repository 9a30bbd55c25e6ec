"""What another policy would have done with the same offer: the real loop in a world of ideal machines. Pure.

ALLOCATOR+MAPPER    such as mba+sam: re-plans as the controller does, with that pair
MAPPER              such as traffic: the same, with the allocator that goes with it
static              the first plan, never changed
static-max          a plan for the most offered in one second, from the beginning, never changed
static:PAIR         … made by that pair; else by the run's own
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from headgate.controller.core.loop import Loop
from headgate.controller.knowledge.controller_config import ControllerSettings
from headgate.controller.knowledge.journal_records import Submitted
from headgate.controller.models.plans import MeasuredTraffic
from headgate.controller.models.task_models import Model
from headgate.controller.plan.schedulers import MAPPERS, allocator_for, pair_faults, pairs
from headgate.controller.replay.exact_replay import Moment
from headgate.controller.replay.ideal_machines import Delays, IdealAccount, IdealWorld
from headgate.controller.replay.recorded_run import RecordedRun
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.rates.schedule import NS, Schedule
from headgate.topology_runtime.wording import did_you_mean

FIXED = ("static", "static-max")
FIRST_LESS, FIRST_TRIES = 0.8, 24  # down to a 170th of the first rate
MOMENT_S = 1e-6  # at the beginning of the offer: what the first plan is made for, and next to no tuple


@dataclass(frozen=True, slots=True)
class Policy:
    """name: as it was asked for. fixed: "" when it re-plans, else one of FIXED."""

    name: str
    allocator: str
    mapper: str
    fixed: str = ""


@dataclass(frozen=True)
class PolicyQuestion:
    """What a policy is tried with: the run, what was found out of it, and what shall be otherwise.

    rates: set by hand in the run, (s, rows/s). vms: from the start (None: the run's). max_vms: 0: the
    run's. traffic: what the run measured, which mappers that look at it plan by once their first plan is in force.
    rows: that a source had, where all ended by themselves."""

    run: RecordedRun
    seconds: float
    delays: Delays = Delays()
    rates: tuple[tuple[float, float], ...] = ()
    models: dict[str, Model] | None = None
    vms: tuple[Vm, ...] | None = None
    max_vms: int = 0
    usd_per_slot_hour: float | None = None
    traffic: MeasuredTraffic | None = None
    rows: float = math.inf


def policies_of(names: Sequence[str], run: ControllerSettings) -> tuple[Policy, ...]:
    """Policies by name. Raises InvalidInput with every one that there is not."""
    own = f"{run.allocator}+{run.mapper}"
    found, faults = [], []
    for name in dict.fromkeys(names):
        kind, colon, pair = name.partition(":")
        fixed = kind if kind in FIXED else ""
        if not fixed:
            pair = name
        elif not colon:
            pair = own
        if pair in MAPPERS:
            pair = f"{allocator_for(pair)}+{pair}"
        allocator, plus, mapper = pair.partition("+")
        if plus and not pair_faults(allocator, mapper):
            found.append(Policy(name, allocator, mapper, fixed))
            continue
        known = [*FIXED, *pairs()]
        faults.append(f"{name!r}: there are {', '.join(known)}{did_you_mean(name, known)}")
    if faults:
        raise InvalidInput("there is no such policy", faults=faults)
    return tuple(found)


class PolicyTrial:
    """One policy, tried. `row`: what it came to, once its moments are over."""

    def __init__(self, policy: Policy, question: PolicyQuestion, share: float = 1.0) -> None:
        self._policy, self._question = policy, question
        run = question.run
        self.account = IdealAccount(
            models=None,
            usd_per_slot_hour=question.usd_per_slot_hour,
            seconds=question.seconds,
            rows=question.rows,
        )
        loop = Loop(_settings(policy, question), _submitted(policy, question, share), watched=False)
        self._world = IdealWorld(
            loop, self.account, question.delays, question.rates, wall_ns=_wall_ns(run), rows=question.rows
        )
        self._world.predicts = True

    def moments(self) -> Iterator[Moment]:
        """Every step of the policy's loop, in virtual time. Nothing is measured before the first plan is in force."""
        for moment in self._world.moments(self._question.seconds):
            if self.began:
                self._world.loop.knowledge.traffic.measured = self._question.traffic
            yield moment

    @property
    def began(self) -> bool:
        """Did a plan come into force?"""
        return bool(self.account.began_ns)

    def row(self) -> dict[str, Any]:
        """The policy's line of the answer; `error`: why it could not begin or go on."""
        row = self.account.row(self._policy.name)
        finish = self._world.finish
        why = None
        if finish is not None and finish.error is not None:
            why = finish.error.what + (f": {finish.error.cause}" if finish.error.cause else "")
        elif not self.began:
            why = "no plan came into force"
        return row | ({"error": why} if why else {})


def trial_of(
    policy: Policy, question: PolicyQuestion, watch: Callable[[PolicyTrial], None]
) -> dict[str, Any]:
    """Try a policy; `watch` goes through the moments of its trial.

    A controller does not begin with a plan that is not predicted to carry the first rate. Where the pair carries no
    more on these VMs, whatever it is asked for, the policy begins with a plan for as much as it carries."""
    share = 1.0
    for _ in range(FIRST_TRIES):
        trial = PolicyTrial(policy, question, share)
        watch(trial)
        if trial.began:
            break
        share *= FIRST_LESS
    row = trial.row()
    if trial.began and share != 1.0:
        rate = "highest" if policy.fixed == "static-max" else "first"
        row["note"] = (
            f"on these VMs it is predicted to carry {share:.3g} × the {rate} rate at most, whatever it is asked for, "
            "and begins so; more may do (--max-vms)"
        )
    return row


def _settings(policy: Policy, question: PolicyQuestion) -> ControllerSettings:
    settings = question.run.settings
    initial = settings.initial if question.vms is None else question.vms
    max_vms = max(question.max_vms or settings.max_vms, len(initial))
    spare = settings.spare
    if spare is None and max_vms > len(initial) and initial:
        spare = replace(initial[0], vm="spare")
    return replace(
        settings,
        allocator=policy.allocator,
        mapper=policy.mapper,
        mode="advise" if policy.fixed else "auto",
        plan=None,
        initial=initial,
        max_vms=max_vms,
        spare=spare if max_vms > len(initial) else None,
        seconds=0.0,
    )


def _submitted(policy: Policy, question: PolicyQuestion, share: float) -> Submitted:
    given = question.run.submitted()
    if question.models is not None:
        given = replace(given, models=tuple(question.models.values()))
    first_tps = highest_tps(question) if policy.fixed == "static-max" else given.steps[0][1]
    if first_tps * share == given.steps[0][1]:
        return given
    # the first plan is made for what is offered in the first moment
    steps = ((0.0, first_tps * share), (MOMENT_S, given.steps[0][1]), *given.steps[1:])
    return replace(given, steps=steps)


def highest_tps(question: PolicyQuestion) -> float:
    """The most rows that were offered in one whole second of the run, by its schedule and what was set by hand."""
    offer = question.run.offer
    schedule = Schedule(0, offer.steps, offer.period_s)
    for at_s, tps in sorted(question.rates):
        at_ns = int(at_s * NS)
        schedule = Schedule(at_ns, ((0.0, tps),), 0.0, schedule.offered(at_ns), 0, schedule)
    seconds = max(1, int(question.seconds))
    offered = [min(schedule.offered(s * NS), question.rows) for s in range(seconds + 1)]
    return max(after - before for before, after in pairwise(offered))


def _wall_ns(run: RecordedRun) -> int:
    from datetime import datetime

    try:
        return int(datetime.fromisoformat(run.started).timestamp()) * NS
    except ValueError:
        return 0
