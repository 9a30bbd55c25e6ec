"""The ssh of this machine, as its user has set it up: how it is called, what it makes of a name, why it did not get in.

What a configuration means is ssh's own to say (`ssh -G`): Include, Match, jumps, keys that are not there, addresses of
any kind. Nothing of it is read here.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex

import msgspec

from headgate.dashboards.cluster.host_facts import HostFailed
from headgate.dashboards.cluster.hosts_file import Reached
from headgate.topology_runtime.errors import InvalidInput

CONNECT_S, ALIVE_S = 10, 5
FAILED = 255  # its exit code when it is ssh itself that failed
CALLED = {
    "BatchMode": "yes",  # nobody is there to answer
    "ConnectTimeout": str(CONNECT_S),
    "ServerAliveInterval": str(ALIVE_S),
    "ServerAliveCountMax": "3",
    "Compression": "no",  # wheels are compressed
    "ControlMaster": "no",  # one that is there is used, none is left behind
    "RemoteCommand": "none",
    "LogLevel": "INFO",
}
COMMAND_ONLY = {"ClearAllForwardings": "yes"}  # somebody may hold them already


class SshSettings(msgspec.Struct, frozen=True):
    """Of one host, as ssh reads them. jump: what it goes through, "" for nothing. checked: is another key than the
    known one refused?"""

    hostname: str
    port: int = 22
    user: str = ""
    jump: str = ""
    checked: bool = True


def read_settings(text: str) -> SshSettings:
    """What `ssh -G` prints. Pure."""
    of: dict[str, str] = dict(line.partition(" ")[::2] for line in text.splitlines())
    jump = next((of[key] for key in ("proxyjump", "proxycommand") if of.get(key, "none") != "none"), "")
    strict = of.get("stricthostkeychecking", "ask")
    checked = strict not in ("no", "off", "false")
    return SshSettings(of.get("hostname", ""), int(of.get("port", 22)), of.get("user", ""), jump, checked)


def address_words(on: Reached) -> list[str]:
    port = ["-p", str(on.ssh_port)] if on.ssh_port else []
    return [*port, *(["-l", on.user] if on.user else []), "--", on.host]


async def settings_of(on: Reached) -> SshSettings:
    """Raises HostFailed, InvalidInput where there is no ssh."""
    try:
        process = await asyncio.create_subprocess_exec(
            "ssh", "-G", *address_words(on), stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment(),
        )  # fmt: skip
    except FileNotFoundError as error:
        raise InvalidInput(
            "`headgate cluster` needs ssh", hint="Debian: apt-get install openssh-client"
        ) from error
    out, err = await process.communicate()
    if process.returncode:
        words = err.decode("utf-8", "replace").strip().splitlines() or ["ssh -G failed"]
        hint = "ssh's own settings are not read to the end: see its message"
        raise HostFailed(words[0], hint=hint, see=f"ssh -G {on.host}")
    return read_settings(out.decode("utf-8", "replace"))


def environment() -> dict[str, str]:
    """No window asks for a passphrase."""
    return {**os.environ, "SSH_ASKPASS_REQUIRE": "never"}


def command_words(on: Reached, settings: SshSettings, *options: str, only: bool = True) -> list[str]:
    """`ssh …` up to the remote command. A changed key stops it, whatever the user's settings say: where these check
    nothing, new keys are taken and known ones still hold. only: the command alone, no forwards of the settings."""
    told = {**CALLED, **(COMMAND_ONLY if only else {})}
    told |= {} if settings.checked else {"StrictHostKeyChecking": "accept-new"}
    words = [word for key, value in told.items() for word in ("-o", f"{key}={value}")]
    return ["ssh", "-T", *words, *options, *address_words(on)]


# ── Why it did not get in, from what it says. Pure. Its messages are of one language, C's ───────────────

OFFENDING = re.compile(r"^Offending (?:key|\S+ key) in (.+):\d+", re.MULTILINE)
NAME = re.compile(r"^Host key for (\S+) has changed", re.MULTILINE)
OWN = re.compile(r"^(?:ssh: |\S*: line \d+: |Bad |No |Permission|\S+@\S+: ).*", re.MULTILINE)


def why_not(on: Reached, settings: SshSettings, said: str) -> tuple[str, str]:
    """(what is wrong, what to try)."""
    way = f" (the way there: {settings.jump})" if settings.jump else ""
    if "HOST IDENTIFICATION HAS CHANGED" in said or "REVOKED HOST KEY" in said:
        return changed_key(on, said, way)
    if "Host key verification failed" in said:
        if "key found for host" in said:  # it shows another kind of key than the known ones
            return changed_key(on, said, way)
        told = f"{on.shell_words()} once, and compare the key"
        return f"its host key is unknown{way}", told
    if "Permission denied" in said:
        hint = f"is your key in the ssh agent (ssh-add -l)? ssh-copy-id {on.login}"
        return f"it does not let this user in{way}", hint
    if "timed out" in said:
        hint = "is it up, and does a firewall let ssh through?"
        return f"no answer within {CONNECT_S:g} s{way}", hint
    if "Connection refused" in said:
        return f"nothing listens for ssh there{way}", "is sshd running, on this port?"
    if "Could not resolve hostname" in said:
        return f"nobody knows this name{way}", "is the name or address right?"
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["it ended without a word"]
    own = OWN.search(said)
    return f"ssh: {(own[0] if own else lines[0]).removeprefix('ssh: ')}{way}", "does ssh itself get in?"


def changed_key(on: Reached, said: str, way: str) -> tuple[str, str]:
    file, name = OFFENDING.search(said), NAME.search(said)
    where = f" -f {shlex.quote(file[1])}" if file else ""
    whose = shlex.quote(name[1] if name else on.host)
    whom = f", of {name[1]}" if name and name[1] != on.host else ""
    return (
        f"DANGER: its host key has CHANGED{whom}, it may be another machine, or somebody in between{way}",
        "do not accept it before you know why; where it was set up again: "
        f"ssh-keygen{where} -R {whose}, and compare the new key",
    )
