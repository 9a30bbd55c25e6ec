"""Bugs in keyed state that moves, in what is believed of dead VMs, and in what only faults aimed at it show."""

from __future__ import annotations

from planted.planting import (
    AGENT,
    APPLIED,
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

RANGES, MOVES = f"{WORKER}/keyed_state/key_ranges.py", f"{WORKER}/keyed_state/range_answers.py"
CLAIMS = "controller/monitor/vm_reports.py"
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
                "        owned = self.ranges.owned\n",
                "        owned = set(self.ranges.versions)\n",
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
        "            self._not_saved(str(error))\n            return\n        self._state",
        "            self._not_saved(str(error))\n        self._state",
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
        test="tests/worker/keyed_state/test_keyed_ranges.py",
    ),
)

DEAD = (
    one(
        "a VM that is lost is not held dead",
        FOLDING,
        "        return replace(d, held_dead=self.vms)\n",
        "        return d\n",
        test="tests/controller/test_source_claims.py",
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
        test="tests/worker/sources/test_spool.py",
    ),
    one(
        "what a thread left is removed before it is accepted anew",
        f"{WORKER}/sources/source_spool.py",
        "        spool.take(self._taken)\n",
        "        self._taken.forget()\n        spool.take(self._taken)\n",
        test="tests/worker/sources/test_spool.py",
    ),
    one(
        "a run that ends leaves what a paced live source accepted early",
        SOURCE,
        "        return before if self.spool is None else max(before, self.spool.end)\n",
        "        return before\n",
        ("accepted and never at a sink", *LATE),
        shape="live",
        kinds=("wear_out", "cut_vm", "kill_agent"),
        seeds=500,
        more={"faults": 12, "queue_ms": 500.0},
    ),
    one(
        "events of lost VMs are not told",
        "controller/knowledge/spooled_events.py",
        "    return own + _unread(k, vm)\n",
        "    return 0 * own\n",
        ("events were left",),
        shape="live",
        kinds=("lose_vm",),
        seeds=500,
        more={"queue_ms": 1500.0},
    ),
    one(
        "what nobody could read is forgotten when its VM leaves",
        "controller/knowledge/spooled_events.py",
        '        elif change.kind == "left":\n',
        '        elif change.kind == "gone":\n',
        ("events were left",),
        shape="live",
        kinds=("wear_out", "lose_vm", "kill_agent"),
        seeds=500,
        more={"faults": 8, "queue_ms": 300.0},
    ),
    one(
        "events that nobody reads have no source go there",
        "controller/core/decisions.py",
        "        slots |= {p: slot for (name, p), slot in drained.items() if name == task.name}\n",
        "",
        test="tests/simulation/test_events_accepted_anew.py",
    ),
    one(
        "where a source has to go is renamed to where it is",
        "controller/plan/plan_moves.py",
        "slots in pinned.items() for slot in slots if desired",
        "slots in {}.items() for slot in slots if desired",
        test="tests/planning/optimal/test_plan_moves.py",
    ),
    one(
        "positions of a thread that is no more are waited for",
        "controller/execute/handover.py",
        "    return spooled or (k.topology is not None and _comes_once(k.topology.by_name[gap.task]))\n",
        "    return False\n",
        test="tests/simulation/test_events_accepted_anew.py",
    ),
    one(
        "nobody answers for the state of a slot that is given up",
        WANTED,
        "    threads += _with_codes(d, threads, answering(keepers, threads, d.joined, k.members.quarantined))\n",
        "",
        test="tests/simulation/test_found_by_seeds.py",
    ),
    one(
        "a row that kills is counted on every VM anew",
        "agent/core/worker_failures.py",
        "names = {**self.elsewhere, **self.struck}\n        return tuple(one for one in map(self._in_all, names)",
        "return tuple(one for one in self.struck.values()",
        test="tests/agent/test_worker_failures.py",
    ),
    one(
        "an agent forgets what workers of its earlier life left",
        AGENT,
        "self._letters.add(letters, 0, left=True)",
        "pass",
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


# ── Bugs in state that is worked on by the frame, in its snapshots, in what is said of hot keys, and in
# what holds a source back.

STATES, SNAPSHOTS = f"{WORKER}/keyed_state/keyed_rows.py", f"{WORKER}/keyed_state/snapshot_files.py"
ROUTER = f"{WORKER}/calls/router.py"
FORM, KEY_WATCH, HOT = (
    f"{WORKER}/keyed_state/state_snapshots.py",
    f"{WORKER}/calls/router.py",
    "controller/monitor/vm_reports.py",
)
KNOWN, FRAMES, FILES = (
    f"tests/worker/keyed_state/test_{name}.py" for name in ("applied_rows", "keyed_frames", "snapshot_files")
)
WATCHED, TOLD = "tests/worker/calls/test_routing.py", "tests/controller/test_vm_reports.py"

BY_FRAME = (
    one(
        "frames of a root are kept under one share",
        KEYED_ROWS,
        "root, share = batch.roots[number], self.random64()",
        "root, share = batch.roots[number], 7",
        test=FRAMES,
    ),
    one(
        "what comes of a state is seen before it is durable",
        KEYED_ROWS,
        "            if self.exactly_once:\n",
        "            if False:\n",
        test="tests/worker/keyed_state/test_counting_exactly_once.py",
    ),
    one(
        "a late copy of a row that is forgotten counts again",
        APPLIED,
        "in groups if self.exact else ():",
        "in ():",
        test="tests/worker/keyed_state/test_counting_exactly_once.py",
    ),
    one(
        "who lost its ranges to another lets rows go",
        f"{WORKER}/keyed_state/far_snapshots.py",
        'if self._store.there(f"{self._folder}/{TAKEN_OVER}"):',
        "if False:",
        test="tests/worker/keyed_state/test_snapshots_elsewhere.py",
    ),
    one(
        "a place without its note is taken for empty",
        f"{WORKER}/keyed_state/far_snapshots.py",
        "if not names and not place.there(RUN_NOTE):",
        "if False:",
        test="tests/worker/keyed_state/test_snapshots_elsewhere.py",
    ),
    one(
        "two attempts of a row in a frame count twice",
        KEYED_ROWS,
        "        if twice_in(groups):\n",
        "        if not groups:\n",
        test=FRAMES,
    ),
    one(
        "the last row of a frame is not known",
        APPLIED,
        "            top[place] = max(top.get(place, 0), last + 1)\n",
        "            top[place] = max(top.get(place, 0), last)\n",
        test=KNOWN,
    ),
    one(
        "rows that left with their range are still known",
        APPLIED,
        "        self._since[key_range] = self._last_gone = self._next\n",
        "        self._since[key_range] = 0\n",
        test=KNOWN,
    ),
    one(
        "what is forgotten is not said",
        APPLIED,
        "                self.take_floors([(*place[:2], last + 1)])\n",
        "                self.take_floors([])\n",
        test=KNOWN,
    ),
    one(
        "a call that raises leaves states behind",
        STATES,
        "            found = dict(zip(keys, map(there.__getitem__, keys), strict=True))\n",
        "            found = there if set(keys) <= there.keys() else there[keys[-1], 0]\n",
        test=FRAMES,
    ),
    one(
        "keys that are equal and of several types are one",
        ROUTER,
        "        kind = kinds.pop() if len(kinds) == 1 else None\n",
        "        kind = kinds.pop()\n",
        test=FRAMES,
    ),
)

SAVED_KEYS = (
    one(
        "a state that was brought from the store while a whole snapshot is made is not in it",
        f"{WORKER}/keyed_state/kept_states.py",
        "                states.new[at] = None\n        self._by_range = None",
        "                pass\n        self._by_range = None",
        test="tests/worker/keyed_state/test_snapshot_parts.py",
    ),
    one(
        "what changes while a whole snapshot is made is not behind it",
        SNAPSHOTS,
        "made = self._make(record, made) if made >= 0 else made",
        "made = made",
        test="tests/worker/keyed_state/test_snapshot_parts.py",
    ),
    one(
        "a change has states as rows have made them since",
        f"{WORKER}/keyed_state/kept_states.py",
        "            self._keep_cut(keys, ranges)\n",
        "            pass\n",
        test="tests/worker/keyed_state/test_snapshot_steps.py",
    ),
    one(
        "a whole snapshot ends with states of rows that it does not name",
        f"{WORKER}/keyed_state/snapshot_parts.py",
        "ends = self._all_swept and not rows.dirty",
        "ends = self._all_swept",
        test="tests/worker/keyed_state/test_snapshot_steps.py",
    ),
    one(
        "states are saved without the rows that made them",
        KEYED_ROWS,
        "rows, beside = applied.pack_new(), self",
        "rows, beside = Applied().pack_new(), self",
        test=FILES,
    ),
    one(
        "new states of a frame are not saved",
        STATES,
        "        states.new.update(dict.fromkeys(found))\n",
        "",
        test=FILES,
    ),
    one(
        "changes are added behind a failure",
        SNAPSHOTS,
        "        self._whole = self._made = -1\n        if part.begun",
        "        if part.begun",
        test=FILES,
    ),
    one(
        "a torn end is taken for a snapshot",
        FORM,
        "        if len(found) < length or crc32(found) != told:\n",
        "        if len(found) < length and crc32(found) != told and at < len(data):\n",
        test=FILES,
    ),
    one(
        "damage between snapshots ends them silently",
        FORM,
        "            if at < len(data):\n",
        "            if at < 0:\n",
        test=FILES,
    ),
)

HOT_KEYS = (
    one(
        "the coldest keys are named",
        KEY_WATCH,
        "counts.most_common(TOLD_MOST)",
        "counts.most_common()[-TOLD_MOST:]",
        test=WATCHED,
    ),
    one(
        "keys are counted in the first large frame only",
        KEY_WATCH,
        "        return ((self._frames * GOLDEN_32) & 0xFFFFFFFF) * ONE_IN >> 32 == 0\n",
        "        return self._frames == 1\n",
        test=WATCHED,
    ),
    one(
        "a hot key is no alarm",
        HOT,
        "HOT, OVER = 0.5, 0.4",
        "HOT, OVER = 1.5, 0.4",
        test=TOLD,
    ),
    one(
        "a hot key that cooled stays an alarm",
        HOT,
        "        if key is None or key.share <",
        "        if key is None or 0.0 <",
        test=TOLD,
    ),
)

HELD_BACK = (
    one(
        "kept rows have no end",
        LEDGER,
        "        if self.again or self._kept >= KEPT_ROWS_MOST:\n",
        "        if self.again:\n",
        test="tests/worker/sources/test_ledger.py",
    ),
    one(
        "a source is not held back by what is in flight",
        LEDGER,
        "        self.in_flight += len(rows)\n",
        "        self.in_flight += 0\n",
        test="tests/worker/sources/test_ledger.py",
    ),
)

OF_KEYS: tuple[Plant, ...] = (*BY_FRAME, *SAVED_KEYS, *HOT_KEYS, *HELD_BACK)
