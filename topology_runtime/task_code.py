"""One of the codes that the tasks of a run have while another takes its place."""

from __future__ import annotations

import msgspec

from headgate.topology_runtime.topology import Topology


class TaskCode(msgspec.Struct, frozen=True):
    """number: its threads name it. topology: the same tasks and edges in every code of a run, with its own params.
    package: the digest of the one that it comes in; none: it is in `user_paths`."""

    number: int
    topology: Topology
    user_paths: tuple[str, ...] = ()
    package: str = ""
