# SPDX-License-Identifier: Apache-2.0
"""What may be dispatched to a worker cluster: which namespaces, which service accounts, how privileged pods may be.

A policy is a list of rules by different authors (the hub's Configuration, the annotations of a MultiKueueCluster, the
flags of an agent); work is allowed if all of them allow it. An invalid rule allows nothing. The hub evaluates it before
anything is sent, and the agent for everything that it receives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from multikueue.api import names
from multikueue.api.constants import (
    AGENT_NAMESPACE,
    ALLOWED_NAMESPACES_ANNOTATION,
    ALLOWED_SERVICE_ACCOUNTS_ANNOTATION,
    DENIED_NAMESPACES_ANNOTATION,
    POD_SECURITY_ANNOTATION,
    PodSecurityLevel,
)
from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt
from multikueue.dispatch.policy.pod_security import violations
from multikueue.dispatch.policy.pod_specs import PodSpecAt, pod_specs

if TYPE_CHECKING:
    from multikueue.api.configuration import Configuration

SYSTEM_NAMESPACES: Final = "kube-*"
"""These names are reserved for Kubernetes."""
_SYSTEM_PRIORITY: Final = "system-"
_LEVELS: Final = tuple(PodSecurityLevel)
_NOT_WALKED: Final = frozenset({"metadata", "status"})
_MAX_TEXT: Final = 16384


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchSubject:
    """The work to be dispatched: its namespace, and every pod spec in it with its path."""

    namespace: str
    pods: tuple[PodSpecAt, ...] = ()

    @classmethod
    def of(
        cls,
        namespace: str,
        manifest: Mapping[str, Any],
        *,
        workload_spec: Mapping[str, Any],
        workload_path: str = "spec",
    ) -> DispatchSubject:
        """The subject of a job and of the spec of its Workload, from which a queue on the worker starts it."""
        job = {name: value for name, value in manifest.items() if name not in _NOT_WALKED}
        # Of a job that is a pod the annotations are those of the job.
        found = (_with_annotations(each, manifest) if each.path == "spec" else each for each in pod_specs(job))
        return cls(namespace=namespace, pods=(*found, *pod_specs(workload_spec, workload_path)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRules:
    """The rules of one author; an empty list of allowed names allows every name.

    `author` is the subject of messages, such as "its dispatch policy". `problem` is why the rules are invalid.
    """

    author: str
    reserved_namespaces: tuple[str, ...] = ()
    allowed_namespaces: tuple[str, ...] = ()
    denied_namespaces: tuple[str, ...] = ()
    service_accounts: tuple[str, ...] = ()
    pod_security: PodSecurityLevel = PodSecurityLevel.PRIVILEGED
    problem: str = ""

    def objection(self, subject: DispatchSubject) -> str:
        """Why the subject may not be dispatched, with the field; empty if it may."""
        return next(self._objections(subject), "")

    def _objections(self, subject: DispatchSubject) -> Iterator[str]:
        if self.problem:
            yield f"{self.author} is invalid and allows nothing: {self.problem}"
        namespace, quoted = subject.namespace, excerpt(subject.namespace)
        if _matches(namespace, self.reserved_namespaces):
            yield f"{self.author} never allows the namespace {quoted}: it is reserved for the system"
        if _matches(namespace, self.denied_namespaces):
            yield f"{self.author} denies the namespace {quoted}"
        if self.allowed_namespaces and not _matches(namespace, self.allowed_namespaces):
            yield f"{self.author} allows the namespaces {', '.join(self.allowed_namespaces)}, not {quoted}"
        for pod in subject.pods:
            for problem in (*_powers(pod), *self._accounts(pod)):
                yield f"{self.author} forbids {problem}"
            for violation in violations(pod, self.pod_security):
                yield f"{self.author} forbids {violation}"

    def _accounts(self, pod: PodSpecAt) -> Iterator[str]:
        for path, account in pod.service_accounts() if self.service_accounts else ():
            if not _matches(account, self.service_accounts):
                yield f"{path}: {excerpt(account)}, it allows {', '.join(self.service_accounts)}"


@dataclass(frozen=True, slots=True)
class DispatchPolicy:
    """The rules of several authors, which must all allow the work."""

    rules: tuple[PolicyRules, ...] = ()

    def objection(self, subject: DispatchSubject) -> str:
        """The first objection of any author; empty if there is none."""
        return next((text for rules in self.rules if (text := rules.objection(subject))), "")

    @property
    def pod_security(self) -> PodSecurityLevel:
        """The strictest level of all authors."""
        return max((rules.pod_security for rules in self.rules), key=_LEVELS.index, default=_LEVELS[0])

    def document(self) -> dict[str, Any]:
        """The policy as one document; a name must match one pattern of each list of `allowedNamespaces`."""
        return {
            "podSecurity": str(self.pod_security),
            "allowedNamespaces": [list(r.allowed_namespaces) for r in self.rules if r.allowed_namespaces],
            "deniedNamespaces": sorted({n for r in self.rules for n in (*r.reserved_namespaces, *r.denied_namespaces)}),
            "serviceAccounts": [list(r.service_accounts) for r in self.rules if r.service_accounts],
            "problems": [r.problem for r in self.rules if r.problem],
        }


@dataclass(frozen=True, slots=True)
class PolicyVerdict:
    """The clusters to which a workload may not be dispatched, with the reason; `everywhere` is the hub's objection."""

    clusters: Mapping[str, str] = field(default_factory=dict)
    everywhere: str = ""

    def on(self, cluster: str) -> str:
        """Why the cluster is forbidden; empty if it is allowed."""
        return self.everywhere or self.clusters.get(cluster, "")


def verdict(subject: DispatchSubject, hub: PolicyRules, clusters: Mapping[str, PolicyRules]) -> PolicyVerdict:
    """The objections of the hub and of each cluster; equal rules are evaluated once."""
    everywhere = hub.objection(subject)
    if everywhere:
        return PolicyVerdict(everywhere=everywhere)
    known: dict[PolicyRules, str] = {}
    found: dict[str, str] = {}
    for name, rules in clusters.items():
        if rules not in known:
            known[rules] = rules.objection(subject)
        if known[rules]:
            found[name] = known[rules]
    return PolicyVerdict(found)


def hub_rules(configuration: Configuration, *, namespace: str = "") -> PolicyRules:
    """The rules of the manager's Configuration; `namespace` is where it runs, if another than configured."""
    settings = configuration.multikueue.dispatch_policy
    return PolicyRules(
        author="the hub's dispatch policy",
        reserved_namespaces=_reserved(namespace or configuration.namespace, AGENT_NAMESPACE),
        allowed_namespaces=settings.allowed_namespaces or (),
        denied_namespaces=settings.denied_namespaces or (),
        service_accounts=settings.service_accounts or (),
        pod_security=PodSecurityLevel(settings.pod_security),
    )


def cluster_rules(annotations: Mapping[str, str]) -> PolicyRules:
    """The rules in the annotations of a MultiKueueCluster; an invalid annotation allows nothing."""
    author = "its dispatch policy"
    try:
        return PolicyRules(
            author=author,
            allowed_namespaces=_annotated(annotations, ALLOWED_NAMESPACES_ANNOTATION),
            denied_namespaces=_annotated(annotations, DENIED_NAMESPACES_ANNOTATION),
            service_accounts=_annotated(annotations, ALLOWED_SERVICE_ACCOUNTS_ANNOTATION),
            pod_security=level_of(
                annotations.get(POD_SECURITY_ANNOTATION, PodSecurityLevel.PRIVILEGED),
                field=f"annotation {POD_SECURITY_ANNOTATION}",
            ),
        )
    except BadInput as error:
        return PolicyRules(author=author, problem=str(error))


def agent_rules(
    *,
    namespaces: Iterable[str] = (AGENT_NAMESPACE,),
    allowed_namespaces: tuple[str, ...] = (),
    denied_namespaces: tuple[str, ...] = (),
    service_accounts: tuple[str, ...] = (),
    pod_security: PodSecurityLevel = PodSecurityLevel.PRIVILEGED,
) -> PolicyRules:
    """The rules of an agent; `namespaces` contain the agent and its credentials."""
    return PolicyRules(
        author="the agent of this cluster",
        reserved_namespaces=_reserved(*namespaces),
        allowed_namespaces=allowed_namespaces,
        denied_namespaces=denied_namespaces,
        service_accounts=service_accounts,
        pod_security=pod_security,
    )


def patterns_of(text: str, *, field: str) -> tuple[str, ...]:
    """The patterns of a comma-separated list. Raises `BadInput`, also for an empty list."""
    if len(text) > _MAX_TEXT:
        raise BadInput(f"{field}: expected at most {_MAX_TEXT} characters, found {len(text)}")
    found = tuple(part for part in (each.strip() for each in text.split(",")) if part)
    if not 1 <= len(found) <= names.MAX_PATTERNS:
        raise BadInput(f"{field}: expected 1 to {names.MAX_PATTERNS} names or patterns, found {excerpt(text)}")
    for pattern in found:
        for problem in names.name_pattern(pattern):
            raise BadInput(f"{field}: {excerpt(pattern)}: {problem}")
    return found


def level_of(text: str, *, field: str) -> PodSecurityLevel:
    """The Pod Security level of that name. Raises `BadInput`."""
    try:
        return PodSecurityLevel(text)
    except ValueError as error:
        raise BadInput(f"{field}: expected one of {', '.join(_LEVELS)}, found {excerpt(text)}") from error


def _annotated(annotations: Mapping[str, str], key: str) -> tuple[str, ...]:
    return patterns_of(annotations[key], field=f"annotation {key}") if key in annotations else ()


def _reserved(*own: str) -> tuple[str, ...]:
    return (SYSTEM_NAMESPACES, *sorted({name for name in own if name}))


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _powers(pod: PodSpecAt) -> Iterator[str]:
    """Fields that no Pod Security level covers and that dispatched work may never have."""
    node = pod.spec.get("nodeName")
    if node:
        yield f"{pod.path}.nodeName: {excerpt(node)} bypasses the scheduler, taints and capacity of the worker"
    priority = pod.spec.get("priorityClassName")
    if priority and str(priority).startswith(_SYSTEM_PRIORITY):
        yield f"{pod.path}.priorityClassName: {excerpt(priority)} is reserved for the system of the worker"


def _with_annotations(pod: PodSpecAt, manifest: Mapping[str, Any]) -> PodSpecAt:
    metadata = manifest.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return replace(pod, annotations=annotations) if isinstance(annotations, Mapping) else pod
