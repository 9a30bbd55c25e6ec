"""`headgate replay TRACE`: a recorded run once more, and what other policies would have done with its offer."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.topology_runtime.errors import CheckFailed, InvalidInput, UsageError
from headgate.topology_runtime.output import Format, emit, emit_line, format_options, to_json, write_table

if TYPE_CHECKING:
    from headgate.controller.knowledge.config import ControllerSettings
    from headgate.controller.knowledge.traffic import MeasuredTraffic
    from headgate.controller.replaying.comparing import Difference, PolicyComparison
    from headgate.controller.replaying.exact_replay import ExactReplay, Moment
    from headgate.controller.replaying.ideal_account import IdealAccount
    from headgate.controller.replaying.policies import Policy, PolicyQuestion, PolicyTrial
    from headgate.controller.replaying.trace_reading import Recording

SCHEMA = "headgate/replay/v1"
VMS_MOST = 1024
MEASURED = ("measured_s", "measured_tuples")  # violations of the recorded run, as they were
SHOWN_MOST = 200  # letters of a value in the table


@click.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.option("--policy", "policies", multiple=True, metavar="P", help="Try P as well: mba+sam, static, …")
@click.option(
    "--models", type=click.Path(path_type=Path), metavar="DIR", help="Policies plan by these models."
)
@click.option("--vms", metavar="4,4", help="Policies begin with these VMs (default: those of the run).")
@click.option(
    "--max-vms", default=0, type=click.IntRange(0, VMS_MOST), help="Policies have so many VMs at most."
)
@click.option("--usd-per-slot-hour", type=float, metavar="X", help="Price of VMs that carry none.")
@click.option("--speed", type=float, metavar="X", help="X seconds of the run in one; prints what happens.")
@format_options
def replay(
    trace: Path,
    policies: tuple[str, ...],
    models: Path | None,
    vms: str | None,
    max_vms: int,
    usd_per_slot_hour: float | None,
    speed: float | None,
    output: Format,
) -> None:
    """Make every decision of the run recorded in the folder TRACE again, from its recorded inputs and by the
    same code, and compare. Ends with 8 when they differ.

    --policy asks what would have been done otherwise. Policies (several: a,b or --policy twice):

    \b
    mba+sam, traffic, …   re-plan as the controller does, by this pair, or this mapper and its allocator
    static                the first plan, never changed
    static-max            a plan for the most that was offered in one second, never changed
    static:lsa+rsm        the same, planned by this pair (else by the run's own)

    A pair whose plan is predicted to carry less than it is for plans for more, until it carries that or the
    VMs do not suffice (--max-vms): LSA with RSM, as in the paper, pays for what it does not foresee.

    The real controller then runs in a made world: the offer is the recorded one, VMs come and plans take
    force as quickly as they did in the run (median), and a plan carries exactly what the models predict for it.
    So models that are wrong, faults, a disturbed machine and latency between tasks are not in the answer.
    Violations: time in which more was offered than the plan in force is predicted to carry, and the
    tuples above that, for the recorded run alike; measured_s and measured_tuples: what the recorded run really
    failed to finish, in stretches of 10 s. Slot-hours: slots with threads, or as many as were asked for.

    \b
    headgate replay traces/demo/RUN
    headgate replay traces/demo/RUN --policy mba+sam,lsa+rsm,static,static-max
    headgate replay traces/demo/RUN --models models/new --max-vms 4
    headgate replay traces/demo/RUN --speed 10"""
    from headgate.controller.replaying.policies import policies_of
    from headgate.controller.replaying.trace_reading import Recording

    check_numbers(speed, usd_per_slot_hour)
    recording = Recording(trace)
    for name in recording.torn:
        click.echo(f"note: the last line of {name} is half written and left out", err=True)
    settings = recording.run.settings
    names = [name.strip() for given in policies for name in given.split(",")]
    if not names and (models is not None or vms is not None or max_vms):
        names = [f"{settings.allocator}+{settings.mapper}"]
    chosen = policies_of(names, settings)
    refuse_arrivals(chosen, recording)
    known = models_of(models, recording)
    warn_of_other_version(recording)
    found = replayed(recording, known, usd_per_slot_hour, speed, output)
    answer = found.data()
    if chosen:
        question = found.question(known, vms, max_vms, usd_per_slot_hour, traffic_of(trace, chosen))
        answer["recorded"] = found.recorded(trace)
        answer["policies"] = [tried(policy, question) | dict.fromkeys(MEASURED) for policy in chosen]
    show(output, answer, found)
    if not found.comparison.equal:
        raise different(found.comparison, recording)


def check_numbers(speed: float | None, usd_per_slot_hour: float | None) -> None:
    """Raises UsageError."""
    if speed is not None and not (math.isfinite(speed) and speed > 0):
        raise UsageError(f"--speed: expected a finite number above 0, got {speed:g}")
    if usd_per_slot_hour is not None and not (math.isfinite(usd_per_slot_hour) and usd_per_slot_hour >= 0):
        raise UsageError(
            f"--usd-per-slot-hour: expected a finite price of at least 0, got {usd_per_slot_hour:g}"
        )


def refuse_arrivals(chosen: Sequence[object], recording: Recording) -> None:
    """Raises InvalidInput when policies are to be tried with rows that came by themselves."""
    names = ", ".join(task.name for task in recording.run.topology.arriving)
    if chosen and names:
        raise InvalidInput(
            "no policy can be tried with this run",
            cause=f"rows of {names} were taken as they came, and policies are tried with a schedule",
            hint="without --policy the recorded decisions are made again",
        )


def traffic_of(trace: Path, chosen: Sequence[Policy]) -> MeasuredTraffic | None:
    """What the run measured, where a mapper is to be tried that looks at traffic."""
    from headgate.controller.offline.from_trace import recorded_traffic
    from headgate.controller.plan.schedulers import MAPPERS

    if not any(MAPPERS[policy.mapper].by_traffic for policy in chosen):
        return None
    try:
        return recorded_traffic(trace).traffic()
    except InvalidInput as error:
        click.echo(f"note: policies go by selectivities alone: {error.what}", err=True)
        return None


def models_of(folder: Path | None, recording: Recording) -> dict[str, Any] | None:
    """`--models`: task → model. Raises InvalidInput, also when they do not suffice for the topology."""
    if folder is None:
        return None
    from headgate.controller.files.model_files import read_models
    from headgate.controller.knowledge.models import missing_models

    models = read_models(folder)
    faults = missing_models(recording.run.topology, models)
    if faults:
        raise InvalidInput(f"{folder} does not model {recording.run.topology.name!r}", faults=faults)
    return models


def warn_of_other_version(recording: Recording) -> None:
    from headgate.topology_runtime.wire_version import VERSION

    here, there = VERSION, recording.run.version
    if there != here:
        click.echo(f"note: recorded by headgate {there}, this is {here}: decisions may differ", err=True)


# ── the run, once more ──────────────────────────────────────────────────────────────────────────


class ReplayResult:
    """What came of the replay. took_s: real time it took; run_s: of the run."""

    def __init__(
        self, recording: Recording, again: ExactReplay, account: IdealAccount, took_s: float, run_s: float
    ) -> None:
        from headgate.controller.replaying.comparing import compare

        self.recording, self.account, self.took_s, self.run_s = recording, account, took_s, run_s
        self.lives = len(again.lives)
        self.comparison = compare(recording.decisions, again.lives)

    def data(self) -> dict[str, Any]:
        """The answer, without policies."""
        from dataclasses import asdict

        difference = self.comparison.difference
        return {
            "schema": SCHEMA,
            "run": self.recording.run.name,
            "decisions": self.comparison.decisions,
            "equal": self.comparison.equal,
            "first_difference": asdict(difference) if difference is not None else None,
            "unverified": self.comparison.unverified,
            "lives": self.lives,
            "run_s": self.run_s,
            "replay_s": self.took_s,
        }

    def recorded(self, trace: Path) -> dict[str, Any]:
        """The run's own line, what was measured of it included."""
        from headgate.controller.replaying.measured import measured_of

        measured = measured_of(trace) or (None, None)
        return self.account.row("recorded") | dict(zip(MEASURED, measured, strict=True))

    def question(
        self,
        models: dict[str, Any] | None,
        vms: str | None,
        max_vms: int,
        usd_per_slot_hour: float | None,
        traffic: MeasuredTraffic | None,
    ) -> PolicyQuestion:
        """What policies are tried with. Raises InvalidInput when the run never began to offer anything."""
        from statistics import median

        from headgate.controller.replaying.policies import PolicyQuestion
        from headgate.controller.replaying.world import Delays

        account = self.account
        if not account.counted_ns:
            raise InvalidInput("nothing was offered in this run, so there is nothing to try a policy with")
        usual = Delays()
        delays = Delays(
            median(account.enacted_s) if account.enacted_s else usual.enact_s,
            median(account.machines_s) if account.machines_s else usual.machine_s,
        )
        return PolicyQuestion(
            run=self.recording.run,
            seconds=account.counted_ns / 1e9,
            delays=delays,
            rates=tuple(account.rates),
            models=models,
            vms=vms_of(vms, account, self.recording.run.settings),
            max_vms=max_vms,
            usd_per_slot_hour=usd_per_slot_hour,
            traffic=traffic,
        )


def vms_of(text: str | None, account: IdealAccount, settings: ControllerSettings) -> tuple[Any, ...] | None:
    """`--vms 4,4`: VMs with slots like those of the run. When it is not given: those that were there first,
    None (the run's settings name them) when there were none."""
    from msgspec.structs import replace

    if text is None:
        return account.first_vms or None
    from headgate.controller.offline.vm_options import fixed_vms
    from headgate.topology_runtime.cluster import Vm

    # of a run that asked for all its VMs none was there first
    shape = next(vm for vm in (*account.first_vms, *settings.initial, settings.spare, Vm("vm1", 1)) if vm)
    return tuple(
        replace(
            vm,
            slot_cores=shape.slot_cores,
            slot_memory_bytes=shape.slot_memory_bytes,
            usd_per_hour=shape.usd_per_hour / shape.slots * vm.slots,
        )
        for vm in fixed_vms(text)
    )


def replayed(
    recording: Recording,
    models: dict[str, Any] | None,
    usd_per_slot_hour: float | None,
    speed: float | None,
    output: Format,
) -> ReplayResult:
    """Replay it all, with a bar, or at a pace with a line for each thing that happens."""
    from headgate.controller.offline.waiting import waited
    from headgate.controller.replaying.exact_replay import ExactReplay
    from headgate.controller.replaying.ideal_account import IdealAccount

    again = ExactReplay(recording.run, watched=speed is not None)
    account = IdealAccount(models=models, usd_per_slot_hour=usd_per_slot_hour)
    began_s = time.perf_counter()
    if speed is None:
        moments = again.moments(recording.lines(waited(recording.pieces, "replaying")))
    else:
        moments = told(again.moments(recording.lines()), speed, output)
    run_ns = first_ns = last_ns = 0
    for moment in moments:
        account.see(moment)
        at_ns = moment.now.mono_ns
        if not first_ns or at_ns < last_ns:
            run_ns, first_ns = run_ns + last_ns - first_ns, at_ns
        last_ns = at_ns
    run_ns += last_ns - first_ns
    return ReplayResult(recording, again, account, time.perf_counter() - began_s, run_ns / 1e9)


def told(moments: Iterable[Moment], speed: float, output: Format) -> Iterator[Moment]:
    """The moments at this pace; what is worth a line is printed (as JSON lines, or for people)."""
    from headgate.controller.replaying.pacing import lines_of, paced

    for moment in paced(moments, speed):
        if output in ("table", "jsonl"):
            for line in lines_of(moment):
                if output == "jsonl":
                    emit_line(line)
                elif line["kind"] == "decision" and line["action"] != "none":
                    click.echo(f"{line['time'][11:23]}  {line['action']}: {line['text']}")
                elif line["kind"] == "said":
                    click.echo(f"{line['time'][11:23]}  {line['text']}")
        yield moment


def tried(policy: Any, question: PolicyQuestion) -> dict[str, Any]:
    """One policy's line, with a bar."""
    from headgate.controller.offline.waiting import waited
    from headgate.controller.replaying.policies import trial_of

    def watched(trial: PolicyTrial) -> None:
        seconds = iter(waited(range(int(question.seconds) + 1), policy.name))
        passed = next(seconds)
        for moment in trial.moments():
            began_ns = trial.account.began_ns
            while began_ns and moment.now.wall_ns > began_ns + passed * 1e9:
                following = next(seconds, None)
                if following is None:
                    break
                passed = following
        for _ in seconds:
            pass

    return trial_of(policy, question, watched)


# ── what is printed ─────────────────────────────────────────────────────────────────────────────


def show(output: Format, answer: dict[str, Any], found: ReplayResult) -> None:
    rows = [answer["recorded"], *answer["policies"]] if "policies" in answer else []
    if output != "table":
        plain = {key: value for key, value in answer.items() if key not in ("recorded", "policies")}
        emit(output, answer, rows or [plain])
        return
    click.echo(sentence(found))
    if found.comparison.difference is not None:
        write_table(difference_rows(found.comparison.difference))
    if rows:
        click.echo()
        write_table([_readable(row) for row in rows])
        for row in rows:
            if words := row.get("error") or row.get("note"):
                click.echo(f"{row['policy']}: {words}", err=True)


def sentence(found: ReplayResult) -> str:
    """The answer for people."""
    c, run = found.comparison, found.recording.run.name
    pace = f"{found.run_s:.1f} s of the run in {found.took_s:.2f} s"
    if c.difference is None:
        text = f"Equal: run {run} decides the same again, {c.decisions} decisions ({pace})."
    else:
        place = f"decision {c.difference.number} of {c.decisions}"
        text = f"Different: run {run} decides otherwise from {place} on ({pace})."
    if c.unverified:
        text += f" Decisions of the last second before a controller was killed, without a counterpart: {c.unverified}."
    return text


def difference_rows(difference: Difference) -> list[dict[str, Any]]:
    """The first difference, recorded against replayed."""
    return [
        {
            "decision": difference.number,
            "time": difference.time,
            "field": difference.field or "(the whole decision)",
            "recorded": _short(difference.recorded),
            "replayed": _short(difference.replayed),
        }
    ]


def _short(value: Any) -> str:
    text = "(none)" if value is None else to_json(value)
    return text if len(text) <= SHOWN_MOST else text[: SHOWN_MOST - 1] + "…"


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    shown = {key: row[key] for key in row if key not in ("error", "note", "offered", "seconds")}
    return {key: shown[key] if key == "policy" else None for key in shown} if "error" in row else shown


def different(comparison: PolicyComparison, recording: Recording) -> CheckFailed:
    d = comparison.difference
    assert d is not None
    return CheckFailed(
        "the replay decides otherwise than the run",
        cause=f"decision {d.number} ({d.time}): {d.field or 'only one of the two has it'}",
        hint="records that were dropped (a slow disk) or another version of headgate can be why",
    )
