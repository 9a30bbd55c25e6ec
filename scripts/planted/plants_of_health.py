"""Bugs in what a run's health is told to be, in bottlenecks, in what slots are charged, and in ways between VMs."""

from __future__ import annotations

from planted.planting import Plant, one

HEALTH = "controller/analyze/health.py"
QUEUES = "tests/analysis/test_health.py"
ALARMS = "tests/decisions/test_alarms.py"
LOADS = "controller/analyze/residuals.py"
SHOWN = "tests/feed/test_one_turn_one_figure.py"
SAMPLER, SAMPLED = "agent/reports/sampler.py", "tests/agent/test_sampler.py"
WAYS, WAYS_TRIED = "controller/knowledge/vm_ways.py", "tests/decisions/test_vm_ways.py"
MIND, MIND_TRIED = (
    "topology_runtime/worker/orders/worker_state.py",
    "tests/worker/process/test_worker_state.py",
)

OF_HEALTH: tuple[Plant, ...] = (
    one("only the trend counts", HEALTH, "waits_s >= BEHIND_S or", "False or", test=QUEUES),
    one(
        "it is caught up at the rate at which rows come",
        HEALTH,
        "present / -net_tps",
        "present / max(1.0, window.offered_tps / 4)",
        test=ALARMS,
    ),
    one(
        "a backlog is as of now, whenever its source was heard",
        "controller/execute/run_end.py",
        "now.wall_ns - k.counts.age_ns(task.name, now.mono_ns)",
        "now.wall_ns",
        test="tests/controller/test_source_claims.py",
    ),
    one(
        "positions are as old as their report",
        "agent/core/agent_state.py",
        "age_ms=max(0, now_ns - at_ns) // 1_000_000",
        "age_ms=0",
        test="tests/agent/test_agent_state.py",
    ),
    one(
        "rows that are read again are no replays",
        "controller/knowledge/knowledge.py",
        "return self.reread + sum(",
        "return sum(",
        test="tests/controller/test_tallies.py",
    ),
    one(
        "what a window keeps waits",
        HEALTH,
        "if queued is not None:\n            waits_s",
        "if False:\n            waits_s",
        test=QUEUES,
    ),
    one("calls that overlap wait", HEALTH, "all_s if task.queue", "0.0 if task.queue", test=QUEUES),
    one(
        "after a restart all is as old as the rate says", HEALTH, "came(-at_s)) for", "0.0) for", test=QUEUES
    ),
    one(
        "what is growing is said to fall",
        HEALTH,
        "return found\n    return 0.0",
        "return -found\n    return 0.0",
        test=QUEUES,
    ),
    one(
        "it is short of what it keeps up with",
        "controller/core/alarms.py",
        "offered_tps > carried_tps and not well",
        "offered_tps > carried_tps",
        test=ALARMS,
    ),
    one("threads stand still and all is well", HEALTH, "if halted or (behind", "if (behind", test=ALARMS),
    one("what is reserved is load", LOADS, "(cpu - reserved) / (1 - reserved)", "cpu", test=SHOWN),
    one(
        "a source that only reserves is loaded",
        LOADS,
        "or (fixed is not None and not fixed.cpu_each)",
        "",
        test=SHOWN,
    ),
    one(
        "child processes are free",
        "topology_runtime/platform/slot_binding.py",
        "proc.rss_bytes_of_all(",
        "proc.rss_bytes(",
        test=SAMPLED,
    ),
    one("a CPU is told of an instant", SAMPLER, "SHORTEST_NS = 100_000_000", "SHORTEST_NS = 0", test=SAMPLED),
    one(
        "a dead process holds memory",
        SAMPLER,
        "0 if all(watched.over for watched in here) else",
        "",
        test=SAMPLED,
    ),
    one("one side's word cuts a way", WAYS, "silent.get((to, vm), 0)", "silent_ms", test=WAYS_TRIED),
    one(
        "a cut is overload",
        "controller/analyze/diagnosis.py",
        "_unknown, _cut,",
        "_unknown,",
        test=WAYS_TRIED,
    ),
    one(
        "who was cut off is forgotten",
        "controller/execute/plan_drift.py",
        "used.intersection(pair))",
        "False)",
        test=WAYS_TRIED,
    ),
    one("peers are asked once", MIND, "now_ns - said.question_ns >= BEAT_NS", "False", test=MIND_TRIED),
)
