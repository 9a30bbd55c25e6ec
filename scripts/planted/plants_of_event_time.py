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
        "            watermark_us, idle = next_us - 1, False\n",
        "            pass\n",
        test="tests/worker/keyed_state/test_timers.py",
    ),
    one(
        "a thread that is to go is waited for no more",
        TIMES,
        "for n in orders.threads_of.get(name, ()))\n        self._threads",
        "for n in orders.threads_of.get(name, ()) if n not in orders.leaving)\n        self._threads",
        WRONG,
        shape="times",
        seeds=120,
    ),
    one(
        "a source that was never heard is not waited for",
        TIMES,
        "            threads = [self._threads.get(thread, UNHEARD) for thread in self._needed]\n",
        "            threads = [self._threads[thread] for thread in self._needed if thread in self._threads]\n",
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
        f"{WORKER}/keyed_state/keyed_rows.py",
        "        came = {key: state for key, state in came.items() if state is not GONE}\n",
        "        came = {key: state for key, state in came.items()}\n",
        test="tests/worker/keyed_state/test_timers.py",
    ),
)
