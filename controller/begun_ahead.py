"""A controller that is begun before it is known what it is to run: `up` begins it first, and reads the user's topology
while it imports. The rest of its command line comes by standard input, as a JSON list of words."""

from __future__ import annotations

import importlib
import sys

import msgspec

from headgate.topology_runtime.errors import UsageError
from headgate.topology_runtime.owner import die_with

SOON = (  # what takes a while to import, up to the first plan
    "headgate.controller.controller",
    "headgate.controller.core.loop",
    "headgate.controller.files.model_files",
    "headgate.controller.plan.schedulers",
    "headgate.controller.plan.slot_fit",
    "headgate.controller.recording.ledger_file",
)


def rest_of_the_words(owner: int) -> list[str]:
    """Blocks until they are all there; ends this process when there are none, or when `owner` dies meanwhile.

    Raises UsageError."""
    if owner:
        die_with(owner)
    for name in SOON:
        importlib.import_module(name)
    told = sys.stdin.buffer.read()
    if not told:
        sys.exit(0)
    try:
        return msgspec.json.decode(told, type=list[str])
    except msgspec.DecodeError as error:
        raise UsageError("--begin-ahead: no words came by standard input", cause=str(error)) from error
