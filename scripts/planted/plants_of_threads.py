"""Bugs planted by somebody who had not written the code: in key ranges and their answers, links, batches, in what
crosses the border, and in the workers of an agent."""

from __future__ import annotations

from planted.planting import APPLIED, EXECUTE, GATHERING, OUTBOX, WORKER, Plant, one

RANGES, MOVES = f"{WORKER}/keyed_state/key_ranges.py", f"{WORKER}/keyed_state/range_answers.py"
BOARD, FRAMES = f"{WORKER}/links/switchboard.py", f"{WORKER}/links/frame_encoding.py"
ADMISSION, HANDOVER = "controller/monitor/admission.py", f"{EXECUTE}/handover.py"
SUPERVISOR, MESSAGE_BOUNDS = "agent/slots/worker_supervisor.py", "topology_runtime/wire/message_bounds.py"
APPLIED_TEST, RANGES_TEST = (
    "tests/worker/keyed_state/test_applied_rows.py",
    "tests/worker/keyed_state/test_keyed_ranges.py",
)
COLUMNS_TEST, BATCHES_TEST = "tests/worker/calls/test_columns.py", "tests/worker/calls/test_batched_tasks.py"
BOARD_TEST, LINKS_TEST = "tests/worker/links/test_switchboard.py", "tests/worker/process/test_peer_links.py"
FLOOD_TEST, ADMISSION_TEST = (
    "tests/worker/process/test_flooding_peers.py",
    "tests/controller/test_admission.py",
)
SUPERVISOR_TEST, HANDOVER_TEST = (
    "tests/agent/test_worker_supervisor.py",
    "tests/simulation/test_impatient_hand_over.py",
)

LEAVERS_TEST = "tests/enactment/test_leavers_and_machines.py"

OF_THREADS: tuple[Plant, ...] = (
    one(
        "the first row that was not forgotten may count again",
        APPLIED,
        "sum(position < below for",
        "sum(position <= below for",
        test=APPLIED_TEST,
    ),
    one(
        "a row that stays behind is not said to be forgotten",
        APPLIED,
        "(*i[:2], i[2] + 1) for i",
        "(*i[:2], i[2]) for i",
        test=APPLIED_TEST,
    ),
    one(
        "who answered once answers no newer routes",
        RANGES,
        "            self._told.clear()\n",
        "",
        test=RANGES_TEST,
    ),
    one(
        "an answer by older routes counts for newer ones",
        RANGES,
        "            self._heard.clear()\n",
        "",
        test=RANGES_TEST,
    ),
    one(
        "a range is owned on although another may have a newer copy",
        RANGES,
        "            self.owned.discard(key_range)  # another may have a newer copy\n",
        "",
        test=RANGES_TEST,
    ),
    one(
        "what is still processed is forgotten",
        RANGES,
        "self.pending.intersection(ranges) - self.owned:",
        "self.pending.intersection(ranges):",
        test=RANGES_TEST,
    ),
    one(
        "a snapshot that does not read is an empty one",
        MOVES,
        "        yield StateMove(asked.target, asked.sender, asked.number, (), asked.thread)\n        return\n",
        "        saved = None\n",
        test=RANGES_TEST,
    ),
    one(
        "state that was never sent takes room",
        MOVES,
        "sum(m.size for m in self._messages if now_ns - m.sent_ns < RESEND_NS)",
        "sum(m.size for m in self._messages)",
        test=RANGES_TEST,
    ),
    one(
        "a source may give more rows than it was asked for",
        GATHERING,
        "        del rows[limit:]\n",
        "",
        test=COLUMNS_TEST,
    ),
    one(
        "columns may be longer than the rows they are for",
        GATHERING,
        "if len(found) != len(columns):",
        "if len(found) < len(columns):",
        test=COLUMNS_TEST,
    ),
    one(
        "a root of frames that are taken together tells the floor of the first",
        GATHERING,
        "        known.floor = max(known.floor, root.floor)\n",
        "",
        test=BATCHES_TEST,
    ),
    one(
        "a set is a list of results",
        GATHERING,
        "if isinstance(answer, NO_LISTS) or",
        "if isinstance(answer, PIECES) or",
        test=BATCHES_TEST,
    ),
    one(
        "of threads that have ended the first are remembered",
        BOARD,
        "[-CLOSED_KEPT // 2 :])",
        "[: CLOSED_KEPT // 2])",
        test=BOARD_TEST,
    ),
    one(
        "a thread that waits elsewhere is not woken",
        BOARD,
        "            if thread in self.wakers:\n                self.wakers[thread]()\n",
        "",
        test=BOARD_TEST,
    ),
    one(
        "one peer that reads columns is all of them",
        BOARD,
        "slot not in self._by_columns:\n                    frame.rows",
        "not self._by_columns:\n                    frame.rows",
        test=BOARD_TEST,
    ),
    one(
        "acks of a worker before are taken",
        BOARD,
        "            if ack.key.incarnation == self.incarnation:\n                by_thread",
        "            if ack.key.incarnation <= self.incarnation:\n                by_thread",
        test=BOARD_TEST,
    ),
    one(
        "an order to stop is forgotten for what is behind it",
        BOARD,
        "go_on = self._one(*item, acks) and go_on",
        "go_on = self._one(*item, acks)",
        test=BOARD_TEST,
    ),
    one(
        "what waited for a peer is sent at every connection",
        BOARD,
        "in self._pending.pop(what.slot, []):",
        "in self._pending.get(what.slot, []):",
        test=BOARD_TEST,
    ),
    one(
        "the room of a peer stays what it was",
        BOARD,
        "        self.room = each * max(",
        "        self.room = WAITING_BYTES or each * max(",
        test=FLOOD_TEST,
    ),
    one(
        "acks of who was replaced are taken",
        BOARD,
        "        if self._state.fenced(message.slot, message.incarnation):",
        "        if not isinstance(message, Acks) and self._state.fenced(message.slot, message.incarnation):",
        test=FLOOD_TEST,
    ),
    one(
        "a peer may speak to threads of others",
        BOARD,
        "!= message.slot or places.get(word.target) != self._board.slot",
        "!= message.slot and places.get(word.target) != self._board.slot",
        test=FLOOD_TEST,
    ),
    one(
        "nobody looks at who was refused",
        BOARD,
        "            self.early.put((slot, incarnation, token))\n            self._wake.set()",
        "            self.early.put((slot, incarnation, token))",
        test=FLOOD_TEST,
    ),
    one(
        "the end of a link that was replaced is told of the new one",
        OUTBOX,
        "                elif self._newest.get(slot) is watch:\n                    found",
        "                else:\n                    found",
        test=BOARD_TEST,
    ),
    one(
        "after the first part of a frame each row is one",
        FRAMES,
        "            ends.append(at)\n            filled = 0\n",
        "            ends.append(at)\n",
        test=LINKS_TEST,
    ),
    one(
        "numbers in lists may be below 0",
        MESSAGE_BOUNDS,
        "value = min(value), max(value)",
        "value = (max(value),)",
        test=ADMISSION_TEST,
    ),
    one(
        "who comes last is forgotten",
        ADMISSION,
        "table.popitem(last=False)",
        "table.popitem()",
        test=ADMISSION_TEST,
    ),
    one(
        "a VM that was let in takes two places",
        ADMISSION,
        "        self._fresh.clear()\n",
        "",
        test=ADMISSION_TEST,
    ),
    one(
        "a line may be of the slot behind the last",
        ADMISSION,
        "any(line.slot >= SLOTS_MOST",
        "any(line.slot > SLOTS_MOST",
        test=ADMISSION_TEST,
    ),
    one(
        "the key of a worker that did not start counts",
        SUPERVISOR,
        "                on_failure.callback(self._keep_keys)\n",
        "",
        test=SUPERVISOR_TEST,
    ),
    one(
        "a worker that was replaced speaks on",
        SUPERVISOR,
        "return worker if worker is not None and worker.incarnation == incarnation else None",
        "return worker",
        test=SUPERVISOR_TEST,
    ),
    one(
        "the last reason to kill a worker counts",
        SUPERVISOR,
        "worker.why = worker.why or why",
        "worker.why = why",
        test=SUPERVISOR_TEST,
    ),
    one(
        "a worker's words begin with those of the one before",
        SUPERVISOR,
        "max(worker.log_from if worker.log_from <= size else 0, size - LAST_WORDS_BYTES)",
        "max(0, size - LAST_WORDS_BYTES)",
        test=SUPERVISOR_TEST,
    ),
    one(
        "what a process does to itself is done from outside",
        SUPERVISOR,
        "or -code in OWN_SIGNALS",
        "or code in OWN_SIGNALS",
        test=SUPERVISOR_TEST,
    ),
    one(
        "a descriptor of each worker stays open",
        SUPERVISOR,
        "        os.close(worker.pidfd)\n",
        "",
        test=SUPERVISOR_TEST,
    ),
    one(
        "what a leaver had open is over with it",
        HANDOVER,
        "            if orphan:\n                known.fall_back(gap.thread)\n",
        "",
        test=HANDOVER_TEST,
    ),
    one(
        "a source that lost rows at the end is not heard",
        MESSAGE_BOUNDS,
        "(abs(value) if name in SIGNED else value)",
        "value",
        test=ADMISSION_TEST,
    ),
    one(
        "a leaver that cannot be built is over though rows of it are open",
        f"{EXECUTE}/rollout.py",
        " and tasks[t.task].movable and not handover.still_open(turn.knowledge, t))",
        " and tasks[t.task].movable)",
        test=LEAVERS_TEST,
    ),
    one(
        "a leaver that cannot be built is over though its spool is on its VM",
        f"{EXECUTE}/rollout.py",
        "t.thread in unbuilt and tasks[t.task].movable and",
        "t.thread in unbuilt and",
        test=LEAVERS_TEST,
    ),
)
