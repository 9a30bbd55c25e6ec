"""A first plan that needs machines from the provider waits for them."""

from __future__ import annotations

from recorded_runs import moments

from headgate.controller.replaying.exact_replay import decisions_of
from headgate.topology_runtime.cluster import Vm


def test_a_first_plan_is_not_made_again_while_its_machines_are_awaited() -> None:
    found = moments(5.0, ((0.0, 100.0),), initial=(Vm("vm1", 2),), spare=Vm("spare", 4), max_vms=2)
    first = next(d for moment in found for d in decisions_of(moment.instructions))
    assert first["trigger"] == "start" and first["plan"]["asked"] == ["vm2"]
    knowledge = found[-1].loop.knowledge
    assert knowledge.plan is not None and knowledge.plan.prediction.rate_tps >= 100.0
    assert [vm.vm for vm in knowledge.durable.machines] == ["vm2"]
