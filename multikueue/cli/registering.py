# SPDX-License-Identifier: Apache-2.0
"""`mkctl cluster register` and `approve`: what an administrator does on the hub to let a worker in.

Owns the objects of a registration and the bootstrap token. The token is a ServiceAccount's, bound to a Secret: it may
make one kind of request and read the answer, it ends after its time, and it ends when the Secret does, which the
manager removes once the token is redeemed. Promises that nothing of it can be used to read or run anything.
"""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import anyio
import orjson

from multikueue.api.constants import AGENT_USER_PREFIX, CLUSTER_LABEL, TRANSPORT_ANNOTATION, Transport
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import (
    CERTIFICATE_SIGNING_REQUESTS,
    CLUSTER_REGISTRATIONS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    MULTIKUEUE_CLUSTERS,
    NAMESPACES,
    SECRETS,
    SERVICE_ACCOUNTS,
    Resource,
)
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput
from multikueue.core.timestamps import format_time, parse_time
from multikueue.devcluster import enrolment as devcluster_enrolment
from multikueue.federation.enrolment import (
    MAX_TOKEN_SECONDS,
    MIN_TOKEN_SECONDS,
    bootstrap_account,
    bootstrap_request,
    bootstrap_role,
    bootstrap_secret,
    renewal_request,
    renewal_role,
)
from multikueue.federation.wire import cluster_label
from multikueue.kube.client import KubeClient
from multikueue.kube.errors import AlreadyExists, NotFound

FIELD_MANAGER: Final = "mkctl"
BOOTSTRAP_LABEL: Final = "multikueue.io/bootstrap-of"
_ID_BYTES: Final = 5
_LOOK_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What the worker's side is told."""

    cluster: str
    token_id: str
    kubeconfig: JsonObject
    expires: datetime
    accepted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the administrator asks for."""

    cluster: str
    namespace: str
    ttl: timedelta
    accept: bool
    cluster_uid: str = ""
    hub_url: str = ""
    replace: bool = False

    def __post_init__(self) -> None:
        seconds = self.ttl.total_seconds()
        if not MIN_TOKEN_SECONDS <= seconds <= MAX_TOKEN_SECONDS:
            raise BadInput(f"--ttl {seconds:.0f}s: from {MIN_TOKEN_SECONDS} s to {MAX_TOKEN_SECONDS // 3600} h")


async def register(hub: KubeClient, wanted: Wanted, *, clock: Clock) -> Registration:
    """Make everything that a worker needs to join. Raises `BadInput`, `KubeError`."""
    cluster, token_id = wanted.cluster, secrets.token_hex(_ID_BYTES)
    known = await _get(hub, CLUSTER_REGISTRATIONS, cluster)
    pinned = str(((known or {}).get("status") or {}).get("clusterUID") or "")
    if wanted.cluster_uid and pinned and pinned != wanted.cluster_uid and not wanted.replace:
        raise BadInput(f"{cluster} is pinned to the cluster {pinned}; pass --replace to give its name to another one")
    stands = await _get(hub, MULTIKUEUE_CLUSTERS, cluster)
    if (
        stands is not None
        and (stands["metadata"].get("annotations") or {}).get(TRANSPORT_ANNOTATION) != Transport.AGENT
    ):
        # An agent beside it would find no assignment for what runs there, and remove it.
        raise BadInput(
            f"the manager reaches {cluster} by a kubeconfig; take it away first with `mkctl cluster remove {cluster}`,"
            " which moves its work, or give the agent another name"
        )
    await _ensure(hub, NAMESPACES, _namespace(wanted.namespace))
    secret, multikueue_cluster = devcluster_enrolment.manifests(cluster)
    secret["metadata"]["namespace"] = wanted.namespace
    await _ensure(hub, SECRETS, secret)
    await _ensure(hub, MULTIKUEUE_CLUSTERS, multikueue_cluster)
    await _apply(hub, SERVICE_ACCOUNTS, _account(wanted))
    for body in _rights(wanted, token_id):
        await _apply(hub, CLUSTER_ROLES if body["kind"] == CLUSTER_ROLES.kind else CLUSTER_ROLE_BINDINGS, body)
    await hub.delete_collection(
        SECRETS, namespace=wanted.namespace, label_selector=f"{BOOTSTRAP_LABEL}={cluster_label(cluster)}"
    )
    bound = await hub.create(SECRETS, _bound_secret(wanted, token_id), namespace=wanted.namespace)
    token, expires = await _token(hub, wanted, bound_secret=bootstrap_secret(cluster, token_id), stored=bound)
    expires = min(expires, clock.now() + wanted.ttl)
    # Who takes over the name is another one than who was accepted.
    accepted = wanted.accept or (bool(((known or {}).get("spec") or {}).get("accepted")) and not wanted.replace)
    spec: JsonObject = {
        "accepted": accepted,
        "bootstrap": {"id": token_id, "expirationTime": format_time(expires)},
        **({"clusterUID": wanted.cluster_uid} if wanted.cluster_uid else {}),
    }
    await _apply(hub, CLUSTER_REGISTRATIONS, _registration(cluster, spec))
    if wanted.replace and pinned:
        await hub.patch(CLUSTER_REGISTRATIONS, cluster, {"status": {"clusterUID": None}}, subresource="status")
    return Registration(
        cluster=cluster,
        token_id=token_id,
        kubeconfig=_kubeconfig(hub, wanted, token_id=token_id, token=token),
        expires=expires,
        accepted=accepted,
    )


async def registration_of(hub: KubeClient, cluster: str) -> JsonObject:
    """The ClusterRegistration of a cluster. Raises `BadInput` when it was never registered."""
    found = await _get(hub, CLUSTER_REGISTRATIONS, cluster)
    if found is None:
        raise BadInput(f"there is no ClusterRegistration {cluster}; make one with `mkctl cluster register {cluster}`")
    return found


async def approve(hub: KubeClient, cluster: str, *, wait_seconds: float) -> str:
    """Accept the cluster and wait for its certificate; gives what became of it. Raises `BadInput`."""
    await registration_of(hub, cluster)
    await hub.patch(CLUSTER_REGISTRATIONS, cluster, {"spec": {"accepted": True}})
    with anyio.move_on_after(wait_seconds):
        while True:
            found = await hub.get_object(CLUSTER_REGISTRATIONS, cluster)
            status: JsonObject = found.get("status") or {}
            if status.get("certificateExpirationTime"):
                return f"{cluster} is let in: cluster uid {status['clusterUID']}"
            await anyio.sleep(_LOOK_SECONDS)
    return f"{cluster} is accepted; no agent has asked for its certificate yet"


async def withdraw(hub: KubeClient, cluster: str, *, namespace: str) -> None:
    """Remove everything that `register` made, the MultiKueueCluster last."""
    selector = f"{BOOTSTRAP_LABEL}={cluster_label(cluster)}"
    await hub.delete_collection(SECRETS, namespace=namespace, label_selector=selector)
    requests = f"{CLUSTER_LABEL}={cluster_label(cluster)}"
    await hub.delete_collection(CERTIFICATE_SIGNING_REQUESTS, label_selector=requests)
    for resource, name, where in (
        (CLUSTER_ROLE_BINDINGS, bootstrap_role(cluster), None),
        (CLUSTER_ROLES, bootstrap_role(cluster), None),
        (CLUSTER_ROLE_BINDINGS, renewal_role(cluster), None),
        (CLUSTER_ROLES, renewal_role(cluster), None),
        (SERVICE_ACCOUNTS, bootstrap_account(cluster), namespace),
        (CLUSTER_REGISTRATIONS, cluster, None),
        (MULTIKUEUE_CLUSTERS, cluster, None),
        (SECRETS, f"{cluster}-kubeconfig", namespace),
    ):
        try:
            await hub.delete(resource, name, namespace=where)
        except NotFound:
            continue
    await _delete_mailbox(hub, cluster)


async def _delete_mailbox(hub: KubeClient, cluster: str) -> None:
    """A cluster with a kubeconfig has none; a namespace of that name is somebody else's then."""
    found = await _get(hub, NAMESPACES, mailbox_namespace(cluster))
    metadata: JsonObject = (found or {}).get("metadata") or {}
    if (metadata.get("annotations") or {}).get(CLUSTER_LABEL) != cluster:
        return
    try:
        await hub.delete(NAMESPACES, metadata["name"], uid=metadata["uid"])
    except NotFound:
        return


async def _token(hub: KubeClient, wanted: Wanted, *, bound_secret: str, stored: bytes) -> tuple[str, datetime]:
    account = bootstrap_account(wanted.cluster)
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "expirationSeconds": int(wanted.ttl.total_seconds()),
            "boundObjectRef": {
                "apiVersion": "v1",
                "kind": "Secret",
                "name": bound_secret,
                "uid": orjson.loads(stored)["metadata"]["uid"],
            },
        },
    }
    path = SERVICE_ACCOUNTS.path(wanted.namespace, account, "token")
    status = (await hub.request("POST", path, body=body)).json()["status"]
    return str(status["token"]), parse_time(status["expirationTimestamp"])


def _kubeconfig(hub: KubeClient, wanted: Wanted, *, token_id: str, token: str) -> JsonObject:
    config = hub.config
    user = f"bootstrap:{token_id}"
    cluster: JsonObject = {"server": wanted.hub_url or config.server}
    authority = config.tls.authority()
    if authority:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    if config.server_name and not wanted.hub_url:
        cluster["tls-server-name"] = config.server_name
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "hub", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "hub", "context": {"cluster": "hub", "user": user}}],
        "current-context": "hub",
    }


def _rights(wanted: Wanted, token_id: str) -> list[JsonObject]:
    """Ask for a certificate, and read the answer to one's own question: nothing else, for token and agent alike."""
    cluster = wanted.cluster
    account = {"kind": "ServiceAccount", "name": bootstrap_account(cluster), "namespace": wanted.namespace}
    agent = {"apiGroup": CLUSTER_ROLES.group, "kind": "User", "name": f"{AGENT_USER_PREFIX}{cluster}"}
    bodies: list[JsonObject] = []
    for name, request, subject in (
        (bootstrap_role(cluster), bootstrap_request(cluster, token_id), account),
        (renewal_role(cluster), renewal_request(cluster), agent),
    ):
        resource = CERTIFICATE_SIGNING_REQUESTS
        rule = {"apiGroups": [resource.group], "resources": [resource.plural]}
        bodies.append(
            {
                **_head(CLUSTER_ROLES, name, cluster),
                "rules": [{**rule, "verbs": ["create"]}, {**rule, "verbs": ["get"], "resourceNames": [request]}],
            }
        )
        role = {"apiGroup": CLUSTER_ROLES.group, "kind": CLUSTER_ROLES.kind, "name": name}
        bodies.append({**_head(CLUSTER_ROLE_BINDINGS, name, cluster), "roleRef": role, "subjects": [subject]})
    return bodies


def _account(wanted: Wanted) -> JsonObject:
    body = _head(SERVICE_ACCOUNTS, bootstrap_account(wanted.cluster), wanted.cluster)
    body["metadata"]["namespace"] = wanted.namespace
    return {**body, "automountServiceAccountToken": False}


def _bound_secret(wanted: Wanted, token_id: str) -> JsonObject:
    """Holds nothing: that it is there is what the token's validity hangs on."""
    body = _head(SECRETS, bootstrap_secret(wanted.cluster, token_id), wanted.cluster)
    body["metadata"]["namespace"] = wanted.namespace
    body["metadata"]["labels"][BOOTSTRAP_LABEL] = cluster_label(wanted.cluster)
    return body


def _registration(cluster: str, spec: JsonObject) -> JsonObject:
    return {**_head(CLUSTER_REGISTRATIONS, cluster, cluster), "spec": spec}


def _namespace(name: str) -> JsonObject:
    return {"apiVersion": NAMESPACES.api_version, "kind": NAMESPACES.kind, "metadata": {"name": name}}


def _head(resource: Resource, name: str, cluster: str) -> JsonObject:
    labels = {CLUSTER_LABEL: cluster_label(cluster)}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "labels": labels},
    }


async def _get(hub: KubeClient, resource: Resource, name: str) -> JsonObject | None:
    try:
        return await hub.get_object(resource, name)
    except NotFound:
        return None


async def _ensure(hub: KubeClient, resource: Resource, body: JsonObject) -> None:
    try:
        await hub.create(resource, body, namespace=body["metadata"].get("namespace"))
    except AlreadyExists:
        return


async def _apply(hub: KubeClient, resource: Resource, body: JsonObject) -> None:
    metadata = body["metadata"]
    await hub.apply(
        resource, metadata["name"], body, namespace=metadata.get("namespace"), manager=FIELD_MANAGER, force=True
    )
