"""What is too much in any message of an agent or a worker: numbers, texts and lists that nobody means. Pure."""

from __future__ import annotations

import math

import msgspec

from headgate.topology_runtime.api.topology import KEY_RANGES
from headgate.topology_runtime.errors import BadMessage
from headgate.topology_runtime.wire.dead_letter_messages import AGAIN_MOST, ROW_BYTES_MOST, DeadLetter
from headgate.topology_runtime.wire.messages import ThreadStatus
from headgate.topology_runtime.wire.state_questions import STATE_MOST

SLOTS_MOST = 1024
THREADS_MOST = 4096  # in one message; so many sources, spools and logs too
LETTERS_MOST = 256  # in one message
KEYS_TOLD_MOST = 16  # of one edge, by one thread
NAME_MOST, TEXT_MOST = 256, 16_384  # characters
TROUBLES_MOST = 16  # of a disk
STRUCK_MOST = 20  # calls that workers of a VM did not survive
METRICS_MOST = 1 << 16  # new ones of a worker, in one message
NUMBER_MOST = 1 << 62  # one more, a sum of two: all still fit into 64 bits

NAMES = frozenset({
    "task", "source", "run", "feeder", "endpoint", "binding", "version", "machine", "workers_as", "key", "digest",
    "level",
})  # fmt: skip
MOST = {"letters": LETTERS_MOST, "top": KEYS_TOLD_MOST, "troubles": TROUBLES_MOST, "struck": STRUCK_MOST,
        "workers": SLOTS_MOST, "heard": SLOTS_MOST,
        "profiles": SLOTS_MOST, "open": AGAIN_MOST, "done": AGAIN_MOST, "lost": KEY_RANGES,
        "data": ROW_BYTES_MOST, "saved": STATE_MOST, "metrics": METRICS_MOST}  # fmt: skip
UNBOUND = frozenset({"model", "runs"})  # read later
SIGNED = frozenset({"rests", "watermark_us", "held_by", "open_keys"})  # may be below 0


def bounded(name: str, value: object) -> None:
    """Every number, text and list in a message, whatever it is of, by the name of its field. Raises BadMessage."""
    if type(value) is int:
        if not 0 <= (abs(value) if name in SIGNED else value) <= NUMBER_MOST:
            raise BadMessage(f"{name}: a number that cannot be", cause=str(value)[:NAME_MOST])
    elif type(value) is str:
        if len(value) > (NAME_MOST if name in NAMES else TEXT_MOST):
            raise BadMessage(f"{name}: a text that is too long")
    elif type(value) is float:
        if not math.isfinite(value):
            raise BadMessage(f"{name}: a number that cannot be", cause=str(value))
    elif isinstance(value, msgspec.Struct):
        for field_name in value.__struct_fields__:
            bounded(field_name, getattr(value, field_name))
    elif isinstance(value, tuple | bytes) and value and name not in UNBOUND:
        if len(value) > MOST.get(name, THREADS_MOST):
            raise BadMessage(f"{name}: too many of them")
        if name == "clock":  # its offset may be below 0
            value = abs(value[0]), *value[1:]
        elif type(value[0]) is int:
            value = min(value), max(value)
        for one in value:
            bounded(name, one)


def check_letter(letter: DeadLetter) -> None:
    """Raises BadMessage."""
    if letter.again not in (0, letter.of):
        raise BadMessage("a dead letter of another one", cause=f"{letter.again} at {letter.position}")


def check_thread(now: ThreadStatus) -> None:
    """Raises BadMessage."""
    if not all(0 <= first < first + count <= KEY_RANGES for first, count in now.lost):
        raise BadMessage("key ranges that cannot be", cause=f"thread {now.thread}")
