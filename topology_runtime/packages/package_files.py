"""Which of a topology's params name files of this machine, and whether those travel in its package."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec

from headgate.topology_runtime.api.topology import Topology, topology_of_document
from headgate.topology_runtime.packages.package_manifest import (
    FAULTS_TOLD,
    IN_PACKAGE,
    TOPOLOGY,
    BadPackage,
    changed,
)
from headgate.topology_runtime.wording import shown

TEXT_MOST = 4096  # longer ones are no paths


def travelling(
    topology: Topology, root: Path, files: Collection[str], everywhere: Collection[str] = ()
) -> Topology:
    """With the files that travel named as such. root: the folder that was packed; files: what of it is in the package.
    everywhere: params (TASK.PARAM) whose files are on every host. Raises BadPackage that names the others."""
    faults: list[str] = []
    folders = {"/".join(path.split("/")[:n]) for path in files for n in range(1, path.count("/") + 1)}

    def travel(place: str, text: str) -> str:
        if place in everywhere:
            return text
        if text.startswith(IN_PACKAGE):
            inside: str | None = text.removeprefix(IN_PACKAGE)
        elif (found := _found(text, root)) is None:
            return text
        else:
            inside = found.relative_to(root).as_posix() if found.is_relative_to(root) else None
        if inside is not None and (inside in files or inside in folders):
            return f"{IN_PACKAGE}{inside}"
        faults.append(f"{place} names {shown(text)}, which is not in the package")
        return text

    named = changed(topology, travel)
    if faults:
        raise BadPackage(
            "params name files that other hosts do not have",
            faults=faults[:FAULTS_TOLD],
            hint=f"put them below {root}; or, of one that is on every host: --set on-every-host=TASK.PARAM",
        )
    return named


def _found(text: str, root: Path) -> Path | None:
    """The file here that a text names, if it names one: as a path from here, or from the folder that was packed. A
    folder only if it is written as a path: many a word is some folder's name."""
    if not text or len(text) > TEXT_MOST or not text.isprintable():
        return None
    for path in (Path(text), root / text):
        try:
            if path.is_file() or ("/" in text and path.is_dir()):
                return path.resolve()
        except OSError:  # it is too long for a path
            return None
    return None


# ── The topology that was signed with its code ──────────────────────────────────────────────────────────


def topology_in(code: Path) -> Topology:
    """Of an unpacked package. Raises BadPackage, OSError."""
    try:
        return topology_of_document(msgspec.json.decode((code / TOPOLOGY).read_bytes()))
    except FileNotFoundError as error:
        raise BadPackage(
            "the package holds no topology, so what it would run is not signed",
            cause="`headgate package build DIR --topology REFERENCE` puts it in, and `headgate submit --ship` does",
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadPackage("the topology in the package cannot be read", cause=str(error)) from error
