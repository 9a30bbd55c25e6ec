"""Bugs that let code in that nobody signed, or that show half a package as a whole one."""

from __future__ import annotations

from planting import Plant, one

PACKAGES, TESTS = "topology_runtime/packages", "tests/packages"
ARCHIVE, STORE, AGENT = f"{PACKAGES}/archive.py", f"{PACKAGES}/store.py", "agent/packages.py"
ARCHIVES, STORES = f"{TESTS}/test_package_archives.py", f"{TESTS}/test_package_store.py"
AGENTS = f"{TESTS}/test_agent_packages.py"

OF_PACKAGES: tuple[Plant, ...] = (
    one(
        "a signature is not looked at",
        ARCHIVE,
        "self.signature.check(self.manifest_bytes)",
        "pass",
        test=ARCHIVES,
    ),
    one(
        "after a wrong byte a package can still become whole",
        ARCHIVE,
        "            if self._wrong is not None:",
        "            if False:",
        test=ARCHIVES,
    ),
    one(
        "what stands between two files of a package is not looked at",
        ARCHIVE,
        "            yield from _same(padding(file.size), name)\n",
        "            yield from _exactly(len(padding(file.size)))\n",
        test=ARCHIVES,
    ),
    one(
        "a file of a package may be a link to the same",
        STORE,
        "elif path.is_symlink() or _sha256(path)",
        "elif _sha256(path)",
        test=STORES,
    ),
    one(
        "a part that was damaged on the disk is gone on with",
        STORE,
        "        except BadPackage:\n            reading = Reading(digest)\n",
        "        except BadPackage:\n            pass\n",
        test=STORES,
    ),
    one(
        "what runs makes room for what is newer",
        STORE,
        " for at_ns, digest in used if digest not in kept]",
        " for at_ns, digest in used]",
        test=STORES,
    ),
    one(
        "an agent takes code of anybody who signs",
        AGENT,
        "        if signer not in self._trusted:",
        "        if False:",
        test=AGENTS,
    ),
    one(
        "trust that was taken away does not hold for what is there",
        AGENT,
        "            self._admit(self._store.signer(digest))\n",
        "",
        test=AGENTS,
    ),
    one(
        "a signed package runs a topology that nobody signed",
        AGENT,
        "        if desired.topology != signed:",
        "        if False:",
        test=AGENTS,
    ),
    one(
        "an agent with signers imports from folders",
        AGENT,
        "            return None if self._unsigned else (desired, data)",
        "            return desired, data",
        test=AGENTS,
    ),
    one(
        "a file in params that stays behind is not noticed",
        f"{PACKAGES}/files_named.py",
        "        if inside is not None and (inside in files or inside in folders):",
        "        if inside is not None:",
        test=f"{TESTS}/test_files_in_params.py",
    ),
    one(
        "a requirement in another version than headgate's is installed over it",
        f"{PACKAGES}/requirements.py",
        "        elif installed[name] != version:",
        "        elif False:",
        test=f"{TESTS}/test_package_requirements.py",
    ),
)
