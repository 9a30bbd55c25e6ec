"""The optimal planner takes no more slots than MBA+SAM on seeded random requests, and every plan of it is verified."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from experiments.never_more_slots import SIZES, request_of
from headgate.controller.plan.planner import plan_acquiring
from headgate.controller.plan.verify import faults_of


@pytest.mark.parametrize("hundred", range(3))
def test_never_more_slots_on_random_requests(hundred):
    for seed in range(20_001 + 100 * hundred, 20_101 + 100 * hundred):
        request = request_of(seed, 4)
        usual = plan_acquiring(request, SIZES)
        found = plan_acquiring(replace(request, allocator="optimal", mapper="optimal"), SIZES)
        assert found.slots.total <= usual.slots.total, seed
        assert faults_of(found, request.topology, request.models) == [], seed
