# SPDX-License-Identifier: Apache-2.0
"""The roles of manager and agent grant exactly the verbs that the audit log of a federation shows.

A verb that is used and not granted fails, and so does a granted verb that is neither used in the run nor listed in
`RARE` with the test that uses it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
import yaml

from devcluster.federation.enrolment import agent_user
from devcluster.federation.spec import FederationSpec, several_workers
from multikueue.api.codec import documents
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    JOBS,
    LOCAL_QUEUES,
    REMOTE_ASSIGNMENTS,
    RESOURCE_FLAVORS,
    ROLES,
    WORKLOADS,
)
from multikueue.cli.cluster.joining_instructions import newer_manifest
from multikueue.testing.in_process import MANAGER_USER, WORKER_AGENT_USER, InProcessFederation, embedded_federation
from tests.support.federations import finished, job, names, wait_until
from tests.support.managers import Object, ensure, make_queue
from tests.support.workers import make_check

pytestmark = pytest.mark.anyio

ROOT: Final = Path(__file__).parents[3]
WORKER: Final = "worker-1"
Verb = tuple[str, str]
"""A verb and `resource.group/subresource`."""

_REGISTRATION: Final = "tests/component/dispatch/test_registration.py"
_PROFILES: Final = "tests/component/scenarios/test_cluster_profiles.py"
_PROVISIONING: Final = "tests/component/provisioning/test_scenarios.py"
_RELAYED_LOGS: Final = "tests/component/scenarios/test_relayed_logs.py"
RARE: Final[dict[str, dict[Verb, str]]] = {
    "manager": {
        ("create", "configmaps"): "tests/component/scenarios/test_failed_jobs.py",
        ("create", "subjectaccessreviews.authorization.k8s.io"): "tests/security/test_metrics_access.py",
        ("create", "tokenreviews.authentication.k8s.io"): "tests/security/test_metrics_access.py",
        ("delete", "certificatesigningrequests.certificates.k8s.io"): _REGISTRATION,
        ("delete", "jobs.batch"): "tests/component/manager/test_retention.py",
        ("delete", "secrets"): _REGISTRATION,
        ("list", "clusterprofiles.multicluster.x-k8s.io"): _PROFILES,
        ("watch", "clusterprofiles.multicluster.x-k8s.io"): _PROFILES,
        ("patch", "certificatesigningrequests.certificates.k8s.io/approval"): _REGISTRATION,
        ("patch", "clusterregistrations.multikueue.io/status"): _REGISTRATION,
        ("patch", "clusterreports.multikueue.io"): "tests/component/dispatch/test_recovery.py",
        ("patch", "events.events.k8s.io"): "tests/unit/kube/test_events_and_serve.py",
        ("patch", "leases.coordination.k8s.io"): "tests/security/test_mailbox_namespaces.py",
        ("delete", "joblogrequests.multikueue.io"): _RELAYED_LOGS,
        ("patch", "joblogrequests.multikueue.io/status"): _RELAYED_LOGS,
        ("patch", "remoteassignments.multikueue.io"): "tests/component/dispatch/test_dispatch.py",
        ("patch", "topologies.kueue.x-k8s.io"): "tests/component/manager/test_topologies.py",
        ("update", "secrets"): "tests/component/manager/test_certificate_rotation.py",
        **{
            (verb, resource): _PROVISIONING
            for verb in ("create", "delete", "get", "list", "watch")
            for resource in ("podtemplates", "provisioningrequests.autoscaling.x-k8s.io")
        },
    },
    "agent on its worker": {
        **{
            (verb, resource): "tests/component/provisioning/test_across_clusters.py"
            for resource, verbs in (
                ("podtemplates", ("create", "delete", "get")),
                ("provisioningrequests.autoscaling.x-k8s.io", ("create", "delete", "get", "list", "watch")),
            )
            for verb in verbs
        },
        **{
            ("get", resource): "tests/component/rights/test_dependencies.py"
            for resource in (
                "configmaps",
                "persistentvolumeclaims",
                "resourceclaims.resource.k8s.io",
                "resourceclaimtemplates.resource.k8s.io",
                "secrets",
                "serviceaccounts",
            )
        },
        ("list", "events.events.k8s.io"): "tests/component/rights/test_pod_starts.py",
        ("get", "pods/log"): "tests/component/scenarios/test_failed_jobs.py",
        ("patch", "jobs.batch"): "tests/component/worker_agent/test_agent.py",
        ("patch", "workloads.kueue.x-k8s.io"): "tests/component/worker_agent/test_clones.py",
        ("patch", "workloads.kueue.x-k8s.io/status"): "tests/component/worker_agent/test_preemption_gates.py",
    },
    "agent on the hub": {},
}
"""Verbs that the run may not use, with the test whose code path does."""

WITHOUT_REQUEST: Final[dict[str, dict[Verb, str]]] = {
    "manager": {
        ("escalate", "roles.rbac.authorization.k8s.io"): "checked when the Role of a mailbox is written",
        ("bind", "roles.rbac.authorization.k8s.io"): "checked when the RoleBinding of a mailbox is written",
        ("approve", "signers.certificates.k8s.io"): "checked when a CertificateSigningRequest is approved",
        ("update", "jobs.batch/finalizers"): "checked by OwnerReferencesPermissionEnforcement for a new Workload",
    },
}
"""Verbs that the API server checks while it serves another request, so that no audit event has them."""


OF_KUBERNETES: Final[dict[str, Verb]] = {"extension-apiserver-authentication-reader": ("get", "configmaps")}
"""What a Role that every cluster has grants, and the manager uses."""


@dataclass
class Recording:
    """The verbs that each user has used, and the manifests of the agent's roles."""

    used: dict[str, set[Verb]] = field(default_factory=lambda: defaultdict(set))
    mailbox_role: Object = field(default_factory=dict)

    def record(self, event: Object) -> None:
        """An `Audit`. An apply that creates an object needs the verb `create` too."""
        target = event.get("objectRef")
        if target is None:
            return
        name = _name(target.get("apiGroup", ""), target["resource"], target.get("subresource", ""))
        verbs = self.used[event["user"]["username"]]
        verbs.add((event["verb"], name))
        if event["verb"] == "patch" and event["responseStatus"]["code"] == 201:
            verbs.add(("create", name))


@pytest.fixture(scope="module")
async def recording(anyio_backend: str) -> Recording:
    """A federation from its start until a Job has run and everything is deleted."""
    found = Recording()
    spec = FederationSpec(
        workers=several_workers(1),
        worker_queues=True,
        configuration={"fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare"]}},
        manager_arguments=["--leader-elect"],
    )
    async with embedded_federation(spec, audit=found.record) as federation:
        await _run_a_job(federation)
        async with federation.hub.client() as hub:
            found.mailbox_role = await hub.get_object(ROLES, "multikueue-agent", namespace=mailbox_namespace(WORKER))
    return found


async def _run_a_job(federation: InProcessFederation) -> None:
    async with federation.hub.client() as hub, federation.workers[WORKER].client() as worker:
        cohort = {"apiVersion": COHORTS.api_version, "kind": COHORTS.kind, "metadata": {"name": "teams"}, "spec": {}}
        await ensure(hub, COHORTS, cohort)
        await make_check(hub, "workers", (WORKER,))
        await make_queue(hub, "jobs", namespace="team-a", checks=("workers",), cohort="teams")
        await make_queue(worker, "jobs", namespace="team-a", cpu="4")
        submitted = job("a", run_for="100ms")
        submitted["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1"}
        await hub.create(JOBS, submitted, namespace="team-a")

        async def done() -> bool:
            return await finished(hub) == ["a"]

        await wait_until(done, within=30, what="the Job is complete on the hub")
        await hub.delete(JOBS, "a", namespace="team-a", propagation="Background")

        async def cleaned_up() -> bool:
            return not any([await names(hub, each) for each in (WORKLOADS, REMOTE_ASSIGNMENTS)])

        await wait_until(cleaned_up, within=30, what="the Workload and its assignment are deleted")
        await hub.delete(LOCAL_QUEUES, "jobs", namespace="team-a")
        for resource, name in ((CLUSTER_QUEUES, "jobs"), (ADMISSION_CHECKS, "workers"), (RESOURCE_FLAVORS, "default")):
            await hub.delete(resource, name)

        async def queues_deleted() -> bool:
            return not any([await names(hub, each) for each in (CLUSTER_QUEUES, ADMISSION_CHECKS, RESOURCE_FLAVORS)])

        await wait_until(queues_deleted, within=30, what="the finalizers of the queue objects are removed")


def _name(group: str, resource: str, subresource: str = "") -> str:
    qualified = f"{resource}.{group}" if group else resource
    return f"{qualified}/{subresource}" if subresource else qualified


def _verbs(objects: Iterable[Object]) -> set[Verb]:
    """What the rules of Roles and ClusterRoles grant."""
    found: set[Verb] = set()
    for each in objects:
        for rule in each.get("rules") or ():
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    plural, _, subresource = resource.partition("/")
                    found |= {(verb, _name(group, plural, subresource)) for verb in rule["verbs"]}
    return found


def _listed(verbs: Iterable[Verb]) -> str:
    return "\n".join(sorted(f"{verb} {name}" for verb, name in verbs))


def _granted(role: str, recording: Recording) -> set[Verb]:
    if role == "manager":
        manifest = list(documents((ROOT / "deploy" / "rbac" / "manager.yaml").read_text()))
        bound = {each["roleRef"]["name"] for each in manifest if each["kind"] == "RoleBinding"}
        return _verbs(manifest) | {verb for name, verb in OF_KUBERNETES.items() if name in bound}
    if role == "agent on the hub":
        return _verbs([recording.mailbox_role])
    own = [each for each in yaml.safe_load_all(newer_manifest(WORKER)) if each["kind"] == "ClusterRole"]
    # What an administrator of the worker may bind in addition.
    return _verbs([*own, *documents((ROOT / "deploy" / "rbac" / "worker-secrets.yaml").read_text())])


USERS: Final = {
    "manager": MANAGER_USER,
    "agent on its worker": WORKER_AGENT_USER,
    "agent on the hub": agent_user(WORKER),
}
roles = pytest.mark.parametrize("role", list(USERS))


def _of_everybody(verb: Verb) -> bool:
    """Whether every authenticated user may: reviews of one's own identity and rights."""
    return verb[0] == "create" and verb[1].startswith(
        ("selfsubjectreviews.", "selfsubjectaccessreviews.", "selfsubjectrulesreviews.")
    )


@roles
async def test_no_verb_is_used_that_is_not_granted(recording: Recording, role: str) -> None:
    used = {verb for verb in recording.used[USERS[role]] if not _of_everybody(verb)}
    assert used, f"the {role} has made no request"
    assert _listed(used - _granted(role, recording)) == ""


@roles
async def test_every_granted_verb_is_used_in_the_run_or_by_a_named_test(recording: Recording, role: str) -> None:
    granted, used = _granted(role, recording), recording.used[USERS[role]]
    listed = {name for verb, name in granted if verb == "list"}
    # Whoever may list objects learns no more from `get`.
    unused = {(verb, name) for verb, name in granted - used if not (verb == "get" and name in listed)}
    explained = RARE[role].keys() | WITHOUT_REQUEST.get(role, {}).keys()
    left = _listed(unused - explained)
    assert left == ""
    assert _listed(explained - granted) == "", "in the lists above and not granted"


@roles
def test_the_named_tests_exist(role: str) -> None:
    assert [path for path in RARE[role].values() if not (ROOT / path).is_file()] == []
