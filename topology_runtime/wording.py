"""How faults and counts are put into words, and the rules of names, references and numbers that faults use."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, quote_plus

NAME = re.compile(r"(?!\.*$)[A-Za-z0-9_.-]{1,64}")  # not only dots: names become directories
REFERENCE = re.compile(r"[\w-]+(\.[\w-]+)*:[^\W\d]\w*(\.[^\W\d]\w*)*")  # module:attribute, both dotted

WHOLE_BELOW = 1e15  # numbers that are shown without an exponent
SHOWN = 60  # characters of a wrong value that a fault shows
MAX_SUGGESTIONS = 20  # looking for near names is slow: no more than this many per topology


def shown(value: object) -> str:
    """A value in a fault, cut to `SHOWN` characters."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python prints
        text = "a huge number"
    text = hidden(text)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


# ── Values that no text may show: secrets that this process has read (connectors/secrets.py) ────────────
#
# Also where a text has them in another form: as Python or JSON writes them, in a URL, or a line of many.

STARS = "***"
HIDDEN_LEAST, LINE_LEAST = 4, 8  # characters of a value, and of one of its lines, that is hidden
PASSING_MOST = 1_000  # forms of values that are read again and again: the oldest are forgotten
_forms: dict[str, bool] = {}  # form → passing
_newest = object()  # another one after each change of them
_known: tuple[object, list[str]] = _newest, []  # the longest first


def hide(value: str, passing: bool = False) -> None:
    """From now on `visible`, `shown` and `error_text` have stars in place of this value. passing: until many more of
    that kind came.

    >>> hide("hunter22")
    >>> visible("no such user: me:hunter22@host")
    'no such user: me:***@host'
    """
    global _newest
    lines = [line for line in value.splitlines() if len(line) >= LINE_LEAST]
    wholes = [one for one in (value, value.strip()) if len(one) >= HIDDEN_LEAST]
    forms = {form for one in (*wholes, *lines) for form in _written(one)}
    new = [form for form in forms if _forms.get(form, True) and (form not in _forms or not passing)]
    if new:
        _forms.update(dict.fromkeys(new, passing))
        old = [form for form, passes in list(_forms.items()) if passes][:-PASSING_MOST]
        for form in old:
            _forms.pop(form, None)
        _newest = object()


def _written(value: str) -> tuple[str, ...]:
    both = len(repr("'\"")) - 1  # how Python writes the value in a text that has both quotes
    python = repr(value)[1:-1], repr(f"'\"{value}")[both:-1], ascii(value)[1:-1]
    return value, *python, json.dumps(value)[1:-1], quote(value, safe=""), quote(value), quote_plus(value)


def hidden(text: str) -> str:
    """Without the values that no text may show. Any thread may hide more at any time: what was hidden before this call
    is."""
    global _known
    newest, (of, forms) = _newest, _known
    if of is not newest:
        forms = sorted(_forms, key=len, reverse=True)
        _known = newest, forms
    for form in forms:
        if form in text:
            text = text.replace(form, STARS)
    return text


UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """Foreign text for people: without secrets, and without anything that moves a terminal's cursor, turns text round
    or is half a character. Such a one is shown as `\\x1b`."""
    return UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), hidden(text))


def error_text(error: BaseException) -> str:
    """Its kind and what it says; one of the user's may not even be able to say that."""
    try:
        return hidden(f"{type(error).__name__}: {error}")
    except BaseException:
        return f"{type(error).__name__}, whose text cannot be had"


def one_line(text: str) -> str:
    """The same, in a line of its own."""
    return visible(text).replace("\n", "\\n").replace("\t", " ")


def counted(number: int, thing: str) -> str:
    """`1 slot`, `1,200 slots`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def significant(value: float, digits: int = 4) -> str:
    """`103.2`, `0.01234`, `25,570`: so many digits that count, and a whole number where it has more of them, not
    `2.557e+04`; from 10¹⁵ on it has an exponent."""
    text = f"{value:,.{digits}g}"
    return f"{value:,.0f}" if "e+" in text and abs(value) < WHOLE_BELOW else text


class Suggestions:
    """Known words near to wrong ones; for the first `MAX_SUGGESTIONS` different wrong ones only."""

    def __init__(self) -> None:
        self._found: dict[str, str | None] = {}

    def nearest(self, word: str, known: Iterable[str]) -> str | None:
        """The known word most like `word`, None when none is near."""
        if word not in self._found:
            if len(self._found) == MAX_SUGGESTIONS:
                return None
            from difflib import get_close_matches  # only who is wrong pays for it

            self._found[word] = next(iter(get_close_matches(word[:SHOWN], list(known), 1)), None)
        return self._found[word]

    def text(self, word: str, known: Iterable[str]) -> str:
        """`; did you mean 'score'?`, or nothing."""
        near = self.nearest(word, known)
        return f"; did you mean {near!r}?" if near else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'score'?`, or nothing when no known word is near."""
    return Suggestions().text(word, known)


def name_faults(place: str, name: str) -> Iterator[str]:
    if not NAME.fullmatch(name):
        yield f"{place} {shown(name)}: names are 1 to 64 of A-Z a-z 0-9 _ . - and not only dots"


def number_faults(place: str, value: float, low: float, high: float, open_low: bool = False) -> Iterator[str]:
    """`value` shall be finite and within low … high (above low if `open_low`)."""
    fits = low <= value <= high and not (open_low and value == low)
    if not (math.isfinite(value) and fits):
        text = f"above {low:g}" if open_low else f"at least {low:g}"
        text += f" and at most {high:,g}" if math.isfinite(high) else ""
        yield (
            f"{place}: {value:g} must be {text}"
            if math.isfinite(value)
            else f"{place}: {value} is not finite"
        )


# ── References to secrets in params: `${FILE:/path}`, `${ENV:NAME}`; `$${…}` is that text itself. Pure ───
#
# Whatever else begins with `${` is text as any.

SECRET = re.compile(r"\$(\$?)\{(FILE|ENV):([^}]*)\}")
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ALIKE = re.compile(r"\$(\$?)\{([A-Za-z]+):([^}]*)(\}?)")


def secret_faults(place: str, text: str) -> Iterator[str]:
    """What is wrong with references to secrets in a param's text."""
    for found in _ALIKE.finditer(text):
        literal, word, named, end = found.groups()
        if literal:
            continue
        if word not in ("FILE", "ENV"):
            if near := did_you_mean(word.upper(), ("FILE", "ENV")):
                yield f"{place}: {shown(found[0])} is no reference{near} (`$${{…}}` for the text itself)"
        elif not end:
            yield f"{place}: {shown(found[0])} has no '}}'"
        elif word == "FILE" and not (named.startswith("/") and "\0" not in named):
            yield f"{place}: {shown(found[0])}: name the file by its whole path, /…"
        elif word == "ENV" and not ENV_NAME.fullmatch(named):
            yield f"{place}: {shown(found[0])}: a variable's name has A-Z a-z 0-9 _ and begins with no digit"


def secrets_named(value: object) -> Iterator[tuple[str, str]]:
    """(`FILE` or `ENV`, path or name) of each reference in a param, whatever is nested in it."""
    if isinstance(value, str):
        yield from ((found[2], found[3]) for found in SECRET.finditer(value) if not found[1])
    elif isinstance(value, dict):
        yield from (one for item in value.values() for one in secrets_named(item))
    elif isinstance(value, list | tuple):
        yield from (one for item in value for one in secrets_named(item))


# ── Points in time as people and files write them. Pure ─────────────────────────────────────────────────

EPOCH = datetime.fromtimestamp(0, UTC)


def utc_iso(wall_ns_: int) -> str:
    """`2026-01-31T12:00:00.000000Z` of nanoseconds since 1970."""
    stamp = datetime.fromtimestamp(wall_ns_ / 1e9, UTC)
    return stamp.isoformat(timespec="microseconds").replace("+00:00", "Z")


def utc_of_us(at_us: int) -> str:
    """As `utc_iso`, of microseconds since 1970; the number where it is no date.

    >>> utc_of_us(1_790_000_000_500_000)
    '2026-09-21T14:13:20.500000Z'
    """
    try:
        stamp = EPOCH + timedelta(microseconds=at_us)
    except OverflowError:
        return f"{at_us:,} µs since 1970"
    return stamp.isoformat(timespec="microseconds").replace("+00:00", "Z")


def utc_ns(text: str) -> int:
    """Nanoseconds since 1970 of what `utc_iso` wrote, to a microsecond. Raises ValueError."""
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1) * 1000


def larger_slots(needed_bytes: float) -> str:
    """How to have slots in which so much is not too much, as a user says it."""
    size = math.ceil(1.1 * needed_bytes / (1 << 20)) << 20
    place = "`slot_memory` in the hosts file, `slot_memory_bytes` in a price list"
    return f"larger slots: `up --set slot-memory={size}`, {place}"
