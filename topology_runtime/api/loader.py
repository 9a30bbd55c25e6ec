"""The loader process, seen from inside: imports user code, answers with one line, ends at once.

Only `python -m headgate.topology_runtime.api.loading` runs this (see there for its command line and answers).
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from headgate.topology_runtime.api.builder import Builder
from headgate.topology_runtime.api.drafts import draft_of, topology_from
from headgate.topology_runtime.api.plugins import with_references
from headgate.topology_runtime.api.references import (
    import_module,
    import_too_slow,
    last_lines,
    module_of_file,
    resolve,
    stack_of,
    use_paths,
)
from headgate.topology_runtime.api.task_functions import filled
from headgate.topology_runtime.api.topology import Topology, document_of
from headgate.topology_runtime.api.topology_files import PARSERS, read_data
from headgate.topology_runtime.api.validate import raise_if_any, rule_faults, run_faults
from headgate.topology_runtime.errors import HeadgateError, InvalidInput
from headgate.topology_runtime.platform.processes import die_with

FAILED = 3  # exit code of an answer that is an error


class _Answer:
    """The one line that goes out; whoever comes first, the topology or the time limit, has the word."""

    def __init__(self) -> None:
        """From now on what anyone prints goes to stderr, also from C."""
        self._once = threading.Lock()
        sys.stdout.flush()
        self._fd = os.dup(1)
        os.dup2(2, 1)

    def give(self, data: dict[str, Any], code: int) -> NoReturn:
        """Write and end: threads and exit handlers of user code do not keep us."""
        self._once.acquire()
        sys.stdout.flush()
        sys.stderr.flush()
        with os.fdopen(self._fd, "wb") as out:
            out.write(msgspec.json.encode(data) + b"\n")
        os._exit(code)

    def fail(self, error: HeadgateError) -> NoReturn:
        parts = {"what": error.what, "cause": error.cause, "hint": error.hint, "faults": error.faults}
        self.give({"error": parts}, FAILED)


def main(arguments: Sequence[str]) -> NoReturn:
    """The process's life."""
    options = _options(arguments)
    if options.owner:
        die_with(options.owner)
    faulthandler.enable()
    answer = _Answer()
    limit = threading.Timer(options.limit_s, _give_up, (answer, options, threading.get_ident()))
    limit.daemon = True
    limit.start()
    use_paths(options.paths)
    known = list(sys.path)
    try:
        topology = loaded(options.reference, options.paths, options.runs)
    except HeadgateError as error:
        answer.fail(error)
    except BaseException as error:  # user code may raise anything, SystemExit too
        what = f"{options.reference}: raised {type(error).__name__}"
        answer.fail(InvalidInput(what, cause=last_lines(error)))
    answer.give({"topology": document_of(topology), "paths": _paths_added(known)}, 0)


def _paths_added(known: Sequence[str]) -> list[str]:
    """Folders that user code has put on its import path: its tasks' processes need them too."""
    return [os.path.abspath(path) for path in sys.path if path not in known and os.path.isdir(path)]


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -P -m headgate.topology_runtime.api.loading")
    parser.add_argument("--runs", action="store_true", help="every task must have a `run` that works")
    parser.add_argument("--limit-s", type=float, default=30.0, help="for importing")
    parser.add_argument("--owner", type=int, default=0, help="process to end with")
    parser.add_argument("reference", help="FILE, file.py:attribute, module:attribute, or -")
    parser.add_argument("paths", nargs="*", help="folders to import from")
    return parser.parse_args(arguments)


def _give_up(answer: _Answer, options: argparse.Namespace, thread: int) -> None:
    answer.fail(import_too_slow(options.reference, options.limit_s, f"it is at {stack_of(thread)}"))


def loaded(reference: str, paths: Sequence[str], runs: bool) -> Topology:
    """The topology of a reference, its code imported and checked. Raises InvalidInput with every fault."""
    use_paths(paths)
    draft, faults = draft_of(with_references(_data(reference)))
    draft, more = filled(draft)
    faults += rule_faults(draft) + more
    raise_if_any(faults, "topology" if reference == "-" else reference)
    topology = topology_from(draft)
    if runs:
        raise_if_any(run_faults(topology), reference)
    return topology


def _data(reference: str) -> object:
    if reference == "-":
        return msgspec.json.decode(sys.stdin.buffer.read())
    if Path(reference).suffix.lower() in PARSERS:
        return read_data(Path(reference))
    return _topology_at(reference)


def _topology_at(reference: str) -> Topology:
    """A Topology, a builder of one, or a function without arguments that gives either."""
    path, _, attribute = reference.rpartition(":")
    if path.endswith(".py"):
        module = _module_in(Path(path))
        reference = f"{module}:{attribute or _only_one(path, vars(import_module(module)))}"
    value = resolve(reference)
    if callable(value) and not isinstance(value, type):
        value = value()
    if isinstance(value, Builder):
        value = value.build()
    if not isinstance(value, Topology):
        raise InvalidInput(
            f"{reference} is of type {type(value).__name__}, not a topology",
            hint="a Topology, a builder, or a function that gives one",
        )
    return value


def _only_one(file: str, names: Mapping[str, Any]) -> str:
    """The name of the topology in a file that has one. Raises InvalidInput for none or several."""
    found = [name for name, value in names.items() if isinstance(value, Builder | Topology)]
    if len({id(names[name]) for name in found}) == 1:
        return found[0]
    if not found:
        raise InvalidInput(
            f"no topology in {file}",
            hint='name one at its top level: flow = topology("words"), or a function: FILE:NAME',
        )
    ways = ", ".join(f"{os.path.basename(file)}:{name}" for name in found[:10])
    raise InvalidInput(f"{len(found)} topologies in {file}", hint=f"say which one: {ways}")


def _module_in(file: Path) -> str:
    """Import this very file; the name of its module."""
    name, _ = module_of_file(file)
    found = import_module(name).__file__
    if found is None or Path(found).resolve() != file.resolve():
        raise InvalidInput(
            f"{file}: another module has its name", cause=f"{name} is {found}", hint="rename the file"
        )
    return name
