"""What was struck, on the agent's disk: another life of the agent goes on counting where this one ended."""

from __future__ import annotations

import logging
import os

import msgspec

from headgate.topology_runtime.struck import Struck

NAME = "struck.json"

log = logging.getLogger("headgate.agent")


class Saved(msgspec.Struct):
    run: str
    struck: tuple[Struck, ...]


def save(directory: str, run: str, struck: tuple[Struck, ...]) -> None:
    """Raises OSError."""
    path = os.path.join(directory, NAME)
    with open(f"{path}.new", "wb") as file:
        file.write(msgspec.json.encode(Saved(run, struck)))
    os.replace(f"{path}.new", path)


def load(directory: str, run: str) -> tuple[Struck, ...]:
    """What was struck in this run; nothing when there is no such file, or another run's, or a torn one."""
    path = os.path.join(directory, NAME)
    try:
        with open(path, "rb") as file:
            saved = msgspec.json.decode(file.read(), type=Saved)
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.DecodeError) as error:
        log.error("%s cannot be read: %s", path, error)
        return ()
    return saved.struck if saved.run == run else ()
