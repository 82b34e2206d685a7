# SPDX-License-Identifier: Apache-2.0
"""The last check before an object is created on the worker cluster, whatever the hub has sent.

Owns the dispatch policy of the agent, what it refuses, and the metadata that a manifest keeps. Running jobs are not
checked again: a stricter policy applies to jobs that start later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from multikueue.api.constants import (
    ASSIGNMENT_ANNOTATION,
    CLUSTER_LABEL,
    EPOCH_ANNOTATION,
    MANAGER_UID_ANNOTATION,
    ORIGIN_LABEL,
    PREBUILT_WORKLOAD_ANNOTATION,
    REMOTE_POD_LABEL,
)
from multikueue.api.meta import JsonObject
from multikueue.api.resource import PODS
from multikueue.core.keys import Key
from multikueue.core.printable import excerpt
from multikueue.dispatch.policy.dispatch_policy import DispatchPolicy, DispatchSubject, PolicyRules, agent_rules
from multikueue.dispatch.protocol.propagated_metadata import bounded_manifest
from multikueue.dispatch.worker.assignment_state import FORBIDDEN_BY_POLICY, Obstacle
from multikueue.jobs.kinds.remote_pods import remote_pods_label
from worker_agent.local.jobs import GROUP_PREFIX

BAD_MANIFEST: Final = "BadManifest"
_CLONE_PATH: Final = "spec.workloadSpec"

Rules = Callable[[], tuple[PolicyRules, ...]]


def default_rules() -> tuple[PolicyRules, ...]:
    """The default rules: no work in system namespaces or the agent's namespace."""
    return (agent_rules(),)


class Boundary:
    """Checks what is created on this cluster for an assignment."""

    def __init__(self, *, cluster: str, origin: str, rules: Rules = default_rules) -> None:
        """`rules` is called for each check: an administrator may change them."""
        self._cluster = cluster
        self._origin = origin
        self._rules = rules

    def obstacle(self, job: Key, manifest: JsonObject, *, kind: str, workload_spec: JsonObject) -> Obstacle | None:
        """Why neither a Job nor a Workload is created for the assignment; None if they may be."""
        subject = DispatchSubject.of(job.namespace, manifest, workload_spec=workload_spec, workload_path=_CLONE_PATH)
        objection = DispatchPolicy(self._rules()).objection(subject)
        if objection:
            return Obstacle(FORBIDDEN_BY_POLICY, objection)
        metadata = manifest.get("metadata")
        expected = job.name.removeprefix(GROUP_PREFIX)
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        if (manifest.get("kind"), name) != (kind, expected):
            found = f"{excerpt(manifest.get('kind'))} {excerpt(name)}"
            return Obstacle(BAD_MANIFEST, f"spec.job.manifest: expected the {kind} {excerpt(expected)}, found {found}")
        return None

    def manifest(
        self, manifest: JsonObject, *, workload: Key, assignment: str, epoch: int, manager_uid: str
    ) -> JsonObject:
        """The manifest with the annotations of this assignment only, without owners and finalizers."""
        return bounded_manifest(
            manifest,
            labels={ORIGIN_LABEL: self._origin, **_pod_label(manifest, assignment)},
            annotations={
                PREBUILT_WORKLOAD_ANNOTATION: workload.name,
                EPOCH_ANNOTATION: str(epoch),
                MANAGER_UID_ANNOTATION: manager_uid,
                CLUSTER_LABEL: self._cluster,
                ASSIGNMENT_ANNOTATION: assignment,
            },
        )


def _pod_label(manifest: JsonObject, assignment: str) -> dict[str, str]:
    """The label by which the pods of one assignment are found, for a remote job that is a pod."""
    if (manifest.get("apiVersion"), manifest.get("kind")) != (PODS.api_version, PODS.kind):
        return {}
    return {REMOTE_POD_LABEL: remote_pods_label(assignment)}
