"""Bugs in how plans come into force: marks, fencing, the journal."""

from __future__ import annotations

from planting import AGENT, CORE, EXECUTOR, FOLDING, LATE, LOOP, ORDERS, STATE, STEPS, WANTED, Plant, one

PLANS = (
    one(
        "marks are sent once (B1)",
        CORE,
        "        if orders.switched:\n            for target",
        "        if orders.switched and before is not None and before.number != orders.number:\n            for target",
        LATE,
        kinds=("kill_worker_at_mark",),
    ),
    one(
        "leavers are not marked",
        ORDERS,
        '(thread in self.leaving or edge.grouping == "fields")',
        'edge.grouping == "fields"',
        LATE,
    ),
    one(
        "ended leavers are waited for (B1)",
        STEPS,
        "return worker is not None and any(",
        "return worker is None and any(",
        LATE,
        more={"faults": 0},
    ),
    one(
        "a dead VM is waited for (B2)",
        EXECUTOR,
        "return frozenset(slot for slot in slots if slot.vm in gone or slot in sight.quarantined)",
        "return frozenset(slot for slot in slots if slot.vm in gone and slot in sight.quarantined)",
        LATE,
        kinds=("lose_vm", "kill_worker"),
        more={"faults": 2},
    ),
    one(
        "routes lead to the dead",
        EXECUTOR,
        "return tuple(_around(route, alive, fresh) for route in before)",
        "return before",
        LATE,
        kinds=("lose_vm",),
        seeds=200,
    ),
    one(
        "any report makes a worker ready",
        STEPS,
        'worker.state == "running" and worker.ready and worker.token >= stand.token',
        'worker.state == "running"',
        test="tests/enactment/test_phases.py",
    ),
    one(
        "a leaver ends unmarked",
        STATE,
        "if not thread.leaving or not now.empty or now.marked < self.wanted.routes_number:",
        "if not thread.leaving or not now.empty:",
        test="tests/worker/test_worker_state.py",
    ),
    one(
        "a worker without threads stays",
        STATE,
        "return [Leave()] if idle else []",
        "return []",
        test="tests/worker/test_worker_state.py",
    ),
    one(
        "thread numbers are given twice", FOLDING, "        next_thread=r.next_thread,\n", "", ("one number",)
    ),
    one(
        "epochs are given twice",
        FOLDING,
        "        next_epoch=r.epoch + 1,\n",
        "        next_epoch=r.epoch,\n",
        ("two wanted states", "journaled", *LATE),
    ),
    one(
        "a plan is enacted before it is ready",
        FOLDING,
        'return replace(d, reign=r, waiting=None, before=before, phase="prepared", phase_wall_ns=wall_ns)',
        'return replace(d, reign=r, waiting=None, before=before, phase="switched", phase_wall_ns=wall_ns)',
        LATE,
    ),
    one(
        "threads that ended are wanted",
        FOLDING,
        "    threads = tuple(t for t in d.reign.threads if t.thread not in gone)\n",
        "    threads = d.reign.threads\n",
        LATE,
    ),
    one(
        "a change under the old number",
        WANTED,
        "    k.counter += 1\n",
        "    k.counter += 0\n",
        ("two wanted states",),
    ),
    one(
        "a new life under the old boot",
        "controller/recovery.py",
        "turn.record(Booted(d.boot + 1, now.wall_ns))",
        "turn.record(Booted(max(d.boot, 1), now.wall_ns))",
        ("two wanted states", "journaled", *LATE),
    ),
)

FENCING = (
    one(
        "no fault when a worker was replaced",
        STATE,
        '                out.append(Fault(f"worker {peer.slot} was replaced"))\n',
        "                pass\n",
        LATE,
        shape="line",
        kinds=("kill_worker",),
    ),
    one(
        "no fault when a link broke",
        STATE,
        '            self._lose(f"the link to {slot} broke")\n',
        "            pass\n",
        LATE,
        kinds=("break_data", "half_open_data"),
    ),
    one(
        "a loss that is told of is forgotten",
        STATE,
        '            self._lost = f"worker {ping.slot} lost something"\n',
        "            pass\n",
        LATE,
        kinds=("break_data", "half_open_data"),
    ),
    one(
        "frames of replaced workers are taken",
        STATE,
        "            frame.incarnation == self.known.get(frame.slot)\n",
        "            frame.incarnation > 0\n",
        test="tests/worker/test_worker_state.py",
    ),
    one(
        "an older wanted state is obeyed",
        STATE,
        "        if wanted.token < self.token:\n            return []\n        before",
        "        before",
        test="tests/worker/test_worker_state.py",
    ),
    one(
        "an agent obeys an older state",
        AGENT,
        "        if wanted.token < self.token or self.stopping:\n",
        "        if self.stopping:\n",
        test="tests/agent/test_agent_state.py",
    ),
    one(
        "an agent obeys an older controller",
        AGENT,
        "        if wanted.token.boot < self.controller_boot:\n            return []\n        self._heard_ns",
        "        self._heard_ns",
        test="tests/agent/test_agent_state.py",
    ),
    one(
        "incarnations begin anew",
        AGENT,
        "return max(wall_ns, state.incarnation + 1, *(n + 1 for n in named))",
        "return state.incarnation + 1",
        LATE,
        kinds=("kill_agent",),
    ),
    one(
        "a worker that died stays dead",
        AGENT,
        'if state.status in ("empty", "exited") and state.open_threads:',
        'if state.status in ("empty",) and state.open_threads:',
        LATE,
    ),
    one(
        "a slot that always crashes is never given up",
        "agent/slot_state.py",
        "if len(self.crashed_ns) > CRASHES_MOST:",
        "if not self.crashed_ns:",
        test="tests/agent/test_agent_state.py",
    ),
    one(
        "an exclusive task may run anywhere",
        ORDERS,
        "return not self.topology.by_name[self.task_of[thread]].exclusive or thread in self.wanted.holders",
        "return True",
        ("two at once",),
        shape="exclusive",
    ),
)

JOURNAL = (
    one(
        "a failed journal is shrugged off (B6)",
        LOOP,
        "        k.durable = self._before\n",
        "        pass\n",
        ("journaled", "in mind"),
        kinds=("fail_journal",),
    ),
    one(
        "sent before it is journaled (B6)",
        "controller/knowledge/turn.py",
        "return [Persist(tuple(self._records)), *self._instructions]",
        "return [*self._instructions, Persist(tuple(self._records))]",
        ("before the journal",),
    ),
    one(
        "a life that is not journaled speaks",
        LOOP,
        "        self._unborn = not k.durable.boot and self._born is not None\n",
        "",
        test="tests/simulation/test_birth_on_a_full_disk.py",
    ),
)

OF_PLANS: tuple[Plant, ...] = (*PLANS, *FENCING, *JOURNAL)
