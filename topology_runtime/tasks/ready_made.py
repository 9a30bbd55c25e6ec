"""Ready-made tasks by name: for `headgate model profile NAME` and the guide."""

from __future__ import annotations

from typing import Any

import msgspec

HERE = "topology_runtime.tasks"


class ReadyMade(msgspec.Struct, frozen=True):
    """`run`: where its code is; `params` that it needs to be tried alone."""

    run: str
    params: dict[str, Any] = {}


READY_MADE: dict[str, ReadyMade] = {
    "spin": ReadyMade(f"{HERE}.spin:Spin"),
    "wait": ReadyMade(f"{HERE}.wait:Wait"),
}
