"""The agent's packages: fetches what is offered or needed, checks whose it is, and says where its code is.

A desired state whose package is not here is not obeyed yet: the controller says it again twice a second. One whose
package is here is obeyed with the folders of this host in the place of the package, so nothing behind the agent knows
of packages.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.machinery import NamespaceLoader, PathFinder
from pathlib import Path

from msgspec.structs import replace

from headgate.agent.core.package_state import PackageFetch, codes_on
from headgate.agent.process.agent_config import AgentConfig
from headgate.topology_runtime.errors import Conflict
from headgate.topology_runtime.keys.keyring import read_key
from headgate.topology_runtime.keys.signing_keys import read_signer
from headgate.topology_runtime.packages import revocations
from headgate.topology_runtime.packages.package_files import topology_in
from headgate.topology_runtime.packages.package_manifest import (
    FAULTS_TOLD,
    SHORT,
    BadPackage,
    PackageManifest,
    Revocation,
    missing,
    normal,
    placed,
)
from headgate.topology_runtime.packages.package_store import PackageStore, open_to_readers
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire.messages import (
    DesiredState,
    PackageAt,
    PackageOffer,
    PackagePart,
    TaskCode,
    Token,
)

# ── What a package needs beside its code, installed once per digest: `STORE/DIGEST/site`, there as a whole
# or not at all
#
# pip installs wheels alone (nothing of them is run), each by its hash, from those that travel in the
# package's `wheels/` or from an index that the agent was given. What stands beside headgate itself is never
# replaced: the same version is not installed again, another version is refused, and so is a module that would
# take the place of one of headgate's or Python's.

SITE, NEW, WORK, LINES, LOG, WHEELS = "site", "site.new", "site.work", "site.txt", "site.log", "wheels"
LIMIT_NS = 600 * 1_000_000_000
LOG_BYTES = 16 * 1024  # of pip's last words


class Install:
    """One pip at work. folder: of the package in the store."""

    def __init__(
        self, digest: str, folder: Path, wheels: Path, index: str, lines: list[str], now_ns: int
    ) -> None:
        """Raises OSError."""
        self.digest, self._folder, self._until_ns = digest, folder, now_ns + LIMIT_NS
        for place in (folder / NEW, folder / WORK):
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
        (folder / LINES).write_text("\n".join(lines) + "\n")
        source = ["--index-url", index] if index else ["--no-index"]
        found = ["--find-links", str(wheels)] if wheels.is_dir() else []
        rules = ["--isolated", "--no-input", "--no-cache-dir", "--disable-pip-version-check", "--quiet"]
        exact = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", str(folder / LINES)]
        words = ["install", *rules, *source, *found, *exact, "--target", str(folder / NEW)]
        module = [
            sys.executable,
            "-P",
            "-m",
            "headgate.topology_runtime.packages.installing",
            str(os.getpid()),
        ]
        with (folder / LOG).open("wb") as log:
            self._process = subprocess.Popen(
                [*module, *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=folder,
                env={**os.environ, "TMPDIR": str(folder / WORK)},
            )  # fmt: skip

    def over(self, now_ns: int) -> bool:
        """Has it ended? Then its folder has its name. Raises BadPackage when it could not, OSError."""
        if self._process.poll() is None:
            if now_ns < self._until_ns:
                return False
            self.end()
            raise BadPackage("its requirements cannot be installed", cause=f"not in {LIMIT_NS // 10**9} s")
        shutil.rmtree(self._folder / WORK, ignore_errors=True)
        if self._process.returncode != 0:
            raise BadPackage("its requirements cannot be installed", cause=self._last_words())
        if taken := displaced_installs(self._folder / NEW):
            raise BadPackage(
                "its requirements would replace modules of headgate or Python", cause=", ".join(taken)
            )
        open_to_readers(self._folder / NEW)
        os.replace(self._folder / NEW, self._folder / SITE)
        return True

    def end(self) -> None:
        """pip and whatever it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _last_words(self) -> str:
        data = (self._folder / LOG).read_bytes()[-LOG_BYTES:]
        lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR:")]
        return "; ".join(errors[:3]) or (lines[-1] if lines else f"pip ended {self._process.returncode}")


def needed_install(manifest: PackageManifest) -> list[str]:
    """The lines that are not satisfied by what stands beside headgate. Raises BadPackage for a conflict."""
    if not manifest.requirements:
        return []
    from importlib.metadata import distributions  # with what reads mails: a tenth of an agent's imports

    beside = {normal(one.metadata["Name"]): one.version for one in distributions() if one.metadata["Name"]}
    lines, faults = missing(manifest.requirements, beside)
    if faults:
        raise BadPackage("its requirements contradict headgate's own", faults=faults[:FAULTS_TOLD])
    return lines


def displaced_installs(site: Path) -> list[str]:
    """Modules in it that stand beside headgate, or in Python, already; of packages that many share, none."""
    found = []
    for entry in sorted(site.iterdir()) if site.is_dir() else ():
        name = entry.name.partition(".")[0]
        if (
            entry.suffix == ".dist-info"
            or not (entry.is_dir() or entry.suffix in (".py", ".so"))
            or name == "bin"
        ):
            continue
        spec = PathFinder.find_spec(name)
        beside = spec is not None and not isinstance(spec.loader, NamespaceLoader) and spec.loader is not None
        if beside or name in sys.stdlib_module_names:
            found.append(name)
    return found


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

FOLDER = "packages"  # in an agent's own

log = logging.getLogger("headgate.agent")


class Packages:
    """Of one VM. It trusts the signers that it was given and those that its key names; without any it runs none.

    Raises InvalidInput."""

    def __init__(self, config: AgentConfig, boot: int, send: Callable[[PackageAt], None]) -> None:
        self._vm, self._send = config.vm, send
        self._folder = Path(config.packages or Path(config.directory) / FOLDER)
        self._trusted = {read_signer(Path(file)).public for file in config.signers}
        self._trusted |= set(read_key(Path(config.key)).signers)
        self.only_signed = bool(self._trusted) and not config.allow_folders
        self._unsigned = False  # is something desired that nobody signed?
        self._fetch, self._boot = PackageFetch(config.vm, boot), boot
        self._revoked = revocations.Revocations(self._folder / revocations.FILE)
        self._made: PackageStore | None = None
        self._index = config.package_index
        self._installs: list[str] = []  # one after the other
        self._install: Install | None = None
        self._desired: tuple[str, ...] = ()
        self._running: tuple[str, ...] = ()
        self._last: tuple[Token, DesiredState, bytes] | None = None

    @property
    def _store(self) -> PackageStore:
        """Made with the first package. Raises OSError."""
        if self._made is None:
            self._made = PackageStore(self._folder, unpacks=True)
        return self._made

    def close(self) -> None:
        if self._install is not None:
            self._install.end()
        if self._made is not None:
            self._made.close()

    def troubles(self) -> tuple[str, ...]:
        """Why what is desired cannot be run here."""
        why = next(filter(None, map(self._fetch.refusal, self._desired)), "")
        why = why or next(filter(None, map(self._outlived, self._running)), "")
        if self._unsigned:
            why = (
                f"{self._vm} runs signed packages only: `headgate submit --ship`, "
                "or `agent run --set allow-folders=yes`"
            )
        return (why,) if why else ()

    def hear(self, message: PackageOffer | PackagePart, now_ns: int) -> None:
        """Of the controller."""
        if isinstance(message, PackageOffer) and message.revoked is not None:
            self._revoke(message.revoked, now_ns)
        elif isinstance(message, PackageOffer):
            self._want(message.digest, now_ns)
        elif self._fetch.wanted(message.digest, message.offset) and message.data:
            self._trying(message.digest, now_ns, lambda: self._take(message, now_ns))
        self.tick(now_ns)

    def tick(self, now_ns: int) -> None:
        if (running := self._install) is not None:
            self._trying(running.digest, now_ns, lambda: self._look_at(running, now_ns))
        elif self._installs:
            digest = self._installs.pop(0)
            self._trying(digest, now_ns, lambda: self._begin(digest, now_ns))
        for said in self._fetch.due(now_ns):
            self._send(said)

    def local(self, desired: DesiredState, data: bytes, now_ns: int) -> tuple[DesiredState, bytes] | None:
        """What this host makes of a desired state; None while a package that is run here is not here."""
        codes = tuple(codes_on(desired, self._vm))
        self._desired = tuple(code.package for code in codes if code.package)
        self._unsigned = self.only_signed and len(self._desired) < len(codes)
        if not self._desired or self._unsigned:
            return None if self._unsigned else (desired, data)
        for digest in self._desired:
            self._want(digest, now_ns)
        self.tick(now_ns)
        if self._last is None or self._last[0] != desired.token:
            self._place(desired, codes, now_ns)
        if not self._fetch.here.issuperset(self._desired) or self._last is None:
            return None
        if self._desired != self._running:
            self._running = self._desired
            for digest in self._running:
                self._trying(digest, now_ns, partial(self._store.used, digest))
        return self._last[1], self._last[2]

    def _place(self, desired: DesiredState, codes: tuple[TaskCode, ...], now_ns: int) -> None:
        """All of it, once all is here."""
        here: list[TaskCode] = []
        for code in codes:
            if not code.package:
                here.append(code)
            elif code.package in self._fetch.here:
                self._trying(code.package, now_ns, lambda code=code: here.append(self._placed(code)))  # type: ignore[misc]
        if len(here) == len(codes):
            newest, *older = here
            own = replace(desired, topology=newest.topology, user_paths=newest.user_paths, older=tuple(older))
            self._last = desired.token, own, channels.encode(own)

    def _placed(self, desired: TaskCode) -> TaskCode:
        """What runs is what was signed: its code, and its topology. Raises BadPackage, OSError."""
        code = self._store.code(desired.package)
        signed = topology_in(code)
        if desired.topology != signed:
            raise BadPackage(
                "the topology that is desired is not the one that was signed", cause="submit it again"
            )
        site = code.parent / SITE
        paths = (str(code), str(site)) if site.is_dir() else (str(code),)
        return replace(desired, user_paths=paths, topology=placed(signed, str(code)))

    def _want(self, digest: str, now_ns: int) -> None:
        if self._fetch.want(digest, now_ns):
            self._trying(digest, now_ns, lambda: self._look(digest, now_ns))

    def _trying(self, digest: str, now_ns: int, what: Callable[[], None]) -> None:
        """What cannot be done is said, by the names of host and package."""
        try:
            what()
        except BadPackage as error:
            self._refuse(digest, f"{error.what}: {error.cause or '; '.join(error.faults)}", now_ns)
        except Conflict as error:
            self._refuse(digest, error.what, now_ns)
        except OSError as error:
            self._refuse(digest, f"it cannot be kept: {error.strerror} ({self._folder})", now_ns)

    def _prepare(self, digest: str, now_ns: int) -> None:
        """It is here and trusted; what it needs may have to be installed first. Raises BadPackage, OSError."""
        manifest, folder = self._store.manifest(digest), self._store.code(digest).parent
        assert manifest is not None
        ready = not needed_install(manifest) or (folder / SITE).is_dir()
        if not ready and digest not in self._installs:
            self._installs.append(digest)
        self._fetch.has(digest, self._store.size(digest), now_ns, whole=ready, busy=not ready)

    def _begin(self, digest: str, now_ns: int) -> None:
        manifest, code = self._store.manifest(digest), self._store.code(digest)
        if manifest is not None:
            lines = needed_install(manifest)
            self._install = Install(digest, code.parent, code / WHEELS, self._index, lines, now_ns)
            log.info("what package %s needs is being installed", digest[:SHORT])

    def _look_at(self, install: Install, now_ns: int) -> None:
        try:
            over = install.over(now_ns)
        except (BadPackage, OSError):
            self._install = None
            raise
        if over:
            self._install = None
            self._prepare(install.digest, now_ns)

    def _revoke(self, one: Revocation, now_ns: int) -> None:
        """For good, if a signer whom this host trusts says so; what runs goes on, and is said."""
        answer = one.words
        try:
            if one.signer not in self._trusted:
                raise BadPackage(
                    "its revocation is not believed", cause=f"{self._vm} does not trust key {one.signer}"
                )
            if self._revoked.add(one):
                log.warning("%s", one.words)
            if one.package not in self._running:
                self._fetch.refuse(one.package, answer, now_ns)
        except BadPackage as error:
            answer = f"{error.what}: {error.cause}"
        except OSError as error:
            log.warning("the revocation cannot be kept: %s (%s)", error.strerror, self._folder)
            return  # it is said again
        self._send(PackageAt(self._vm, self._boot, one.package, 0, refused=answer))

    def _outlived(self, digest: str) -> str:
        """Why a package that runs here would not be started here; nothing when it would."""
        try:
            self._revoked.refuse(digest)
            if (manifest := self._store.manifest(digest)) is not None:
                manifest.refuse_expired(digest, time.time_ns())
        except (BadPackage, OSError) as error:
            return f"{error}; it runs on until it is replaced or stopped"
        return ""

    def _refuse(self, digest: str, why: str, now_ns: int) -> None:
        text = f"{self._vm} does not take package {digest[:SHORT]}: {why}"
        log.warning("%s", text)
        self._fetch.refuse(digest, text, now_ns)

    def _look(self, digest: str, now_ns: int) -> None:
        """What of it is here already?"""
        if (manifest := self._store.manifest(digest)) is not None:
            self._admit(digest, self._store.signer(digest), manifest)
            self._prepare(digest, now_ns)
        else:
            self._go_on(digest, now_ns)

    def _take(self, part: PackagePart, now_ns: int) -> None:
        if self._store.add(part.digest, part.offset, part.data):
            self._look(part.digest, now_ns)
            log.info("package %s is here", part.digest[:SHORT])
            for gone in self._store.collect(self._fetch.under_way.union(self._running)):
                log.info("package %s is here no more: nobody has used it for long", gone[:SHORT])
        else:
            self._go_on(part.digest, now_ns)

    def _go_on(self, digest: str, now_ns: int) -> None:
        """The rest of it, if what has come is of somebody who is trusted."""
        reading = self._store.coming(digest)
        if reading.signature is not None:
            try:
                self._admit(digest, reading.signature.signer, reading.manifest)
            except BadPackage:
                self._store.forget(digest)
                raise
        self._fetch.has(digest, reading.taken, now_ns)

    def _admit(self, digest: str, signer: str, manifest: PackageManifest | None) -> None:
        """By this host's own clock. Raises BadPackage."""
        self._revoked.refuse(digest)
        if manifest is not None:
            manifest.refuse_expired(digest, time.time_ns())
        if signer not in self._trusted:
            trusted = "it trusts other signers" if self._trusted else "it trusts no signer"
            raise BadPackage(
                f"key {signer} signed it, and {trusted}",
                cause="a new key (`headgate keys rotate agent VM`) or `agent run --trust-signer FILE` adds one",
            )
