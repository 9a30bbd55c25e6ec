"""Hosts as network namespaces whose packets take a given time to each other, where the kernel has no netem.

Each namespace has one TUN device; a process of its own (this file, run) reads every packet, keeps it for so long, and
writes it into the namespace of its address. It says each second what went from where to where, and how late packets
were in fact. Namespaces and devices end with the processes that hold them."""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from watched_runs.host_bed import DIES, done, own_network, wait_for

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x1, 0x1000
CLONE_NEWNET = 0x40000000
DEVICE, PACKET_BYTES = "tun0", 65536


class SlowNet:
    """hosts: the processes that hold the namespaces, by number from 1 on; told: what the switch says."""

    def __init__(self, network: str, told: Path) -> None:
        self.network, self.told = network, told
        self.hosts: list[int] = []

    def address(self, host: int) -> str:
        return f"{self.network}.{host}"

    def inside(self, host: int, *words: str) -> list[str]:
        """The command line that runs these words there."""
        return ["nsenter", f"--net=/proc/{self.hosts[host - 1]}/ns/net", *words]

    def sent_bytes(self, host: int) -> int:
        """What the device has sent, by the kernel's own counter."""
        for line in Path(f"/proc/{self.hosts[host - 1]}/net/dev").read_text().splitlines():
            name, _, counts = line.strip().partition(":")
            if name == DEVICE:
                return int(counts.split()[8])
        raise FileNotFoundError(f"no {DEVICE} in namespace {host}")

    def seconds(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.told.read_text().splitlines()]


@contextmanager
def slow_net(hosts: int, delay_ms: float, told: Path) -> Iterator[SlowNet]:
    number = os.getpid() % 12_000
    net = SlowNet(f"10.{150 + number // 250}.{number % 250}", told)
    with ExitStack() as stack:
        for _ in range(hosts):
            words = [*DIES, "unshare", "--net", "sleep", "infinity"]
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL)
            stack.callback(process.wait, 10)
            stack.callback(process.kill)
            net.hosts.append(process.pid)
        for pid in net.hosts:
            wait_for(partial(own_network, pid), "a namespace")
        words = [*DIES, sys.executable, "-P", __file__, "--network", net.network, "--delay-ms", str(delay_ms)]
        script = Path(__file__).parents[1]
        with told.open("w") as out:
            process = subprocess.Popen(
                [*words, *map(str, net.hosts)], stdout=out, env={**os.environ, "PYTHONPATH": str(script)}
            )
        stack.callback(process.wait, 10)
        stack.callback(process.kill)
        for host, _pid in enumerate(net.hosts, 1):
            wait_for(partial(_has_device, net, host), "a device")
            for command in (
                f"address add {net.address(host)}/24 dev {DEVICE}",
                f"link set {DEVICE} up",
                "link set lo up",
            ):
                done(*net.inside(host, "ip", *command.split()))
        yield net


def _has_device(net: SlowNet, host: int) -> bool:
    try:
        return net.sent_bytes(host) >= 0
    except FileNotFoundError:
        return False


# ── the switch ──────────────────────────────────────────────────────────────────────────────────


def tun_of(pid: int) -> int:
    """A new TUN device in the namespace of this process; it lasts as long as the file is open."""
    libc = ctypes.CDLL(None, use_errno=True)
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    try:
        if libc.setns(there, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the network of {pid}")
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", DEVICE.encode(), IFF_TUN | IFF_NO_PI))
    finally:
        libc.setns(own, CLONE_NEWNET)
        os.close(own)
        os.close(there)
    return device


def switch(network: str, pids: list[int], delay_ns: int) -> None:
    """Packets from one to another, each `delay_ns` after it came; one line of JSON a second. It goes before all else
    that waits for a core, so that others' load is not taken for delay; it needs a few per cent of one."""
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    devices = [tun_of(pid) for pid in pids]
    to = {socket.inet_aton(f"{network}.{number}"): n for n, number in enumerate(range(1, len(pids) + 1))}
    waiting: deque[tuple[int, int, int, bytes]] = deque()
    sent: Counter[str] = Counter()
    late_ns: list[int] = []
    told_ns = time.monotonic_ns()
    while True:
        now = time.monotonic_ns()
        while waiting and waiting[0][0] <= now:
            due, of, target, packet = waiting.popleft()
            late_ns.append(time.monotonic_ns() - due + delay_ns)
            sent[f"{of + 1}>{target + 1}"] += len(packet)
            try:
                os.write(devices[target], packet)
            except BlockingIOError:
                sent["dropped"] += 1
        if now - told_ns >= 1_000_000_000:
            told_ns = now
            late_ns.sort()
            at = [late_ns[int(len(late_ns) * part)] / 1e6 if late_ns else None for part in (0.5, 0.95)]
            print(json.dumps({"time": time.time(), "bytes": sent, "delay_ms": at}), flush=True)
            late_ns = []
        patience_s = max(0.0, (waiting[0][0] - now) / 1e9) if waiting else 0.5
        ready, _, _ = select.select(devices, [], [], patience_s)
        for device in ready:
            take(device, devices.index(device), to, waiting, delay_ns)


def take(
    device: int, of: int, to: dict[bytes, int], waiting: deque[tuple[int, int, int, bytes]], delay_ns: int
) -> None:
    """What has come at a device; anything but IPv4 to another host goes nowhere."""
    for _ in range(64):
        try:
            packet = os.read(device, PACKET_BYTES)
        except BlockingIOError:
            return
        if packet[0] >> 4 == 4 and (target := to.get(packet[16:20])) is not None:
            waiting.append((time.monotonic_ns() + delay_ns, of, target, packet))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", required=True)
    parser.add_argument("--delay-ms", type=float, required=True)
    parser.add_argument("pids", type=int, nargs="+")
    asked = parser.parse_args()
    switch(asked.network, asked.pids, int(asked.delay_ms * 1e6))
