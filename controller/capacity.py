"""`headgate controller capacity`: the highest input rate that fits given VMs, by the models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from headgate.controller.plan.planner import PlanRequest

FIRST_TPS = 1.0
HIGHEST_TPS = 1e9  # beyond any machine: then the topology has no task that a model limits


@click.command()
@click.argument("topology", type=click.Path(path_type=Path))
@click.option("--models", type=click.Path(path_type=Path), required=True, help="A folder of models.")
@click.option("--vms", required=True, metavar="4,4", help="Slots of each VM.")
@click.option("--allocator", default="mba", show_default=True)
@click.option("--mapper", default="sam", show_default=True)
@click.option("--routing", default="weighted", show_default=True)
def capacity(topology: Path, models: Path, vms: str, allocator: str, mapper: str, routing: str) -> None:
    """Print the highest input rate, in tuples/s, for which TOPOLOGY (a file) fits these VMs."""
    from headgate.controller.files.model_files import read_models
    from headgate.controller.plan.planner import PlanRequest
    from headgate.topology_runtime.cluster import Vm
    from headgate.topology_runtime.loading import load

    request = PlanRequest(
        topology=load(str(topology)).topology,
        models=read_models(models),
        rate_tps=FIRST_TPS,
        vms=tuple(Vm(f"vm{n}", int(slots)) for n, slots in enumerate(vms.split(","), 1)),
        allocator=allocator,
        mapper=mapper,
        routing=routing,
    )
    click.echo(f"{highest_tps(request):.6g}")


def highest_tps(request: PlanRequest) -> float:
    """Doubles the rate until no plan fits, then goes down. Raises Infeasible when next to nothing fits."""
    from msgspec.structs import replace

    from headgate.controller.plan.planner import best_plan, make_plan
    from headgate.topology_runtime.errors import Infeasible

    rate_tps = request.rate_tps
    while rate_tps < HIGHEST_TPS:
        try:
            make_plan(replace(request, rate_tps=rate_tps))
        except Infeasible:
            break
        rate_tps *= 2
    return best_plan(replace(request, rate_tps=rate_tps)).rate_tps
