"""Other policies beside a run, on what it was offered, scored as it is itself. Pure.

What was offered is told second by second, and each policy goes on by that second in a world of its own
(`world.FluidWorld`): so a run that goes on has the same table as its trace has later. The row `controller` is what the
run did: its plans in force, their slots, what they are predicted to carry; what came above that waits as in the others.
`static` and `bare` know the highest rate so far: when it rises they begin anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from headgate.controller.core.rate_following import queue_s
from headgate.controller.execute.plan_drift import progress_of
from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.controller_config import ControllerSettings
from headgate.controller.replay.exact_replay import Moment
from headgate.controller.replay.ideal_machines import Delays, IdealAccount
from headgate.controller.replay.recorded_run import RecordedRun
from headgate.lab.rate_policies.advisor import OfferSoFar
from headgate.lab.rate_policies.backtest_world import (
    PHASE_S,
    BacktestQuestion,
    FluidWorld,
    PolicyScore,
    Row,
    rank_of,
    with_planner,
)
from headgate.lab.rate_policies.policy_rules import DECIDERS, MEASURES, OURS
from headgate.lab.rate_policies.rule_turns import DeciderQuestion
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import HeadgateError

NS = 1_000_000_000
LOOK_NS = NS // 2  # the run is looked at so often
LEAST_S = 3  # before that there is no table
RUN = "controller"
SHADOWS = (RUN, *DECIDERS)


class Shadow:
    """One policy beside the run. error: why it could not go on."""

    def __init__(self, policy: str, question: BacktestQuestion, headroom: float, offer: OfferSoFar) -> None:
        self.policy, self.error = policy, ""
        self._question, self._headroom, self._offer = with_planner(policy, question), headroom, offer
        self._knows_peak = policy in MEASURES
        self._peak_tps = 0.0
        self._begin()

    def _begin(self) -> None:
        slots = sum(vm.slots for vm in self._question.vms)
        asked = DeciderQuestion(
            self._question.topology, self._headroom, self._peak_tps, most_slots=slots,
            headroom_measured=self._question.headroom_measured,
        )  # fmt: skip
        held = DECIDERS[self.policy] is DECIDERS[OURS]
        self.world = FluidWorld(self._question, DECIDERS[self.policy](asked), self._offer, held)
        self._turns: Iterator[float] = self.world.seconds(float("inf"))
        self._at_s, self.error = PHASE_S, ""

    def hear(self) -> None:
        """Another second is known."""
        if not self._knows_peak:  # the peak of all is asked for where a table is
            self._go_on()

    def score(self) -> PolicyScore:
        """As far as what was offered is known."""
        peak_tps = max(span.rate_tps for span in self._offer.spans)
        if self._knows_peak and peak_tps > self._peak_tps:
            self._peak_tps = peak_tps
            self._begin()
        self._go_on()
        return self.world.score

    def _go_on(self) -> None:
        try:
            while not self.error and self._at_s + 1 <= self._offer.until_s:
                self._at_s = next(self._turns)
        except HeadgateError as error:
            self.error = error.what + (f": {error.cause}" if error.cause else "")


class RunScore:
    """What the run itself did, moment by moment, and what it was offered, second by second."""

    def __init__(self, topology: Topology) -> None:
        self.account, self.score, self.offer = IdealAccount(), PolicyScore(queue_s(topology)), OfferSoFar()
        self._topology = topology
        self._last: tuple[int, float] | None = None  # (UTC ns, rows offered until then)
        self._plan: tuple[float, float] | None = None  # since then: planned, carried

    def see(self, moment: Moment) -> int:
        """How many seconds are over since the last moment."""
        account, known, plans = self.account, self.offer.until_s, self.account.replans
        account.see(moment)
        if account.replans > plans:
            self.score.plans_at_s.append((moment.now.wall_ns - account.began_ns) / NS)
        if isinstance(moment.event, t.Tick) and account.began_ns:
            self._pass(moment)
        return round(self.offer.until_s - known)

    def _pass(self, moment: Moment) -> None:
        account, now_ns = self.account, moment.now.wall_ns
        durable = moment.loop.knowledge.durable
        found = progress_of(moment.loop.knowledge, now_ns)
        last_ns, last_rows = self._last or (account.began_ns, 0.0)
        over = durable.schedule is not None and 0 < durable.schedule.end_ns <= last_ns
        if found is None or account.plan is None or over or now_ns - last_ns < LOOK_NS:
            return
        plan = account.plan.rate_tps, account.supported_tps(self._topology)
        rows = max(last_rows, found[1])
        self.score.span((now_ns - last_ns) / NS, rows - last_rows, *(self._plan or plan))
        self.score.slot_seconds, self.score.vm_seconds = account.slot_ns / NS, account.vm_ns / NS
        self.score.usd, self.score.moves = account.usd or 0.0, account.moves
        while (end_ns := account.began_ns + round(self.offer.until_s + 1) * NS) <= now_ns:
            until = last_rows + (rows - last_rows) * (end_ns - last_ns) / (now_ns - last_ns)
            self.offer.add(self.offer.until_s + 1, until - self.offer.rows)
        self._last, self._plan = (now_ns, rows), plan


class Shadows:
    """A run and the policies beside it."""

    def __init__(self, run: RecordedRun, policies: Sequence[str], delays: Delays) -> None:
        settings, topology = run.settings, run.topology
        question = BacktestQuestion(
            topology, {model.task: model for model in run.models}, vms_of(settings), delays, settings.allocator,
            settings.mapper, settings.routing, settings.interference, best_that_fits=True,
            headroom_measured=settings.headroom_measured,
        )  # fmt: skip
        self.run, self.policies = RunScore(topology), tuple(policies)
        names = dict.fromkeys((*(name for name in policies if name != RUN), *MEASURES))
        self.shadows = [Shadow(name, question, settings.headroom, self.run.offer) for name in names]

    def see(self, moment: Moment) -> None:
        for _ in range(self.run.see(moment)):
            for shadow in self.shadows:
                shadow.hear()

    def rows(self) -> list[Row]:
        """The table so far, the best first; policies that could not go on come last, with the reason."""
        if self.run.offer.until_s < LEAST_S:
            return []
        scores = {shadow.policy: shadow.score() for shadow in self.shadows} | {RUN: self.run.score}
        errors = {shadow.policy: shadow.error for shadow in self.shadows if shadow.error}
        static, bare = (
            scores[name].slot_seconds / max(scores[name].seconds, 1.0) or 1.0 for name in MEASURES
        )
        rows = [self._row(name, scores[name], static, bare) for name in self.policies if name not in errors]
        rows = [{"rank": place, **row} for place, row in enumerate(sorted(rows, key=rank_of), 1)]
        return rows + [
            {"rank": None, "policy": name, "error": errors[name]} for name in self.policies if name in errors
        ]

    def _row(self, name: str, score: PolicyScore, static: float, bare: float) -> Row:
        """static, bare: slots on average."""
        return {
            "seconds": round(score.seconds, 2),
            **score.row(name, static * score.seconds, bare * score.seconds),
        }


def vms_of(settings: ControllerSettings) -> tuple[Vm, ...]:
    """Those that the run may have, in order."""
    spare, number = settings.spare, len(settings.initial)
    if spare is None:
        return settings.initial
    return (
        *settings.initial,
        *(replace(spare, vm=f"vm{n}") for n in range(number + 1, settings.max_vms + 1)),
    )
