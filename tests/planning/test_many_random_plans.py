"""Hundreds of random plans, of every pair of allocator and mapper, from one seed that failures name."""

from __future__ import annotations

import random

from msgspec.structs import replace

from experiments import verify_plans
from headgate.controller.plan.planner import PlanRequest
from headgate.controller.plan.schedulers import PAIRS

SEED, PLANS = 7_000, 200


def test_the_verifier_finds_no_fault():
    found = verify_plans.verify(PLANS, SEED)
    print(f"python scripts/experiments/verify_plans.py --plans {PLANS} --seed {SEED}")
    assert found.failed == []
    assert found.plans >= PLANS
    assert set(found.by_pair) == set(PAIRS)


def test_a_fault_is_told_with_its_seed(monkeypatch):
    """A world that is planned wrongly: its seed fails, and the others go on."""
    real = verify_plans.random_request

    def odd(chance: random.Random) -> PlanRequest:
        request = real(chance)
        return replace(request, mapper="none") if chance.random() < 0.5 else request

    monkeypatch.setattr(verify_plans, "random_request", odd)
    found = verify_plans.verify(20, 1)
    assert found.plans >= 20
    assert found.failed
    assert all("cannot be planned" in faults[0] for _, faults in found.failed)
