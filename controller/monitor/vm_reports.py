"""What VMs say, taken into the knowledge: HELLO, reports, dead letters, goodbyes. No clock, no I/O."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from headgate.controller.knowledge import spooled_events
from headgate.controller.knowledge.dead_letters import DeadLetterRecord
from headgate.controller.knowledge.held_states import sound
from headgate.controller.knowledge.journal_records import Joined, StateLost
from headgate.controller.knowledge.knowledge import Knowledge, Turn
from headgate.controller.knowledge.loop_events import Distrust, KeepDeadLetters, Send
from headgate.controller.knowledge.membership import Member, MembershipChange
from headgate.controller.knowledge.run_view import hot_keys
from headgate.controller.knowledge.spooled_events import is_of, unread
from headgate.controller.monitor import event_times
from headgate.topology_runtime.rates.schedule import Schedule
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.dead_letter_messages import END_PARTITION, VmStrikes
from headgate.topology_runtime.wire.messages import Hello, Report, SourceStatus, SpoolLeft
from headgate.topology_runtime.wire.wire_version import REMEDY, WIRE, agent_fault, spoken
from headgate.topology_runtime.worker.keyed_state.key_ranges import of_runs, runs_of

# ── Which positions of sources are believed. Pure ───
#
# 1. Only from the VM on which the desired state has that thread, and not from a VM held dead: what goes on
# there concerns the run no more. (Reports of an agent's earlier boots are out of date before they come here.)
# 2. acked ≤ emitted ≤ what is offered. A VM that was cut off may read by an older, higher rate, and its clock
# may be ahead: so `LEAD_S` at the highest rate of this offer and those before it are allowed for, and what is
# known already. (A thread that does not know yet from where to read has emitted nothing, and says what its
# predecessor had acked.) Of a source that cannot be read twice: also what it has accepted, and of that no
# more waits than a spool holds. (Where rows are taken as they come: only that, and what it says of its
# predecessor; a controller that was started again may not have heard of it.)
# 3. What a spool says is believed of the thread that reads, from its VM.
#
# What rules 1 and 3 leave out is out of date, what rule 2 forbids is impossible: whoever says it is blamed.

LEAD_S = 60.0
BEHIND_MOST = 64 * 1024 * 1024  # rows: a spool holds so many bytes


def owns_source(k: Knowledge, vm: str, now: SourceStatus) -> bool:
    """Rule 1."""
    rollout = k.durable.rollout
    thread = rollout.by_number.get(now.thread) if rollout is not None else None
    if thread is None or vm in k.durable.held_dead:
        return False
    return (thread.slot.vm, thread.task, thread.partition) == (vm, now.task, now.partition)


def claim_fault(k: Knowledge, now: SourceStatus, wall_ns: int) -> str:
    """Why these positions cannot be (rule 2); empty when they can."""
    if now.emitted and now.acked + now.acked_above > now.emitted:
        return f"acked {now.acked} and {now.acked_above} above, emitted {now.emitted}"
    place = now.task, now.partition
    task = k.topology.by_name[now.task] if k.topology is not None else None
    accepted = now.arrived if task is not None and task.arriving is not None else 0
    if task is not None and task.spooled and accepted > now.emitted + BEHIND_MOST:
        return f"{now.arrived} came, {now.emitted} emitted"
    known = k.counts.sources.get(place)
    before = max(known.emitted, known.acked) if known is not None else 0
    offered = 0 if task is not None and task.arriving else _offered(k.durable.schedule, wall_ns)
    inherited = now.acked if task is not None and task.arriving and not now.emitted else 0
    most = max(before, accepted, offered, inherited)
    highest = max(now.emitted, now.acked + now.acked_above)
    return f"{highest} emitted or acked, offered at most {most}" if highest > most else ""


def believed(turn: Turn, said: Report) -> Report:
    """Without what this VM has no say in: threads that the plan has on another one, and sources by rules 1 and 2."""
    k = turn.knowledge
    sources = []
    for source in said.sources:
        if not owns_source(k, said.vm, source):
            continue
        if refused := claim_fault(k, source, turn.now.wall_ns):
            why = f"positions of {source.task}/{source.partition} that cannot be: {refused}"
            turn.do(Distrust(said.vm, why))
            continue
        sources.append(source)
    rollout = k.durable.rollout
    planned = rollout.by_number if rollout is not None else {}

    def elsewhere(now: m.ThreadStatus) -> bool:
        thread = planned.get(now.thread)
        return thread is not None and thread.slot.vm != said.vm

    if len(sources) < len(said.sources):
        said = replace(said, sources=tuple(sources))
    if any(elsewhere(now) for worker in said.workers for now in worker.threads):
        workers = (
            replace(worker, threads=tuple(now for now in worker.threads if not elsewhere(now)))
            for worker in said.workers
        )
        said = replace(said, workers=tuple(workers))
    return said


def spool_counts(k: Knowledge, vm: str, spool: SpoolLeft) -> bool:
    """Rule 3."""
    rollout = k.durable.rollout
    thread = rollout.by_number.get(spool.thread) if rollout is not None else None
    return thread is not None and not thread.leaving and thread.slot.vm == vm and is_of(k, spool, thread)


def _offered(schedule: Schedule | None, wall_ns: int) -> int:
    """Positions that can have been due, of the whole source: so of each of its partitions at most."""
    if schedule is None:
        return 0
    return schedule.due(wall_ns) + int(LEAD_S * schedule.highest_tps) + 1


# ── Says which key has most of a task's rows: they all go to one thread, whatever is planned. No clock, no
# I/O

NS = 1_000_000_000
HOT, OVER = 0.5, 0.4  # of the rows of a task: above it is an alarm, below it is over
LASTING_NS = NS  # for so long
LOOK_NS = NS  # at all VMs so often
KEYS_FORGOTTEN_NS = 3 * NS  # what a VM reported
MOVED = 0.05  # of the rows: the alarm is worded again


def hear_hot_keys(turn: Turn, report: Report) -> None:
    """What the threads of a VM sent in the last second."""
    k, now_ns = turn.knowledge, turn.now.mono_ns
    if k.topology is None or not (report.keys or report.vm in k.keys_seen):
        return
    k.keys_seen[report.vm] = now_ns, report.keys
    for vm in [vm for vm, (told_ns, _) in k.keys_seen.items() if now_ns - told_ns > KEYS_FORGOTTEN_NS]:
        del k.keys_seen[vm]
    if now_ns - k.hot_looked_ns < LOOK_NS:
        return
    k.hot_looked_ns = now_ns
    k.hot_keys = hot_keys((one for _, keys in k.keys_seen.values() for one in keys), k.topology)
    hottest = {key.task: key for key in reversed(k.hot_keys)}
    for task in k.topology.by_name:
        key, what = hottest.get(task), f"hot key {task}"
        if key is None or key.share < (OVER if what in k.alarms else HOT):
            k.hot_since.pop(task, None)
            turn.alarm(what, "", f"no key has half of the rows of {task} any more")
            continue
        since_ns, told = k.hot_since.get(task, (now_ns, key))
        if what in k.alarms and told.words == key.words and abs(told.share - key.share) < MOVED:
            continue
        k.hot_since[task] = since_ns, key
        if now_ns - since_ns < LASTING_NS:
            continue
        text = (
            f"{key.sentence}: one thread takes them all, and more threads do not help; "
            "give its rows keys of their own, or count them before they are sent"
        )
        turn.alarm(what, text)


# ── What VMs say of keyed state: ranges whose state was lost, snapshots that cannot be written. No clock,
# no I/O

STATE_ALARM = "state"


def hear_keyed_state(turn: Turn, workers: Iterable[m.WorkerStatus]) -> None:
    """Journal what is lost as soon as it is known; what is known already is reported again and again."""
    rollout = turn.knowledge.durable.rollout
    tasks = {t.thread: t.task for t in rollout.threads} if rollout is not None else {}
    for gone in turn.knowledge.states_held.keys() - tasks.keys():
        del turn.knowledge.states_held[gone]
    for worker in workers:
        for now in worker.threads:
            if now.held is not None and sound(now.held):
                turn.knowledge.states_held[now.thread] = now.held
            if now.lost and now.thread in tasks:
                _lost(turn, tasks[now.thread], now, str(worker.slot))
            if now.applied_again:
                again = turn.knowledge.counts.applied_again
                again[now.thread] = max(again.get(now.thread, 0), now.applied_again)


def _lost(turn: Turn, task: str, now: m.ThreadStatus, slot: str) -> None:
    k = turn.knowledge
    known = of_runs(k.durable.state_lost.get(task, ()))
    fresh = of_runs(now.lost) - known
    if not fresh:
        return
    turn.record(StateLost(task, now.thread, runs_of(fresh), turn.now.wall_ns))
    gone = f"; held dead: {', '.join(k.durable.held_dead)}" if k.durable.held_dead else ""
    text = (
        f"the state of {len(fresh)} key ranges of task {task} was lost with the threads that had it{gone}; "
        f"thread {now.thread} on {slot} goes on with what is left"
    )
    k.alarms[STATE_ALARM] = text
    turn.event("state_lost", text, level="error", task=task, slot=slot, ranges=len(fresh))


CODE_NAMED_MOST = 4  # threads in a sentence


def hear_user_code(turn: Turn, vm: str, workers: Iterable[m.WorkerStatus]) -> None:
    """A task whose object could not be built, and a source that cannot be read, are an alarm until that is over."""
    k, what = turn.knowledge, f"code {vm}"
    rollout = k.durable.rollout
    tasks = {t.thread: t.task for t in rollout.threads} if rollout is not None else {}
    said = [
        f"thread {now.thread} of {tasks[now.thread]} on {worker.slot} {trouble}"
        + _why_it_stays(k, tasks[now.thread], now)
        for worker in workers
        for now in worker.threads
        if now.thread in tasks and (trouble := _trouble_of(now))
    ]
    if said:
        more = f"; and {len(said) - CODE_NAMED_MOST} more" if len(said) > CODE_NAMED_MOST else ""
        text = "; ".join(said[:CODE_NAMED_MOST]) + more
        if what not in k.alarms:
            turn.event("alarm", text, level="error", vm=vm)
        k.alarms[what] = text
    elif k.alarms.pop(what, ""):
        turn.event("alarm_over", f"{vm}: all tasks run and all sources are read again", vm=vm)


def _why_it_stays(k: Knowledge, name: str, now: m.ThreadStatus) -> str:
    """Of a thread that is not built and that no other VM is tried for."""
    task = k.topology.by_name.get(name) if k.topology is not None else None
    if not now.failed or task is None or task.movable:
        return ""
    if task.exclusive:
        return "; no other VM is tried: a second thread of it may not begin while this one may"
    return "; no other VM is tried: events that it accepted are on this one's disk"


def _trouble_of(now: m.ThreadStatus) -> str:
    if now.failed:
        return f"does not run: {now.failed}"
    if now.away:
        return f"waits for a service, and its rows wait with it: {now.away}"
    return f"{now.unreadable}; it is tried again every second" if now.unreadable else ""


def state_troubles(report: m.Report) -> tuple[str, ...]:
    """Why snapshots are not written on a VM, once for each reason."""
    reasons = {now.unsaved: now.thread for worker in report.workers for now in worker.threads if now.unsaved}
    return tuple(f"no snapshot of thread {thread}: {why}" for why, thread in sorted(reasons.items()))


def lost_ranges(state_lost: dict[str, tuple[tuple[int, int], ...]]) -> dict[str, int]:
    """Task → how many of its key ranges lost state."""
    return {task: len(of_runs(runs)) for task, runs in sorted(state_lost.items())}


# ── Agents of other versions: refused ones are an alarm, those that are a version behind an event. No
# clock, no I/O

VERSION_ALARM = "version"
VERSION_FORGOTTEN_NS = (
    120 * 1_000_000_000
)  # an agent that is started again and again says who it is twice a minute


def version_refusal(turn: Turn, hello: Hello) -> str:
    """Why what this agent speaks is not understood; empty when it is. Its alarm comes and goes with that."""
    k = turn.knowledge
    fault = agent_fault(hello.protocol, hello.version, k.settings.version)
    if fault:
        k.foreign[hello.vm] = turn.now.mono_ns, fault
    else:
        k.foreign.pop(hello.vm, None)
    watch_versions(turn)
    return fault


def note_version(turn: Turn, hello: Hello) -> None:
    """An agent was taken that is not of the controller's version."""
    ours = turn.knowledge.settings.version
    if (hello.protocol, hello.version) != (WIRE, ours):
        theirs = spoken(hello.protocol, hello.version)
        text = f"the agent of {hello.vm} is {theirs}, the controller {spoken(WIRE, ours)}: {REMEDY}"
        turn.event("skew", text, vm=hello.vm)


def watch_versions(turn: Turn) -> None:
    """The alarm names agents that were refused lately."""
    k = turn.knowledge
    k.foreign = {
        vm: told for vm, told in k.foreign.items() if turn.now.mono_ns - told[0] < VERSION_FORGOTTEN_NS
    }
    text = "; ".join(f"the agent of {vm} is refused: {fault}" for vm, (_, fault) in sorted(k.foreign.items()))
    if text and text != k.alarms.get(VERSION_ALARM):
        k.alarms.pop(VERSION_ALARM, None)  # another agent is reported too
    turn.alarm(VERSION_ALARM, text, "no agent is refused for its version any more")


LETTERS_SAID = 20  # dead letters reported one by one; the others are only counted
LETTERS_COUNTED = {10**n for n in range(2, 19)}

LEVELS = {"lost": "warning", "silent": "warning", "restarted": "warning"}


def hello(turn: Turn, message: m.Hello) -> tuple[MembershipChange, ...]:
    """An agent says who it is: welcomed, or refused with the reason."""
    foreign = version_refusal(turn, message)
    refused = foreign or turn.members.refusal(message)
    _welcome(turn, message.vm, refused)
    if refused:
        if not foreign:
            text = f"the agent of {message.vm} is refused: {refused}"
            turn.event("refused", text, level="warning", vm=message.vm)
        return ()
    before = turn.members.members.get(message.vm)
    if before is None or (before.boot, before.spoken) != (message.boot, (message.protocol, message.version)):
        note_version(turn, message)
    changes = turn.members.hello(message, turn.now)
    k = turn.knowledge
    k.sent.pop(message.vm, None)
    _spools(turn, message.vm, message.spools)
    vm = turn.members.members[message.vm].vm
    if vm not in k.durable.joined:
        turn.record(Joined(vm))
    return note_changes(turn, changes)


def goodbye(turn: Turn, message: m.Goodbye) -> tuple[MembershipChange, ...]:
    """An agent has ended its workers and reported all that they did."""
    changes = turn.members.goodbye(message.vm, message.boot)
    if changes:
        turn.knowledge.counts.left(message.vm, message.boot)
    return note_changes(turn, changes)


def report(turn: Turn, message: m.Report) -> tuple[MembershipChange, ...]:
    """A heartbeat with what is on the VM, as far as it is believed."""
    before = turn.members.members.get(message.vm)
    known = before.workers() if before else ()
    if message.workers != known and (fault := turn.members.endpoint_fault(message)):
        turn.do(Distrust(message.vm, f"an endpoint that cannot be: {fault}"))
        return ()
    changes = turn.members.report(message, turn.now)
    k = turn.knowledge
    leased = changes is not None and k.may_lease(message)
    if leased:
        k.leases[message.vm] = turn.now.mono_ns
    answered = message.boot, message.sequence
    _welcome(turn, message.vm, leased=answered if leased else (0, 0), report=answered)
    if changes is None:
        return ()
    workers = {worker.slot: worker for worker in known}
    for worker in message.workers if message.workers != known else ():
        k.incarnations[worker.slot] = max(worker.incarnation, k.incarnations.get(worker.slot, 0))
        _note_worker(turn, workers.get(worker.slot), worker)
    if message.vm not in k.durable.held_dead:
        _spools(turn, message.vm, message.spools)
    for source in message.sources:
        _source(turn, source)
    of = {
        word: tuple(one for one in message.troubles if one.startswith(word)) for word in ("thread ", "peer ")
    }
    threads(turn, message.vm, of["thread "])
    peers(turn, of["peer "], f"peers {message.vm}")
    full = tuple(one for one in message.troubles if not one.startswith(tuple(of)))
    disk(turn, message.vm, (*full, *state_troubles(message)))
    if message.workers != known:
        hear_keyed_state(turn, message.workers)
        hear_user_code(turn, message.vm, message.workers)
    if message.strikes != VmStrikes():
        k.failures[message.vm] = message.strikes
    k.counts.unlogged[message.vm, message.boot] = message.unlogged
    hear_hot_keys(turn, message)
    event_times.look(turn)
    return note_changes(turn, changes)


def disk(turn: Turn, where: str, troubles: tuple[str, ...]) -> None:
    """What a disk does not take is an alarm until it takes it again."""
    text = f"{where}: {'; '.join(troubles)}" if troubles else ""
    over = f"{where}: the disk takes everything again"
    turn.alarm(f"disk {where}", text, over, level="error", where=where)


def threads(turn: Turn, where: str, failed: tuple[str, ...]) -> None:
    """A thread of ours that fails is started again; that is an alarm for a minute."""
    text = f"{where}: {'; '.join(failed)}" if failed else ""
    turn.alarm(f"thread {where}", text, f"{where}: no thread has failed for a minute", level="error")


def peers(turn: Turn, troubles: tuple[str, ...], what: str = "peers") -> None:
    """What peers with good keys do that they should not is an alarm that names them, for a minute after the last."""
    turn.alarm(what, "; ".join(troubles), "all peers do as they should again", level="error")


def _spools(turn: Turn, vm: str, spools: tuple[m.SpoolLeft, ...]) -> None:
    """What is left in a VM's spools."""
    k = turn.knowledge
    for spool in spools:
        if spool_counts(k, vm, spool):
            known = k.counts.source(spool.task, spool.partition)
            known.main = max(known.main, spool.acked)
    if spools:
        k.spools[vm] = spools
        k.counts.anew.update(task for (task, _), _ in unread(k))
    else:
        k.spools.pop(vm, None)


def _source(turn: Turn, now: m.SourceStatus) -> None:
    k = turn.knowledge
    known = k.counts.source(now.task, now.partition)
    known.hear(now)
    known.heard_ns = turn.now.mono_ns - max(0, now.age_ms) * 1_000_000
    rollout = k.durable.rollout
    thread = rollout.by_number.get(now.thread) if rollout is not None else None
    known.arrivals.hear(now, thread is None or thread.leaving, turn.now.wall_ns)


OUT_OF_MEMORY = "out of memory"  # how an agent tells of such an end


def _note_worker(turn: Turn, before: m.WorkerStatus | None, now: m.WorkerStatus) -> None:
    """Deaths of workers, and slots given up."""
    if now.crashes > (before.crashes if before else 0):
        text = f"worker {now.slot} died: {now.last_exit or 'no reason known'}"
        turn.event("worker_died", text, level="warning", slot=str(now.slot), crashes=now.crashes)
        if now.last_exit.startswith(OUT_OF_MEMORY):
            starved = turn.knowledge.starved
            starved[now.slot] = (*starved.get(now.slot, ()), turn.now.mono_ns)[-2:]
    if now.state == "quarantined" and (before is None or before.state != "quarantined"):
        text = f"slot {now.slot} is quarantined after {now.crashes} crashes: {now.last_exit}"
        turn.event("slot_quarantined", text, level="warning", slot=str(now.slot))


def dead_letters(turn: Turn, message: m.DeadLetters) -> None:
    """Rows that a task could not process."""
    note_changes(turn, turn.members.heard(message.vm, turn.now))
    counts = turn.knowledge.counts
    topology = turn.knowledge.topology
    for letter in message.letters:
        if topology is not None and letter.task not in topology.by_name:
            turn.do(Distrust(message.vm, "a dead letter of a task that there is not"))
            break
        if counts.letters.add(letter, turn.now.wall_ns):
            _report(turn, letter, counts.letters.count + counts.letters.keys)
    for task in {letter.task for letter in message.letters if not counts.letters.keeps(letter.task)}:
        _full(turn, task)
    boot, below = counts.dead_letters_heard.get(message.vm, (0, 0))
    if message.boot >= boot:
        below = max(below if message.boot == boot else 0, message.waiting)
        if message.first <= below:  # else some are missing, which come again
            below = max(below, message.first + len(message.letters))
        counts.dead_letters_heard[message.vm] = message.boot, below


def _report(turn: Turn, letter: m.DeadLetter, count: int) -> None:
    """The first ones one by one, then only how many there are."""
    if count <= LETTERS_SAID:
        of_key = letter.partition >= END_PARTITION
        where = letter.row if of_key else f"row {letter.position} of {letter.source}"
        text = f"dead letter: {letter.task} failed on {where}: {letter.error}"
        turn.event("dead_letter", text, level="warning", task=letter.task, traceback=letter.traceback)
    elif count in LETTERS_COUNTED:
        turn.event("dead_letters", f"{count:,} dead letters so far: `headgate deadletter list`", "warning")


def _full(turn: Turn, task: str) -> None:
    """No more dead letters of the task are kept whole."""
    what = f"dead letters {task}"
    if what not in turn.knowledge.alarms:
        kept = len(turn.knowledge.counts.letters.of(task))
        text = f"the first {kept:,} dead letters of {task} are kept; of the others only the positions"
        turn.alarm(what, text, level="error", task=task)


def keep_dead_letters(turn: Turn) -> None:
    """What is new of them to the disk; then their agents may forget them."""
    counts = turn.knowledge.counts
    if records := counts.letters.news():
        turn.do(KeepDeadLetters(records))
    for vm, (boot, below) in counts.dead_letters_heard.items():
        if (boot, below) != counts.dead_letters_known.get(vm):
            counts.dead_letters_known[vm] = boot, below
            turn.do(Send(vm, m.LettersTaken(boot, below)))


def dead_letters_not_kept(turn: Turn, records: tuple[DeadLetterRecord, ...]) -> None:
    """Nothing of the turn before was done: what it would have written is news still, and no agent was sent anything."""
    counts = turn.knowledge.counts
    counts.letters.put_back(records)
    counts.dead_letters_known.clear()


def note_changes(turn: Turn, changes: tuple[MembershipChange, ...]) -> tuple[MembershipChange, ...]:
    """Changes of membership as events; once a tick without any."""
    watch_versions(turn)
    for change in changes:
        turn.event(f"vm_{change.kind}", change.text, level=LEVELS.get(change.kind, "info"), vm=change.vm)
        if change.kind in ("lost", "left"):
            for what in ("disk", "code", "thread", "peers"):
                turn.knowledge.alarms.pop(f"{what} {change.vm}", None)
    spooled_events.watch_lost_events(turn, changes)
    for change in changes:
        if change.kind == "left":
            turn.knowledge.spools.pop(change.vm, None)
    return changes


def _welcome(
    turn: Turn, vm: str, refused: str = "", leased: tuple[int, int] = (0, 0), report: tuple[int, int] = (0, 0)
) -> None:
    k = turn.knowledge
    told = k.durable.boot, k.settings.run, turn.now.wall_ns, refused, leased, report
    fenced = vm in k.durable.held_dead
    turn.do(Send(vm, m.Welcome(*told, protocol=WIRE, version=k.settings.version, fenced=fenced)))


def in_flight(members: tuple[Member, ...]) -> int:
    """Rows in all ledgers now."""
    return sum(s.in_flight for member in members if member.report for s in member.report.sources)


# ── Clocks of VMs as their agents measure them: what a step of one makes of the samples that came before.
# Pure

STEP_NS = NS // 20  # beyond both measurements' errors: latencies of before and after do not compare
APART_NS = 30 * NS  # between two that are believed: who lies cannot keep the controller from ever judging


def clock_stepped(turn: Turn, before: m.Report | None, now: m.Report) -> bool:
    """Was this VM's clock set since the report before?

    Where it was the controller's own, every VM says so: the first is believed, and no other for APART_NS.
    """
    if before is None or before.boot != now.boot or not before.clock[1] or not now.clock[1]:
        return False
    step_ns = now.clock[0] - before.clock[0]
    if abs(step_ns) <= STEP_NS + before.clock[1] + now.clock[1]:
        return False
    k, now_ns = turn.knowledge, turn.now.mono_ns
    if k.clock_stepped_ns and now_ns - k.clock_stepped_ns < APART_NS:
        return False
    k.clock_stepped_ns = now_ns
    whose = f"the clock of {now.vm} was set by {-step_ns / NS:+.3f} s, or the controller's"
    turn.event("clock_step", f"{whose}: what was measured before is dropped", level="warning", vm=now.vm)
    return True
