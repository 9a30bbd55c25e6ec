"""Bugs in keyed state that moves, in what is believed of dead VMs, and in what only faults aimed at it show."""

from __future__ import annotations

from planting import (
    AGENT,
    CORE,
    FOLDING,
    KEYED,
    KEYED_ROWS,
    LATE,
    LEDGER,
    LOST,
    SAVED,
    SOURCE,
    SPOOL,
    WANTED,
    WORKER,
    Plant,
    one,
)

RANGES, MOVES = f"{WORKER}/ranges.py", f"{WORKER}/moves.py"
CLAIMS = "controller/monitor/claims.py"
COUNTED = ("lacks", "twice", "says", "counted", "owners")  # the state of a key is not that of its rows

MOVING = (
    Plant(
        "rows are taken after the state has left (A5)",
        (
            (
                KEYED,
                "core.orders is not None and core.marked >= core.orders.number:",
                "core.orders is not None:",
            ),
            (
                KEYED_ROWS,
                "        if key_range in self.ranges.owned:\n",
                "        if key_range in self.ranges.versions:\n",
            ),
        ),
        COUNTED,
        shape="keyed",
    ),
    one(
        "state that moves is sent once (B4)",
        MOVES,
        "            if now_ns - message.sent_ns < RESEND_NS or room <= 0:\n",
        "            if message.sent_ns >= 0 or room <= 0:\n",
        LATE,
        shape="keyed",
        kinds=("break_data",),
        seeds=500,
        more={"faults": 12},
    ),
    one(
        "an owner waits for no keeper",
        RANGES,
        "        return {thread for thread in waited if not self._silent(thread)}\n",
        "        return set()\n",
        COUNTED,
        shape="keyed",
    ),
    one(
        "what a dead owner had is not taken over",
        KEYED,
        "self.rows.offered(thread, saved.copies if saved is not None else ())",
        "self.rows.offered(thread, ())",
        COUNTED,
        shape="keyed",
        kinds=("kill_worker",),
        seeds=200,
    ),
    one(
        "rows are let go before the snapshot is there",
        KEYED,
        "            self.saves_failed += 1\n            return\n",
        "            self.saves_failed += 1\n",
        (*COUNTED, *LATE),
        shape="keyed",
        kinds=("fill_disk", "kill_worker"),
        seeds=200,
    ),
    one(
        "a thawed range stays as it was frozen",
        KEYED_ROWS,
        "        self._frozen.pop(key_range, None)\n        self.ranges.claim(",
        "        self.ranges.claim(",
        test="tests/worker/test_keyed_ranges.py",
    ),
)

DEAD = (
    one(
        "a VM that is lost is not held dead",
        FOLDING,
        "    return replace(d, held_dead=r.vms)\n",
        "    return d\n",
        test="tests/enactment/test_claims_about_positions.py",
    ),
    one(
        "words of a VM held dead are taken",
        WANTED,
        'yield m.WorkerAt(slot, incarnation + 1, "")',
        'yield m.WorkerAt(slot, incarnation, "")',
        test="tests/enactment/test_faults_and_stories.py",
    ),
    one(
        "a VM that does not have a source is believed",
        CLAIMS,
        "    return (thread.slot.vm, thread.task, thread.partition) == (vm, now.task, now.partition)\n",
        "    return (thread.task, thread.partition) == (now.task, now.partition)\n",
        (*SAVED, "emitted"),
        kinds=("forge_report",),
    ),
    one(
        "positions that cannot be are believed",
        CLAIMS,
        "    if now.emitted and now.acked",
        "    if not now.emitted and now.acked",
        (*SAVED, "emitted"),
        kinds=("forge_report",),
    ),
    one(
        "what a leaver has open is forgotten",
        "controller/knowledge/knowledge.py",
        "return min((self.main, *(one.acked for one in self.apart.values() if one.open)))",
        "return self.main",
        test="tests/simulation/test_impatient_hand_over.py",
    ),
)

AIMED = (
    one(
        "rows are acked before they are recorded",
        CORE,
        "        self.ports.records.write(results.done(), self.behaviour.holding)\n        self.post.send_acks(acks)\n",
        "        self.post.send_acks(acks)\n        self.ports.records.write(results.done(), self.behaviour.holding)\n",
        LOST,
        kinds=("kill_worker_somewhere",),
    ),
    one(
        "a leaver's spool is left behind",
        WANTED,
        "    return end if end > k.counts",
        "    return 0 if end > k.counts",
        test="tests/simulation/test_spools_of_leavers.py",
    ),
    one(
        "a leaver that was killed reads on where its successor reads",
        SPOOL,
        "            end = min(end, until)\n",
        "            end = max(end, until)\n",
        test="tests/worker/test_spool.py",
    ),
    one(
        "what a thread left is removed before it is accepted anew",
        f"{WORKER}/spools_left.py",
        "        spool.take(self._taken)\n",
        "        self._taken.forget()\n        spool.take(self._taken)\n",
        test="tests/worker/test_spools_left.py",
    ),
    one(
        "events that nobody reads have no source go there",
        "controller/core/deciding.py",
        "        slots |= {p: slot for (name, p), slot in drained.items() if name == task.name}\n",
        "",
        test="tests/simulation/test_events_accepted_anew.py",
    ),
    one(
        "where a source has to go is renamed to where it is",
        "controller/plan/relabel.py",
        "slots in pinned.items() for slot in slots if desired",
        "slots in {}.items() for slot in slots if desired",
        test="tests/planning/test_moving_little.py",
    ),
    one(
        "positions of a thread that is no more are waited for",
        "controller/execute/handing.py",
        "    return spooled or (k.topology is not None and bool(k.topology.by_name[gap.task].arriving))\n",
        "    return False\n",
        test="tests/simulation/test_events_accepted_anew.py",
    ),
    one(
        "nobody answers for the state of a slot that is given up",
        WANTED,
        "    threads += answering(keepers, threads, d.joined, sight.quarantined)\n",
        "",
        test="tests/simulation/test_slots_given_up.py",
    ),
    one(
        "a row that kills is counted on every VM anew",
        "agent/strikes.py",
        "names = {**self.elsewhere, **self.struck}\n        return tuple(one for one in map(self._in_all, names)",
        "return tuple(one for one in self.struck.values()",
        test="tests/agent/test_strikes.py",
    ),
    one(
        "an agent forgets what workers of its earlier life left",
        AGENT,
        "LetterBox(hello.vm, hello.boot, letters)",
        "LetterBox(hello.vm, hello.boot)",
        ("dead letters, the summary says",),
        shape="failing",
        kinds=("kill_agent", "kill_agent_somewhere"),
    ),
    one(
        "spools are told when an agent starts only",
        AGENT,
        "        self.spools_left = self.spools_left if event.spools is None else event.spools\n",
        "",
        test="tests/simulation/test_spools_of_leavers.py",
    ),
    one(
        "a fault sends again what waits to be sent",
        LEDGER,
        "self.again.extend(s for s in self._open if s not in waiting)",
        "self.again.extend([*self._open] * 2)",
        ("rows sent again",),
        kinds=("kill_worker",),
    ),
    one(
        "a source stands still for a while",
        SOURCE,
        "        schedule = orders.schedule\n        if schedule is None or not self.core.routed",
        "        schedule = orders.schedule\n        if 30 <= ledger.position < 33 and now_ns < 10 * NS:\n"
        "            return\n        if schedule is None or not self.core.routed",
        ("without a fault", *LATE),
        shape="line",
        more={"faults": 0},
    ),
)

OF_STATE: tuple[Plant, ...] = (*MOVING, *DEAD, *AIMED)
