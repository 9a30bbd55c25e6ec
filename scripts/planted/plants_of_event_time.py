"""Bugs of event time: watermarks, timers, and what they give."""

from __future__ import annotations

from planted.planting import WORKER, Plant, one

TIMED, TIMES = f"{WORKER}/operators/timed_task.py", f"{WORKER}/operators/watermarks.py"
TIMED_ROWS, SOURCE_TIMES = f"{WORKER}/keyed_state/timed_rows.py", f"{WORKER}/sources/source_watermark.py"
SOURCE = f"{WORKER}/sources/source_task.py"
STATES = f"{WORKER}/keyed_state/timed_states.py"

WRONG = ("at the sink", "is late", "not yet", " was ")

OF_EVENT_TIME: tuple[Plant, ...] = (
    one(
        "the watermark is counted from rows that are read",
        SOURCE,
        "            times.done_below(ledger.floor)\n",
        "            times.done_below(ledger.sequence)\n",
        WRONG,
        shape="times",
    ),
    one(
        "what timers gave is sent before a snapshot has it",
        TIMED_ROWS,
        "            self._fresh.append(last)\n",
        "            self.unsent.append(last)\n",
        WRONG,
        shape="times",
    ),
    one(
        "what is pending does not hold the watermark of its range back",
        TIMED_ROWS,
        "                held_us = min(held_us, min(entry.at_us for entry in given.pending) - 1)\n",
        "                pass\n",
        WRONG,
        shape="times",
    ),
    one(
        "timers that are due and have not fired hold no watermark back",
        TIMED_ROWS,
        "            watermark_us, idle = unfired_us - 1, False\n",
        "            pass\n",
        test="tests/worker/keyed_state/test_timers.py",
    ),
    one(
        "a thread that is to go is waited for no more",
        TIMES,
        "for n in orders.threads_of.get(name, ()))\n        self._feeders",
        "for n in orders.threads_of.get(name, ()) if n not in orders.leaving)\n        self._feeders",
        WRONG,
        shape="times",
        seeds=120,
    ),
    one(
        "a source that was never heard is not waited for",
        TIMES,
        "        threads = [self._threads.get(thread, UNHEARD) for thread in self._needed]\n",
        "        threads = [self._threads[thread] for thread in self._needed if thread in self._threads]\n",
        WRONG,
        shape="times",
    ),
    one(
        "ranges begin their numbers anew when their state was lost",
        TIMED_ROWS,
        "Given(self.ranges.versions[key_range] << VERSION_SHIFT)",
        "Given()",
        WRONG,
        shape="times",
    ),
    one(
        "what is pending does not go along with its range",
        TIMED_ROWS,
        "            pending = [_unpacked(key_range, entry) for entry in entries]\n",
        "            pending = []\n",
        WRONG,
        shape="times",
    ),
    one(
        "timers are not found again after a restart",
        TIMED_ROWS,
        "        self.states.note(key_range)\n",
        "        pass\n",
        WRONG,
        shape="times",
    ),
    one(
        "what was put off is not looked at when that is due which it waits behind",
        STATES,
        "                self._push(there, key)\n",
        "                pass\n",
        test="tests/worker/keyed_state/test_put_off_timers.py",
    ),
    one(
        "a timer that is put off waits behind a later one",
        STATES,
        "        if there is None or timer < there.behind:\n",
        "        if there is None:\n",
        test="tests/worker/keyed_state/test_put_off_timers.py",
    ),
    one(
        "what waits of a key is cleared up by what a call that may fail leaves",
        STATES,
        " if one in before or one in now}",
        " if one in now}",
        test="tests/worker/keyed_state/test_put_off_timers.py",
    ),
    one(
        "what waits behind a timer of a range that went away waits for ever",
        TIMED_ROWS,
        "        self._take_back(ranges)",
        "        [self._away.pop(one, None) for one in ranges]",
        test="tests/worker/keyed_state/test_put_off_timers.py",
    ),
    one(
        "keys are finished before their timers have fired",
        TIMED_ROWS,
        "        if self.may_finish:\n            super()._finish",
        "        if True:\n            super()._finish",
        test="tests/worker/keyed_state/test_timers.py",
    ),
    one(
        "a receiver takes the value of a lower version",
        TIMES,
        "                if version >= versions[key_range]:\n",
        "                if True:\n",
        test="tests/worker/keyed_state/test_timers.py",
    ),
    one(
        "the watermark is not saved",
        TIMED_ROWS,
        "            self.rise(watermark_us)\n",
        "            pass\n",
        test="tests/worker/keyed_state/test_timers.py",
    ),
    one(
        "a state that is forgotten is there again after a restart",
        f"{WORKER}/keyed_state/savable_states.py",
        "            if state is GONE:\n",
        "            if state is None:\n",
        test="tests/worker/keyed_state/test_timers.py",
    ),
    one(
        "a range that is idle is left out while its task is not",
        TIMES,
        "        return IDLE_US if idle and all(self._idle[number]) else min(self._ranges[number])\n",
        "        return IDLE_US if idle and any(self._idle[number]) else min(self._ranges[number])\n",
        test="tests/worker/keyed_state/test_timers.py",
    ),
    one(
        "a task that is idle is left out though a source before it is not",
        TIMES,
        "        return IDLE_US if idle and all(self._idle[number]) else min(self._ranges[number])\n",
        "        return IDLE_US if all(self._idle[number]) else min(self._ranges[number])\n",
        test="tests/worker/keyed_state/test_timers.py",
    ),
    one(
        "timers of a range that is back are not counted in the watermark",
        TIMED_ROWS,
        "        self._take_back()\n        next_us, watermark_us",
        "        next_us, watermark_us",
        test="tests/worker/keyed_state/test_timers.py",
    ),
    one(
        "a range with an older copy goes on with the numbers of that",
        TIMED_ROWS,
        "            given.next = max(given.next, self._none_given(key_range).next)\n",
        "            pass\n",
        test="tests/worker/keyed_state/test_timers.py",
    ),
    one(
        "nothing is started to answer for a thread that left",
        "agent/core/slot_state.py",
        "if t.answers or not (t.leaving",
        "if not (t.leaving",
        test="tests/agent/test_agent_state.py",
    ),
    one(
        "a VM may tell of threads of another one",
        "controller/monitor/vm_reports.py",
        "        return thread is not None and thread.slot.vm != said.vm\n",
        "        return False\n",
        test="tests/controller/test_source_claims.py",
    ),
    one(
        "a VM may say that a source of another one has ended",
        "controller/monitor/vm_reports.py",
        "        said = replace(said, sources=tuple(sources))\n",
        "        pass\n",
        test="tests/controller/test_source_claims.py",
    ),
    one(
        "a run whose end did not come to all tasks is over",
        "controller/execute/run_end.py",
        "            ending.unfinished = unfinished(k) if k.durable.draining == EVERY_SOURCE else ()\n",
        "            pass\n",
        test="tests/decisions/test_ends_of_runs.py",
    ),
)
