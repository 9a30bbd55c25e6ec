"""Bugs in how hosts are reached, in what services may, in what a slot may take, and in who sees secrets."""

from __future__ import annotations

from planted.planting import Plant, one

CLUSTER = "dashboards/cluster"
SSH, FORWARDS = f"{CLUSTER}/ssh_command.py", f"{CLUSTER}/forwards.py"
UNITS, FAR = f"{CLUSTER}/service_units.py", f"{CLUSTER}/on_host/host_side.py"
BOUNDS = "agent/slots/slot_bounds.py"
OF_SSH, OF_SERVICES = "tests/hosts/test_ssh_settings.py", "tests/hosts/test_hosts.py"
OF_SLOTS = "tests/agent/test_slot_bounds.py"
SECRETS, OF_SECRETS = "topology_runtime/connectors/secrets.py", "tests/connectors/test_secrets.py"
OF_VARIABLES = "tests/connectors/test_variables.py"

OF_HOSTS: tuple[Plant, ...] = (
    one(
        "a changed host key is called unknown",
        SSH,
        'if "HOST IDENTIFICATION HAS CHANGED" in said or "REVOKED HOST KEY" in said:',
        'if "REVOKED HOST KEY" in said:',
        test=OF_SSH,
    ),
    one(
        "a key of another kind than the known one is called unknown",
        SSH,
        'if "key found for host" in said:',
        "if False:",
        test=OF_SSH,
    ),
    one(
        "ssh goes past a changed key where its user checks none",
        SSH,
        '{} if settings.checked else {"StrictHostKeyChecking": "accept-new"}',
        "{}",
        test=OF_SSH,
    ),
    one(
        "a way through a command of the user's is not told",
        SSH,
        'for key in ("proxyjump", "proxycommand") if',
        'for key in ("proxyjump",) if',
        test=OF_SSH,
    ),
    one(
        "the remedy clears the key of the alias, not of the address",
        SSH,
        "whose = shlex.quote(name[1] if name else on.host)",
        "whose = shlex.quote(on.host)",
        test=OF_SSH,
    ),
    one(
        "workers of other hosts are not forwarded",
        FORWARDS,
        "for vm in hosts.vms if vm.on.host != host for port",
        "for vm in hosts.vms if vm.on.host == host for port",
        test=OF_SSH,
    ),
    one(
        "two VMs have the same ports",
        f"{CLUSTER}/hosts_file.py",
        "            first += vm.slots\n",
        "            first += 1\n",
        test=OF_SSH,
    ),
    one(
        "a service is left the secrets of a login",
        FAR,
        'if k in KEPT_WORDS or k.startswith(("LC_", "HEADGATE_"))',
        "if k",
        test=OF_SERVICES,
    ),
    one(
        "an agent's unit lets it do whatever root may",
        UNITS,
        "CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_KILL CAP_SETGID CAP_SETUID CAP_SYS_ADMIN "
        "CAP_SYS_NICE\n",
        "",
        test=OF_SERVICES,
    ),
    one(
        "a unit starts again for ever",
        UNITS,
        "StartLimitIntervalSec=600\n",
        "StartLimitIntervalSec=0\n",
        test=OF_SERVICES,
    ),
    one(
        "a slot is ended for what lies on the disk already",
        BOUNDS,
        "        before = used if first and used > most else self._excused.get(slot, 0)\n",
        "        before = 0\n",
        test=OF_SLOTS,
    ),
    one(
        "what a slot is ended for once is held against each worker after",
        BOUNDS,
        "        self._excused[slot] = used\n",
        "",
        test=OF_SLOTS,
    ),
    one(
        "files that are made room for are still excused",
        BOUNDS,
        "self._excused[slot] = min(before, used)",
        "self._excused[slot] = before",
        test=OF_SLOTS,
    ),
    one(
        "processes refused to a worker before are held against this one",
        BOUNDS,
        "if self.refused(slot) > refused_before:",
        "if self.refused(slot):",
        test=OF_SLOTS,
    ),
    one(
        "another life of the agent forgets whose files are",
        "agent/process/worker_user.py",
        "gid = status.st_gid if kept else user.gid",
        "gid = user.gid",
        test=OF_SLOTS,
    ),
    one(
        "a secret that was read is shown",
        SECRETS,
        "    hide(value, passing)\n",
        "",
        test=OF_SECRETS,
    ),
    one(
        "the end of a secret is shown where a long value is cut",
        "topology_runtime/wording.py",
        "    text = hidden(text)\n    return text if len(text) <= SHOWN",
        "    return text if len(text) <= SHOWN",
        test=OF_SECRETS,
    ),
    one(
        "a value that looks like a reference is read, too",
        SECRETS,
        "    hide(value, passing)\n    return value\n",
        "    hide(value, passing)\n    return _read(value)\n",
        test=OF_SECRETS,
    ),
    one(
        "workers of another user get all that their agent has",
        "agent/process/worker_user.py",
        "if user is None or name in FOR_ALL",
        "if True or user is None or name in FOR_ALL",
        test=OF_VARIABLES,
    ),
    one(
        "a variable that is hidden is gone for those that are started",
        "topology_runtime/platform/processes.py",
        "            os.environb[name] = os.environb[name]\n",
        "",
        test=OF_VARIABLES,
    ),
    one(
        "a renewed certificate is not taken up",
        "topology_runtime/connectors/tls.py",
        "if self._made.context is None or self._made.version != version:",
        "if self._made.context is None:",
        test="tests/connectors/test_tls.py",
    ),
)
