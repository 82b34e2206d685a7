# SPDX-License-Identifier: Apache-2.0
"""One write under admission, and the request that webhooks and expressions see of it."""

from __future__ import annotations

from dataclasses import dataclass

from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.http.requests import User
from devcluster.apiserver.registry.resources import ResourceType


@dataclass(slots=True, kw_only=True)
class Review:
    """One write under admission."""

    kind: ResourceType
    operation: str
    user: User
    namespace: str
    name: str
    value: JsonObject | None
    old: JsonObject | None
    subresource: str = ""
    dry_run: bool = False
    options: JsonObject | None = None
    warnings: list[str] | None = None

    def request(self, uid: str) -> JsonObject:
        """The `request` of an AdmissionReview, without the objects."""
        kind = self.kind
        gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        if self.subresource == "scale":
            gvk = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        elif self.subresource == "eviction":
            gvk = {"group": "policy", "version": "v1", "kind": "Eviction"}
        gvr = {"group": kind.group, "version": kind.version, "resource": kind.plural}
        found: JsonObject = {"uid": uid, "kind": gvk, "resource": gvr}
        if self.subresource:
            found["subResource"] = self.subresource
        found |= {"requestKind": gvk, "requestResource": gvr}
        if self.subresource:
            found["requestSubResource"] = self.subresource
        if self.name:
            found["name"] = self.name
        if self.namespace:
            found["namespace"] = self.namespace
        return {
            **found,
            "operation": self.operation,
            "userInfo": self.user.document(),
            "dryRun": self.dry_run,
            "options": self.options,
        }
