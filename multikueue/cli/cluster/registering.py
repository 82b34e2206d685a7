# SPDX-License-Identifier: Apache-2.0
"""`mkctl cluster register` and `approve`: what an administrator does on the hub to add a worker.

Owns the objects of a registration and the bootstrap token. The token belongs to a ServiceAccount and is bound to a
Secret. It can create one CertificateSigningRequest and read it, and nothing else. It is invalid after its TTL, or once
the Secret is deleted, which the manager does when the token has been used.
"""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import anyio
import orjson

from devcluster.federation import enrolment as devcluster_enrolment
from multikueue.api import names
from multikueue.api.constants import (
    AGENT_USER_PREFIX,
    CLUSTER_LABEL,
    MAILBOX_NAMESPACE_UID_ANNOTATION,
    TRANSPORT_ANNOTATION,
    TransportType,
)
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import ACTIVE_CONDITION, ClusterReason
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
from multikueue.cli.cluster.permissions import UserPermission, require
from multikueue.cli.cluster.sealing import seal_key
from multikueue.cli.conditions import condition_of
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput, MultikueueError
from multikueue.core.printable import excerpt
from multikueue.core.timestamps import format_time, parse_time
from multikueue.dispatch.protocol.enrolment import (
    MAX_TOKEN_SECONDS,
    MIN_TOKEN_SECONDS,
    bootstrap_account,
    bootstrap_request,
    bootstrap_role,
    bootstrap_secret,
    renewal_role,
)
from multikueue.dispatch.protocol.seals import is_sealed_mailbox
from multikueue.dispatch.protocol.wire import cluster_label
from multikueue.kube.errors import AlreadyExists, KubeError, NotFound
from multikueue.kube.rest.client import KubeClient

FIELD_MANAGER: Final = "mkctl"
BOOTSTRAP_LABEL: Final = "multikueue.io/bootstrap-of"
_ID_BYTES: Final = 5
_SEAL_ATTEMPTS: Final = 10  # the manager seals a new mailbox in two writes
_POLL_SECONDS: Final = 0.5


class PartlyRegistered(MultikueueError):
    """Only some objects of a registration were created; the message has the next step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The result of a registration, for the worker's side."""

    cluster: str
    token_id: str
    kubeconfig: JsonObject
    expires: datetime
    accepted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationRequest:
    """The options of `mkctl cluster register`."""

    cluster: str
    namespace: str
    ttl: timedelta
    accept: bool
    cluster_uid: str = ""
    hub_url: str = ""
    replace: bool = False
    use_namespace: bool = False
    """Use the existing namespace `mk-NAME` as the mailbox although the manager did not create it."""

    def __post_init__(self) -> None:
        seconds = self.ttl.total_seconds()
        if not MIN_TOKEN_SECONDS <= seconds <= MAX_TOKEN_SECONDS:
            raise BadInput(f"--ttl {seconds:.0f}s: must be from {MIN_TOKEN_SECONDS} s to {MAX_TOKEN_SECONDS // 3600} h")


async def register(hub: KubeClient, request: RegistrationRequest, *, clock: Clock) -> Registration:
    """Create everything that a worker needs to join. Raises `BadInput` before the first write, and `KubeError`."""
    cluster, token_id = request.cluster, secrets.token_hex(_ID_BYTES)
    problem = next(names.dns_subdomain(cluster), "")
    if problem:
        raise BadInput(f"{excerpt(cluster)} is not a valid cluster name: {problem}")
    known = await _get(hub, CLUSTER_REGISTRATIONS, cluster)
    pinned = str(((known or {}).get("status") or {}).get("clusterUID") or "")
    if request.cluster_uid and pinned and pinned != request.cluster_uid and not request.replace:
        raise BadInput(f"{cluster} is pinned to the cluster UID {pinned}; pass --replace to register another cluster")
    existing = await _get(hub, MULTIKUEUE_CLUSTERS, cluster)
    if (
        existing is not None
        and (existing["metadata"].get("annotations") or {}).get(TRANSPORT_ANNOTATION) != TransportType.AGENT
    ):
        # A new agent would find no assignments for the jobs that run there, and delete them.
        raise BadInput(
            f"{cluster} is already a push cluster (the manager uses its kubeconfig); remove it first with `mkctl"
            f" cluster remove {cluster}`, which moves its workloads, or register under another name"
        )
    handed_over = await _handed_over(hub, request, existing)
    await require(hub, _needed(request.namespace), to=f"register {cluster}")
    try:
        return await _make(hub, request, clock=clock, token_id=token_id, known=known, handed_over=handed_over)
    except KubeError as error:
        raise PartlyRegistered(
            f"{error}. {cluster} is only partly registered. To continue, run the same command again. To undo the"
            f" registration:\nmkctl cluster remove {cluster} --force"
        ) from error


async def _make(
    hub: KubeClient,
    request: RegistrationRequest,
    *,
    clock: Clock,
    token_id: str,
    known: JsonObject | None,
    handed_over: str,
) -> Registration:
    cluster = request.cluster
    pinned = str(((known or {}).get("status") or {}).get("clusterUID") or "")
    await _ensure(hub, NAMESPACES, _namespace(request.namespace))
    secret, multikueue_cluster = devcluster_enrolment.manifests(cluster)
    secret["metadata"]["namespace"] = request.namespace
    await _ensure(hub, SECRETS, secret)
    await _ensure(hub, MULTIKUEUE_CLUSTERS, multikueue_cluster)
    if handed_over:
        mark = {"metadata": {"annotations": {MAILBOX_NAMESPACE_UID_ANNOTATION: handed_over}}}
        await hub.patch(MULTIKUEUE_CLUSTERS, cluster, mark)
    await _apply(hub, SERVICE_ACCOUNTS, _account(request))
    for body in _rights(request, token_id):
        await _apply(hub, CLUSTER_ROLES if body["kind"] == CLUSTER_ROLES.kind else CLUSTER_ROLE_BINDINGS, body)
    await hub.delete_collection(
        SECRETS, namespace=request.namespace, label_selector=f"{BOOTSTRAP_LABEL}={cluster_label(cluster)}"
    )
    bound = await hub.create(SECRETS, _bound_secret(request, token_id), namespace=request.namespace)
    token, expires = await _token(hub, request, bound_secret=bootstrap_secret(cluster, token_id), stored=bound)
    expires = min(expires, clock.now() + request.ttl)
    # With --replace a different cluster takes the name; the former approval does not apply to it.
    accepted = request.accept or (bool(((known or {}).get("spec") or {}).get("accepted")) and not request.replace)
    spec: JsonObject = {
        "accepted": accepted,
        "bootstrap": {"id": token_id, "expirationTime": format_time(expires)},
        **({"clusterUID": request.cluster_uid} if request.cluster_uid else {}),
    }
    await _apply(hub, CLUSTER_REGISTRATIONS, _registration(cluster, spec))
    if request.replace and pinned:
        await hub.patch(CLUSTER_REGISTRATIONS, cluster, {"status": {"clusterUID": None}}, subresource="status")
    return Registration(
        cluster=cluster,
        token_id=token_id,
        kubeconfig=_kubeconfig(hub, request, token_id=token_id, token=token),
        expires=expires,
        accepted=accepted,
    )


def _needed(namespace: str) -> list[UserPermission]:
    return [
        *(
            UserPermission(verb="create", resource=resource, namespace=namespace)
            for resource in (SECRETS, SERVICE_ACCOUNTS)
        ),
        UserPermission(verb="deletecollection", resource=SECRETS, namespace=namespace),
        *(
            UserPermission(verb=verb, resource=resource)
            for resource in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, CLUSTER_REGISTRATIONS)
            for verb in ("create", "patch")
        ),
        UserPermission(verb="create", resource=MULTIKUEUE_CLUSTERS),
    ]


async def _handed_over(hub: KubeClient, request: RegistrationRequest, existing: JsonObject | None) -> str:
    """The UID of an existing namespace to use as the mailbox; empty if that is not needed.

    Raises `BadInput` for a namespace that the manager did not create: users with access to it can act as the cluster.
    One that it is creating at this moment is waited for.
    """
    found = await _get(hub, NAMESPACES, mailbox_namespace(request.cluster))
    if found is None or "deletionTimestamp" in found["metadata"]:
        return ""
    name, uid = found["metadata"]["name"], str(found["metadata"]["uid"])
    if request.use_namespace:
        return uid
    reason = condition_of(existing, ACTIVE_CONDITION).get("reason")
    if reason and reason != ClusterReason.MAILBOX_NAMESPACE_TAKEN:
        return ""  # the manager has already accepted it
    key = await seal_key(hub, request.namespace)
    if key is not None and await _is_mailbox(hub, found, key, cluster=request.cluster):
        return ""
    raise BadInput(
        f"namespace {name} already exists and was not created by a manager: users with access to it could act as"
        f" {request.cluster}. Delete the namespace, or pass --use-namespace to use it anyway (its uid is {uid})"
    )


async def _is_mailbox(hub: KubeClient, namespace: JsonObject, key: bytes, *, cluster: str) -> bool:
    """Whether the manager created the namespace; waits while it is creating it. Raises `KubeError`."""
    for _ in range(_SEAL_ATTEMPTS):
        if is_sealed_mailbox(key, namespace, cluster=cluster):
            return True
        if not is_sealed_mailbox(key, namespace, cluster=cluster, made=False):
            break
        await anyio.sleep(_POLL_SECONDS)
        namespace = await hub.get_object(NAMESPACES, namespace["metadata"]["name"])
    return False


async def registration_of(hub: KubeClient, cluster: str) -> JsonObject:
    """The ClusterRegistration of a cluster. Raises `BadInput` when it was never registered."""
    found = await _get(hub, CLUSTER_REGISTRATIONS, cluster)
    if found is None:
        raise BadInput(f"ClusterRegistration {cluster} not found; create it with `mkctl cluster register {cluster}`")
    return found


async def approve(hub: KubeClient, cluster: str, *, wait_seconds: float) -> str:
    """Accept the cluster, wait for its certificate, and return a message with the result. Raises `BadInput`."""
    await registration_of(hub, cluster)
    await hub.patch(CLUSTER_REGISTRATIONS, cluster, {"spec": {"accepted": True}})
    with anyio.move_on_after(wait_seconds):
        while True:
            found = await hub.get_object(CLUSTER_REGISTRATIONS, cluster)
            status: JsonObject = found.get("status") or {}
            if status.get("certificateExpirationTime"):
                return f"{cluster} is approved and has its certificate; cluster uid {status['clusterUID']}"
            await anyio.sleep(_POLL_SECONDS)
    return f"{cluster} is approved; its agent has not requested a certificate yet"


async def withdraw(hub: KubeClient, cluster: str, *, namespace: str) -> None:
    """Delete everything that `register` created, and the mailbox namespace last."""
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
    """Delete the mailbox namespace. For a push cluster a namespace of that name is not ours and is kept."""
    found = await _get(hub, NAMESPACES, mailbox_namespace(cluster))
    metadata: JsonObject = (found or {}).get("metadata") or {}
    if (metadata.get("annotations") or {}).get(CLUSTER_LABEL) != cluster:
        return
    try:
        await hub.delete(NAMESPACES, metadata["name"], uid=metadata["uid"])
    except NotFound:
        return


async def _token(
    hub: KubeClient, request: RegistrationRequest, *, bound_secret: str, stored: bytes
) -> tuple[str, datetime]:
    account = bootstrap_account(request.cluster)
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "expirationSeconds": int(request.ttl.total_seconds()),
            "boundObjectRef": {
                "apiVersion": "v1",
                "kind": "Secret",
                "name": bound_secret,
                "uid": orjson.loads(stored)["metadata"]["uid"],
            },
        },
    }
    path = SERVICE_ACCOUNTS.path(request.namespace, account, "token")
    status = (await hub.request("POST", path, body=body)).json()["status"]
    return str(status["token"]), parse_time(status["expirationTimestamp"])


def _kubeconfig(hub: KubeClient, request: RegistrationRequest, *, token_id: str, token: str) -> JsonObject:
    config = hub.config
    user, name = f"bootstrap:{token_id}", config.name or "hub"
    context = f"{user}@{name}"
    cluster: JsonObject = {"server": request.hub_url or config.server}
    authority = config.tls.authority()
    if authority:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    if config.server_name and not request.hub_url:
        cluster["tls-server-name"] = config.server_name
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],  # the agent reads the id of its token from this name
        "contexts": [{"name": context, "context": {"cluster": name, "user": user}}],
        "current-context": context,
    }


def _rights(request: RegistrationRequest, token_id: str) -> list[JsonObject]:
    """Roles to create a CertificateSigningRequest and to read it, for the token and for the agent.

    The token can read only the request whose name has the token's id. The names of an agent's later requests are not
    known in advance, so it can get any request by name, but cannot list them.
    """
    cluster = request.cluster
    account = {"kind": "ServiceAccount", "name": bootstrap_account(cluster), "namespace": request.namespace}
    agent = {"apiGroup": CLUSTER_ROLES.group, "kind": "User", "name": f"{AGENT_USER_PREFIX}{cluster}"}
    bodies: list[JsonObject] = []
    for name, named, subject in (
        (bootstrap_role(cluster), {"resourceNames": [bootstrap_request(cluster, token_id)]}, account),
        (renewal_role(cluster), {}, agent),
    ):
        resource = CERTIFICATE_SIGNING_REQUESTS
        rule = {"apiGroups": [resource.group], "resources": [resource.plural]}
        bodies.append(
            {
                **_head(CLUSTER_ROLES, name, cluster),
                "rules": [{**rule, "verbs": ["create"]}, {**rule, "verbs": ["get"], **named}],
            }
        )
        role = {"apiGroup": CLUSTER_ROLES.group, "kind": CLUSTER_ROLES.kind, "name": name}
        bodies.append({**_head(CLUSTER_ROLE_BINDINGS, name, cluster), "roleRef": role, "subjects": [subject]})
    return bodies


def _account(request: RegistrationRequest) -> JsonObject:
    body = _head(SERVICE_ACCOUNTS, bootstrap_account(request.cluster), request.cluster)
    body["metadata"]["namespace"] = request.namespace
    return {**body, "automountServiceAccountToken": False}


def _bound_secret(request: RegistrationRequest, token_id: str) -> JsonObject:
    """An empty Secret: the token is valid as long as the Secret exists."""
    body = _head(SECRETS, bootstrap_secret(request.cluster, token_id), request.cluster)
    body["metadata"]["namespace"] = request.namespace
    body["metadata"]["labels"][BOOTSTRAP_LABEL] = cluster_label(request.cluster)
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
