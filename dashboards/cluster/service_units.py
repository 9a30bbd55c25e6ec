"""The units under which systemd runs a controller and agents: what they may not do, and what ends them. Pure.

Both: no devices, no new privileges, no other families of sockets, no calls but those of services (`systemd-analyze
security` has a figure for what is left). A controller runs no code of users: no rights of root at all, and it writes
only to its own folder. An agent makes control groups and users, and what a worker sees of the file system: so it keeps
the rights for these, and what it starts inherits the rest. Not taken: MemoryDenyWriteExecute (code that is compiled
while it runs), ProtectProc and PrivateUsers of agents (workers are other users, and are watched).
"""

from __future__ import annotations

from collections.abc import Iterator

UNIT = """\
# headgate cluster {cluster}; {version}; {digest}
[Unit]
Description=headgate {name} of cluster {cluster}
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=600
StartLimitBurst=100

[Service]
Type=notify
NotifyAccess=main
WatchdogSec=60
ExecStart={command}
WorkingDirectory={home}
Environment=LANG=C.UTF-8 HOME={home}
Restart=always
RestartSec=2
KillMode=mixed
TimeoutStopSec=40
LimitNOFILE=65536
LimitCORE=0
TasksMax=16384
OOMPolicy=continue
UMask=0077
{options}
[Install]
WantedBy=multi-user.target
"""
BOTH = """\
NoNewPrivileges=yes
LockPersonality=yes
PrivateMounts=yes
PrivateTmp=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallErrorNumber=EPERM
"""
NO_DEVICES = """\
PrivateDevices=yes
ProtectClock=yes
"""
CONTROLLER = """\
KillSignal=SIGKILL
MemoryMax=50%
CapabilityBoundingSet=
ProtectControlGroups=yes
ProtectHome=read-only
ProtectProc=invisible
ProtectSystem=strict
ReadWritePaths={home}
RestrictNamespaces=yes
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallFilter=sched_setscheduler
"""  # the last: libzmq sets the policy of its threads, and aborts the process where it may not
AGENT = """\
KillSignal=SIGTERM
MemoryMax=90%
Delegate=yes
CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_KILL CAP_SETGID CAP_SETUID CAP_SYS_ADMIN CAP_SYS_NICE
ProtectSystem=full
RestrictNamespaces=mnt
SystemCallFilter=@system-service @mount
"""


def unit(name: str, is_controller: bool, devices: bool, **of: str) -> str:
    """devices: those of the host are there for tasks."""
    parts: Iterator[str] = iter((BOTH, "" if devices else NO_DEVICES, CONTROLLER if is_controller else AGENT))
    return UNIT.format(name=name, options="".join(parts).format(home=of["home"]), **of)
