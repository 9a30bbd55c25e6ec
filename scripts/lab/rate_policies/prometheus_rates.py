"""A rate as a Prometheus server knows it: one PromQL expression over a time, by the server's HTTP API.

Nothing that comes back is believed as it is: an answer is bounded in bytes and time, redirects are not followed, there
must be one series, and values that are no rates are left out and counted. What is wrong is named in words.
"""

from __future__ import annotations

import base64
import http.client
import math
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import unquote, urlencode, urlsplit

import msgspec

from headgate.lab.rate_policies.advisor import Advice, Advisor
from headgate.topology_runtime.errors import HeadgateError, InvalidInput, Unreachable, UsageError
from headgate.topology_runtime.rates.offered_rates import MAX_RATE_TPS
from headgate.topology_runtime.wording import counted

POINTS_MOST = 11_000  # the server's own bound of a series
ANSWER_BYTES = 8 * 1024**2  # of so many points about 400 KiB
SILENT_S, WHOLE_S = 5.0, 15.0  # without a byte; of a whole answer
SERIES_SHOWN = 3
NEAR = 0.01  # of a step: a time is on the grid that was asked for


class RatePoints(NamedTuple):
    """(UTC s, rows/s) in order of time. left_out: what else there was, in words, or ""."""

    points: list[tuple[float, float]]
    left_out: str


class _Series(msgspec.Struct):
    metric: dict[str, str] = {}
    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct):
    resultType: str = ""
    result: msgspec.Raw = msgspec.Raw(b"[]")


class _ServerAnswer(msgspec.Struct):
    status: str
    data: _Data = msgspec.field(default_factory=_Data)
    errorType: str = ""
    error: str = ""


class PrometheusServer:
    """One server, by its address. Raises UsageError for what is none. The user and password of the address, if any, are
    sent as Basic authentication and shown nowhere."""

    def __init__(self, url: str, silent_s: float = SILENT_S, whole_s: float = WHOLE_S) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise UsageError(f"--prometheus: {url!r} is no address", cause=str(error)) from error
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise UsageError(
                f"--prometheus: {parts.scheme or url!r} is not http://HOST:PORT",
                hint="--prometheus http://127.0.0.1:9090",
            )
        self._tls, self._host = parts.scheme == "https", parts.hostname
        self._port = port or (443 if self._tls else 80)
        self.url = f"{parts.scheme}://{self._host}:{self._port}{parts.path.rstrip('/')}"
        self._path = f"{parts.path.rstrip('/')}/api/v1/query_range"
        self._silent_s, self._whole_s = silent_s, whole_s
        self._headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        if parts.username is not None:
            word = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(word).decode()}"

    def rates(self, query: str, from_s: float, to_s: float, step_s: float) -> RatePoints:
        """The values from `from_s` to `to_s`, each second step. Raises Unreachable (it may be better next time),
        InvalidInput (it will not: the query is none, or gives no single series)."""
        return _points(self._series(query, from_s, to_s, step_s), from_s, to_s, step_s)

    def sample_times(self, query: str, from_s: float, to_s: float, step_s: float) -> dict[float, float]:
        """Time of a value → when the sample that it repeats was taken; empty where the server does not say: of an
        expression it has the time at which it was worked out. Raises Unreachable."""
        try:
            series = self._series(f"timestamp({query})", from_s, to_s, step_s)
        except InvalidInput:
            return {}
        pairs = ((at_s, _seconds(text)) for at_s, text in series.values[: 2 * POINTS_MOST])
        found = {at_s: taken_s for at_s, taken_s in pairs if 0 <= taken_s <= at_s}
        return found if any(at_s - taken_s > SAME_S for at_s, taken_s in found.items()) else {}

    def _series(self, query: str, from_s: float, to_s: float, step_s: float) -> _Series:
        asked = {"query": query, "start": f"{from_s:.3f}", "end": f"{to_s:.3f}", "step": f"{step_s:g}"}
        status, body = self._asked(urlencode(asked))
        if 300 <= status < 400:
            raise InvalidInput(
                f"{self.url} sends elsewhere (status {status}), and that is not followed",
                hint="give the address that it sends to, as the browser shows it",
            )
        if status in (401, 403):
            raise InvalidInput(f"{self.url} refuses: status {status}", hint="http://USER:PASSWORD@HOST:PORT")
        answer = self._answer(status, body)
        if answer.status != "success":
            what = f"{self.url} does not take the query: {answer.errorType or 'error'}"
            if status >= 500:
                raise Unreachable(what, cause=answer.error[:500] or f"status {status}")
            raise InvalidInput(what, cause=answer.error[:500] or f"status {status}", hint="--query 'PROMQL'")
        return self._one(answer.data, query)

    def _asked(self, body: str) -> tuple[int, bytes]:
        kind = http.client.HTTPSConnection if self._tls else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=self._silent_s)
        late = threading.Event()
        try:
            connection.connect()
            watch = threading.Timer(self._whole_s, _cut, (connection.sock, late))
            watch.start()
            try:
                connection.request("POST", self._path, body, self._headers)
                with connection.getresponse() as answer:  # it may own the socket by now
                    found, left = answer.read(ANSWER_BYTES + 1), answer.length
                if late.is_set() or (left and len(found) <= ANSWER_BYTES):
                    raise http.client.IncompleteRead(found)
            finally:
                watch.cancel()
        except TimeoutError as error:
            raise Unreachable(f"{self.url} says nothing for {self._silent_s:g} s") from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            if late.is_set():
                raise Unreachable(f"{self.url} did not end its answer within {self._whole_s:g} s") from error
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise Unreachable(f"{self.url} does not answer", cause=str(why)[:200]) from error
        finally:
            connection.close()
        if len(found) > ANSWER_BYTES:
            raise InvalidInput(
                f"{self.url} answers with more than {ANSWER_BYTES // 1024**2} MiB",
                hint="a query of one series: 'sum(rate(…))'",
            )
        return answer.status, found

    def _answer(self, status: int, body: bytes) -> _ServerAnswer:
        try:
            return msgspec.json.decode(body, type=_ServerAnswer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            what = f"{self.url} gives no answer of a Prometheus server (status {status})"
            begins = body[:60].decode("utf-8", "replace").strip()
            kind: type[HeadgateError] = Unreachable if status >= 500 else InvalidInput
            raise kind(what, cause=f"it begins {begins!r}" if begins else "it is empty") from error

    def _one(self, data: _Data, query: str) -> _Series:
        if data.resultType != "matrix":
            raise InvalidInput(
                f"the query gives no rate over time but {data.resultType!r}", hint="--query 'PROMQL'"
            )
        try:
            series = msgspec.json.decode(data.result, type=list[_Series])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidInput(
                f"{self.url} gives no answer of a Prometheus server", cause=str(error)
            ) from error
        if len(series) > 1:
            names = "; ".join(_labels(one.metric) for one in series[:SERIES_SHOWN])
            raise InvalidInput(
                f"the query gives {len(series)} series, one is needed",
                cause=names + ("; …" if len(series) > SERIES_SHOWN else ""),
                hint=f"'sum({query})'",
            )
        return series[0] if series else _Series()


def _cut(sock: socket.socket, late: threading.Event) -> None:
    """However an answer drips, it has its time."""
    late.set()
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _labels(metric: dict[str, Any]) -> str:
    return "{" + ", ".join(f"{key}={str(value)[:40]}" for key, value in list(metric.items())[:5]) + "}"


def _points(series: _Series, from_s: float, to_s: float, step_s: float) -> RatePoints:
    """What is a rate, at a time that was asked for, each time once."""
    found: dict[float, float] = {}
    wrong: Counter[str] = Counter()
    for at_s, text in series.values[: 2 * POINTS_MOST]:
        why, rate_tps = _rate(text)
        if not why and not (math.isfinite(at_s) and from_s - NEAR * step_s <= at_s <= to_s + NEAR * step_s):
            why = "of another time"
        if not why and at_s in found:
            why = "of a time that was there already"
        if why:
            wrong[why] += 1
        else:
            found[at_s] = rate_tps
    left_out = ", ".join(f"{number} {why}" for why, number in wrong.most_common())
    said = f"{counted(sum(wrong.values()), 'value')} left out: {left_out}" if wrong else ""
    return RatePoints(sorted(found.items()), said)


def _seconds(text: str) -> float:
    """NaN where it is no number."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _rate(text: str) -> tuple[str, float]:
    """(why it is no rate or "", rows/s)."""
    try:
        value = float(text)
    except ValueError:
        return "no number", 0.0
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "infinite", 0.0
    if value < 0:
        return "negative", 0.0
    return ("too large for a rate", 0.0) if value > MAX_RATE_TPS else ("", value)


# ── What a Prometheus server says of a rate, told to an advisor in its order, as long as one likes to ask
#
# Whatever is wrong with server or values is named once, until it is something else, and it is asked again,
# less often while it does not answer.

GAP_STEPS = 3.0  # so many values may come late
GAP_SAMPLES = 2.5  # a sample may be as old as so many of them are apart
GAPS_KEPT = 20
RETRY_MOST_S = 60.0
SAME_S = 1e-3


class RateAsked(NamedTuple):
    """What is asked: rows/s are values of `query` × `scale`."""

    query: str
    step_s: float
    scale: float
    every_s: float


class ServerFollower:
    """began_s: UTC of the advisor's second 0, a step before the first value. trouble: what is wrong now, in words.
    taken_s: when the sample behind the newest value was taken, where the server says so."""

    def __init__(
        self,
        server: PrometheusServer,
        asked: RateAsked,
        advisor: Advisor,
        from_s: float,
        say: Callable[[str], None],
    ) -> None:
        self._server, self._asked, self._advisor, self._say = server, asked, advisor, say
        self._known_s = self._value_s = self.began_s = self._grid(from_s)
        self._failed = 0
        self.trouble = ""
        self.taken_s: float | None = None
        self._gaps: deque[float] = deque(maxlen=GAPS_KEPT)  # between samples
        self._value_tps, self._same_s = math.nan, self.began_s

    @property
    def wait_s(self) -> float:
        """Until it is asked again: twice as long each time that it fails."""
        every_s = self._asked.every_s
        return max(every_s, min(RETRY_MOST_S, every_s * 2.0 ** min(self._failed, 10)))

    @property
    def lag_s(self) -> float:
        """How old the sample of the newest value was at the time of that value; 0 where nobody knows."""
        return 0.0 if self.taken_s is None else self._value_s - self.taken_s

    def age_s(self, now_s: float) -> float:
        """How old the newest value is: its sample, where that is known."""
        return max(0.0, now_s - self._value_s + self.lag_s)

    def unchanged_s(self) -> float:
        """For how long it has been the same to the last digit."""
        return self._value_s - self._same_s

    def stale(self, now_s: float) -> bool:
        """Is it too old to act on?"""
        return self.age_s(now_s) > self._oldest_s() + self._asked.step_s

    def _oldest_s(self) -> float:
        """So old may a sample be: others may be on their way."""
        return max(GAP_STEPS * self._asked.step_s, GAP_SAMPLES * median(self._gaps or [0.0])) + SAME_S

    def go_on(self, now_s: float) -> list[Advice]:
        """What there is to say since the last time; what is wrong is said, and nothing ends it."""
        try:
            found = self.ask(now_s)
        except (Unreachable, InvalidInput) as error:
            self._failed += 1
            cause = f": {error.cause}" if error.cause else ""
            self._told(f"{error.what}{cause}; it is asked again, every {RETRY_MOST_S:g} s at least")
            return []
        if self._failed:
            self._failed = 0
            self._say(f"{self._server.url} answers again")
        return found

    def ask(self, now_s: float) -> list[Advice]:
        """The same, but raises what is wrong with the answer."""
        step_s = self._asked.step_s
        to_s = min(self._grid(now_s), self._known_s + (POINTS_MOST - 1) * step_s)
        if to_s < self._known_s + step_s - SAME_S:
            return []
        span = self._asked.query, self._known_s + step_s, to_s, step_s
        points, left_out = self._server.rates(*span)
        points, repeats = self._fresh(points, self._server.sample_times(*span) if points else {})
        late = to_s - (points[-1][0] if points else self._known_s) > GAP_STEPS * step_s + SAME_S
        trouble = [words for words in (left_out, repeats) if words]
        trouble += ["no value comes: nothing is advised until there is one"] if late else []
        if trouble:
            self._told("; ".join(trouble))
        elif points:
            self.trouble = ""
        return self._heard(points, to_s, late)

    def _fresh(
        self, points: list[tuple[float, float]], taken: dict[float, float]
    ) -> tuple[list[tuple[float, float]], str]:
        """Those whose sample is not too old, and in words why not all."""
        times = sorted(set(taken.values()) | ({self.taken_s} if self.taken_s is not None else set()))
        self._gaps.extend(after - before for before, after in pairwise(times))
        old_s = self._oldest_s()
        fresh = [point for point in points if point[0] - taken.get(point[0], point[0]) <= old_s]
        for at_s, rate_tps in fresh:
            if rate_tps != self._value_tps:
                self._value_tps, self._same_s = rate_tps, at_s
        if fresh:
            self.taken_s = taken.get(fresh[-1][0])
        if not points or points[-1] in fresh[-1:]:
            return fresh, ""
        age_s = points[-1][0] - taken[points[-1][0]]
        return fresh, f"the server repeats a sample that is {age_s:,.0f} s old"

    def _heard(self, points: Sequence[tuple[float, float]], to_s: float, late: bool) -> list[Advice]:
        """Each value stands for the step before it. What is missing between two is unknown; what is missing at the
        end may still come, but not for long."""
        found: list[Advice] = []
        step_s, offer = self._asked.step_s, self._advisor.offer
        for at_s, rate_tps in points:
            if not offer.spans:
                self.began_s = at_s - step_s
            found += self._advisor.hear(at_s - step_s - self.began_s, None)
            found += self._advisor.hear(at_s - self.began_s, rate_tps * self._asked.scale)
            self._known_s = self._value_s = at_s
        if late:
            found += self._advisor.hear(to_s - self.began_s, None)
            self._known_s = to_s
        return found

    def _grid(self, at_s: float) -> float:
        return at_s // self._asked.step_s * self._asked.step_s

    def _told(self, text: str) -> None:
        """Once, until it is something else than other figures."""
        before, self.trouble = self.trouble, text
        if _without_figures(text) != _without_figures(before):
            self._say(text)


def _without_figures(text: str) -> str:
    return "".join(letter for letter in text if not letter.isdigit())
