"""Bugs in the one verdict, in links between VMs, in bottlenecks of traces, in what is told to be lost or known, in what
becomes of leaving threads and of machines."""

from __future__ import annotations

from planted.planting import EXECUTOR, STATE, Plant, one

ALARMS, DECISIONS = "controller/core/alarms.py", "controller/core/decisions.py"
DIAGNOSIS, DIAGNOSED = "controller/analyze/diagnosis.py", "tests/analysis/test_diagnosis.py"
WAYS = "tests/decisions/test_vm_ways.py"
HANDOVER, STORY = "controller/execute/handover.py", "tests/simulation/test_impatient_hand_over.py"
LEAVERS = "tests/enactment/test_leavers_and_machines.py"
MADE = "tests/tables/test_tables_made.py"
OF_LINKS: tuple[Plant, ...] = (
    one(
        "what is decided goes by the trend alone",
        "controller/core/loop.py",
        "verdict = health.judged(trend)",
        "verdict = trend",
        test="tests/decisions/test_alarms.py",
    ),
    one(
        "less is planned for while it catches up",
        DIAGNOSIS,
        'in ("unstable", "catching_up"):',
        'in ("unstable",):',
        test=DIAGNOSED,
    ),
    one("what may not be read is overload", DIAGNOSIS, "if given.capped:", "if False:", test=DIAGNOSED),
    one("a slow way is overload", DIAGNOSIS, "_cut, _slow, _overloaded,", "_cut, _overloaded,", test=WAYS),
    one(
        "a worker without CPU is a slow link",
        ALARMS,
        " and not any(_busy(window, vm) for vm in pair)",
        "",
        test=WAYS,
    ),
    one("a pair that was cut is used again at once", ALARMS, "round(lasts_s * NS)", "round(NS)", test=WAYS),
    one(
        "each cut is the first",
        ALARMS,
        "self._cuts[pair] += pair not in k.cut_off",
        "self._cuts[pair] = 1",
        test=WAYS,
    ),
    one(
        "a VM is left out with the only state there is",
        DECISIONS,
        'topology.by_name[name].state == "keyed"',
        'topology.by_name[name].state == "lost"',
        test=WAYS,
    ),
    one(
        "threads live on where no plan has them",
        DECISIONS,
        "if diagnosis.without and choice.plan is not None",
        "if False and choice.plan is not None",
        test=WAYS,
    ),
    one(
        "the VM is left out that costs most", DECISIONS, "min(found_for, key", "max(found_for, key", test=WAYS
    ),
    one(
        "an answer is taken for that to the last question",
        STATE,
        "now_ns // MS - ping.at_ms",
        "(now_ns - said.question_ns) // MS",
        test="tests/worker/process/test_worker_state.py",
    ),
    one(
        "who reads next begins behind what was open",
        "controller/knowledge/knowledge.py",
        "        if one.open:\n            self.main = min(",
        "        if not one.open:\n            self.main = min(",
        test="tests/controller/test_tallies.py",
    ),
    one(
        "who was told where to begin has not begun",
        HANDOVER,
        "return runs(k, reader) or any(",
        "return runs(k, reader) or False and any(",
        test=STORY,
    ),
    one(
        "what a leaver has open is lost",
        "controller/knowledge/rows_left.py",
        "done = max(known.main_done, now.acked + now.acked_above)",
        "done = known.done",
        test="tests/decisions/test_ends_of_runs.py",
    ),
    one(
        "what only reserves has a load",
        "dashboards/tables/trace_files.py",
        '"static_cpu": reserved_of(task),',
        '"static_cpu": None,',
        test=MADE,
    ),
    one(
        "a stand-in is a number in a fault",
        "controller/plan/verifier.py",
        'if rate_tps < UNLIMITED_TPS else "unknown"',
        'if rate_tps <= UNLIMITED_TPS else "unknown"',
        test="tests/planning_commands/test_no_stand_in_numbers.py",
    ),
    one(
        "a stand-in begins while a plan waits for machines",
        HANDOVER,
        " and k.durable.waiting is None\n",
        "\n",
        test=LEAVERS,
    ),
    one(
        "a stand-in begins while a plan is prepared",
        HANDOVER,
        'in ("switched", "probation", "committed") and',
        '!= "machines" and',
        test=LEAVERS,
    ),
    one(
        "who was told to begin on a VM that is gone has begun",
        HANDOVER,
        " and reader.slot.vm not in k.members.gone() else ()",
        " else ()",
        test=LEAVERS,
    ),
    one(
        "an order to a leaving thread alone begins its successor",
        HANDOVER,
        " == place and one.thread < 0 for one in starts",
        " == place for one in starts",
        test=LEAVERS,
    ),
    one(
        "the spool of another partition is read instead",
        HANDOVER,
        "(one.task, one.partition) == place for left",
        "one.task == gap.task for left",
        test=LEAVERS,
    ),
    one(
        "machines that the next plan awaits too are given back",
        EXECUTOR,
        "keep=planned.awaits, failed=False",
        "failed=False",
        test=LEAVERS,
    ),
    one(
        "a plan whose place another took counts as failed",
        EXECUTOR,
        "keep=planned.awaits, failed=False",
        "keep=planned.awaits",
        test=LEAVERS,
    ),
    one(
        "machines are given back while a plan waits for others",
        EXECUTOR,
        "if d.lets_go and d.waiting is None:\n        return _let_go",
        "if d.lets_go:\n        return _let_go",
        test=LEAVERS,
    ),
    one(
        "a VM that is gone with threads that stay is held dead for its leavers",
        EXECUTOR,
        "        gone -= {slot.vm for slot in rollout.staying_slots}\n",
        "",
        test=LEAVERS,
    ),
    one(
        "leavers are over with their VM while rows still go to them",
        EXECUTOR,
        'if d.phase != "prepared" and not turn',
        "if not turn",
        test=LEAVERS,
    ),
    one(
        "leavers are over when too many VMs are lost at once",
        EXECUTOR,
        " and not turn.members.mass_loss",
        "",
        test=LEAVERS,
    ),
    one(
        "VMs held dead before are forgotten when another is",
        EXECUTOR,
        "tuple(sorted({*d.held_dead, *gone}))",
        "tuple(sorted(gone))",
        test=LEAVERS,
    ),
)
