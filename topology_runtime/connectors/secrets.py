"""Secrets that a task's params refer to: `${FILE:/path}` and `${ENV:NAME}`, also in the midst of a text.

Everywhere but in a task's object they stay references. `with_secrets` reads them in the process that builds the object;
each value is hidden from all texts of that process from then on (`wording.hide`). A class that asks for a secret anew
whenever it connects names those params in `reads_references` and is given a `SecretText` for each:

    class Orders(LiveSource):
        reads_references = ("password",)

        def __init__(self, host: str, password: SecretText | None = None) -> None:
            self._host, self._password = host, password

        def open(self, context: Context) -> None:
            connect(self._host, password=self._password.text() if self._password else None)
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.wording import SECRET, STARS, hide, secrets_named

MOST_BYTES = 64 * 1024  # of a secret


class SecretText:
    """A param's text whose secrets are read at each call of `text`, so that what replaced them counts at once: a file
    that was written anew or renamed over, or a folder of secrets whose link was changed.

    >>> SecretText("${FILE:/run/secrets/db}")
    SecretText('${FILE:/run/secrets/db}')
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text
        if not SECRET.search(text):
            hide(text)

    def text(self) -> str:
        """As it is now. Raises InvalidInput that names the reference."""
        return SECRET.sub(_passing, self._text)

    def __repr__(self) -> str:
        return f"SecretText({self._text if SECRET.search(self._text) else STARS!r})"

    __str__ = __repr__


def text_of(value: str | SecretText) -> str:
    """The text of a param, however its class asked for it. Raises InvalidInput."""
    return value if isinstance(value, str) else value.text()


def with_secrets(params: Mapping[str, Any], kept: Sequence[str] = ()) -> dict[str, Any]:
    """Params with the values of their references; texts in those in `kept` become a `SecretText`. Raises
    InvalidInput that names the reference that cannot be read, and never a value."""
    return {name: _each(value, SecretText if name in kept else _read) for name, value in params.items()}


def as_text(params: Mapping[str, Any]) -> dict[str, Any]:
    """Params of which `with_secrets` makes these again, references and all."""
    return {name: _each(value, _doubled) for name, value in params.items()}


def unreadable_here(value: Any) -> Iterator[str]:
    """Why references in a param cannot be read in this process."""
    for kind, name in dict.fromkeys(secrets_named(value)):
        try:
            _value(kind, name)
        except InvalidInput as error:
            yield f"{error.what}: {error.cause}"


def _each(value: Any, change: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)([_each(one, change) for one in value])
    if isinstance(value, dict):
        return {key: _each(one, change) for key, one in value.items()}
    return value


def _doubled(text: str) -> str:
    return SECRET.sub(lambda found: "$" + found[0], text)


def _read(text: str) -> str:
    return SECRET.sub(_replaced, text) if "${" in text else text


def _replaced(found: re.Match[str], passing: bool = False) -> str:
    if found[1]:
        return found[0][1:]
    value = _value(found[2], found[3])
    hide(value, passing)
    return value


_passing = partial(_replaced, passing=True)


def _value(kind: str, name: str) -> str:
    """What a reference stands for now."""
    what = f"cannot read ${{{kind}:{name}}}"
    if kind == "FILE":
        data: bytes | None = _bytes_of(name, what)
        hint = "write the secret there; it is tried again"
    else:
        data = os.environb.get(name.encode())
        hint = "set it for the agent of this VM, or use ${FILE:/path}"
        if data is None:
            raise InvalidInput(what, cause="this variable is not set here", hint=hint)
    if not data:
        raise InvalidInput(what, cause="it is empty", hint=hint)
    if len(data) > MOST_BYTES:
        raise InvalidInput(what, cause=f"it has more than {MOST_BYTES // 1024} KiB", hint="name another")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:  # not chained: it holds the value
        pass
    raise InvalidInput(what, cause="it is not UTF-8 text", hint="secrets are text: encode it, say as base64")


def _bytes_of(path: str, what: str) -> bytes:
    """At most one more than may be, without the end of the last line."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not hold us up
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise InvalidInput(what, cause="it is no plain file", hint="name a plain file")
            data = file.read(MOST_BYTES + 3)
    except OSError as error:
        user = f"user {os.geteuid()}"
        hint = f"put the file on this VM, where {user} may read it; it is tried again"
        raise InvalidInput(what, cause=f"{error.strerror}, as {user}", hint=hint) from error
    return data[: -2 if data.endswith(b"\r\n") else -1] if data.endswith(b"\n") else data
