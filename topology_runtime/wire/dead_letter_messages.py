"""Dead letters on their way: from the worker of a task to the controller, and back to a source thread that sends
their rows again.

A row that is sent again has a name of its own in place of (partition, position) of its source: a partition that no
source has, AGAIN_PARTITION + the number of the letter's task in the topology, and in it the letter's number as the
position. So nothing that is known of the source's positions is touched (what is acked, counted, kept, applied), and
copies of it are copies of one another alone. What keyed tasks give at the end of the input has such a partition too:
END_PARTITION + the number of the task, and as position the key range. So has what timers give: TIMED_PARTITION, and
from there so many places on as the key range has, KEY_RANGES for each task before it (`timed_partition`); as position
the running number of the rows that timers of this range gave.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import KEY_RANGES

AGAIN_PARTITION, END_PARTITION, TIMED_PARTITION = 1 << 20, 1 << 21, 1 << 22
ROW_BYTES_MOST = 16 * 1024  # of a larger row there is the text alone
MESSAGE_BYTES = 512 * 1024  # dead letters of one message together, as `weight` has it
AGAIN_MOST = 512  # dead letters that a source thread has at a time


def timed_partition(task: int, key_range: int) -> int:
    """The partition of what timers of this key range give; the number of the task in the topology."""
    return TIMED_PARTITION + task * KEY_RANGES + key_range


def told_place(source: str, partition: int, position: int, row: str, feeder: str) -> dict[str, Any]:
    """What a dead letter is of, in words, and its place where that is one of a source: `of`, `source`, `partition`,
    `position`."""
    if 0 <= partition < AGAIN_PARTITION:
        of = f"row {position} of {source}, partition {partition}"
        return {"of": of, "source": source, "partition": partition, "position": position}
    if partition >= END_PARTITION and not feeder:
        of = row  # a timer or a `finish`, and of which key
    elif partition >= TIMED_PARTITION:
        of = f"a row of {feeder} that came of a timer"
    else:
        of = (
            f"a row of {feeder} that came of the end of the input"
            if feeder
            else f"a row that came of {source}"
        )
    return {"of": of, "source": None, "partition": None, "position": None}


class DeadLetter(msgspec.Struct, frozen=True, array_like=True):
    """A row whose task raised three times: identity, the row as JSON-like text, the traceback.

    data: the row as bytes of shape `shape` (row_values.py), empty when it is too large or no row that the task was
    given; feeder: the task that it came from. again: the dead letter of this task whose row has died once more."""

    task: str
    thread: int
    source: str
    partition: int
    position: int
    row: str
    error: str
    traceback: str
    variant: int = 0
    feeder: str = ""
    shape: int = 0
    data: bytes = b""
    again: int = 0

    @property
    def of(self) -> int:
        """The dead letter whose row, sent again, this one is or comes of; 0: none."""
        return self.position if AGAIN_PARTITION <= self.partition < END_PARTITION else 0

    @property
    def weight(self) -> int:
        """Bytes it may take in a message, about."""
        return 4 * len(self.row) + len(self.error) + 2 * len(self.traceback) + len(self.data) + 200

    def bare(self) -> DeadLetter:
        """What it is of, without the row."""
        return msgspec.structs.replace(self, row="", traceback="", data=b"")


class DeadLetters(msgspec.Struct, frozen=True, tag="dead_letters"):
    """Dead letters number `first` … of the agent's life `boot`; said again until they are taken, as those below
    `waiting` are."""

    vm: str
    letters: tuple[DeadLetter, ...]
    boot: int = 0
    first: int = 0
    waiting: int = 0
    run: str = ""  # that they are of


class LettersTaken(msgspec.Struct, frozen=True, tag="letters_taken"):
    """Dead letters of the agent's life `boot` below this number are on the controller's disk."""

    boot: int
    below: int


class LetterRow(msgspec.Struct, frozen=True, array_like=True):
    """The row of dead letter `number`, for `task` as if it came from `feeder`. thread: where it died. serial: what a
    controller's life calls this sending of it; none is used twice."""

    serial: int
    number: int
    task: str
    feeder: str
    thread: int
    shape: int
    data: bytes


class SendAgain(msgspec.Struct, frozen=True, tag="send_again"):
    """What source thread `thread` of this worker is to send again, all of it, by serials. rows: those that it is not
    known to have. Said until it says the same. What an earlier `boot` of the controller said is forgotten."""

    boot: int
    slot: Slot
    incarnation: int
    thread: int
    serials: tuple[int, ...]
    rows: tuple[LetterRow, ...] = ()


class SentAgain(msgspec.Struct, frozen=True, array_like=True):
    """What a source thread has of what this `boot` said: serials on their way, and done (until it is not asked for
    them any more)."""

    thread: int
    boot: int
    open: tuple[int, ...] = ()
    done: tuple[int, ...] = ()


def weighed(letters: list[DeadLetter], most: int) -> int:
    """How many of these, from the first on, go into one message."""
    weight = 0
    for count, letter in enumerate(letters[:most]):
        weight += letter.weight
        if weight > MESSAGE_BYTES and count:
            return count
    return min(most, len(letters))


# ── What an agent and its workers say to each other of rows that workers do not survive ─────────────────

CallKind = Literal["row", "bucket", "read", "open", "close"]  # what user code is called for


class Struck(msgspec.Struct, frozen=True, array_like=True):
    """Calls of user code during which a worker hung or died, `times` times: the row with this identity
    (kind "bucket": rows buffered together, named after the first; "read": a source at this position).
    error: what happened and where; traceback: the thread's stack."""

    task: str
    source: str
    partition: int
    position: int
    variant: int
    kind: CallKind
    times: int
    error: str
    traceback: str


class VmStrikes(msgspec.Struct, frozen=True, array_like=True):
    """Of one VM: the latest calls that were struck there, without their stacks, and how many workers were lost in calls
    of which nothing is known yet."""

    struck: tuple[Struck, ...] = ()
    unknown: int = 0


class Poisoned(msgspec.Struct, frozen=True, tag="poisoned"):
    """All of these that were struck too often: rows that are dead-lettered before user code meets them again,
    sources that wait before they read again."""

    struck: tuple[Struck, ...]
