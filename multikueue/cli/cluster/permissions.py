# SPDX-License-Identifier: Apache-2.0
"""Checks the user's permissions with SelfSubjectAccessReviews before the first write of a command."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from multikueue.api.resource import Resource
from multikueue.core.errors import BadInput
from multikueue.kube.rest.client import KubeClient

_PATH: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserPermission:
    """One verb on one kind; an empty name means all objects, an empty namespace the whole cluster."""

    verb: str
    resource: Resource
    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        group = f".{self.resource.group}" if self.resource.group else ""
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource.plural}{group}{where}"


async def require(hub: KubeClient, rights: Iterable[UserPermission], *, to: str) -> None:
    """Raise `BadInput` unless the user of the kubeconfig has all permissions; `to` completes the sentence."""
    missing = [str(right) for right in rights if not await _allowed(hub, right)]
    if missing:
        raise BadInput(f"cannot {to}: missing permissions: {'; '.join(missing)}. Nothing was changed")


async def _allowed(hub: KubeClient, right: UserPermission) -> bool:
    attributes = {
        "verb": right.verb,
        "group": right.resource.group,
        "resource": right.resource.plural,
        "name": right.name,
        "namespace": right.namespace,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    status = (await hub.request("POST", _PATH, body=body)).json().get("status") or {}
    return bool(status.get("allowed"))
