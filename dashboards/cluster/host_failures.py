"""What went wrong on a host: one line with the remedy and the command that shows it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headgate.topology_runtime.errors import HeadgateError

FIRST_EXIT, MOST_COUNTED = 100, 25  # exit code 101: one host failed; 125: so many or more


class HostFailed(HeadgateError):
    """One host. see: the command that shows it."""

    code = "HG-HOST"

    def __init__(self, what: str, *, hint: str = "", see: str = "") -> None:
        super().__init__(what, hint=hint or None)
        self.see = see

    def line(self) -> str:
        parts = [self.what, f"try: {self.hint}" if self.hint else "", f"see: {self.see}" if self.see else ""]
        return " · ".join(part for part in parts if part)


class HostsFailed(HeadgateError):
    """Some hosts; the others went on. The exit code tells how many."""

    code = "HG-HOSTS"

    def __init__(self, what: str, lines: Iterable[str], failed: int) -> None:
        super().__init__(what, faults=lines)
        self.exit_code = FIRST_EXIT + min(failed, MOST_COUNTED)


def lines_of(failures: Mapping[str, HostFailed]) -> list[str]:
    return [f"{host}: {failure.line()}" for host, failure in failures.items()]
