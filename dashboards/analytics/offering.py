"""What following a run has taught, offered to its controller: refitted models, a season. Which of it is to be believed
says the controller alone; nothing waits for the answer but whoever follows."""

from __future__ import annotations

import json
import re
from typing import Any

from headgate.dashboards.analytics.data_places import DataPlace
from headgate.dashboards.analytics.trace_runs import TraceRun
from headgate.dashboards.terminal.connection import asked
from headgate.topology_runtime.errors import HeadgateError, InvalidInput
from headgate.topology_runtime.keys.pairs import Contact
from headgate.topology_runtime.utc import utc_iso

COMMAND = "offer"
NUMBERS = re.compile(r"[0-9.]+")


class Offers:
    """Of one run, to the controller at `contact`. Raises InvalidInput when the trace does not say which run it is."""

    def __init__(self, run: TraceRun, contact: Contact, tell: Any) -> None:
        if run.started_us is None:
            raise InvalidInput(
                f"{run.key} cannot be offered from: its run.json does not say when it began",
                hint="follow it without --offer",
            )
        self._of = {"run": run.name, "started": utc_iso(run.started_us * 1000)}
        self._contact, self._tell = contact, tell
        self._sent: dict[str, Any] = {}
        self._told: set[str] = set()

    def check(self) -> None:
        """Would it be heard? Raises what the controller says, or Unreachable."""
        asked(self._contact, COMMAND, self._of)

    def offer(self, to: DataPlace, until_us: int) -> None:
        """What was published there last, made of samples until then; once, until it is another."""
        found = found_in(to)
        if not any(found.values()) or found == self._sent:
            return
        try:
            answer = asked(self._contact, COMMAND, {**self._of, "until_us": until_us, **found})
        except HeadgateError as error:
            self._say("the offer was not heard", error.what, f" ({error.cause})" if error.cause else "")
            return
        self._sent = found
        for one in answer["taken"]:
            self._tell(f"offered and taken: {one['text']}")
        for one in answer["refused"]:
            self._say(f"offered and not taken: {one['what']}", one["why"])

    def _say(self, what: str, why: str, more: str = "") -> None:
        """Once, until something else is the matter."""
        line = f"{what}: {why}"
        if (kind := NUMBERS.sub("#", line)) not in self._told:
            self._told.add(kind)
            self._tell(line + more)


def found_in(to: DataPlace) -> dict[str, Any]:
    """The models and the season that an analysis has left."""
    models = [
        json.loads(file.read()) for file, _ in (to / "models").children() if file.name.endswith(".json")
    ]
    seasons = [
        json.loads(file.read()) for file, _ in (to / "seasons").children() if file.name.endswith(".json")
    ]
    return {"models": models} | ({"season": seasons[0]} if seasons else {})
