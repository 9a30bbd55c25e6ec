"""Bugs in what guards a controller: its audit log, its keys under a passphrase, packages that end, and its archives."""

from __future__ import annotations

from planted.planting import Plant, one

AUDIT, AUDIT_LINES = "controller/files/audit_log.py", "topology_runtime/keys/audit_lines.py"
AUDIT_TEST = "tests/controller/test_audit_log.py"
LOCKED, LOCKED_TEST = "topology_runtime/keys/passphrases.py", "tests/keys/test_passphrases.py"
ARCHIVE, ARCHIVE_TEST = "controller/moving/controller_archive.py", "tests/moving/test_controller_archives.py"
SHELF, AGENT_PACKAGES = "controller/package_shelf.py", "agent/slots/agent_packages.py"
ENDING_TEST = "tests/packages/test_packages_that_end.py"
LOOP, LOOP_TEST = "controller/core/loop.py", "tests/enactment/test_faults_and_stories.py"

OF_OPERATORS: tuple[Plant, ...] = (
    one(
        "a line's hash is believed",
        AUDIT_LINES,
        "if encode_line(sealed(line)) != text:",
        "if False:",
        test=AUDIT_TEST,
    ),
    one("the audit log is no chain", AUDIT_LINES, "elif line.before != before or", "elif", test=AUDIT_TEST),
    one(
        "cut off lines are not missed",
        AUDIT,
        'cut = "" if self._head == head_of(data) else "its last lines were removed or changed"',
        'cut = ""',
        test=AUDIT_TEST,
    ),
    one(
        "a torn line of the log stays",
        AUDIT,
        "            os.truncate(path, size)",
        "            pass",
        test=AUDIT_TEST,
    ),
    one(
        "what the disk did not take is forgotten",
        AUDIT,
        '                append_whole(fd, b"".join(self._waiting))\n                self._waiting = []',
        '                data, self._waiting = b"".join(self._waiting), []\n                append_whole(fd, data)',
        test=AUDIT_TEST,
    ),
    one(
        "nested arguments are written down", AUDIT, "and not any(map(_is_nested, value))", "", test=AUDIT_TEST
    ),
    one(
        "passwords in addresses are written down",
        AUDIT,
        'return USERINFO.sub("://…@", value)',
        "return value",
        test=AUDIT_TEST,
    ),
    one(
        "what was refused is no deed",
        AUDIT,
        "    if refused is not None:\n        return True\n",
        "",
        test=AUDIT_TEST,
    ),
    one(
        "a locked file may be cut at a part",
        LOCKED,
        'return number.to_bytes(11, "big") + bytes([last])',
        'return number.to_bytes(12, "big")',
        test=LOCKED_TEST,
    ),
    one(
        "others may read the passphrase",
        LOCKED,
        "if path.stat().st_mode & 0o077:",
        "if False:",
        test=LOCKED_TEST,
    ),
    one(
        "a signing key keeps its secret half beside",
        "topology_runtime/keys/signing_keys.py",
        'return replace(key, secret="", locked=',
        "return replace(key, locked=",
        test=LOCKED_TEST,
    ),
    one(
        "a controller takes expired packages",
        SHELF,
        "            manifest.refuse_expired(digest, time.time_ns())\n",
        "",
        test=ENDING_TEST,
    ),
    one(
        "a host starts expired packages",
        AGENT_PACKAGES,
        "        if manifest is not None:\n            manifest.refuse_expired(digest, time.time_ns())\n",
        "",
        test=ENDING_TEST,
    ),
    one(
        "a host believes whoever revokes",
        AGENT_PACKAGES,
        "            if one.signer not in self._trusted:",
        "            if False:",
        test=ENDING_TEST,
    ),
    one(
        "a revocation needs no signature",
        "topology_runtime/packages/revocations.py",
        "        one.check()\n",
        "",
        test=ENDING_TEST,
    ),
    one(
        "a host that was away is not told what is revoked",
        SHELF,
        "for vm, told in self._told.items() if vm in vms}",
        "for vm, told in self._told.items()}",
        test=ENDING_TEST,
    ),
    one(
        "small packages are of any signer",
        AGENT_PACKAGES,
        "            self._look(part.digest, now_ns)",
        "            self._prepare(part.digest, now_ns)",
        test="tests/packages/test_agent_packages.py",
    ),
    one(
        "an archive's paths lead anywhere",
        ARCHIVE,
        "    faults = [fault for path in paths if (fault := fault_of_path(path)) is not None]\n"
        '    faults += [f"{path!r} is no file of a controller" for path in paths if not _is_kept(path)]\n',
        "    faults = list[str]()\n",
        test=ARCHIVE_TEST,
    ),
    one(
        "the journal is read before what is beside it",
        ARCHIVE,
        "    contents = _contents(state, keys)\n    data, run = (state / JOURNAL).read_bytes(), contents",
        "    data = (state / JOURNAL).read_bytes()\n    contents = _contents(state, keys)\n    run = contents",
        test=ARCHIVE_TEST,
    ),
    one(
        "half a controller stays",
        ARCHIVE,
        "            undo.callback(shutil.rmtree, new)\n",
        "",
        test=ARCHIVE_TEST,
    ),
    one(
        "an archive is for everybody to read",
        ARCHIVE,
        'os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:\n                parts',
        'os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as out:\n                parts',
        test=ARCHIVE_TEST,
    ),
    one(
        "an imported controller has the boot of the old one",
        ARCHIVE,
        "max(boot + 1, now_ns // NS)",
        "boot + 1",
        test=ARCHIVE_TEST,
    ),
    one(
        "an old archive takes over",
        LOOP,
        "    if not newer or not d.unsure:\n",
        "    if True:\n",
        test=LOOP_TEST,
    ),
    one(
        "an old archive speaks before it listens",
        LOOP,
        "        if k.adopting_until_ns and k.durable.unsure:",
        "        if False:",
        test=LOOP_TEST,
    ),
)
