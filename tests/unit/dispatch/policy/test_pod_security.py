# SPDX-License-Identifier: Apache-2.0
"""Every control of the Pod Security Standards, each with a template that it allows and one that it forbids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from multikueue.api.constants import PodSecurityLevel
from multikueue.dispatch.policy.pod_security import violations
from multikueue.dispatch.policy.pod_specs import pod_specs

P, B, R = PodSecurityLevel
Template = dict[str, Any]
SPEC = "spec.template.spec"
POD = f"{SPEC}.securityContext"
FIRST = f"{SPEC}.containers[0].securityContext"


def hardened() -> Template:
    """A pod that meets the level restricted."""
    context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {
        "metadata": {"annotations": {}},
        "spec": {
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "c", "image": "i", "securityContext": context}],
        },
    }


def plain() -> Template:
    """A pod whose author has said nothing about security."""
    return {"spec": {"containers": [{"name": "c", "image": "i"}]}}


def pod(**changes: Any) -> Callable[[Template], None]:
    """Set fields of the pod spec."""
    return lambda template: template["spec"].update(changes)


def of_pod(**changes: Any) -> Callable[[Template], None]:
    """Set fields of the pod's security context."""
    return lambda template: template["spec"].setdefault("securityContext", {}).update(changes)


def container(**changes: Any) -> Callable[[Template], None]:
    """Set fields of the first container."""
    return lambda template: template["spec"]["containers"][0].update(changes)


def of_container(**changes: Any) -> Callable[[Template], None]:
    """Set fields of the first container's security context."""
    return lambda template: template["spec"]["containers"][0].setdefault("securityContext", {}).update(changes)


def another(field: str, **context: Any) -> Callable[[Template], None]:
    """Add a container to a list."""
    return lambda template: template["spec"].setdefault(field, []).append({"name": "x", "securityContext": context})


def annotation(key: str, value: str) -> Callable[[Template], None]:
    """Set an annotation of the template."""
    return lambda template: template.setdefault("metadata", {}).setdefault("annotations", {}).update({key: value})


def found(template: Template, level: PodSecurityLevel) -> list[str]:
    """The fields that the level does not allow in a Job of that template."""
    (spec,) = pod_specs({"kind": "Job", "spec": {"template": template}})
    return [violation.field for violation in violations(spec, level)]


APPARMOR = "container.apparmor.security.beta.kubernetes.io/c"
BASELINE: list[tuple[str, Callable[[Template], None], str]] = [
    ("a HostProcess pod", of_pod(windowsOptions={"hostProcess": True}), f"{POD}.windowsOptions.hostProcess"),
    (
        "a HostProcess container",
        of_container(windowsOptions={"hostProcess": True}),
        f"{FIRST}.windowsOptions.hostProcess",
    ),
    ("hostNetwork", pod(hostNetwork=True), f"{SPEC}.hostNetwork"),
    ("hostPID", pod(hostPID=True), f"{SPEC}.hostPID"),
    ("hostIPC", pod(hostIPC=True), f"{SPEC}.hostIPC"),
    ("a flag of the wrong type", pod(hostIPC="no"), f"{SPEC}.hostIPC"),
    ("a privileged container", of_container(privileged=True), f"{FIRST}.privileged"),
    (
        "a privileged init container",
        another("initContainers", privileged=True),
        f"{SPEC}.initContainers[0].securityContext.privileged",
    ),
    (
        "a privileged second container",
        another("containers", privileged=True),
        f"{SPEC}.containers[1].securityContext.privileged",
    ),
    (
        "a privileged ephemeral container",
        another("ephemeralContainers", privileged=True),
        f"{SPEC}.ephemeralContainers[0].securityContext.privileged",
    ),
    (
        "an added capability",
        of_container(capabilities={"add": ["CHOWN", "SYS_ADMIN"]}),
        f"{FIRST}.capabilities.add[1]",
    ),
    ("a capability that is no text", of_container(capabilities={"add": [{}]}), f"{FIRST}.capabilities.add[0]"),
    ("a hostPath volume", pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}]), f"{SPEC}.volumes[0].hostPath"),
    ("a host port", container(ports=[{"hostPort": 80}]), f"{SPEC}.containers[0].ports[0].hostPort"),
    (
        "the host of a probe",
        container(livenessProbe={"httpGet": {"host": "10.0.0.1"}}),
        f"{SPEC}.containers[0].livenessProbe.httpGet.host",
    ),
    (
        "the host of a hook",
        container(lifecycle={"preStop": {"tcpSocket": {"host": "10.0.0.1"}}}),
        f"{SPEC}.containers[0].lifecycle.preStop.tcpSocket.host",
    ),
    (
        "an unconfined AppArmor profile",
        of_container(appArmorProfile={"type": "Unconfined"}),
        f"{FIRST}.appArmorProfile.type",
    ),
    (
        "an unconfined AppArmor annotation",
        annotation(APPARMOR, "unconfined"),
        f'spec.template.metadata.annotations["{APPARMOR}"]',
    ),
    ("an SELinux type", of_pod(seLinuxOptions={"type": "spc_t"}), f"{POD}.seLinuxOptions.type"),
    ("an SELinux user", of_container(seLinuxOptions={"user": "system_u"}), f"{FIRST}.seLinuxOptions.user"),
    ("an SELinux role", of_pod(seLinuxOptions={"role": "sysadm_r"}), f"{POD}.seLinuxOptions.role"),
    ("an unmasked /proc", of_container(procMount="Unmasked"), f"{FIRST}.procMount"),
    ("an unconfined pod", of_pod(seccompProfile={"type": "Unconfined"}), f"{POD}.seccompProfile.type"),
    ("an unconfined container", of_container(seccompProfile={"type": "Unconfined"}), f"{FIRST}.seccompProfile.type"),
    ("an unsafe sysctl", of_pod(sysctls=[{"name": "kernel.msgmax", "value": "1"}]), f"{POD}.sysctls[0].name"),
]
RESTRICTED: list[tuple[str, Callable[[Template], None], str]] = [
    ("an NFS volume", pod(volumes=[{"name": "v", "nfs": {"server": "s", "path": "/"}}]), f"{SPEC}.volumes[0].nfs"),
    (
        "privilege escalation that is not ruled out",
        of_container(allowPrivilegeEscalation=None),
        f"{FIRST}.allowPrivilegeEscalation",
    ),
    ("privilege escalation", of_container(allowPrivilegeEscalation=True), f"{FIRST}.allowPrivilegeEscalation"),
    ("a container that may be root", of_container(runAsNonRoot=False), f"{FIRST}.runAsNonRoot"),
    ("a pod that may be root", of_pod(runAsNonRoot=None), f"{FIRST}.runAsNonRoot"),
    ("the user root", of_pod(runAsUser=0), f"{POD}.runAsUser"),
    ("a container of the user root", of_container(runAsUser=0), f"{FIRST}.runAsUser"),
    ("no seccomp profile", of_pod(seccompProfile=None), f"{FIRST}.seccompProfile.type"),
    ("capabilities that are not dropped", of_container(capabilities={}), f"{FIRST}.capabilities.drop"),
    (
        "a capability that is added again",
        of_container(capabilities={"drop": ["ALL"], "add": ["CHOWN"]}),
        f"{FIRST}.capabilities.add[0]",
    ),
]
ALLOWED_BY_BASELINE: list[tuple[str, Callable[[Template], None]]] = [
    ("flags that are off", pod(hostNetwork=False, hostPID=False, hostIPC=None)),
    ("no HostProcess", of_pod(windowsOptions={"hostProcess": False})),
    ("containers that are not privileged", of_container(privileged=False)),
    ("harmless capabilities", of_container(capabilities={"add": ["NET_BIND_SERVICE", "CHOWN", "KILL"]})),
    ("volumes of other types", pod(volumes=[{"name": "v", "nfs": {"server": "s", "path": "/"}}])),
    ("container ports", container(ports=[{"containerPort": 80, "hostPort": 0}])),
    ("probes of the pod itself", container(livenessProbe={"httpGet": {"port": 80, "host": ""}})),
    ("AppArmor profiles", of_container(appArmorProfile={"type": "Localhost", "localhostProfile": "p"})),
    ("AppArmor annotations", annotation(APPARMOR, "localhost/p")),
    ("SELinux types of containers", of_pod(seLinuxOptions={"type": "container_t", "level": "s0"})),
    ("the default /proc", of_container(procMount="Default")),
    ("seccomp profiles", of_container(seccompProfile={"type": "Localhost"})),
    ("safe sysctls", of_pod(sysctls=[{"name": "net.ipv4.tcp_syncookies", "value": "1"}])),
    ("privilege escalation and root", of_container(allowPrivilegeEscalation=True, runAsUser=0)),
]
ALLOWED_BY_RESTRICTED: list[tuple[str, Callable[[Template], None]]] = [
    ("volumes of safe types", pod(volumes=[{"name": "v", "emptyDir": {}}, {"name": "w", "secret": {}}])),
    ("the one capability that may be added", of_container(capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]})),
    ("a user that is not root", of_pod(runAsUser=1000)),
    ("seccomp of each container", of_container(seccompProfile={"type": "RuntimeDefault"})),
]


@pytest.mark.parametrize(("change", "field"), [c[1:] for c in BASELINE], ids=[c[0] for c in BASELINE])
def test_baseline_forbids(change: Callable[[Template], None], field: str) -> None:
    template = plain()
    change(template)
    assert found(template, B) == [field]
    assert field in found(template, R), "restricted forbids whatever baseline does"
    assert found(template, P) == []


@pytest.mark.parametrize(("change", "field"), [c[1:] for c in RESTRICTED], ids=[c[0] for c in RESTRICTED])
def test_restricted_forbids_more(change: Callable[[Template], None], field: str) -> None:
    template = hardened()
    change(template)
    assert found(template, R) == [field]
    assert found(template, B) == []


@pytest.mark.parametrize("change", [c[1] for c in ALLOWED_BY_BASELINE], ids=[c[0] for c in ALLOWED_BY_BASELINE])
def test_baseline_allows(change: Callable[[Template], None]) -> None:
    template = plain()
    change(template)
    assert found(template, B) == []


@pytest.mark.parametrize("change", [c[1] for c in ALLOWED_BY_RESTRICTED], ids=[c[0] for c in ALLOWED_BY_RESTRICTED])
def test_restricted_allows(change: Callable[[Template], None]) -> None:
    template = hardened()
    change(template)
    assert found(template, R) == []


def test_each_level_allows_the_pod_that_it_is_meant_for() -> None:
    assert [found(hardened(), level) for level in PodSecurityLevel] == [[], [], []]
    assert found(plain(), B) == []
    assert found(plain(), R) != []


def test_of_a_windows_pod_restricted_asks_for_nothing_that_is_about_linux() -> None:
    template = hardened()
    template["spec"] |= {"os": {"name": "windows"}, "securityContext": {"runAsNonRoot": True}}
    template["spec"]["containers"][0]["securityContext"] = {}
    assert found(template, R) == []
    template["spec"]["os"] = {"name": "linux"}
    assert len(found(template, R)) == 3


def test_a_violation_names_field_value_level_and_control() -> None:
    template = plain()
    of_container(privileged=True)(template)
    (spec,) = pod_specs({"spec": {"template": template}})
    (said,) = map(str, violations(spec, B))
    assert said == (
        "spec.template.spec.containers[0].securityContext.privileged: true is not allowed by Pod Security level"
        " baseline (Privileged Containers)"
    )


@pytest.mark.parametrize("nonsense", [None, 1, "x", [], [1], {"x": 1}], ids=repr)
@pytest.mark.parametrize("level", [B, R], ids=str)
def test_fields_of_the_wrong_type_are_no_error(nonsense: Any, level: PodSecurityLevel) -> None:
    fields = ("securityContext", "volumes", "os", "containers", "initContainers", "hostNetwork", "ephemeralContainers")
    for field in fields:
        assert isinstance(found({"spec": {"containers": [], field: nonsense}}, level), list)
    for field in ("securityContext", "ports", "lifecycle", "livenessProbe"):
        assert isinstance(found({"spec": {"containers": [{field: nonsense}]}, "metadata": nonsense}, level), list)
    for field in ("capabilities", "seLinuxOptions", "windowsOptions", "seccompProfile", "appArmorProfile", "sysctls"):
        assert isinstance(found({"spec": {"containers": [{"securityContext": {field: nonsense}}]}}, level), list)
