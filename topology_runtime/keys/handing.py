"""A worker's key, for its life only: handed to it by a pipe, so that no file, command line or environment holds it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from headgate.topology_runtime.keys.pairs import KeyPair

PAIR_BYTES = 80  # two keys of 40 characters: a pipe takes them at once


@contextmanager
def handing(pair: KeyPair) -> Iterator[int]:
    """The descriptor that a child inherits while it is started."""
    reader, writer = os.pipe()
    try:
        os.write(writer, f"{pair.public}{pair.secret}".encode("ascii"))
        os.close(writer)
        yield reader
    finally:
        os.close(reader)


def handed(descriptor: int) -> KeyPair:
    """In the child. Raises ValueError when it was handed none."""
    with os.fdopen(descriptor, "rb") as pipe:
        words = pipe.read(PAIR_BYTES + 1).decode("ascii")
    if len(words) != PAIR_BYTES:
        raise ValueError(f"{len(words)} characters are no pair of keys")
    return KeyPair(words[: PAIR_BYTES // 2], words[PAIR_BYTES // 2 :])
