# SPDX-License-Identifier: Apache-2.0
"""Custom resource definitions come to life: what they define is served as soon as they are stored.

Owns the conditions `NamesAccepted` and `Established`, the resources that follow from a definition, and the cleaning up
after one. A schema is read once for each change of its definition.
"""

from __future__ import annotations

from typing import Final

from multikueue.devcluster.apiserver import documents
from multikueue.devcluster.apiserver.cel.syntax import CelError
from multikueue.devcluster.apiserver.documents import JsonObject
from multikueue.devcluster.apiserver.errors import Cause
from multikueue.devcluster.apiserver.kinds.custom import CustomBehaviour
from multikueue.devcluster.apiserver.patch import managers
from multikueue.devcluster.apiserver.resources import VERBS, ResourceType
from multikueue.devcluster.apiserver.schema import structural
from multikueue.devcluster.apiserver.schema.node import Node
from multikueue.devcluster.apiserver.storage.entry import Event
from multikueue.devcluster.apiserver.world import World

COLLECTION: Final = "customresourcedefinitions.apiextensions.k8s.io"
FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"
_MANAGER: Final = "kube-apiserver"


class Definitions:
    """Keeps the registry in step with the stored definitions."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._served: dict[str, tuple[int, JsonObject]] = {}
        for value in world.objects(COLLECTION):
            self._serve(value)
            self._accept(value["metadata"]["name"], value)  # the last process may have ended before it did so
        world.store.listen(self._changed)

    def problems(self, value: JsonObject) -> list[Cause]:
        """What is wrong with the schemas of a definition: rules that cannot be compiled."""
        found = []
        for index, version in enumerate(documents.items(value, "spec", "versions")):
            schema = documents.child(version, "schema", "openAPIV3Schema")
            path = f"spec.versions[{index}].schema.openAPIV3Schema" if index else "spec.validation.openAPIV3Schema"
            try:
                structural.read(schema, root=True, path=path)
            except CelError as error:
                where, _, rest = str(error).partition("\n")
                rule, _, why = rest.rpartition("\n")
                shown = documents.dump({"rule": rule}).decode()
                text = f"Invalid value: {shown}: compilation failed: ERROR: <input>:1:1: {why}"
                found.append(Cause("FieldValueInvalid", text, where))
        return found

    def _changed(self, collection: str, event: Event) -> None:
        if collection != COLLECTION:
            return
        if event.entry is None:
            served = self._served.pop(event.key, None)
            if served is not None:
                self._world.registry.remove(served[1]["spec"]["group"], served[1]["spec"]["names"]["plural"])
            return
        value = event.entry.parse()
        generation = value["metadata"].get("generation", 0)
        known = self._served.get(event.key)
        if known is None or known[0] != generation:
            self._serve(value)
            self._accept(event.key, value)

    def _serve(self, value: JsonObject) -> None:
        spec = value["spec"]
        self._world.registry.remove(spec["group"], spec["names"]["plural"])
        self._world.registry.add(types_of(value))
        self._served[value["metadata"]["name"]] = (value["metadata"].get("generation", 0), value)

    def _accept(self, key: str, value: JsonObject) -> None:
        """Say in the status what has been accepted; written as a real server's controller writes it."""
        now = self._world.stamp()
        status = value.setdefault("status", {})
        conditions = {entry["type"]: entry for entry in documents.items(status, "conditions")}
        wanted = [
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ]
        names = value["spec"]["names"]
        if len(conditions) == len(wanted) and status.get("acceptedNames") == names:
            return
        old = documents.copy(value)
        status["conditions"] = [
            conditions.get(name)
            or {"type": name, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}
            for name, reason, message in wanted
        ]
        status["acceptedNames"] = dict(names)
        node = self._world.registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        if node is not None:
            owners = managers.update(
                old,
                value,
                kind=node.node,
                managers=managers.read(value["metadata"].get("managedFields")),
                by=managers.Manager(_MANAGER, managers.UPDATE, "apiextensions.k8s.io/v1", "status"),
                now=now,
            )
            value["metadata"]["managedFields"] = managers.write(owners)
        self._world.store.put(COLLECTION, key, value)


def types_of(value: JsonObject) -> list[ResourceType]:
    """What a definition defines, one type for each served version."""
    spec = value["spec"]
    group, names = spec["group"], spec["names"]
    versions = documents.items(spec, "versions")
    stored = next((entry["name"] for entry in versions if entry.get("storage")), versions[0]["name"])
    nodes: dict[str, Node] = {}
    for entry in versions:
        if entry.get("served") or entry["name"] == stored:
            schema = documents.child(entry, "schema", "openAPIV3Schema")
            nodes[entry["name"]] = structural.read(schema, root=True)
            if spec.get("preserveUnknownFields"):
                nodes[entry["name"]].preserve = True
    found = []
    for entry in versions:
        if not entry.get("served"):
            continue
        found.append(
            ResourceType(
                group=group,
                version=entry["name"],
                kind=names["kind"],
                plural=names["plural"],
                singular=names.get("singular") or names["kind"].lower(),
                namespaced=spec["scope"] == "Namespaced",
                node=nodes[entry["name"]],
                behaviour=CustomBehaviour(entry),
                collection=f"{names['plural']}.{group}",
                list_kind=names.get("listKind") or f"{names['kind']}List",
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                verbs=VERBS,
                subresources=_subresources(entry, group, names["kind"]),
                storage_version=stored,
                definition=value,
                version_entry=entry,
                warning=_warning(entry, group, names["kind"]),
                storage_node=None if entry["name"] == stored else nodes.get(stored),
            )
        )
    return found


def _warning(entry: JsonObject, group: str, kind: str) -> str:
    if not entry.get("deprecated"):
        return ""
    said: str = entry.get("deprecationWarning") or f"{group}/{entry['name']} {kind} is deprecated"
    return said


def _subresources(entry: JsonObject, group: str, kind: str) -> dict[str, JsonObject]:
    found: dict[str, JsonObject] = {}
    wanted = entry.get("subresources") or {}
    verbs = ["get", "patch", "update"]
    if "status" in wanted:
        gvk = {"group": group, "version": entry["name"], "kind": kind}
        found["status"] = {"subresource": "status", "responseKind": gvk, "verbs": verbs}
    if wanted.get("scale"):
        gvk = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        found["scale"] = {"subresource": "scale", "responseKind": gvk, "verbs": verbs, "paths": wanted["scale"]}
    return found
