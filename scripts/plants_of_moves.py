"""Bugs in what operators order: VMs that are drained, code that is replaced."""

from __future__ import annotations

from planting import AGENT, EXECUTOR, Plant, one

WATCHING = "controller/execute/watching.py"
CORDONS = "tests/enactment/test_cordons.py"
BESIDE = "tests/enactment/test_plans_beside.py"
RECODING = "tests/enactment/test_recoding.py"

OF_MOVES: tuple[Plant, ...] = (
    one(
        "a VM is said to be drained while its workers live",
        WATCHING,
        'over = not held and k.durable.phase in ("none", "committed") and (not member.up or is_empty(member))',
        "over = not held",
        test="tests/simulation/test_vms_drained.py",
    ),
    one(
        "a VM whose workers have just died is said to be drained",
        WATCHING,
        "held = member.up and any(",
        "held = False and any(",
        test=CORDONS,
    ),
    one(
        "a drain outdoes what the others can carry",
        "controller/core/cordoning.py",
        "if choice.degraded and choice.plan.rate_tps < plan.rate_tps:",
        "if choice.degraded and choice.plan.rate_tps > plan.rate_tps:",
        test=CORDONS,
    ),
    one(
        "a source that is about to move is taken for one that does not run empty",
        "controller/execute/handing.py",
        "for thread in wire_threads(k.durable):  # while",
        "for thread in k.durable.rollout.leaving:  # while",
        test=CORDONS,
    ),
    one(
        "a slot gets threads of two codes",
        EXECUTOR,
        "code=codes.get(t.slot, newest)",
        "code=newest",
        test=RECODING,
    ),
    one(
        "a worker whose code nobody runs is told nothing",
        AGENT,
        "s.code not in data",
        "s.code < 0",
        test="tests/agent/test_slot_codes.py",
    ),
    one(
        "code that failed is tried for ever",
        "controller/core/recoding.py",
        "if failed is not None and not k.durable.given_up_code:",
        "if failed is None and k.durable.given_up_code:",
        test=RECODING,
    ),
    one(
        "an older package is not asked for",
        "agent/packages.py",
        "tuple(code.package for code in codes if code.package)",
        "tuple(code.package for code in codes[:1] if code.package)",
        test="tests/packages/test_agent_packages.py",
    ),
    one(
        "a plan is used though what it was made of changed",
        "controller/core/thinking.py",
        "if getattr(then, part) != getattr(now, part))",
        "if part == now)",
        test=BESIDE,
    ),
    one(
        "a fault waits for a plan that is being made",
        "controller/core/thinking.py",
        "(asked.urgent or not urgent)",
        "(asked.urgent or urgent is not None)",
        test=BESIDE,
    ),
)
