"""From what a user names to a valid topology: `FILE.json`, `file.py:attribute`, `file.py` with one topology in it,
`module:attribute`, or the bare word of a shipped example.

Files are read here; they hold no code. User code is imported only in a loader process that lives for one
topology, so that a hanging or crashing import harms no daemon, and a user's own `controller.py` or
`agent/` is never taken for ours:

    python -P -m headgate.topology_runtime.api.loading [--runs] [--limit-s S] REFERENCE PATH…

Its last line on stdout is `{"topology": {…}, "paths": […]}`, or `{"error": {…}}`; what user code prints goes to
stderr.
REFERENCE `-` is a topology as JSON on stdin.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headgate.topology_runtime.api.plugins import with_references
from headgate.topology_runtime.api.references import import_too_slow, module_of_file
from headgate.topology_runtime.api.shipped_examples import DEMO, NAMES, example
from headgate.topology_runtime.api.task_functions import build, key_function
from headgate.topology_runtime.api.topology import Topology, document_of, topology_of_document
from headgate.topology_runtime.api.topology_files import PARSERS, near_file, read_data
from headgate.topology_runtime.api.validate import topology_of
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.wording import REFERENCE, did_you_mean, shown

__all__ = ["Loaded", "build", "check_runs", "key_function", "load"]

LIMIT_S = 30.0  # for importing the user's code, which may import much but must not start to work
GRACE_S = 3.0  # the loader process ends itself at its limit and says where; later it is killed
FORMS = f"FILE{'|'.join(PARSERS)}, file.py, file.py:attribute, module:attribute or the name of an example"


@dataclass(frozen=True)
class Loaded:
    """A valid topology, and the folders from which its `run`s are imported (first in the import path): also those that
    its code itself has put there."""

    topology: Topology
    user_paths: tuple[str, ...]


def load(
    reference: str, paths: Sequence[str] = (), *, runs: bool = False, limit_s: float = LIMIT_S
) -> Loaded:
    """The topology that `reference` names. `paths`: folders to import from, before its own and the cwd.

    runs: it is to be run, so each `run` of a file is imported too, checked, and its kind filled in; a
    topology from Python is always checked so. Raises InvalidInput with every fault."""
    place = _locate(reference)
    user_paths = place.user_paths(paths)
    if place.file is None or runs:
        topology, added = _in_loader(place.target, user_paths, runs, limit_s, b"", reference)
        user_paths = tuple(dict.fromkeys((*user_paths, *added)))
    else:
        topology, _ = topology_of(with_references(read_data(place.file)), reference)
    return Loaded(topology, user_paths)


def check_runs(topology: Topology, user_paths: Sequence[str], limit_s: float = LIMIT_S) -> Topology:
    """The topology with the kinds of its code, every `run` tried in a loader process. Raises InvalidInput
    that lists those that are missing, cannot be imported, or do not fit their kind and params."""
    data = msgspec.json.encode(document_of(topology))
    return _in_loader("-", user_paths, True, limit_s, data, f"topology {topology.name!r}")[0]


# ── what is named ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Place:
    """`file`: a topology's file. Else `target` is a Python object, to be found with `roots` first."""

    target: str
    file: Path | None = None
    roots: tuple[Path, ...] = ()

    def user_paths(self, paths: Sequence[str]) -> tuple[str, ...]:
        own = [self.file.resolve().parent] if self.file else list(self.roots[1:])
        every = [*self.roots[:1], *(Path(path).resolve() for path in paths), *own, Path.cwd()]
        return tuple(dict.fromkeys(map(str, every)))


def _locate(reference: str) -> _Place:
    path, colon, attribute = reference.rpartition(":")
    if colon and path.endswith(".py"):
        return _python_file(Path(path), attribute)
    if reference.endswith(".py"):
        return _python_file(Path(reference), "")
    if Path(reference).suffix.lower() in PARSERS:
        file = Path(reference)
        return _Place(str(file.resolve()), file)
    if REFERENCE.fullmatch(reference):
        return _Place(reference)
    if _is_word(reference) and not os.path.isfile(reference):
        return _example(reference)
    raise InvalidInput(f"{reference!r} names no topology", hint=f"a topology is {FORMS}")


def _is_word(reference: str) -> bool:
    """Neither a path, nor a file with its ending, nor a Python object."""
    return reference != "" and not set(reference) & set("/\\.:")


def _example(name: str) -> _Place:
    if name == DEMO:
        return _Place("headgate.topology_runtime.tasks.demo:PLANNED")
    file = example(name)
    if file is None:
        raise InvalidInput(
            f"{shown(name)} names no topology{did_you_mean(name, (*NAMES, DEMO))}",
            cause=f"the examples are {', '.join((*NAMES, DEMO))}",
            hint=f"a topology is {FORMS}",
        )
    return _Place(str(file), file)


def _python_file(file: Path, attribute: str) -> _Place:
    if not file.is_file():
        raise InvalidInput(f"{file}: no such file{near_file(file)}")
    module, root = module_of_file(file)
    if not REFERENCE.fullmatch(f"{module}:{attribute or 'the_one'}"):
        raise InvalidInput(
            f"{file}:{attribute} cannot be imported",
            cause=f"'{module}:{attribute}' is not of the form 'module:attribute'",
            hint="letters, digits and _ in the file's name, the object's name after the colon",
        )
    return _Place(f"{file.resolve()}:{attribute}", None, (root, file.resolve().parent))


# ── the loader process, seen from outside ───────────────────────────────────────────────────────


def _in_loader(
    target: str, user_paths: Sequence[str], runs: bool, limit_s: float, stdin: bytes, what: str
) -> tuple[Topology, list[str]]:
    """Run the loader process and read its answer: the topology, and folders that its code has put on the import path.
    It is gone when this returns, however it ends."""
    import subprocess
    import tempfile

    flags = ["--runs"] if runs else []
    command = [sys.executable, "-P", "-m", "headgate.topology_runtime.api.loading", *flags]
    command += ["--limit-s", str(limit_s), "--owner", str(os.getpid()), "--", target, *user_paths]
    with tempfile.TemporaryFile() as given:
        given.write(stdin)
        given.seek(0)
        process = subprocess.Popen(command, stdin=given, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    with process.stdout as pipe:
        try:
            out = _answer_on(pipe.fileno(), limit_s + GRACE_S)
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # also whatever user code started and left running
            process.wait()
    if out is None:
        raise import_too_slow(what, limit_s, "not even the clock of that process ran")
    return _topology_in(out, process.returncode, what)


def _answer_on(pipe: int, timeout_s: float) -> bytes | None:
    """What comes until a line is complete or the pipe ends; None when neither happens in time."""
    deadline = time.monotonic() + timeout_s
    poller = select.poll()
    poller.register(pipe, select.POLLIN)
    out = b""
    while not out.endswith(b"\n"):
        if not poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
            return None
        part = os.read(pipe, 1 << 16)
        if not part:
            break
        out += part
    return out


def _topology_in(out: bytes, code: int, what: str) -> tuple[Topology, list[str]]:
    try:
        answer = msgspec.json.decode(out.strip().rpartition(b"\n")[2])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"{what}: the process that imports it ended without an answer",
            cause=f"exit code {code}; what it printed is above",
            hint="importing must not end the process or crash",
        ) from error
    if "error" in answer:
        raise InvalidInput(**answer["error"])
    return topology_of_document(answer["topology"]), answer["paths"]


if __name__ == "__main__":
    from headgate.topology_runtime.api.loader import main

    main(sys.argv[1:])
