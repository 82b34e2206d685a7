# SPDX-License-Identifier: Apache-2.0
"""The APIServices of the group versions that this server serves itself, built in or of custom resources.

Those of removed definitions are removed. Their priorities order discovery.
"""

from __future__ import annotations

from typing import Final

from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.conditions import MANAGER, set_conditions
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.registry import objects
from devcluster.apiserver.storage.entry import StoredChange

GROUP: Final = "apiregistration.k8s.io"
COLLECTION: Final = f"apiservices.{GROUP}"
LOCAL: Final = ("Available", "True", "Local", "Local APIServices are always available")
_LABEL: Final = "kube-aggregator.kubernetes.io/automanaged"
_GROUPS: Final = {
    GROUP: 20_000,  # has no APIService, and comes first
    "": 18_000,
    "apps": 17_800,
    "events.k8s.io": 17_750,
    "authentication.k8s.io": 17_700,
    "authorization.k8s.io": 17_600,
    "autoscaling": 17_500,
    "batch": 17_400,
    "certificates.k8s.io": 17_300,
    "networking.k8s.io": 17_200,
    "policy": 17_100,
    "rbac.authorization.k8s.io": 17_000,
    "storage.k8s.io": 16_800,
    "admissionregistration.k8s.io": 16_700,
    "apiextensions.k8s.io": 16_700,
    "scheduling.k8s.io": 16_600,
    "coordination.k8s.io": 16_500,
    "node.k8s.io": 16_300,
    "discovery.k8s.io": 16_200,
    "resource.k8s.io": 16_200,
    "flowcontrol.apiserver.k8s.io": 16_100,
}
_VERSIONS: Final = {
    ("", "v1"): 1,
    ("autoscaling", "v2"): 30,
    ("resource.k8s.io", "v1"): 21,
    ("flowcontrol.apiserver.k8s.io", "v1"): 21,
}
_CUSTOM_GROUP, _CUSTOM_VERSION, _BUILTIN_VERSION = 1_000, 100, 15


def group_priority(group: str) -> int:
    """The priority of a group of this server; higher comes first."""
    return _GROUPS.get(group, _CUSTOM_GROUP)


def version_priority(group: str, version: str) -> int:
    """The priority of a version of this server in its group."""
    return _VERSIONS.get((group, version), _BUILTIN_VERSION if group in _GROUPS else _CUSTOM_VERSION)


class LocalServices:
    """Keeps the APIServices in step with the registry."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._generation = -1
        self._busy = False
        self._reconcile()
        context.store.listen(self._changed)

    def _changed(self, collection: str, event: StoredChange) -> None:
        removed = collection == COLLECTION and event.entry is None
        if not self._busy and (removed or self._generation != self._context.registry.generation):
            self._busy = True
            try:
                self._reconcile()
            finally:
                self._busy = False

    def _reconcile(self) -> None:
        registry, store = self._context.registry, self._context.store
        self._generation = registry.generation
        wanted = {
            f"{version}.{group}": (group, version)
            for group, versions in registry.groups.items()
            for version in versions
            if group != GROUP
        }
        for name, (group, version) in wanted.items():
            if not self._context.exists(COLLECTION, name):
                kept = "onstart" if group in registry.builtin_groups else "true"
                store.put(COLLECTION, name, self._service(name, group, version, kept=kept))
        for value in self._context.objects(COLLECTION):
            name = value["metadata"]["name"]
            if name not in wanted and (value["metadata"].get("labels") or {}).get(_LABEL) == "true":
                store.remove(COLLECTION, name)

    def _service(self, name: str, group: str, version: str, *, kept: str) -> JsonObject:
        now = self._context.stamp()
        spec: JsonObject = {
            "version": version,
            "groupPriorityMinimum": group_priority(group),
            "versionPriority": version_priority(group, version),
        }
        if group:
            spec = {"group": group, **spec}
        owned = {"f:metadata": {"f:labels": {".": {}, f"f:{_LABEL}": {}}}, "f:spec": {f"f:{key}": {} for key in spec}}
        value: JsonObject = {
            "kind": "APIService",
            "apiVersion": f"{GROUP}/v1",
            "metadata": {
                "name": name,
                "uid": objects.new_uid(self._context.rng),
                "creationTimestamp": now,
                "labels": {_LABEL: kept},
                "managedFields": [
                    {
                        "manager": MANAGER,
                        "operation": "Update",
                        "apiVersion": f"{GROUP}/v1",
                        "time": now,
                        "fieldsType": "FieldsV1",
                        "fieldsV1": owned,
                    }
                ],
            },
            "spec": spec,
        }
        set_conditions(value, [LOCAL], now)
        return value
