"""The Pod Security Standards' profile `restricted`, as Kubernetes publishes it: its own validator is written in Go.

https://kubernetes.io/docs/concepts/security/pod-security-standards/ (policies of v1.34, for Linux)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
SECCOMP = {"RuntimeDefault", "Localhost"}
SELINUX = {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
SYSCTLS = {
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}  # fmt: skip
KINDS = ("initContainers", "containers", "ephemeralContainers")
PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def faults(pod: dict[str, Any]) -> list[str]:
    """What `restricted` refuses in the spec of a pod."""
    found = list(_of_pod(pod))
    for kind in KINDS:
        for one in pod.get(kind, ()):
            found += [
                f"{one['name']}: {fault}" for fault in _of_container(one, pod.get("securityContext", {}))
            ]
    return found


def _of_pod(pod: dict[str, Any]) -> Iterator[str]:
    yield from (name for name in ("hostNetwork", "hostPID", "hostIPC") if pod.get(name))
    for volume in pod.get("volumes", ()):
        if kinds := volume.keys() - {"name"} - VOLUMES:
            yield f"volume {volume['name']} is a {', '.join(sorted(kinds))}"
    context = pod.get("securityContext", {})
    yield from (f"sysctl {one['name']}" for one in context.get("sysctls", ()) if one["name"] not in SYSCTLS)
    yield from _of_context(context)


def _of_context(context: dict[str, Any]) -> Iterator[str]:
    """What neither a pod nor a container may say."""
    if context.get("runAsUser") == 0:
        yield "runAsUser 0"
    if context.get("windowsOptions", {}).get("hostProcess"):
        yield "hostProcess"
    if (type_ := context.get("seccompProfile", {}).get("type", "RuntimeDefault")) not in SECCOMP:
        yield f"seccompProfile {type_}"
    if context.get("appArmorProfile", {}).get("type") == "Unconfined":
        yield "appArmorProfile Unconfined"
    linux = context.get("seLinuxOptions", {})
    if linux.get("type", "") not in SELINUX or linux.get("user") or linux.get("role"):
        yield "seLinuxOptions"


def _of_container(one: dict[str, Any], pod: dict[str, Any]) -> Iterator[str]:
    own = one.get("securityContext", {})
    yield from _of_context(own)
    capabilities = own.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", ()) or set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"}:
        yield "capabilities"
    if own.get("allowPrivilegeEscalation") is not False or own.get("privileged"):
        yield "privileges"
    if own.get("procMount", "Default") != "Default":
        yield "procMount"
    if own.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True:
        yield "runAsNonRoot"
    if not own.get("seccompProfile", pod.get("seccompProfile")):
        yield "seccompProfile"
    if any(port.get("hostPort") for port in one.get("ports", ())):
        yield "hostPort"
    handlers = [one.get(probe, {}) for probe in PROBES] + list(one.get("lifecycle", {}).values())
    if any(how.get("host") for handler in handlers for how in handler.values() if isinstance(how, dict)):
        yield "host of a probe"
