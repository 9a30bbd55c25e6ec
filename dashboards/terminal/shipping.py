"""`headgate submit` with a package: the code goes to the controller, from there to every host, and then it is run."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from headgate.dashboards.terminal.package import packed_of, read, signing_key_option
from headgate.topology_runtime.addresses import is_loopback, parted
from headgate.topology_runtime.errors import Unreachable
from headgate.topology_runtime.faults.words import counted
from headgate.topology_runtime.keys.pairs import Contact
from headgate.topology_runtime.loading import Loaded, check_runs, load
from headgate.topology_runtime.packages import building
from headgate.topology_runtime.packages.files_named import travelling
from headgate.topology_runtime.packages.manifest import SHORT, BadPackage
from headgate.topology_runtime.packages.params import placed
from headgate.topology_runtime.packages.store import PackageStore
from headgate.topology_runtime.packages.topology_file import topology_in
from headgate.topology_runtime.packages.wire import BROUGHT_BYTES
from headgate.topology_runtime.progress import bar
from headgate.topology_runtime.references import module_of_file
from headgate.topology_runtime.topology import Topology

STANDING_S = 30.0  # a host that has taken nothing for so long is not waited for
LOOK_EVERY_S = 0.1

Ask = Callable[[str, dict[str, Any]], Any]
F = TypeVar("F", bound=Callable[..., Any])


def code_options(command: F) -> F:
    """Where the code of a topology comes from, and how it gets to the hosts: for `Shipment.loaded`."""
    command = click.option(
        "--on-every-host", multiple=True, metavar="TASK.PARAM", help="A param that names a file of each host."
    )(signing_key_option(command))
    command = click.option(
        "--package",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Send this one, with the topology in it.",
    )(command)
    return click.option(
        "--ship", is_flag=True, help="Pack the code and send it to every host, not only its folder's name."
    )(command)


class Shipment:
    """A topology and the package with its code, on this machine's disk until it is closed."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="headgate-package-")
        self.file = Path(self._folder.name) / "made.package"
        self.digest = ""  # none: nothing is shipped
        self.code = ""  # where it is unpacked on this machine

    def __enter__(self) -> Shipment:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def loaded(self, topology: str | None, contact: Contact, options: Mapping[str, Any]) -> Loaded:
        """The topology with its code, in a package where it has to travel. Raises InvalidInput, BadPackage."""
        if options["package"] is not None:
            return Loaded(self.take(options["package"]), ())
        assert topology is not None
        found = load(topology, runs=True)
        if options["ship"] or not is_here(contact.endpoint):
            key, everywhere = options["signing_key"], options["on_every_host"]
            found = Loaded(self.pack(topology, found.topology, key, everywhere), ())
        return found

    def pack(
        self, reference: str, topology: Topology, key: Path | None, everywhere: Sequence[str]
    ) -> Topology:
        """The folder that `reference` is imported from, and the topology. Raises InvalidInput, BadPackage."""
        root = root_of(reference)
        contents = (
            building.contents_of(root) if root is not None else building.PackageContents("topology", {})
        )
        sent = travelling(topology, root or Path.cwd(), contents.files, everywhere)
        packed = packed_of(building.with_topology(contents, sent), key, self.file)
        what = f"{counted(len(packed.manifest.files), 'file')}, {packed.manifest.size:,} bytes"
        print(f"packed {root or reference}: {what}, package {packed.digest[:SHORT]}", file=sys.stderr)
        for left in packed.left_out:
            print(f"left out: {left}", file=sys.stderr)
        return self.take(self.file)

    def take(self, file: Path) -> Topology:
        """A package; the topology in it, whose code can be imported from it alone. Raises InvalidInput, BadPackage."""
        self.file = file
        code = self._unpacked()
        self.code = str(code)
        topology = topology_in(code)
        check_runs(placed(topology, str(code)), [str(code)])
        return topology

    def _unpacked(self) -> Path:
        reading = read(self.file)
        assert reading.digest is not None and reading.manifest is not None
        store = PackageStore(Path(self._folder.name) / "store", unpacks=True)
        if store.manifest(reading.digest) is None:
            store.add(reading.digest, 0, self.file.read_bytes())
        store.close()
        self.digest = reading.digest
        return store.code(reading.digest)

    def send(self, ask: Ask) -> None:
        """To the controller, and wait until every host has it. Raises BadPackage that names hosts, Unreachable."""
        self._upload(ask)
        self._spread(ask)

    def _upload(self, ask: Ask) -> None:
        """From where the controller has it on; nothing of what it has is sent again."""
        size = self.file.stat().st_size
        at = ask("package_put", {"digest": self.digest})
        with bar("bytes to the controller", size) as step, self.file.open("rb") as file:
            while not at["whole"]:
                file.seek(at["taken"])
                data = file.read(BROUGHT_BYTES)
                at = ask("package_put", {"digest": self.digest, "offset": at["taken"], "data": data})
                step(at["taken"], len(data))

    def _spread(self, ask: Ask) -> None:
        """Wait for all hosts, also those that install what it needs: an agent limits how long that takes."""
        moved_s, before, size = time.monotonic(), -1, self.file.stat().st_size
        vms, lacking = self._stands(ask)
        with bar("hosts with the package", len(vms)) as step:
            ready = 0
            while lacking:
                now = len(vms) - len(lacking)
                step(now, max(0, now - ready))
                taken, ready = sum(vm["taken"] for vm in vms), now
                if taken != before or any(vm["busy"] for vm in lacking):
                    moved_s, before = time.monotonic(), taken
                if time.monotonic() - moved_s > STANDING_S:
                    names = ", ".join(f"{vm['vm']} has {vm['taken']:,} of {size:,} bytes" for vm in lacking)
                    raise Unreachable(f"package {self.digest[:SHORT]} does not get on", cause=names)
                time.sleep(LOOK_EVERY_S)
                vms, lacking = self._stands(ask)
            step(len(vms), len(vms) - ready)

    def _stands(self, ask: Ask) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """All hosts, and those that have not said how it ended. Raises BadPackage when all have and some refuse it."""
        vms = ask("package_at", {"digest": self.digest})["vms"]
        lacking = [vm for vm in vms if not vm["whole"] and not vm["refused"]]
        refused = [vm["refused"] for vm in vms if vm["refused"]]
        if refused and not lacking:
            what = f"package {self.digest[:SHORT]} is not taken by every host; nothing was submitted"
            raise BadPackage(what, faults=refused)
        return vms, lacking


def is_here(endpoint: str) -> bool:
    """Does the controller listen on this machine alone? Then its agents are here too, and so are their folders."""
    return is_loopback(parted(endpoint)[0])


def root_of(reference: str) -> Path | None:
    """The folder that is packed for `FILE.py:attribute` or a topology's file; none for an example of headgate. Raises
    BadPackage."""
    path, _, _ = reference.rpartition(":")
    if path.endswith(".py"):
        return module_of_file(Path(path))[1]
    if Path(reference).is_file():
        return Path(reference).resolve().parent
    if ":" not in reference:
        return None
    raise BadPackage(
        f"no folder is known for {reference!r}",
        cause="FILE.py:attribute or a topology's file says what is to be packed",
        hint=f"`headgate package DIR --topology {reference}`, then `headgate submit --package FILE`",
    )
