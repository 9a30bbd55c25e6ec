"""Every error headgate raises on purpose: one base, one sentence each, one exit code each.

Low-level errors are translated into one of these once, at the border, with ``from``.
"""

from __future__ import annotations

from collections.abc import Iterable

from headgate.topology_runtime.wording import one_line, visible


class HeadgateError(Exception):
    """Base: what went wrong, why (`cause`) and what to try (`hint`); `faults` lists every place."""

    code = "HG-FAILED"
    exit_code = 1

    def __init__(
        self,
        what: str,
        *,
        cause: str | None = None,
        hint: str | None = None,
        faults: Iterable[str] = (),
    ) -> None:
        super().__init__(what)
        self.what = what
        self.cause = cause
        self.hint = hint
        self.faults = tuple(faults)

    def lines(self) -> list[str]:
        """The text people see: `error[HG-…]: what`, every fault, `cause:` and `try:`."""
        out = [f"error[{self.code}]: {one_line(self.what)}"]
        out += [f"  - {visible(fault)}" for fault in self.faults]
        if self.cause:
            out.append(f"cause: {visible(self.cause)}")
        if self.hint:
            out.append(f"try: {visible(self.hint)}")
        return out


class UsageError(HeadgateError):
    """The command line does not make sense."""

    code = "HG-USAGE"
    exit_code = 2


class InvalidInput(HeadgateError):
    """A topology, model, plan, trace or setting is invalid; nothing was applied."""

    code = "HG-INVALID"
    exit_code = 3


class Infeasible(HeadgateError):
    """No plan fits the slots that there are or may be had."""

    code = "HG-INFEASIBLE"
    exit_code = 4


class Unreachable(HeadgateError):
    """A controller or agent does not answer."""

    code = "HG-UNREACHABLE"
    exit_code = 5


class Refused(Unreachable):
    """A controller does not let this key in, or the key's role may not do this."""

    code = "HG-REFUSED"


class Conflict(HeadgateError):
    """The plan is stale, or something else is running already."""

    code = "HG-CONFLICT"
    exit_code = 6


class EnactmentFailed(HeadgateError):
    """A plan could not be brought into force and was rolled back."""

    code = "HG-ENACTMENT"
    exit_code = 7


class CheckFailed(HeadgateError):
    """A check that was asked for does not hold."""

    code = "HG-CHECK"
    exit_code = 8


class BadMessage(HeadgateError):
    """Bytes from a peer are not a message of this channel. peer: its name there; who: whose key it has."""

    code = "HG-MESSAGE"

    def __init__(self, what: str, *, cause: str | None = None, peer: bytes = b"") -> None:
        super().__init__(what, cause=cause)
        self.peer, self.who = peer, ""


class BadRow(HeadgateError):
    """A task emitted something that is not an immutable plain value."""

    code = "HG-ROW"


class ServiceAway(HeadgateError):
    """A service outside does not answer, for now: the same call may do later. retry_s: not before so many seconds."""

    code = "HG-AWAY"

    def __init__(self, what: str, *, cause: str | None = None, retry_s: float = 1.0) -> None:
        super().__init__(
            what, cause=cause, hint="the call is tried again; is the service up, and the address right?"
        )
        self.retry_s = retry_s


class BadBatch(HeadgateError):
    """What a batched task gave for some rows does not say what came of each."""

    code = "HG-BATCH"
