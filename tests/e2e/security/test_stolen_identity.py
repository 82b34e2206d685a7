# SPDX-License-Identifier: Apache-2.0
"""What a thief of a worker's identity or bootstrap token can do: little, and the API server refuses the rest."""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
import yaml

from multikueue.api.constants import AGENT_GROUP, CLUSTER_LABEL, CLUSTER_UID_ANNOTATION
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CERTIFICATE_SIGNING_REQUESTS,
    CLUSTER_REGISTRATIONS,
    CLUSTER_REPORTS,
    CONFIG_MAPS,
    JOBS,
    LEASES,
    MULTIKUEUE_CLUSTERS,
    NAMESPACES,
    REMOTE_ASSIGNMENTS,
    SECRETS,
    WORKLOADS,
)
from multikueue.kube.errors import ApiError, Forbidden, Unauthorized
from multikueue.kube.rest import credentials
from multikueue.kube.rest.certificates import new_request
from multikueue.kube.rest.client import KubeClient, PatchKind
from tests.e2e.security.conftest import NAMESPACE, Joined, agent_process, described, mkctl
from tests.support.managers import Object, condition, eventually, get, make_job, workload_of

pytestmark = [pytest.mark.anyio, pytest.mark.binaries, pytest.mark.conformance]

Attempt = Callable[[KubeClient], Awaitable[object]]
STATUS: list[Object] = [{"op": "add", "path": "/status", "value": {"epoch": 1, "phase": "Finished"}}]
SPEC: Object = {"spec": {"intent": "Run"}}

ATTEMPTS: dict[str, Attempt] = {
    "read another mailbox": lambda c: c.list_page(REMOTE_ASSIGNMENTS, namespace="mk-w2"),
    "read all mailboxes": lambda c: c.list_page(REMOTE_ASSIGNMENTS),
    "forge a status for another cluster": lambda c: c.patch(
        REMOTE_ASSIGNMENTS, "x", STATUS, namespace="mk-w2", kind=PatchKind.JSON, subresource="status"
    ),
    "renew another cluster's lease": lambda c: c.patch(LEASES, "agent", {"spec": {}}, namespace="mk-w2"),
    "forge another cluster's report": lambda c: c.patch(
        CLUSTER_REPORTS, "agent", {"status": {}}, namespace="mk-w2", subresource="status"
    ),
    "create an assignment in its own mailbox": lambda c: c.create(REMOTE_ASSIGNMENTS, {}, namespace="mk-w1"),
    "change an assignment": lambda c: c.patch(REMOTE_ASSIGNMENTS, "x", SPEC, namespace="mk-w1"),
    "delete an assignment": lambda c: c.delete(REMOTE_ASSIGNMENTS, "x", namespace="mk-w1"),
    "read the tenants' Workloads": lambda c: c.list_page(WORKLOADS, namespace=NAMESPACE),
    "finish a Workload": lambda c: c.patch(WORKLOADS, "x", {"status": {}}, namespace=NAMESPACE, subresource="status"),
    "read the tenants' Jobs": lambda c: c.list_page(JOBS, namespace=NAMESPACE),
    "read the kubeconfigs of workers": lambda c: c.list_page(SECRETS, namespace="kueue-system"),
    "read Secrets anywhere": lambda c: c.list_page(SECRETS),
    "read a ConfigMap": lambda c: c.get(CONFIG_MAPS, "kueue-manager-config", namespace="kueue-system"),
    "read AdmissionChecks": lambda c: c.list_page(ADMISSION_CHECKS),
    "switch an AdmissionCheck on": lambda c: c.patch(ADMISSION_CHECKS, "mk", {"status": {}}, subresource="status"),
    "read MultiKueueClusters": lambda c: c.list_page(MULTIKUEUE_CLUSTERS),
    "accept itself": lambda c: c.patch(CLUSTER_REGISTRATIONS, "w1", {"spec": {"accepted": True}}),
    "uncordon itself": lambda c: c.patch(CLUSTER_REGISTRATIONS, "w1", {"spec": {"cordoned": False}}),
    "pin itself to another cluster": lambda c: c.patch(
        CLUSTER_REGISTRATIONS, "w1", {"status": {"clusterUID": "x"}}, subresource="status"
    ),
    "read others' certificate requests": lambda c: c.list_page(CERTIFICATE_SIGNING_REQUESTS),
    "approve a certificate request": lambda c: c.patch(
        CERTIFICATE_SIGNING_REQUESTS, "mk-w1-renewal", {"status": {}}, subresource="approval"
    ),
    "list namespaces": lambda c: c.list_page(NAMESPACES),
    "make itself a token": lambda c: c.request(
        "POST", "/api/v1/namespaces/kueue-system/serviceaccounts/bootstrap-mk-w1/token", body={}
    ),
    "become an administrator": lambda c: c.create(
        CERTIFICATE_SIGNING_REQUESTS, csr("mk-w1-renewal", user="admin", groups=("system:masters",), uid="x")
    ),
}


def csr(name: str, *, user: str, groups: tuple[str, ...], uid: str, cluster: str = "w1") -> Object:
    pem = new_request(user, groups).request
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {
            "name": name,
            "labels": {CLUSTER_LABEL: cluster},
            "annotations": {CLUSTER_LABEL: cluster, CLUSTER_UID_ANNOTATION: uid},
        },
        "spec": {
            "request": base64.b64encode(pem).decode(),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "expirationSeconds": 3600,
            "usages": ["digital signature", "client auth"],
        },
    }


def bootstrap_of(line: str) -> Object:
    """The kubeconfig with the token in the line that `register` printed."""
    found = re.search(r"echo (\S+) \|", line)
    assert found is not None
    parsed: Object = yaml.safe_load(base64.b64decode(found[1]))
    return parsed


async def denied(admin: KubeClient, name: str) -> Object:
    """The Denied condition of a request."""

    async def probe() -> Object:
        found = await get(admin, CERTIFICATE_SIGNING_REQUESTS, name)
        return condition(found, "Denied")

    return await eventually(probe, what=f"{name} is denied")


@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS.keys())
async def test_a_stolen_identity_may_not(joined: Joined, attempt: Attempt) -> None:
    async with joined.thief() as thief:
        with pytest.raises(Forbidden) as refused:
            await attempt(thief)
    assert refused.value.status == 403


async def test_a_stolen_identity_gets_no_certificate_of_another_cluster(joined: Joined) -> None:
    async with joined.thief() as thief:
        body = csr("mk-w2-renewal", user="system:mk:cluster:w2", groups=(AGENT_GROUP,), uid="x", cluster="w2")
        await thief.create(CERTIFICATE_SIGNING_REQUESTS, body)
    said = await denied(joined.admin, "mk-w2-renewal")
    assert said["reason"] == "NotRegistered"


async def test_a_stolen_identity_is_not_renewed_from_another_cluster(joined: Joined) -> None:
    async with joined.thief() as thief:
        body = csr("mk-w1-renewal", user="system:mk:cluster:w1", groups=(AGENT_GROUP,), uid="another-cluster")
        await thief.create(CERTIFICATE_SIGNING_REQUESTS, body)
    said = await denied(joined.admin, "mk-w1-renewal")
    assert said["reason"] == "ClusterUIDMismatch"
    assert (await described(joined.hub, "w1"))["registered"]["reason"] == "Issued"


async def test_a_status_of_an_old_epoch_finishes_nothing(joined: Joined) -> None:
    await make_job(joined.admin, "j", namespace=NAMESPACE, queue="q")
    async with joined.thief() as thief:
        # The winner is written before its mailbox is: with one candidate nothing is there until then.
        page = await eventually(
            lambda: thief.list_page(REMOTE_ASSIGNMENTS, namespace="mk-w1"),
            what="w1 was granted the job",
            until=lambda seen: len(seen.items) == 1,
        )
        name = yaml.safe_load(page.items[0])["metadata"]["name"]
        forged: list[Object] = [
            {
                "op": "add",
                "path": "/status",
                "value": {
                    "epoch": 0,
                    "phase": "Finished",
                    "finished": {"reason": "Succeeded", "time": "2026-01-01T00:00:00Z"},
                },
            }
        ]
        await thief.patch(
            REMOTE_ASSIGNMENTS, name, forged, namespace="mk-w1", kind=PatchKind.JSON, subresource="status"
        )
    await anyio.sleep(1.0)
    assert not condition(await workload_of(joined.admin, "j", namespace=NAMESPACE), "Finished")
    await joined.admin.delete(JOBS, "j", namespace=NAMESPACE, propagation="Background")


async def test_a_bootstrap_token_cannot_be_used_again(joined: Joined) -> None:
    async with KubeClient(credentials.from_dict(bootstrap_of(joined.line))) as replayed:

        async def probe() -> int:
            try:
                await replayed.get(CERTIFICATE_SIGNING_REQUESTS, "mk-w1-again")
            except ApiError as error:
                return error.status
            return 200

        # API servers believe what they know of a token for ten seconds.
        await eventually(probe, what="the token is dead", until=lambda status: status == 401)
        with pytest.raises(Unauthorized):
            await replayed.create(
                CERTIFICATE_SIGNING_REQUESTS,
                csr("mk-w1-again", user="system:mk:cluster:w1", groups=(AGENT_GROUP,), uid="x"),
            )


async def test_a_bootstrap_token_reads_nothing_and_asks_for_nothing_else(joined: Joined) -> None:
    line = await mkctl(joined.hub, "register", "w3", "--approve")
    async with KubeClient(credentials.from_dict(bootstrap_of(line))) as bearer:
        for attempt in (
            bearer.list_page(SECRETS, namespace="kueue-system"),
            bearer.list_page(CERTIFICATE_SIGNING_REQUESTS),
            bearer.list_page(REMOTE_ASSIGNMENTS, namespace="mk-w3"),
            bearer.get(CLUSTER_REGISTRATIONS, "w3"),
        ):
            with pytest.raises(Forbidden):
                await attempt
        other = csr("mk-w1-other", user="system:mk:cluster:w1", groups=(AGENT_GROUP,), uid="x")
        await bearer.create(CERTIFICATE_SIGNING_REQUESTS, other)
    assert (await denied(joined.admin, "mk-w1-other"))["reason"] == "ClusterUIDMismatch"
    await mkctl(joined.hub, "remove", "w3", "--force")
    await eventually(
        lambda: get(joined.admin, NAMESPACES, "mk-w3"),
        what="the manager has done with it",
        until=lambda seen: seen is None,
    )


async def test_another_cluster_cannot_register_under_a_pinned_name(joined: Joined, tmp_path: Path) -> None:
    # An administrator's mistake: a token for w1 that is run beside another cluster, here the hub itself.
    line = await mkctl(joined.hub, "register", "w1")
    async with agent_process(line, folder=tmp_path, worker=joined.hub) as process:
        with anyio.fail_after(30):
            while process.poll() is None:
                await anyio.sleep(0.1)
    assert process.returncode != 0
    assert "ClusterUIDMismatch" in (tmp_path / "agent.log").read_text()
    found = await described(joined.hub, "w1")
    assert (found["active"], found["registered"]["reason"]) == (True, "Issued")
