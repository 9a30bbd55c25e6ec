"""Failure counts of calls, on the agent's disk: another life of the agent goes on counting where this one ended."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from headgate.topology_runtime.platform.disk import text_of, write_note, write_whole
from headgate.topology_runtime.wire.dead_letter_messages import Struck
from headgate.topology_runtime.wire.messages import SpoolLeft

STRUCK_FILE = "struck.json"
RUN_NOTE = "run"  # holds the id of the run whose snapshots are here

log = logging.getLogger("headgate.agent")


class Saved(msgspec.Struct):
    run: str
    struck: tuple[Struck, ...]


def save_failures(directory: str, run: str, struck: tuple[Struck, ...]) -> None:
    """Raises OSError."""
    write_whole(Path(directory, STRUCK_FILE), msgspec.json.encode(Saved(run, struck)))


def load_failures(directory: str, run: str) -> tuple[Struck, ...]:
    """Failure counts of this run; nothing when there is no such file, or another run's, or a torn one."""
    path = os.path.join(directory, STRUCK_FILE)
    try:
        with open(path, "rb") as file:
            saved = msgspec.json.decode(file.read(), type=Saved)
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.DecodeError) as error:
        log.error("%s cannot be read: %s", path, error)
        return ()
    return saved.struck if saved.run == run else ()


# ── Snapshots of keyed state: threads of another run have the same numbers ──────────────────────────────


def keep_states_of(work: str, run: str) -> None:
    """Remove the snapshots of another run, and note whose there are. Raises OSError."""
    from headgate.topology_runtime.worker.keyed_state import snapshot_files

    folder = os.path.join(work, snapshot_files.FOLDER)
    note = os.path.join(folder, RUN_NOTE)
    os.makedirs(folder, exist_ok=True)
    if (before := text_of(note)) != run:
        if before:  # a version before this one noted none: it may be this run
            snapshot_files.clean(work, frozenset())
        write_note(note, run)


# ── Spools that workers left on this VM's disk ──────────────────────────────────────────────────────────


def left_over(directory: str) -> tuple[SpoolLeft, ...]:
    """Events on this VM's disk that a worker accepted and that are not done."""
    if not os.path.isdir(os.path.join(directory, "spools")):
        return ()
    from headgate.topology_runtime.worker.sources import source_spool

    with suppress(OSError):  # whoever opens it to read says so
        return source_spool.left_over(directory)
    return ()
