"""A folder of keys: who may come in (`trust.json`), and a file for each that has a key.

    trust.json            the public keys: role, name, since when, revoked when
    controller.key        the controller's own pair
    signing.key, .pub     the key that signs packages of code, if one was made here; keys of agents name its public half
    agent.vm1.key …       what whoever it names needs: his pair and the controller's public key; it goes to his host

The folder is its owner's alone (0700, files 0600), and one change is made at a time. A running controller sees a change
within a second.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from headgate.topology_runtime.errors import Conflict, InvalidInput
from headgate.topology_runtime.keys.curve import new_pair
from headgate.topology_runtime.keys.key_files import keep_whole, read_whole
from headgate.topology_runtime.keys.key_pairs import GIVEN, Admits, Contact, KeyPair, Role, Who
from headgate.topology_runtime.keys.signing_keys import PUBLIC, read_signer
from headgate.topology_runtime.wording import NAME, name_faults, utc_iso

KEY_SCHEMA, TRUST_SCHEMA = "headgate/key/v1", "headgate/trust/v1"
TRUST, CONTROLLER = "trust.json", "controller.key"
KEYS = "keys"  # in a run's state directory
OVERLAP_S = 24 * 3600.0  # a rotated key counts for so long yet
SHARED = "shared"  # the operator whose key a shared controller asks its topologies' controllers with
SHARED_KEY = f"operator.{SHARED}.key"
LOCAL = "local"  # the operator who made the folder


class KeyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file: all that whoever it names needs. controller: its public key. signers: of an agent, the public keys of
    those whose packages it runs. before: the controller's public key until it was rotated, which counts too until
    `before_until` (UTC)."""

    role: Role
    name: str
    public: str
    secret: str
    controller: str
    signers: tuple[str, ...] = ()
    before: str = ""
    before_until: str = ""
    schema: str = KEY_SCHEMA

    @property
    def pair(self) -> KeyPair:
        return KeyPair(self.public, self.secret)

    def __repr__(self) -> str:
        return f"KeyFile({self.role} {self.name} {self.public!r})"

    def contact(self, endpoint: str) -> Contact:
        before = self.before if utc_iso(time.time_ns()) < self.before_until else ""
        return Contact(endpoint, self.pair, self.controller, before)


class Trusted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A public key and whose it is; times in UTC. revoked "": it may come in, until `until` if it was rotated."""

    role: Role
    name: str
    public: str
    since: str
    revoked: str = ""
    until: str = ""


class TrustFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    controller: str
    keys: tuple[Trusted, ...] = ()
    schema: str = TRUST_SCHEMA

    def of(self, role: str, name: str) -> Trusted | None:
        """His key that is neither revoked nor rotated."""
        who = role, name, "", ""
        found = (key for key in self.keys if (key.role, key.name, key.revoked, key.until) == who)
        return next(found, None)


class Keyring:
    """The folder. It must be there: `make` makes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def make(cls, folder: Path) -> Keyring:
        """A new folder with a controller's key and nobody else's. Raises Conflict when it holds keys, InvalidInput."""
        ring = cls(folder)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
            with ring._alone():
                if (folder / TRUST).exists():
                    raise Conflict(f"{folder} holds keys already", hint=f"headgate keys list --keys {folder}")
                pair = new_pair()
                ring._keep(
                    CONTROLLER, KeyFile("controller", "controller", pair.public, pair.secret, pair.public)
                )
                ring._keep(TRUST, TrustFile(pair.public))
        except OSError as error:
            raise InvalidInput(f"keys cannot be written to {folder}", cause=error.strerror) from error
        return ring

    @classmethod
    def at(cls, folder: Path) -> Keyring:
        """The folder's keys; a new folder gets a controller's key and one for whoever runs it. Raises InvalidInput."""
        if (folder / TRUST).exists():
            return cls(folder)
        ring = cls.make(folder)
        ring.ensure("operator", LOCAL)
        return ring

    def trust(self) -> TrustFile:
        """Who may come in. Raises InvalidInput."""
        if not (self.folder / TRUST).exists():
            raise self._none()
        return read_whole(self.folder / TRUST, TrustFile)

    def controller(self) -> KeyPair:
        return read_key(self.folder / CONTROLLER).pair

    def path(self, role: str, name: str) -> Path:
        return self.folder / (CONTROLLER if role == "controller" else f"{role}.{name}.key")

    def key(self, role: str, name: str) -> KeyFile:
        """Raises InvalidInput when there is none."""
        return read_key(self.path(role, name))

    def add(self, role: Role, name: str) -> Path:
        """A key for somebody new; its file. Raises Conflict when he has one, InvalidInput."""
        with self._alone():
            trust = self.trust()
            if trust.of(role, name) is not None:
                hint = f"headgate keys export {role} {name}, or rotate it"
                raise Conflict(f"{role} {name} has a key", hint=hint)
            return self._give(trust, role, name)

    def ensure(self, role: Role, name: str) -> Path:
        """His key's file, made if he has none."""
        with self._alone():
            trust = self.trust()
            held = trust.of(role, name) is not None and self.path(role, name).exists()
            return self.path(role, name) if held else self._give(_without(trust, role, name), role, name)

    def rotate(self, role: Role, name: str, overlap_s: float = OVERLAP_S) -> Path:
        """A new key in place of his old one, which counts for so long yet; one of before that, no more. Raises
        InvalidInput when he has none."""
        until = utc_iso(time.time_ns() + int(overlap_s * 1e9)) if overlap_s else ""
        with self._alone():
            trust = self.trust()
            if role == "controller":
                return self._rotate_controller(trust, until)
            held = self._held(trust, role, name)
            trust = _without(trust, role, name)
            if until:
                last = msgspec.structs.replace(held, until=until)
                keys = tuple(last if key.public == held.public else key for key in trust.keys)
                trust = msgspec.structs.replace(trust, keys=keys)
            return self._give(trust, role, name)

    def revoke(self, role: Role, name: str) -> None:
        """His key counts no more. Raises InvalidInput when he has none."""
        with self._alone():
            trust = self.trust()
            self._held(trust, role, name)
            self._keep(TRUST, _without(trust, role, name))
            self.path(role, name).unlink(missing_ok=True)

    def _held(self, trust: TrustFile, role: str, name: str) -> Trusted:
        if (held := trust.of(role, name)) is None:
            raise InvalidInput(
                f"{role} {name} has no key in {self.folder}", hint=f"headgate keys list --keys {self.folder}"
            )
        return held

    def _give(self, trust: TrustFile, role: Role, name: str) -> Path:
        """The file first: who is trusted has one."""
        if faults := list(name_faults(role, name)):
            raise InvalidInput("there is no such name", faults=faults)
        pair, path = new_pair(), self.path(role, name)
        signers = self._signers() if role == "agent" else ()
        others = (read_key(other) for other in self.folder.glob("*.*.key"))
        told = next((key for key in others if key.controller == trust.controller and key.before), None)
        before = (told.before, told.before_until) if told is not None else ("", "")
        own = KeyFile(role, name, pair.public, pair.secret, trust.controller, signers)
        self._keep(path.name, msgspec.structs.replace(own, before=before[0], before_until=before[1]))
        entry = Trusted(role, name, pair.public, utc_iso(time.time_ns()))
        self._keep(TRUST, msgspec.structs.replace(trust, keys=(*trust.keys, entry)))
        return path

    def _signers(self) -> tuple[str, ...]:
        """Whose signing key is in this folder. Raises InvalidInput."""
        path = self.folder / PUBLIC
        return (read_signer(path).public,) if path.exists() else ()

    def _rotate_controller(self, trust: TrustFile, until: str) -> Path:
        """Everybody's file names the new one, and until then the old one too; a controller takes it when it starts."""
        pair, before = new_pair(), trust.controller if until else ""
        self._keep(CONTROLLER, KeyFile("controller", "controller", pair.public, pair.secret, pair.public))
        self._keep(TRUST, msgspec.structs.replace(trust, controller=pair.public))
        for path in sorted(self.folder.glob("*.*.key")):
            key = msgspec.structs.replace(
                read_key(path), controller=pair.public, before=before, before_until=until
            )
            self._keep(path.name, key)
        return self.folder / CONTROLLER

    def _none(self, cause: str | None = None) -> InvalidInput:
        is_file = self.folder.exists() and not self.folder.is_dir()
        hint = "name the folder of keys, not a file" if is_file else f"headgate keys init {self.folder}"
        return InvalidInput(f"{self.folder} holds no keys", cause=cause, hint=hint)

    def _keep(self, name: str, what: msgspec.Struct) -> None:
        keep_whole(self.folder / name, what)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else changes it meanwhile. Raises InvalidInput when the disk does not take it."""
        try:
            lock = os.open(self.folder / ".lock", os.O_WRONLY | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._none(error.strerror) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        except OSError as error:
            raise InvalidInput(f"keys cannot be written to {self.folder}", cause=error.strerror) from error
        finally:
            os.close(lock)


def _without(trust: TrustFile, role: str, name: str) -> TrustFile:
    """All his keys revoked now."""
    now = utc_iso(time.time_ns())
    keys = tuple(
        msgspec.structs.replace(key, revoked=now)
        if (key.role, key.name, key.revoked) == (role, name, "")
        else key
        for key in trust.keys
    )
    return msgspec.structs.replace(trust, keys=keys)


def read_key(path: Path) -> KeyFile:
    """Raises InvalidInput when it is none, or others may read it."""
    found = read_whole(path, KeyFile)
    if found.role not in (*GIVEN, "controller") or not NAME.fullmatch(found.name):
        raise InvalidInput(f"{path} is no key of headgate", cause=f"of {found.role!r} {found.name!r}")
    return found


# ── Who may come in now: a folder's `trust.json` in memory, read again when it changes ──────────────────


class Trust:
    """Asked by any thread. trouble: why the last change could not be read; what was known counts on. changes: who came
    in or went since somebody took them from there."""

    def __init__(self, ring: Keyring) -> None:
        """Raises InvalidInput when it cannot be read."""
        self._ring, self._lock = ring, threading.Lock()
        self.changes: list[str] = []
        self._seen = self._stamp()
        self._ends = ""  # when the next rotated key counts no more
        self._known = self._read()
        self._gone = False
        self.trouble = ""

    def admits(self, *roles: str, others: Callable[[str], None] = lambda public: None) -> Admits:
        """Those of these roles. Somebody new is known at once, somebody who is gone after the next `look`. others: is
        given the keys of those who may not."""

        def admit(public: str) -> Who | None:
            who = self._of(public, roles)
            if who is None:
                others(public)
            return who

        return admit

    def whose(self, public: str) -> str:
        """Who holds, or held, a key that may not come in; "" when nobody does."""
        try:
            held = [key for key in self._ring.trust().keys if key.public == public]
        except InvalidInput:
            return ""
        return f"{held[-1].role} {held[-1].name}" if held else ""

    def look(self) -> bool:
        """Read it again if it has changed; True when somebody may come in no more since the last time."""
        with self._lock:
            self._read_again()
            gone, self._gone = self._gone, False
            return gone

    def _of(self, public: str, roles: Collection[str]) -> Who | None:
        who = self._known.get(public)
        if who is None:
            with self._lock:
                self._read_again()
            who = self._known.get(public)
        return who if who is not None and who.role in roles else None

    def _read_again(self) -> None:
        stamp = self._stamp()
        if stamp == self._seen and not (self._ends and utc_iso(time.time_ns()) >= self._ends):
            return
        try:
            known = self._read()
        except InvalidInput as error:  # a broken file lets nobody in again and throws nobody out
            self.trouble = str(error)
            return
        self._gone = self._gone or bool(self._known.keys() - known.keys())
        self.changes += [f"in: {known[key]}" for key in sorted(known.keys() - self._known.keys())]
        self.changes += [f"out: {self._known[key]}" for key in sorted(self._known.keys() - known.keys())]
        self._seen, self._known, self.trouble = stamp, known, ""

    def _read(self) -> dict[str, Who]:
        now = utc_iso(time.time_ns())
        found = [k for k in self._ring.trust().keys if not k.revoked and (not k.until or now < k.until)]
        self._ends = min((key.until for key in found if key.until), default="")
        return {key.public: Who(key.role, key.name, key.public) for key in found}

    def _stamp(self) -> tuple[int, int, int]:
        try:
            found = os.stat(self._ring.folder / TRUST)
        except OSError:
            return 0, 0, 0
        return found.st_ino, found.st_mtime_ns, found.st_size
