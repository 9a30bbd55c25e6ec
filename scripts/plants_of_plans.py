"""Bugs in how plans come into force: marks, fencing, the journal."""

from __future__ import annotations

from planting import CORE, EXECUTOR, LATE, ORDERS, RECORDS, STATE, STEPS, Plant, one

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
    one("thread numbers are given twice", RECORDS, "        next_thread=r.next_thread,\n", "", ()),
    one("numbers of routes are given twice", RECORDS, "        next_routes=r.routes_number + 1,\n", "", ()),
    one(
        "a plan is enacted before it is ready",
        RECORDS,
        'return replace(d, reign=r, waiting=None, before=before, phase="prepared", phase_wall_ns=wall_ns)',
        'return replace(d, reign=r, waiting=None, before=before, phase="switched", phase_wall_ns=wall_ns)',
        (),
    ),
)

FENCING = ()

JOURNAL = ()

OF_PLANS: tuple[Plant, ...] = (*PLANS, *FENCING, *JOURNAL)
