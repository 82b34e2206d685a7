# SPDX-License-Identifier: Apache-2.0
"""The rights that an agent uses on a worker cluster, and what each of them is for.

Owns the table, its form in a ClusterReport, and the message about missing rights. Without a required right no Job can
be dispatched to the cluster; without any other one feature is missing. An agent reports only which rights are missing;
the reader looks their purpose up in the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from multikueue.api.meta import JsonObject
from multikueue.api.resource import (
    CLUSTER_QUEUES,
    COHORTS,
    CONFIG_MAPS,
    EVENTS,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    POD_TEMPLATES,
    PODS,
    PROVISIONING_REQUESTS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_FLAVORS,
    SECRETS,
    SERVICE_ACCOUNTS,
    WORKLOADS,
    Resource,
)
from multikueue.dispatch.worker.dependencies import SENDABLE_KINDS

_MOST: Final = 64
"""Maximum entries of a report that are read; the schema has the same limit."""
_HEADING: Final = "missing rights: "
_REQUIRED: Final = "required"
_GIVES: Final = "would give"
_VERB: Final = re.compile("[a-z]{1,32}")
_RESOURCE: Final = re.compile("[a-z0-9./-]{1,253}")
_ENTRY: Final = re.compile(rf"((?:[a-z]+ [a-z0-9./-]+(?:, )?)+) \(({_REQUIRED}|{_GIVES}): ([^()]*)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRight:
    """One verb on one resource, or on a path of the API server.

    `resource` is `plural.group`, `plural.group/subresource` or a path with a leading slash. `gives` is what is missing
    without it. `queueing`: it is needed only if Kueue's kinds are installed, `provisioning`: only if
    ProvisioningRequests are.
    """

    verb: str
    resource: str
    gives: str
    required: bool = False
    queueing: bool = False
    provisioning: bool = False

    @property
    def name(self) -> str:
        """The text in messages."""
        return f"{self.verb} {self.resource}"

    @property
    def review(self) -> JsonObject:
        """The `spec` of a SelfSubjectAccessReview that asks for it in all namespaces."""
        if self.resource.startswith("/"):
            return {"nonResourceAttributes": {"verb": self.verb, "path": self.resource}}
        qualified, _, subresource = self.resource.partition("/")
        plural, _, group = qualified.partition(".")
        asked = {"verb": self.verb, "group": group, "resource": plural, "subresource": subresource}
        return {"resourceAttributes": {key: value for key, value in asked.items() if value}}


def _rights(
    verbs: str,
    resource: Resource,
    gives: str,
    *,
    subresource: str = "",
    queueing: bool = False,
    provisioning: bool = False,
) -> list[WorkerRight]:
    name = f"{resource.qualified}/{subresource}" if subresource else resource.qualified
    return [
        WorkerRight(verb=verb, resource=name, gives=gives, queueing=queueing, provisioning=provisioning)
        for verb in verbs.split()
    ]


_QUEUES: Final = "its own LocalQueues admit the work; without it the agent admits by the capacity of the nodes"
_NODES: Final = (
    "the free capacity of its nodes is known before work is sent there; without it the cluster is asked each time"
)
_PODS: Final = "the capacity that other pods use is counted, and it is known why the pods of a Job do not start"
_EVENTS: Final = "it is known why the pods of a Job are not created, or why their containers are not"
_LOGS: Final = "the last lines of a failed Job are shown on the hub; without it only its exit codes"
_NAMESPACES: Final = "a Job whose namespace is missing there goes elsewhere at once; without it after a failed creation"
_GATES: Final = "the preemption gate of a Workload is opened there"
_STOPS: Final = "its queues stop a Job themselves and see a changed priority; without it the Job is deleted"
_NAMES: Final = "a Workload of another owner with the same name is found with one request"
_QUOTAS: Final = "the free quota of its ClusterQueues is known before work is sent there, and the hub's can follow it"
_COHORTS: Final = "the quota of its Cohorts is counted"
_FLAVORS: Final = (
    "it is known before work is sent there which pods its flavors are for, by labels, taints and topologies"
)
_PROVISIONING: Final = "provisioning checks of the hub can provision capacity there"
_DEPENDENCIES: Final = (
    "a Job whose pods need an object that is missing there waits, or goes elsewhere; without it its pods do not start"
)

SHARED_RIGHTS: Final[tuple[WorkerRight, ...]] = (
    *_rights("list watch", NODES, _NODES),
    *_rights("list watch", PODS, _PODS),
    *_rights("list", EVENTS, _EVENTS),
    *_rights("get", PODS, _LOGS, subresource="log"),
    *_rights("list watch", NAMESPACES, _NAMESPACES),
    *_rights("get", CONFIG_MAPS, _DEPENDENCIES),
    *_rights("get", SECRETS, _DEPENDENCIES),
    *_rights("get", SERVICE_ACCOUNTS, _DEPENDENCIES),
    *_rights("get", PERSISTENT_VOLUME_CLAIMS, _DEPENDENCIES),
    *_rights("get", RESOURCE_CLAIMS, _DEPENDENCIES),
    *_rights("get", RESOURCE_CLAIM_TEMPLATES, _DEPENDENCIES),
    *_rights("list watch create delete", WORKLOADS, _QUEUES, queueing=True),
    *_rights("list watch", LOCAL_QUEUES, _QUEUES, queueing=True),
    *_rights("get", WORKLOADS, _NAMES, queueing=True),
    *_rights("patch", WORKLOADS, _STOPS, queueing=True),
    *_rights("patch", WORKLOADS, _GATES, subresource="status", queueing=True),
    *_rights("list watch", CLUSTER_QUEUES, _QUOTAS, queueing=True),
    *_rights("list watch", COHORTS, _COHORTS, queueing=True),
    *_rights("list watch", RESOURCE_FLAVORS, _FLAVORS, queueing=True),
    *_rights("get list watch create delete", PROVISIONING_REQUESTS, _PROVISIONING, provisioning=True),
    *_rights("get create delete", POD_TEMPLATES, _PROVISIONING, provisioning=True),
    WorkerRight(
        verb="get", resource="/readyz", gives="it is known whether the API server is ready, not only that it answers"
    ),
    WorkerRight(verb="get", resource="/version", gives="its Kubernetes version is shown"),
)
"""Used on every cluster, whatever kinds of jobs it runs. None of them is required."""

_SENDING: Final = "the hub can send objects of this kind with Jobs, if it is set to"
SENDING_RIGHTS: Final[tuple[WorkerRight, ...]] = tuple(
    right for resource in SENDABLE_KINDS.values() for right in _rights("get create update delete", resource, _SENDING)
)
"""Used only where an administrator of the worker gives them (ADR 0021): they never count as missing."""

PROVISIONING_USE: Final = frozenset(right.name for right in SHARED_RIGHTS if right.provisioning)
"""If one of these is missing, the agent does not provision."""

QUEUE_USE: Final = frozenset(right.name for right in SHARED_RIGHTS if right.gives == _QUEUES)
"""If one of these is missing, the queues of the cluster are not used for new work."""

_STOP: Final = (
    "a Job is suspended to stop it, and Jobs of a lost management cluster can be adopted; without it a Job is stopped"
    " by deleting it"
)
_ONE_KIND: Final = "jobs of this kind can run there, as those of others can"
_JOB_VERBS: Final[Mapping[str, str]] = {
    "create": "without it no Job can be started there",
    "delete": "without it no Job can be removed there",
    "get": "without it a Job of the same name cannot be distinguished",
    "list": "without it the Jobs there are not seen",
    "watch": "without it the Jobs there are not followed",
}


def job_rights(resource: Resource) -> tuple[WorkerRight, ...]:
    """The rights on one kind of jobs."""
    required = [
        WorkerRight(verb=verb, resource=resource.qualified, gives=why, required=True)
        for verb, why in _JOB_VERBS.items()
    ]
    return (*required, WorkerRight(verb="patch", resource=resource.qualified, gives=_STOP))


def rights_of(kinds: Iterable[Resource]) -> tuple[WorkerRight, ...]:
    """All rights that an agent of these kinds of jobs uses."""
    found = (*(right for kind in kinds for right in job_rights(kind)), *SHARED_RIGHTS)
    # Pods may be jobs, and are the pods of other jobs in any case.
    return tuple({right.name: right for right in reversed(found)}.values())[::-1]


def of_one_kind(right: WorkerRight) -> WorkerRight:
    """A right that is required for one kind only, on a cluster that runs jobs of another."""
    return replace(right, required=False, gives=_ONE_KIND) if right.required else right


def missing_wire(missing: Iterable[WorkerRight]) -> list[JsonObject]:
    """The missing rights as JSON of a ClusterReport."""
    found = [{"verb": right.verb, "resource": right.resource, "required": right.required} for right in missing]
    return found[:_MOST]


def missing_of(report: Mapping[str, object], table: Sequence[WorkerRight]) -> tuple[WorkerRight, ...]:
    """The missing rights of a report, in its order; invalid entries are omitted."""
    reported = report.get("missingRights")
    if not reported:
        return ()
    known = {right.name: right for right in table}
    shared = {right.name: right for right in SHARED_RIGHTS}
    found: dict[str, WorkerRight] = {}
    for entry in (reported if isinstance(reported, list) else [])[:_MOST]:
        verb, resource = (entry.get("verb"), entry.get("resource")) if isinstance(entry, dict) else (None, None)
        if not (isinstance(verb, str) and isinstance(resource, str)):
            continue
        if not (_VERB.fullmatch(verb) and _RESOURCE.fullmatch(resource)):
            continue
        # An agent of a later version may use other rights.
        other = WorkerRight(
            verb=verb, resource=resource, gives="a feature of its agent", required=bool(entry.get("required"))
        )
        right = known.get(other.name, other)
        # Pods may be jobs there, and are the pods of other jobs in any case.
        found[right.name] = right if other.required else shared.get(right.name) or of_one_kind(right)
    return tuple(found.values())


def describe_missing(missing: Iterable[WorkerRight]) -> str:
    """The part of a condition's message that lists them, required ones first; empty for none."""
    grouped: dict[tuple[bool, str], list[str]] = {}
    for right in sorted(missing, key=lambda each: not each.required):
        grouped.setdefault((right.required, right.gives), []).append(right.name)
    entries = [
        f"{', '.join(names)} ({_REQUIRED if required else _GIVES}: {gives})"
        for (required, gives), names in grouped.items()
    ]
    return _HEADING + "; ".join(entries) if entries else ""


def read_missing(message: str) -> tuple[WorkerRight, ...]:
    """The rights in a message made by `describe_missing`."""
    _, _, text = message.partition(_HEADING)
    return tuple(
        WorkerRight(verb=verb, resource=resource, gives=gives, required=kind == _REQUIRED)
        for names, kind, gives in _ENTRY.findall(text)
        for verb, _, resource in (name.partition(" ") for name in names.split(", "))
    )
