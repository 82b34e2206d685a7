# SPDX-License-Identifier: Apache-2.0
"""Custom resource definitions: serves what they define as soon as they are stored.

Owns the conditions `NamesAccepted` and `Established`, the resource types of a definition, and the cleanup after its
deletion. A schema is compiled once for each change of its definition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from devcluster.apiserver import errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.conditions import set_conditions, store_status
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.kinds import definition
from devcluster.apiserver.kinds.custom import CustomBehaviour
from devcluster.apiserver.registry.resources import ResourceType
from devcluster.apiserver.schema import structural, structure
from devcluster.apiserver.schema.node import TypeNode
from devcluster.apiserver.storage.entry import StoredChange

COLLECTION: Final = "customresourcedefinitions.apiextensions.k8s.io"
FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"
_PENDING: Final = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
_IN_PROGRESS: Final = "CustomResource deletion is in progress"
# The verbs of custom resources, in the order of discovery.
_VERBS: Final = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")


class Definitions:
    """Keeps the registry in step with the stored definitions."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._served: dict[str, tuple[int, JsonObject]] = {}
        self._ending: set[str] = set()
        """The collections whose definition is being deleted."""
        self._delete_all: Callable[[str], None] = lambda _: None
        for value in context.objects(COLLECTION):
            if _is_established(value):
                self._serve(value)
            if "deletionTimestamp" in value["metadata"]:
                self._ending.add(value["metadata"]["name"])
            self._accept(value["metadata"]["name"], value)  # the last process may have ended before it was done
        context.store.listen(self._changed)

    def start_cleanup(self, delete_all: Callable[[str], None]) -> None:
        """Delete with `delete_all` the objects of each definition that is being deleted, now and later."""
        self._delete_all = delete_all
        for key in self._ending:
            _later(self._empty, key)

    def problems(self, value: JsonObject) -> list[StatusCause]:
        """What is wrong with the schemas of a definition."""
        found: list[StatusCause] = []
        for index, version in enumerate(documents.items(value, "spec", "versions")):
            schema = documents.child(version, "schema", "openAPIV3Schema")
            path = definition.field(value["spec"], index, "validation.openAPIV3Schema", "schema.openAPIV3Schema")
            found += structure.problems(schema, path)
        return list(dict.fromkeys(found))

    def check_create(self, kind: ResourceType, name: str) -> None:
        """Raises `StatusError` for a new object whose definition is being deleted."""
        if kind.definition is not None and kind.collection in self._ending:
            text = "create not allowed while custom resource definition is terminating"
            raise errors.forbidden(kind.about(name), text)

    def begin_deletion(self, kind: ResourceType, value: JsonObject, dry_run: bool) -> bool:
        """Mark a definition as being deleted; its objects are deleted first. False if it is no definition."""
        if kind.collection != COLLECTION:
            return False
        metadata = value["metadata"]
        if "deletionTimestamp" not in metadata:
            metadata["deletionTimestamp"] = self._context.stamp()
            metadata["finalizers"] = list({*(metadata.get("finalizers") or ()), FINALIZER})
            condition = ("Terminating", "True", "InstanceDeletionPending", _PENDING)
            set_conditions(value, [condition], self._context.stamp())
            if not dry_run:
                self._context.store.put(COLLECTION, metadata["name"], value)
        return True

    def _changed(self, collection: str, event: StoredChange) -> None:
        if collection != COLLECTION:
            if collection in self._ending and event.entry is None:
                _later(self._end, collection)
            return
        if event.entry is None:
            served = self._served.pop(event.key, None)
            if served is not None:
                self._context.registry.remove(served[1]["spec"]["group"], served[1]["spec"]["names"]["plural"])
            self._ending.discard(event.key)
            _later(self._accept_others)
            return
        value = event.entry.parse()
        if "deletionTimestamp" in value["metadata"]:
            if event.key not in self._ending:
                self._ending.add(event.key)
                _later(self._empty, event.key)
            return
        generation = value["metadata"].get("generation", 0)
        known = self._served.get(event.key)
        if known is None or known[0] != generation:
            self._accept(event.key, value)

    def _serve(self, value: JsonObject) -> None:
        spec, name = value["spec"], value["metadata"]["name"]
        self._context.registry.remove(spec["group"], spec["names"]["plural"])
        types = types_of(value)
        self._context.registry.add(types)
        before = self._served.get(name)
        self._served[name] = (value["metadata"].get("generation", 0), value)
        known = _schemas(before[1]) if before is not None else {}
        for kind in types:
            if kind.version in known and known[kind.version] != kind.version_entry.get("schema"):
                self._set_defaults(kind)

    def _set_defaults(self, kind: ResourceType) -> None:
        """Set defaults that are new in objects stored in this version: a real server sets them each time it reads one.

        They stay when the definition loses them, which a real server forgets.
        """
        store = self._context.store
        for entry in list(store.collection(kind.collection).entries()):
            if entry.raw.startswith(kind.prefix):
                value = entry.parse()
                structural.default(value, kind.node)
                if value != entry.parse():
                    store.amend(kind.collection, entry.key, value)

    def _empty(self, key: str) -> None:
        """Delete the objects of a definition that is being deleted."""
        value = self._context.get(COLLECTION, key)
        if value is not None:
            self._set(value, [("Terminating", "True", "InstanceDeletionInProgress", _IN_PROGRESS)])
            self._delete_all(key)
            self._end(key)

    def _end(self, key: str) -> None:
        """Remove a definition whose objects are all deleted."""
        if len(self._context.store.collection(key)):
            return
        value = self._context.get(COLLECTION, key)
        if value is None or FINALIZER not in value["metadata"].get("finalizers", ()):
            return
        left = [name for name in value["metadata"]["finalizers"] if name != FINALIZER]
        if left:
            value["metadata"]["finalizers"] = left
            self._set(value, [("Terminating", "False", "InstanceDeletionCompleted", "removed all instances")])
        else:
            del value["metadata"]["finalizers"]
            self._context.store.remove(COLLECTION, key, value)

    def _accept(self, key: str, value: JsonObject) -> None:
        """Serve a definition whose names are free, and set its conditions as a real server's controller does."""
        conflict = self._conflict(key, value)
        established = key in self._served
        if conflict is not None:
            reason, message, free = conflict
            names = documents.child(value, "status").get("acceptedNames") if established else free
            wanted = [("NamesAccepted", "False", reason, message)]
            if not established:
                wanted.append(("Established", "False", "NotAccepted", "not all names are accepted"))
            self._set(value, wanted, names=names)
            return
        self._serve(value)
        wanted = [("NamesAccepted", "True", "NoConflicts", "no conflicts found")]
        if not established:
            wanted.append(("Established", "True", "InitialNamesAccepted", "the initial names have been accepted"))
        self._set(value, wanted, names=value["spec"]["names"])

    def _accept_others(self) -> None:
        """Accept definitions that were waiting for names which are free now."""
        for value in list(self._context.objects(COLLECTION)):
            key = value["metadata"]["name"]
            if key not in self._served and key not in self._ending:
                self._accept(key, value)

    def _conflict(self, key: str, value: JsonObject) -> tuple[str, str, JsonObject] | None:
        """Reason and message of the first name in use, and the free names; None if all are free."""
        spec = value["spec"]
        taken: set[str] = set()
        kinds: set[str] = set()
        for other, (_, served) in self._served.items():
            if other != key and served["spec"]["group"] == spec["group"]:
                names = served["spec"]["names"]
                taken |= {names["plural"], names.get("singular", ""), *(names.get("shortNames") or ())}
                kinds |= {names["kind"], names.get("listKind", "")}
        names = spec["names"]
        found = [
            (f"{name[0].upper()}{name[1:]}Conflict", names[name])
            for name, known in (("plural", taken), ("singular", taken))
            if names.get(name) in known
        ]
        found += [("ShortNamesConflict", name) for name in names.get("shortNames") or () if name in taken]
        found += [
            (f"{name[0].upper()}{name[1:]}Conflict", names[name])
            for name in ("kind", "listKind")
            if names.get(name) in kinds
        ]
        if not found:
            return None
        reason, name = found[-1]
        free = {
            field: names[field]
            for field, known in (("plural", taken), ("singular", taken), ("kind", kinds), ("listKind", kinds))
            if names.get(field) and names[field] not in known
        }
        return reason, f'"{name}" is already in use', {"plural": "", "kind": "", **free}

    def _set(
        self, value: JsonObject, wanted: list[tuple[str, str, str, str]], *, names: JsonObject | None = None
    ) -> None:
        """Write conditions, and the accepted names if given."""
        old = documents.copy(value)
        set_conditions(value, wanted, self._context.stamp())
        if names is not None:
            value["status"]["acceptedNames"] = dict(names)
        kind = self._context.registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        assert kind is not None
        store_status(self._context, kind, value, old=old)


def _later(step: Callable[..., None], *arguments: str) -> None:
    """Run a step after the current write has been answered, as a real server's controllers do."""
    asyncio.get_running_loop().call_soon(step, *arguments)


def _schemas(value: JsonObject) -> dict[str, JsonValue]:
    """The schema of each version."""
    return {entry["name"]: entry.get("schema") for entry in documents.items(value, "spec", "versions")}


def _is_established(value: JsonObject) -> bool:
    conditions = documents.items(value, "status", "conditions")
    return any(entry.get("type") == "Established" and entry.get("status") == "True" for entry in conditions)


def types_of(value: JsonObject) -> list[ResourceType]:
    """The resource types of a definition, one for each served version."""
    spec = value["spec"]
    group, names = spec["group"], spec["names"]
    versions = documents.items(spec, "versions")
    stored = next((entry["name"] for entry in versions if entry.get("storage")), versions[0]["name"])
    nodes: dict[str, TypeNode] = {}
    for entry in versions:
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
                verbs=_VERBS,
                subresources=_subresources(entry, group, names["kind"]),
                storage_version=stored,
                definition=value,
                version_entry=entry,
                warning=_warning(entry, group, names["kind"]),
                storage_node=None if entry["name"] == stored else nodes.get(stored),
                nodes=nodes,
            )
        )
    return found


def _warning(entry: JsonObject, group: str, kind: str) -> str:
    if not entry.get("deprecated"):
        return ""
    warning: str = entry.get("deprecationWarning") or f"{group}/{entry['name']} {kind} is deprecated"
    return warning


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
