"""What VMs say, taken into the knowledge: HELLO, reports, dead letters, goodbyes. No clock, no I/O."""

from __future__ import annotations

from headgate.controller.knowledge import events_gone
from headgate.controller.knowledge.letters import LetterRecord
from headgate.controller.knowledge.membership import Member, Membership, MembershipChange
from headgate.controller.knowledge.records import Joined
from headgate.controller.knowledge.spools import unread
from headgate.controller.knowledge.turn import Turn
from headgate.controller.knowledge.turns import Distrust, KeepLetters, Send
from headgate.controller.monitor import claims, hot_keys, keyed_state, versions
from headgate.topology_runtime import messages as m
from headgate.topology_runtime.struck import VmStrikes
from headgate.topology_runtime.wire_version import WIRE

LETTERS_SAID = 20  # dead letters told one by one; the others are only counted
LETTERS_COUNTED = {10**n for n in range(2, 19)}

LEVELS = {"lost": "warning", "silent": "warning", "restarted": "warning"}


def hello(turn: Turn, members: Membership, message: m.Hello) -> tuple[MembershipChange, ...]:
    """An agent says who it is: welcomed, or refused with the reason."""
    foreign = versions.refusal(turn, message)
    refused = foreign or members.refusal(message)
    _welcome(turn, message.vm, refused)
    if refused:
        if not foreign:
            text = f"the agent of {message.vm} is refused: {refused}"
            turn.event("refused", text, level="warning", vm=message.vm)
        return ()
    before = members.members.get(message.vm)
    if before is None or (before.boot, before.spoken) != (message.boot, (message.protocol, message.version)):
        versions.note(turn, message)
    changes = members.hello(message, turn.now)
    k = turn.knowledge
    k.sent.pop(message.vm, None)
    _spools(turn, message.vm, message.spools)
    vm = members.members[message.vm].vm
    if vm not in k.durable.joined:
        turn.record(Joined(vm))
    return told(turn, members, changes)


def goodbye(turn: Turn, members: Membership, message: m.Goodbye) -> tuple[MembershipChange, ...]:
    """An agent has ended its workers and told all that they did."""
    changes = members.goodbye(message.vm, message.boot)
    if changes:
        turn.knowledge.counts.left(message.vm, message.boot)
    return told(turn, members, changes)


def report(turn: Turn, members: Membership, message: m.Report) -> tuple[MembershipChange, ...]:
    """A heartbeat with what is on the VM."""
    before = members.members.get(message.vm)
    known = before.workers() if before else ()
    changes = members.report(message, turn.now)
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
        _told_of_worker(turn, workers.get(worker.slot), worker)
    if message.vm not in k.durable.held_dead:
        _spools(turn, message.vm, message.spools)
    for source in message.sources:
        if claims.owns(k, message.vm, source):
            _source(turn, message.vm, source)
    disk(turn, message.vm, (*message.troubles, *keyed_state.troubles(message)))
    if message.workers != known:
        keyed_state.hear(turn, message.workers)
    if message.strikes != VmStrikes():
        k.strikes[message.vm] = message.strikes
    k.counts.unlogged[message.vm, message.boot] = message.unlogged
    hot_keys.hear(turn, message)
    return told(turn, members, changes)


def disk(turn: Turn, where: str, troubles: tuple[str, ...]) -> None:
    """What a disk does not take is an alarm until it takes it again."""
    alarms, what = turn.knowledge.alarms, f"disk {where}"
    text = f"{where}: {'; '.join(troubles)}" if troubles else ""
    if alarms.get(what, "") == text:
        return
    if troubles and what not in alarms:
        turn.event("alarm", text, level="error", where=where)
    if troubles:
        alarms[what] = text
    else:
        del alarms[what]
        turn.event("alarm_over", f"{where}: the disk takes everything again", where=where)


def _spools(turn: Turn, vm: str, spools: tuple[m.SpoolLeft, ...]) -> None:
    """What is left in a VM's spools."""
    k = turn.knowledge
    for spool in spools:
        if claims.spool_counts(k, vm, spool):
            known = k.counts.source(spool.task, spool.partition)
            known.main = max(known.main, spool.acked)
    if spools:
        k.spools[vm] = spools
        k.counts.anew.update(task for (task, _), _ in unread(k))
    else:
        k.spools.pop(vm, None)


def _source(turn: Turn, vm: str, now: m.SourceStatus) -> None:
    k = turn.knowledge
    refused = claims.fault(k, now, turn.now.wall_ns)
    if refused:
        turn.do(Distrust(vm, f"positions of {now.task}/{now.partition} that cannot be: {refused}"))
        return
    known = k.counts.source(now.task, now.partition)
    known.hear(now)
    rollout = k.durable.rollout
    thread = rollout.by_number.get(now.thread) if rollout is not None else None
    known.arrivals.hear(now, thread is None or thread.leaving, turn.now.wall_ns)


def _told_of_worker(turn: Turn, before: m.WorkerStatus | None, now: m.WorkerStatus) -> None:
    """Deaths of workers, and slots given up."""
    if now.crashes > (before.crashes if before else 0):
        text = f"worker {now.slot} died: {now.last_exit or 'no reason known'}"
        turn.event("worker_died", text, level="warning", slot=str(now.slot), crashes=now.crashes)
    if now.state == "quarantined" and (before is None or before.state != "quarantined"):
        text = f"slot {now.slot} is quarantined after {now.crashes} crashes: {now.last_exit}"
        turn.event("slot_quarantined", text, level="warning", slot=str(now.slot))


def letters(turn: Turn, members: Membership, message: m.DeadLetters) -> None:
    """Rows that a task could not process."""
    told(turn, members, members.heard(message.vm, turn.now))
    counts = turn.knowledge.counts
    for letter in message.letters:
        if counts.letters.bury(letter, turn.now.wall_ns):
            _tell(turn, letter, counts.letters.count)
    for task in {letter.task for letter in message.letters if not counts.letters.keeps(letter.task)}:
        _full(turn, task)
    boot, below = counts.letters_heard.get(message.vm, (0, 0))
    if message.boot >= boot:
        below = max(below if message.boot == boot else 0, message.waiting)
        if message.first <= below:  # else some are missing, which come again
            below = max(below, message.first + len(message.letters))
        counts.letters_heard[message.vm] = message.boot, below


def _tell(turn: Turn, letter: m.DeadLetter, count: int) -> None:
    """The first ones one by one, then only how many there are."""
    if count <= LETTERS_SAID:
        text = (
            f"dead letter: {letter.task} failed on row {letter.position} of {letter.source}: {letter.error}"
        )
        turn.event("dead_letter", text, level="warning", task=letter.task, traceback=letter.traceback)
    elif count in LETTERS_COUNTED:
        turn.event("dead_letters", f"{count:,} dead letters so far: `headgate deadletter list`", "warning")


def _full(turn: Turn, task: str) -> None:
    """No more letters of the task are kept whole."""
    what = f"dead letters {task}"
    if what not in turn.knowledge.alarms:
        kept = len(turn.knowledge.counts.letters.of(task))
        text = f"the first {kept:,} dead letters of {task} are kept; of the others only the positions"
        turn.knowledge.alarms[what] = text
        turn.event("alarm", text, level="error", task=task)


def keep_letters(turn: Turn) -> None:
    """What is new of them to the disk; then their agents may forget them."""
    counts = turn.knowledge.counts
    if records := counts.letters.news():
        turn.do(KeepLetters(records))
    for vm, (boot, below) in counts.letters_heard.items():
        if (boot, below) != counts.letters_told.get(vm):
            counts.letters_told[vm] = boot, below
            turn.do(Send(vm, m.LettersTaken(boot, below)))


def letters_not_kept(turn: Turn, records: tuple[LetterRecord, ...]) -> None:
    """Nothing of the turn before was done: what it would have written is news still, and no agent was told."""
    counts = turn.knowledge.counts
    counts.letters.put_back(records)
    counts.letters_told.clear()


def told(
    turn: Turn, members: Membership, changes: tuple[MembershipChange, ...]
) -> tuple[MembershipChange, ...]:
    """Changes of membership as events; once a tick without any."""
    versions.look(turn)
    for change in changes:
        turn.event(f"vm_{change.kind}", change.text, level=LEVELS.get(change.kind, "info"), vm=change.vm)
        if change.kind in ("lost", "left"):
            turn.knowledge.alarms.pop(f"disk {change.vm}", None)
    events_gone.look(turn, members, changes)
    for change in changes:
        if change.kind == "left":
            turn.knowledge.spools.pop(change.vm, None)
    return changes


def _welcome(
    turn: Turn, vm: str, refused: str = "", leased: tuple[int, int] = (0, 0), report: tuple[int, int] = (0, 0)
) -> None:
    k = turn.knowledge
    told = k.durable.boot, k.settings.run, turn.now.wall_ns, refused, leased, report
    turn.do(Send(vm, m.Welcome(*told, protocol=WIRE, version=k.settings.version)))


def in_flight(members: tuple[Member, ...]) -> int:
    """Rows in all ledgers now."""
    return sum(s.in_flight for member in members if member.report for s in member.report.sources)
