"""What agents are told before there is a plan: to measure tasks in free slots, or nothing more. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from headgate.controller.knowledge.knowledge import Knowledge
from headgate.topology_runtime.messages import DesiredState, Token
from headgate.topology_runtime.profiles import ProfileSpec


def first_specs(k: Knowledge) -> tuple[ProfileSpec, ...]:
    """The profiles of a submission that waits for its models."""
    return tuple(profile.spec for profile in k.first.running.values()) if k.durable.run is None else ()


def before_a_plan(k: Knowledge) -> DesiredState | None:
    """None where nothing was ever told."""
    d, told = k.durable, k.desired
    if d.taken is not None:
        submitted = d.taken.submitted
        wanted = DesiredState(
            token=Token(),
            phase="prepared",
            run=k.settings.run,
            topology=submitted.topology,
            user_paths=submitted.user_paths,
            threads=(),
            routes_number=0,
            routes=(),
            profiles=first_specs(k),
            package=submitted.package,
        )
    elif told is not None and not told.token.epoch:
        wanted = replace(told, profiles=())
    else:
        return None  # also when the first plan could not be journaled
    if told is not None and replace(wanted, token=told.token) == told and told.token.boot == d.boot:
        return told
    k.counter += 1
    return replace(wanted, token=Token(d.boot, 0, k.counter))
