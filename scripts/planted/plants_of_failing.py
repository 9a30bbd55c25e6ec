"""Bugs in what is done about user code that fails outside a row or spoils its state, and when memory runs out."""

from __future__ import annotations

from planted.planting import EXECUTOR, KEYED, KEYED_ROWS, STATE, STEPS, WORKER, Plant, one

THREAD, TROUBLES = f"{WORKER}/process/task_thread.py", "controller/analyze/slot_troubles.py"
BUILT, SAVED = (
    "tests/worker/process/test_threads_built_again.py",
    "tests/worker/keyed_state/test_states_that_cannot_be_saved.py",
)
WRITTEN = "tests/worker/keyed_state/test_written_states.py"
NOT_RUN, ENDS = (
    "tests/enactment/test_code_that_does_not_run.py",
    "tests/worker/calls/test_what_ends_programs.py",
)

OF_FAILING: tuple[Plant, ...] = (
    one(
        "an object that does not open is built once",
        THREAD,
        "        while not self.stopping:\n            self.core.tries += 1\n",
        "        while not self.stopping and not self.core.tries:\n            self.core.tries += 1\n",
        test=BUILT,
    ),
    one(
        "what was opened stays open when restore fails",
        THREAD,
        "                self.work.call(logic.close)\n",
        "                pass\n",
        test=BUILT,
    ),
    one(
        "a plan under which nothing is done is committed",
        STEPS,
        "if left > 0 else stand.unproved\n",
        'if left > 0 else ""\n',
        test=NOT_RUN,
    ),
    one(
        "workers that die again and again prove a plan",
        EXECUTOR,
        "    k.crashes_before = crashes\n",
        "    k.crashes_before = {}\n",
        test=NOT_RUN,
    ),
    one(
        "no other VM is tried",
        TROUBLES,
        "        if thread.slot not in k.left_out:\n",
        "        if thread.slot in k.left_out:\n",
        test=NOT_RUN,
    ),
    one(
        "what memory ran out for is planned as before",
        TROUBLES,
        "        k.memory_more[task] = min(most, k.memory_more.get(task, 0.0) + more)\n",
        "        k.memory_more[task] = 0.0 * most\n",
        test=NOT_RUN,
    ),
    one(
        "leavers that cannot be built are waited for",
        EXECUTOR,
        '    unbuilt = turn.members.failed if d.phase != "prepared" else {}\n',
        "    unbuilt: dict[int, str] = {}\n",
        test=NOT_RUN,
    ),
    one(
        "a spoilt state is judged by rows that did nothing",
        KEYED_ROWS,
        "new, there and new is state)\n",
        "new, there and new is None)\n",
        test=SAVED,
    ),
    one(
        "a refused row leaves its state behind",
        KEYED_ROWS,
        "                states.all[at] = self._restored(wire.read(before, wire.NESTED)[0])\n",
        "                states.all[at] = state\n",
        test=SAVED,
    ),
    one(
        "of small states most are not looked at",
        f"{WORKER}/keyed_state/savable_states.py",
        " or self._is_small(state):\n",
        ":\n",
        test=SAVED,
    ),
    one(
        "what rows wrote of a range that leaves stays",
        f"{WORKER}/keyed_state/savable_states.py",
        "        self._name_written()\n        super().drop(key_range)\n",
        "        super().drop(key_range)\n",
        test=WRITTEN,
    ),
    one(
        "what rows wrote goes behind what changed since",
        f"{WORKER}/keyed_state/savable_states.py",
        "        return joined(kept)\n",
        "        return joined(kept[::-1])\n",
        test=WRITTEN,
    ),
    one(
        "a whole snapshot leaves what rows wrote",
        f"{WORKER}/keyed_state/savable_states.py",
        "        self._row_states.clear()\n        for states in",
        "        for states in",
        test=WRITTEN,
    ),
    one(
        "a thread that starts again is not careful",
        KEYED,
        "        self.rows.states.be_careful(self.started_again)\n",
        "",
        test=BUILT,
    ),
    one(
        "a state that is set aside is saved as it is not",
        f"{WORKER}/keyed_state/savable_states.py",
        "        if type(state) is Aside:\n            return state.saved\n",
        "        if type(state) is Aside:\n            return ()\n",
        test=BUILT,
    ),
    one(
        "rows of a thread that started again never come",
        STATE,
        "            self.started_again[thread] = times\n            self._lose(",
        "            self.started_again[thread] = times\n            str(",
        test="tests/worker/process/test_worker_state.py",
    ),
    one(
        "Ctrl-C of user code ends a worker",
        f"{WORKER}/meters/meter.py",
        "    ends = (StartAgain,)",
        "    ends = (StartAgain, KeyboardInterrupt)",
        test=ENDS,
    ),
)
