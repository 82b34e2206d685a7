# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes Pod Security Standards for a pod spec: baseline and restricted, as of Kubernetes 1.34.

The pods of a dispatched job are created on a worker, so Pod Security admission of the hub never sees them; this checks
the template before it is sent. A violation names the field, what was found, and the control of the standard. A field of
the wrong type counts as set: the API server would reject it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from multikueue.api.constants import PodSecurityLevel
from multikueue.core.printable import excerpt
from multikueue.dispatch.policy.pod_specs import PodSpecAt, items

_BASELINE_CAPABILITIES: Final = frozenset(
    {
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    }
)
_RESTRICTED_CAPABILITIES: Final = frozenset({"NET_BIND_SERVICE"})
_SELINUX_TYPES: Final = frozenset({"container_t", "container_init_t", "container_kvm_t", "container_engine_t"})
_SYSCTLS: Final = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.tcp_wmem",
    }
)
_RESTRICTED_VOLUMES: Final = frozenset(
    {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
)
_PROFILES: Final = frozenset({"RuntimeDefault", "Localhost"})
_APPARMOR_ANNOTATION: Final = "container.apparmor.security.beta.kubernetes.io/"
_PROBES: Final = (("livenessProbe",), ("readinessProbe",), ("startupProbe",))
_HOOKS: Final = (("lifecycle", "postStart"), ("lifecycle", "preStop"))

_Found = Iterator[tuple[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSecurityViolation:
    """One field that the level does not allow, with the standard's name of the control."""

    field: str
    found: str
    control: str
    level: PodSecurityLevel

    def __str__(self) -> str:
        return f"{self.field}: {self.found} is not allowed by Pod Security level {self.level} ({self.control})"


def violations(pod: PodSpecAt, level: PodSecurityLevel) -> Iterator[PodSecurityViolation]:
    """The violations of the level, baseline first; none for privileged.

    What `restricted` requires a pod to set may be outside of a part of it, unless that part has a security context.
    """
    if level is PodSecurityLevel.PRIVILEGED:
        return
    if pod.partial and "securityContext" not in pod.spec and "containers" not in pod.spec:
        level = PodSecurityLevel.BASELINE
    for of, controls in ((PodSecurityLevel.BASELINE, _BASELINE), (PodSecurityLevel.RESTRICTED, _RESTRICTED)):
        for name, control in controls:
            for field, value in control(pod):
                yield PodSecurityViolation(field=field, found=_found(value), control=name, level=of)
        if of is level:
            return


def _found(value: object) -> str:
    match value:
        case None:
            return "unset"
        case bool():
            return "true" if value else "false"
        case _:
            return excerpt(value)


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _at(value: object, *names: str) -> object:
    """The value at this path; None if absent."""
    for name in names:
        value = _map(value).get(name)
    return value


def _on(value: object) -> bool:
    """Whether a flag is anything but false."""
    return value is not None and value is not False


def _contexts(pod: PodSpecAt) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The security contexts of the pod and of its containers, each with its path."""
    yield f"{pod.path}.securityContext", _map(pod.spec.get("securityContext"))
    yield from _container_contexts(pod)


def _container_contexts(pod: PodSpecAt) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for path, container in pod.containers():
        yield f"{path}.securityContext", _map(container.get("securityContext"))


def _among(value: object, allowed: frozenset[str]) -> bool:
    return isinstance(value, str) and value in allowed


def _is_windows(pod: PodSpecAt) -> bool:
    """Whether the Linux controls of the restricted level do not apply."""
    return _at(pod.spec, "os", "name") == "windows"


def _texts(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


# Baseline


def _host_process(pod: PodSpecAt) -> _Found:
    for path, context in _contexts(pod):
        value = _at(context, "windowsOptions", "hostProcess")
        if _on(value):
            yield f"{path}.windowsOptions.hostProcess", value


def _host_namespaces(pod: PodSpecAt) -> _Found:
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if _on(pod.spec.get(name)):
            yield f"{pod.path}.{name}", pod.spec[name]


def _privileged(pod: PodSpecAt) -> _Found:
    for path, context in _container_contexts(pod):
        if _on(context.get("privileged")):
            yield f"{path}.privileged", context["privileged"]


def _added(pod: PodSpecAt, allowed: frozenset[str]) -> _Found:
    for path, context in _container_contexts(pod):
        for index, name in enumerate(_texts(_at(context, "capabilities", "add"))):
            if not _among(name, allowed):
                yield f"{path}.capabilities.add[{index}]", name


def _baseline_capabilities(pod: PodSpecAt) -> _Found:
    return _added(pod, _BASELINE_CAPABILITIES)


def _host_path(pod: PodSpecAt) -> _Found:
    for path, volume in items(pod.spec.get("volumes"), f"{pod.path}.volumes"):
        if volume.get("hostPath") is not None:
            yield f"{path}.hostPath", _at(volume, "hostPath", "path") or volume["hostPath"]


def _host_ports(pod: PodSpecAt) -> _Found:
    for path, container in pod.containers():
        for where, port in items(container.get("ports"), f"{path}.ports"):
            if port.get("hostPort"):
                yield f"{where}.hostPort", port["hostPort"]


def _host_of_probes(pod: PodSpecAt) -> _Found:
    for path, container in pod.containers():
        for names in (*_PROBES, *_HOOKS):
            for action in ("httpGet", "tcpSocket"):
                host = _at(container, *names, action, "host")
                if host:
                    yield f"{path}.{'.'.join(names)}.{action}.host", host


def _app_armor(pod: PodSpecAt) -> _Found:
    for path, context in _contexts(pod):
        kind = _at(context, "appArmorProfile", "type")
        if kind is not None and not _among(kind, _PROFILES):
            yield f"{path}.appArmorProfile.type", kind
    for key, value in pod.annotations.items():
        text = str(value)
        allowed = text in ("", "runtime/default") or text.startswith("localhost/")
        if key.startswith(_APPARMOR_ANNOTATION) and not allowed:
            yield f"{pod.annotations_path}[{excerpt(key)}]", value


def _selinux(pod: PodSpecAt) -> _Found:
    for path, context in _contexts(pod):
        options = _map(context.get("seLinuxOptions"))
        kind = options.get("type")
        if kind and not _among(kind, _SELINUX_TYPES):
            yield f"{path}.seLinuxOptions.type", kind
        for name in ("user", "role"):
            if options.get(name):
                yield f"{path}.seLinuxOptions.{name}", options[name]


def _proc_mount(pod: PodSpecAt) -> _Found:
    for path, context in _container_contexts(pod):
        if context.get("procMount") not in (None, "Default"):
            yield f"{path}.procMount", context["procMount"]


def _seccomp(pod: PodSpecAt) -> _Found:
    for path, context in _contexts(pod):
        kind = _at(context, "seccompProfile", "type")
        if kind is not None and not _among(kind, _PROFILES):
            yield f"{path}.seccompProfile.type", kind


def _sysctls(pod: PodSpecAt) -> _Found:
    where = f"{pod.path}.securityContext.sysctls"
    for path, sysctl in items(_at(pod.spec, "securityContext", "sysctls"), where):
        if not _among(sysctl.get("name"), _SYSCTLS):
            yield f"{path}.name", sysctl.get("name")


# Restricted


def _volume_types(pod: PodSpecAt) -> _Found:
    for path, volume in items(pod.spec.get("volumes"), f"{pod.path}.volumes"):
        kinds = [name for name, source in volume.items() if name != "name" and source is not None]
        for name in kinds:
            if name not in _RESTRICTED_VOLUMES:
                yield f"{path}.{name}", name


def _privilege_escalation(pod: PodSpecAt) -> _Found:
    for path, context in () if _is_windows(pod) else _container_contexts(pod):
        if context.get("allowPrivilegeEscalation") is not False:
            yield f"{path}.allowPrivilegeEscalation", context.get("allowPrivilegeEscalation")


def _run_as_non_root(pod: PodSpecAt) -> _Found:
    of_pod = _at(pod.spec, "securityContext", "runAsNonRoot")
    if of_pod is not None and of_pod is not True:
        yield f"{pod.path}.securityContext.runAsNonRoot", of_pod
    for path, context in _container_contexts(pod):
        value = context.get("runAsNonRoot")
        if value is not True and not (value is None and of_pod is True):
            yield f"{path}.runAsNonRoot", value


def _run_as_user(pod: PodSpecAt) -> _Found:
    for path, context in _contexts(pod):
        value = context.get("runAsUser")
        if value is not None and not value:
            yield f"{path}.runAsUser", value


def _seccomp_required(pod: PodSpecAt) -> _Found:
    of_pod = _at(pod.spec, "securityContext", "seccompProfile", "type")
    for path, context in () if _is_windows(pod) else _container_contexts(pod):
        if of_pod is None and _at(context, "seccompProfile", "type") is None:
            yield f"{path}.seccompProfile.type", None


def _restricted_capabilities(pod: PodSpecAt) -> _Found:
    if _is_windows(pod):
        return
    for path, context in _container_contexts(pod):
        dropped = _at(context, "capabilities", "drop")
        if "ALL" not in _texts(dropped):
            yield f"{path}.capabilities.drop", dropped
    yield from _added(pod, _RESTRICTED_CAPABILITIES)


_Control = tuple[str, Callable[[PodSpecAt], _Found]]
_BASELINE: Final[tuple[_Control, ...]] = (
    ("HostProcess", _host_process),
    ("Host Namespaces", _host_namespaces),
    ("Privileged Containers", _privileged),
    ("Capabilities", _baseline_capabilities),
    ("HostPath Volumes", _host_path),
    ("Host Ports", _host_ports),
    ("Host Probes and Lifecycle Hooks", _host_of_probes),
    ("AppArmor", _app_armor),
    ("SELinux", _selinux),
    ("/proc Mount Type", _proc_mount),
    ("Seccomp", _seccomp),
    ("Sysctls", _sysctls),
)
_RESTRICTED: Final[tuple[_Control, ...]] = (
    ("Volume Types", _volume_types),
    ("Privilege Escalation", _privilege_escalation),
    ("Running as Non-root", _run_as_non_root),
    ("Running as Non-root user", _run_as_user),
    ("Seccomp", _seccomp_required),
    ("Capabilities", _restricted_capabilities),
)
