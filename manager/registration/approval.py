# SPDX-License-Identifier: Apache-2.0
"""Whether an agent's certificate request is approved.

The name in the certificate is the agent's whole identity, so a request is only ever for the name of the cluster that
sends it: with the bootstrap token that was created for it, once, or with its current certificate. A pure function of
its arguments.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from multikueue.api.constants import AGENT_GROUP, AGENT_USER_PREFIX, CLUSTER_UID_ANNOTATION
from multikueue.api.meta import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.timestamps import parse_time
from multikueue.dispatch.protocol.enrolment import (
    MAX_CERTIFICATE_SECONDS,
    MAX_OPEN_REQUESTS,
    SIGNER,
    bootstrap_request,
    bootstrap_user,
)
from multikueue.kube.rest.certificates import read_request

_USAGES: Final = frozenset({"digital signature", "key encipherment", "client auth"})


@dataclass(frozen=True, slots=True)
class Approve:
    """Sign it. `redeems` is the token that this uses up, `cluster_uid` the cluster it pins."""

    cluster_uid: str
    redeems: str = ""


@dataclass(frozen=True, slots=True)
class Deny:
    """Deny it for good."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Leave it to an administrator."""

    message: str


Verdict = Approve | Deny | Wait


def judge(
    request: JsonObject,
    registration: JsonObject | None,
    *,
    cluster: str,
    namespace: str,
    now: datetime,
    approved: int = 0,
) -> Verdict:
    """The verdict on a request that is labelled with `cluster`; `namespace` is the manager's.

    `approved` is how many other requests of the same requester are approved and still exist. The requester is what the
    API server wrote into the request; its name, labels and annotations are chosen by the requester.
    """
    flaw = _flaw(request["spec"], cluster)
    if flaw is not None:
        return flaw
    if registration is None:
        return Deny("NotRegistered", f'no ClusterRegistration "{cluster}"')
    spec: JsonObject = registration.get("spec") or {}
    status: JsonObject = registration.get("status") or {}
    uid = str((request["metadata"].get("annotations") or {}).get(CLUSTER_UID_ANNOTATION, ""))
    pinned = str(status.get("clusterUID") or spec.get("clusterUID") or "")
    if not uid:
        return Deny("NoClusterUID", "the request does not name the uid of its cluster")
    if pinned and uid != pinned:
        return Deny("ClusterUIDMismatch", f'"{cluster}" is the cluster {pinned}, and this request is from {uid}')
    requester = str(request["spec"].get("username", ""))
    if requester == f"{AGENT_USER_PREFIX}{cluster}" and AGENT_GROUP in (request["spec"].get("groups") or ()):
        if not spec.get("accepted"):
            return Deny("NotAccepted", f'ClusterRegistration "{cluster}" is no longer accepted')
        if approved >= MAX_OPEN_REQUESTS:
            return Deny(
                "TooManyRequests", f'"{cluster}" has {approved} approved requests, the limit is {MAX_OPEN_REQUESTS}'
            )
        return Approve(uid) if pinned else Deny("NotPinned", f'"{cluster}" has not been registered yet')
    if requester == bootstrap_user(namespace, cluster):
        return _bootstrap(request, spec, status, cluster=cluster, uid=uid, now=now)
    return Deny("WrongRequester", f'"{requester}" may not ask for the certificate of "{cluster}"')


def _flaw(spec: JsonObject, cluster: str) -> Deny | None:
    if spec.get("signerName") != SIGNER:
        return Deny("WrongSigner", f"agents' certificates are of signer {SIGNER}")
    seconds = spec.get("expirationSeconds")
    if not seconds or seconds > MAX_CERTIFICATE_SECONDS:
        return Deny("TooLong", f"expirationSeconds must be set, and at most {MAX_CERTIFICATE_SECONDS}")
    usages = set(spec.get("usages") or ())
    if "client auth" not in usages or not usages <= _USAGES:
        return Deny("WrongUsages", f"usages must be of {', '.join(sorted(_USAGES))}")
    try:
        wanted = read_request(base64.b64decode(spec.get("request") or "", validate=True))
    except (BadInput, binascii.Error) as error:
        return Deny("BadRequest", str(error))
    if wanted.user != f"{AGENT_USER_PREFIX}{cluster}" or wanted.groups != (AGENT_GROUP,) or wanted.other_names:
        return Deny("WrongSubject", f"the subject must be {AGENT_USER_PREFIX}{cluster} of {AGENT_GROUP}, nothing more")
    return None


def _bootstrap(
    request: JsonObject, spec: JsonObject, status: JsonObject, *, cluster: str, uid: str, now: datetime
) -> Verdict:
    bootstrap: JsonObject = spec.get("bootstrap") or {}
    token = str(bootstrap.get("id") or "")
    if not token or request["metadata"]["name"] != bootstrap_request(cluster, token):
        return Deny("UnknownToken", "the request was not made with the current bootstrap token")
    if status.get("usedBootstrap") == token and status.get("usedBy") != request["metadata"]["uid"]:
        return Deny("TokenUsed", "the bootstrap token was redeemed before")
    if now >= parse_time(bootstrap["expirationTime"]):
        return Deny("TokenExpired", f"the bootstrap token expired at {bootstrap['expirationTime']}")
    if not spec.get("accepted"):
        return Wait(f"waits for `mkctl cluster approve {cluster}`, cluster uid {uid}")
    return Approve(uid, redeems=token)
