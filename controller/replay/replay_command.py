"""`headgate replay TRACE`: a recorded run once more, and what other policies would have done with its offer."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.controller.knowledge import loop_events as t
from headgate.controller.replay.exact_replay import Moment, decisions_of
from headgate.topology_runtime.commands.number_options import Number
from headgate.topology_runtime.commands.output import (
    Format,
    emit,
    emit_line,
    format_options,
    to_json,
    write_table,
)
from headgate.topology_runtime.errors import CheckFailed, InvalidInput
from headgate.topology_runtime.wording import utc_iso

if TYPE_CHECKING:
    from headgate.controller.knowledge.controller_config import ControllerSettings
    from headgate.controller.models.plans import MeasuredTraffic
    from headgate.controller.replay.exact_replay import Difference, ExactReplay, Moment, PolicyComparison
    from headgate.controller.replay.ideal_machines import IdealAccount, LatencySpan
    from headgate.controller.replay.replay_policies import Policy, PolicyQuestion, PolicyTrial
    from headgate.controller.replay.trace_reading import Recording

SCHEMA = "headgate/replay/v1"
VMS_MOST = 1024
VIOLATED = ("measured_s", "measured_tuples")  # violations of the recorded run, as they were
MEASURED = (*VIOLATED, "measured_p50_ms", "measured_p95_ms", "measured_p99_ms")
SHOWN_MOST = 200  # letters of a value in the table


@click.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.option("--policy", "policies", multiple=True, metavar="P", help="Try P as well: mba+sam, static, …")
@click.option(
    "--models", type=click.Path(path_type=Path), metavar="DIR", help="Policies plan by these models."
)
@click.option("--vms", metavar="4,4x0.5", help="Policies begin with these VMs (default: those of the run).")
@click.option(
    "--max-vms", default=0, type=click.IntRange(0, VMS_MOST), help="Policies have so many VMs at most."
)
@click.option("--usd-per-slot-hour", type=Number(0), metavar="X", help="Price of VMs that carry none.")
@click.option(
    "--speed",
    type=Number(0, min_open=True),
    metavar="X",
    help="X seconds of the run in one; prints what happens.",
)
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
    VMs do not suffice (--max-vms): LSA with RSM, as in the paper, pays for what it does not predict.

    The real controller then runs in a made world: the offer is the recorded one, VMs come and plans take
    force as quickly as they did in the run (median), and a plan carries exactly what the models predict for it.
    So models that are wrong, faults and a disturbed machine are not in the answer.
    Violations: time in which more was offered than the plan in force is predicted to carry, and the
    rows above that, for the recorded run alike; measured_s and measured_tuples: what the recorded run really
    failed to finish, in stretches of 10 s. p50_ms, p95_ms, p99_ms: what rows are predicted to take by the plans in
    force, a mean over the time for which they carry what is offered; measured_…_ms: what rows of the recorded run
    took in that time. Slot-hours: slots with threads, or as many as were asked for.

    \b
    headgate replay traces/demo/RUN
    headgate replay traces/demo/RUN --policy mba+sam,lsa+rsm,static,static-max
    headgate replay traces/demo/RUN --models models/new --max-vms 4
    headgate replay traces/demo/RUN --speed 10"""
    from headgate.controller.replay.replay_policies import policies_of
    from headgate.controller.replay.trace_reading import Recording

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
    from headgate.controller.plan.schedulers import MAPPERS
    from headgate.controller.planning_commands.past_runs import recorded_traffic

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
    from headgate.controller.files.planning_inputs import read_models
    from headgate.controller.models.task_models import missing_models

    models = read_models(folder)
    faults = missing_models(recording.run.topology, models)
    if faults:
        raise InvalidInput(f"{folder} does not model {recording.run.topology.name!r}", faults=faults)
    return models


def warn_of_other_version(recording: Recording) -> None:
    from headgate.topology_runtime.wire.wire_version import VERSION

    here, there = VERSION, recording.run.version
    if there != here:
        click.echo(f"note: recorded by headgate {there}, this is {here}: decisions may differ", err=True)


# ── the run, once more ──────────────────────────────────────────────────────────────────────────


class ReplayResult:
    """What came of the replay. took_s: real time it took; run_s: of the run."""

    def __init__(
        self, recording: Recording, again: ExactReplay, account: IdealAccount, took_s: float, run_s: float
    ) -> None:
        from headgate.controller.replay.exact_replay import compare

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

        measured = measured_of(trace) or (None, None)
        latency = latency_measured(trace, self.account.predicted)
        return self.account.row("recorded") | dict(zip(VIOLATED, measured, strict=True)) | latency

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

        from headgate.controller.replay.ideal_machines import Delays
        from headgate.controller.replay.replay_policies import PolicyQuestion

        account = self.account
        if not account.counted_ns:
            raise InvalidInput("nothing offered in this run: no policy can be tried with it")
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
            rows=account.rows,
        )


def vms_of(text: str | None, account: IdealAccount, settings: ControllerSettings) -> tuple[Any, ...] | None:
    """`--vms 4,4`: VMs with slots like those of the run. When it is not given: those that were there first,
    None (the run's settings name them) when there were none."""
    from msgspec.structs import replace

    if text is None:
        return account.first_vms or None
    from headgate.controller.planning_commands.planning_options import fixed_vms
    from headgate.topology_runtime.api.cluster import Vm

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
    from headgate.controller.planning_commands.planning_options import with_progress_bar
    from headgate.controller.replay.exact_replay import ExactReplay
    from headgate.controller.replay.ideal_machines import IdealAccount

    again = ExactReplay(recording.run, watched=speed is not None)
    account = IdealAccount(models=models, usd_per_slot_hour=usd_per_slot_hour)
    began_s = time.perf_counter()
    if speed is None:
        moments = again.moments(recording.lines(with_progress_bar(recording.pieces, "replaying")))
    else:
        moments = with_lines(again.moments(recording.lines()), speed, output)
    run_ns = first_ns = last_ns = 0
    for moment in moments:
        account.see(moment)
        at_ns = moment.now.mono_ns
        if not first_ns or at_ns < last_ns:
            run_ns, first_ns = run_ns + last_ns - first_ns, at_ns
        last_ns = at_ns
    run_ns += last_ns - first_ns
    return ReplayResult(recording, again, account, time.perf_counter() - began_s, run_ns / 1e9)


def with_lines(moments: Iterable[Moment], speed: float, output: Format) -> Iterator[Moment]:
    """The moments at this pace; what is worth a line is printed (as JSON lines, or for people)."""

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
    from headgate.controller.planning_commands.planning_options import with_progress_bar
    from headgate.controller.replay.replay_policies import trial_of

    def watched(trial: PolicyTrial) -> None:
        seconds = iter(with_progress_bar(range(int(question.seconds) + 1), policy.name))
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


# ── Moments at a multiple of real time, and what people see of one ─────────────────────────────────

NS = 1_000_000_000
SLEEP_MOST_S = 3600.0


def paced(
    moments: Iterable[Moment],
    speed: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Moment]:
    """The moments, each when it is due: `speed` seconds of the run in one of real time. A life that
    begins anew (another clock) follows at once."""
    began_s, first_ns = clock(), None
    for moment in moments:
        at_ns = moment.now.mono_ns
        if first_ns is None or isinstance(moment.event, t.Started):
            began_s, first_ns = clock(), at_ns
        wait_s = began_s + (at_ns - first_ns) / NS / speed - clock()
        if wait_s > 0:
            sleep(min(wait_s, SLEEP_MOST_S))
        yield moment


def lines_of(moment: Moment) -> Iterator[dict[str, Any]]:
    """What is worth a line: decisions, and what the controller said (`headgate/replayed/v1`)."""
    head = {"schema": "headgate/replayed/v1", "time": utc_iso(moment.now.wall_ns)}
    for instruction in moment.instructions:
        if isinstance(instruction, t.Say) and instruction.level != "debug":
            yield head | {"kind": "said", "level": instruction.level, "text": instruction.text}
        elif isinstance(instruction, t.Trace) and instruction.kind == "rates":
            yield head | {"kind": "rates", **instruction.data}
    for decision in decisions_of(moment.instructions):
        yield head | {
            "kind": "decision",
            **{key: decision[key] for key in ("epoch", "trigger", "action", "text")},
        }


# ── What a recorded run failed to carry, as it was measured: by the counts of tuples that its trace has of
# each second
#
# Beside what is modelled of the same run it says how far the models, and what is not in them (faults, a disturbed
# machine), can be trusted for the policies.

WINDOW_S = 10.0
MORE = 0.05  # of what was offered: as much may be on its way

Second = tuple[float, int, int]  # time in s, offered and acked since the second before


def measured_of(trace: Path) -> tuple[float, float] | None:
    """(seconds in which fewer rows were finished than offered, by how many); None of a trace without counts."""
    rows = seconds_of(trace)
    return None if rows is None else violations_of(rows)


def violations_of(rows: Iterable[Second]) -> tuple[float, float]:
    """Of stretches of ten seconds in which more than a twentieth of what was offered was not finished."""
    windows: dict[int, list[float]] = {}
    ordered = sorted(rows)
    before = None
    for at_s, offered, acked in ordered:
        window = windows.setdefault(int((at_s - ordered[0][0]) // WINDOW_S), [0.0, 0.0, 0.0])
        length_s = 1.0 if before is None else min(WINDOW_S, at_s - before)
        for place, value in enumerate((length_s, offered, acked)):
            window[place] += value
        before = at_s
    late = [window for window in windows.values() if window[1] - window[2] > MORE * window[1]]
    return sum(window[0] for window in late), sum(window[1] - window[2] for window in late)


def seconds_of(trace: Path) -> list[Second] | None:
    """All sources together, from the first row on."""
    found: dict[float, list[int]] = {}
    for table in tables_of(trace, "rates", "offered", "acked"):
        if table is None:
            return None
        for at_us, offered, acked in table:
            sums = found.setdefault(at_us / 1e6, [0, 0])
            sums[0] += offered or 0
            sums[1] += acked or 0
    seconds = [(at_s, sums[0], sums[1]) for at_s, sums in sorted(found.items())]
    began = next((n for n, (_, offered, _) in enumerate(seconds) if offered), None)
    return None if began is None else [(at_s, offered, acked) for at_s, offered, acked in seconds[began:]]


def tables_of(trace: Path, table: str, *columns: str) -> Iterator[list[tuple[Any, ...]] | None]:
    """Rows of each file: time in µs, and these columns; None of one that lacks one of them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = ["time", *columns]
    for file in sorted((trace / table).glob("[!_]*.parquet")):
        try:
            if not set(names) <= set(pq.read_schema(file).names):
                yield None
                continue
            rows = pq.read_table(file, columns=names)
        except (OSError, pa.ArrowInvalid):
            continue  # `analyze` lists what cannot be read
        values = [rows[name].to_pylist() for name in columns]
        yield list(zip(rows["time"].cast(pa.int64()).to_pylist(), *values, strict=True))


def latency_measured(trace: Path, spans: Sequence[LatencySpan]) -> dict[str, float | None]:
    """Of all sinks together, as the prediction beside it: a mean over the spans of what was measured in each."""
    from headgate.controller.models.plans import RowLatency
    from headgate.controller.replay.ideal_machines import over_time

    files = tables_of(trace, "latency", "latency_s", "tuples") if spans else ()
    rows = sorted(row for table in files if table is not None for row in table if None not in row)
    times, found = [at_us * 1000 for at_us, _, _ in rows], []
    for span in spans:
        inside = rows[bisect_right(times, span.from_ns) : bisect_right(times, span.until_ns)]
        latency = sorted((latency_s, tuples) for _, latency_s, tuples in inside)
        upto = list(accumulate(tuples for _, tuples in latency))
        if not upto or upto[-1] <= 0:
            continue
        at = [latency[bisect_left(upto, share * upto[-1] - 1e-9)][0] * 1000 for share in (0.5, 0.95, 0.99)]
        found.append((span.until_ns - span.from_ns, RowLatency(*at)))
    return {f"measured_{name}": value for name, value in over_time(found).items()}
