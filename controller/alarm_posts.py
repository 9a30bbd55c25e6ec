"""Alarms that are posted to an address (a webhook) when they begin and when they are over, in a thread of their own.

The body is the one of Alertmanager's webhooks, version 4, with a `text` for chats. What is open there is kept in a
file, so that a controller that is started again does not post it anew. While the address is away, the newest state is
what is posted once it is back.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec

from headgate.controller.knowledge.run_view import AlarmNow
from headgate.topology_runtime.connectors.http.post_address import PostAddress
from headgate.topology_runtime.connectors.secrets import SecretText
from headgate.topology_runtime.errors import BadRow, HeadgateError
from headgate.topology_runtime.platform.clock import HERE, monotonic_ns
from headgate.topology_runtime.platform.disk import write_whole
from headgate.topology_runtime.wording import utc_iso, visible

FILE = "alarms_posted.json"
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 60.0  # after an attempt that failed, doubled each time
NOTICED_S = 60.0  # after a start: until then it may not have noticed yet what is still so
LAST_S = 3.0  # for what is to be posted when the run ends


class OpenAlarm(msgspec.Struct, frozen=True):
    """An alarm that is open at the address."""

    run: str
    what: str
    text: str
    since_ns: int

    @property
    def id(self) -> str:
        return hashlib.sha256(f"{self.run} {self.what} {self.since_ns}".encode()).hexdigest()[:16]


class AlarmPosts:
    """url: with references to secrets, which are read at each attempt. folder: where what is open is kept.

    Raises InvalidInput for what is no address, and for a secret that cannot be read now."""

    def __init__(self, url: str, folder: Path, noticed_s: float = NOTICED_S) -> None:
        self._url, self._file = SecretText(url), folder / FILE
        self._address().close()
        self._open = {one.what: one for one in _kept(self._file)}
        self._before = set(self._open)  # of these, what this controller has not raised itself
        self._noticed_ns = monotonic_ns() + int(noticed_s * 1e9)
        self._run, self._now = "", dict[str, AlarmNow]()
        self._changed, self._ends, self._fault = threading.Event(), False, ""
        self._thread = threading.Thread(target=self._work, name="alarms", daemon=True)
        self._thread.start()

    def show(self, run: str, alarms: tuple[AlarmNow, ...]) -> None:
        """Those that there are now. It never waits."""
        now = {one.what: one for one in alarms}
        if run != self._run or now.keys() != self._now.keys():
            self._run, self._now = run, now
            self._changed.set()

    def close(self, over: bool = False) -> None:
        """over: so is the run, and what is open is over as well."""
        if over:
            self._now, self._before = {}, set()
        self._ends = True
        self._changed.set()
        self._thread.join(LAST_S)

    def _work(self) -> None:
        wait_s = FIRST_WAIT_S
        while True:
            self._changed.wait(1.0 if self._before else None)
            self._changed.clear()
            ends = self._ends
            while (change := self._next()) is not None:
                if self._posted(*change):
                    wait_s = FIRST_WAIT_S
                elif ends:
                    return
                else:
                    self._changed.wait(wait_s)
                    self._changed.clear()
                    wait_s, ends = min(LONGEST_WAIT_S, 2 * wait_s), self._ends
            if ends:
                return

    def _next(self) -> tuple[OpenAlarm, bool] | None:
        """(what is to be posted, does it begin?)"""
        run, now = self._run, self._now
        if not run:
            return None
        self._before -= now.keys()
        noticed = monotonic_ns() >= self._noticed_ns
        for what, one in self._open.items():
            unseen = what not in now and (noticed or what not in self._before)
            if unseen or one.run != run:
                return one, False
        for what, alarm in now.items():
            if what not in self._open:
                return OpenAlarm(run, what, alarm.text, alarm.since_ns), True
        return None

    def _posted(self, one: OpenAlarm, begins: bool) -> bool:
        """Is it done with? What the address refuses for good is."""
        body = msgspec.json.encode(body_of(one, begins, utc_iso(HERE.wall_ns())))
        try:
            address = self._address()
            try:
                name = {"Idempotency-Key": f"{one.id}-{'firing' if begins else 'resolved'}"}
                address.post(body, address.headers("application/json") | name)
            finally:
                address.close()
            self._fault = ""
        except HeadgateError as error:  # without `what`, in which the address is: it may be the secret
            self._say(f"an alarm cannot be posted: {error.cause}")
            if not isinstance(error, BadRow):
                return False
        self._open.pop(one.what, None)
        if begins:
            self._open[one.what] = one
        self._before.discard(one.what)
        try:
            write_whole(self._file, msgspec.json.encode(list(self._open.values())))
        except OSError as error:
            self._say(f"what alarms are posted cannot be kept: {error.strerror}")
        return True

    def _address(self) -> PostAddress:
        return PostAddress("alarms-to", self._url.text(), None, None, None, [])

    def _say(self, fault: str) -> None:
        if fault != self._fault:
            self._fault = fault
            sys.stderr.write(f"controller: warning: {visible(fault)}\n")


def body_of(one: OpenAlarm, begins: bool, now: str) -> dict[str, Any]:
    """As Alertmanager's webhooks, version 4."""
    status = "firing" if begins else "resolved"
    labels = {"alertname": "headgate", "run": one.run, "what": one.what}
    alert = {
        "status": status,
        "labels": labels,
        "annotations": {"summary": one.text},
        "startsAt": utc_iso(one.since_ns),
        "endsAt": "0001-01-01T00:00:00Z" if begins else now,
        "generatorURL": "",
        "fingerprint": one.id,
    }
    return {
        "version": "4",
        "groupKey": one.id,
        "truncatedAlerts": 0,
        "status": status,
        "receiver": "headgate",
        "groupLabels": {"alertname": "headgate"},
        "commonLabels": labels,
        "commonAnnotations": {"summary": one.text},
        "externalURL": "",
        "alerts": [alert],
        "text": f"headgate, run {one.run}: {one.text}"
        if begins
        else f"headgate, run {one.run}: over: {one.text}",
    }


def _kept(file: Path) -> list[OpenAlarm]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=list[OpenAlarm])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.DecodeError) as error:
        sys.stderr.write(f"controller: warning: alarms may be posted twice: {file.name}: {error}\n")
        return []
