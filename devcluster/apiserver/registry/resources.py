# SPDX-License-Identifier: Apache-2.0
"""The served resources: the built-in ones of the discovery table, and those of custom resource definitions.

Owns `ResourceType` and the registry of them by group, version and plural. Promises that the next request sees a change
of a definition. A kind's own behaviour is its `KindBehaviour`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.errors import About
from devcluster.apiserver.kinds import behaviour, catalog
from devcluster.apiserver.kinds.behaviour import KindBehaviour
from devcluster.apiserver.schema import builtin
from devcluster.apiserver.schema.node import TypeNode
from devcluster.apiserver.schema.structural import Structural

# Not served: proxies of nodes, and older forms of a kind that is served.
_UNSERVED_PROXIES: Final = frozenset({"nodes"})
_UNSERVED: Final = frozenset({("", "componentstatuses"), ("autoscaling/v1", "horizontalpodautoscalers")})
VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(slots=True, kw_only=True)
class ResourceType:
    """One resource of one group and version."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    node: TypeNode
    behaviour: KindBehaviour
    collection: str
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = VERBS
    subresources: Mapping[str, JsonObject] = field(default_factory=dict)
    """The discovery entries by name."""
    storage_version: str = ""
    definition: JsonObject | None = None
    """The custom resource definition it comes from."""
    version_entry: JsonObject = field(default_factory=dict)
    """The entry of the version in that definition."""
    warning: str = ""
    """The warning for users of this version."""
    storage_node: TypeNode | None = None
    """The schema of the storage version of a custom resource, if it is another version."""
    nodes: Mapping[str, TypeNode] = field(default_factory=dict)
    """The schemas of all versions of a custom resource."""
    prefix: bytes = b""
    custom: bool = field(init=False)
    """Whether it comes from a custom resource definition."""

    def __post_init__(self) -> None:
        self.list_kind = self.list_kind or f"{self.kind}List"
        self.storage_version = self.storage_version or self.version
        self.prefix = documents.prefix(self.kind, self.api_version)
        self.custom = self.definition is not None

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def structural(self) -> Structural | None:
        """The schema of a custom resource."""
        return self.node if isinstance(self.node, Structural) else None

    @property
    def qualified(self) -> str:
        """`plural.group`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def about(self, name: str = "", uid: str = "") -> About:
        """An object of this type, named by its plural."""
        return About(name, self.group, self.plural, uid)

    def about_kind(self, name: str = "") -> About:
        """An object of this type, named by its kind, as in validation errors."""
        return About(name, self.group, self.kind)

    def key(self, namespace: str, name: str) -> str:
        """The key of an object in the store."""
        return f"{namespace}/{name}" if self.namespaced else name


class Registry:
    """The resources that are served now."""

    def __init__(self) -> None:
        self._types: dict[tuple[str, str, str], ResourceType] = {}
        self._groups: dict[str, list[str]] = {}
        self.generation = 0
        """Grows with each change, so that derived documents can be cached."""
        for document in (*builtin.table("discovery.json")["api"], *builtin.table("discovery.json")["apis"]):
            self._read(document)
        self.builtin_groups: Final = frozenset(self._groups)
        """The built-in groups."""

    def find(self, group: str, version: str, plural: str) -> ResourceType | None:
        """The resource of that name."""
        return self._types.get((group, version, plural))

    def by_kind(self, group: str, version: str, kind: str) -> ResourceType | None:
        """The resource of that kind."""
        for found in self._types.values():
            if found.kind == kind and found.group == group and found.version == version and "get" in found.verbs:
                return found
        return None

    def has(self, group: str, version: str = "") -> bool:
        """Whether the group, or the version of it, is served."""
        return group in self._groups and (not version or version in self._groups[group])

    @property
    def groups(self) -> Mapping[str, list[str]]:
        """The groups with their versions, the preferred one first."""
        return self._groups

    def types(self, group: str | None = None, version: str | None = None) -> Iterator[ResourceType]:
        """The resources, of one group and version if these are given."""
        for found in self._types.values():
            if (group is None or found.group == group) and (version is None or found.version == version):
                yield found

    def stored(self) -> Iterator[ResourceType]:
        """One type for each collection, at its storage version."""
        seen = set()
        for found in self._types.values():
            kept = "create" in found.verbs and "get" in found.verbs and found.version == found.storage_version
            if kept and found.collection not in seen:
                seen.add(found.collection)
                yield found

    def add(self, types: list[ResourceType]) -> None:
        """Serve these as well."""
        for found in types:
            self._types[found.group, found.version, found.plural] = found
            versions = self._groups.setdefault(found.group, [])
            if found.version not in versions:
                versions.append(found.version)
                versions.sort(key=age_of)
        self.generation += 1

    def remove(self, group: str, plural: str) -> None:
        """Stop serving this resource in all versions."""
        for key in [key for key in self._types if key[0] == group and key[2] == plural]:
            del self._types[key]
        left = {key[1] for key in self._types if key[0] == group}
        if left:
            self._groups[group] = [version for version in self._groups[group] if version in left]
        else:
            self._groups.pop(group, None)
        self.generation += 1

    def _read(self, document: JsonObject) -> None:
        group = document["metadata"].get("name", "")
        for entry in document["versions"]:
            version = entry["version"]
            gv = f"{group}/{version}" if group else ""
            served = [item for item in entry["resources"] if (gv, item["resource"]) not in _UNSERVED]
            if served:
                self.add([_builtin_type(group, version, item) for item in served])


def _builtin_type(group: str, version: str, item: JsonObject) -> ResourceType:
    kind, plural = item["responseKind"]["kind"], item["resource"]
    definition = builtin.definition_of(group, version, kind)
    subresources = {
        sub["subresource"]: sub
        for sub in item.get("subresources", ())
        if not (sub["subresource"] == "proxy" and plural in _UNSERVED_PROXIES)
    }
    made = catalog.behaviour(group, plural)
    if type(made) is KindBehaviour and definition is not None:
        made = behaviour.of_definition(builtin.node(definition), has_status="status" in subresources)
    collection = f"{plural}.{group}" if group else plural
    return ResourceType(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        singular=item["singularResource"],
        namespaced=item["scope"] == "Namespaced",
        node=builtin.node(definition) if definition is not None else TypeNode(),
        behaviour=made,
        collection="events" if plural == "events" else collection,
        short_names=tuple(item.get("shortNames", ())),
        categories=tuple(item.get("categories", ())),
        verbs=tuple(item["verbs"]),
        subresources=subresources,
        storage_version="v1",
        warning=made.warning,
    )


def age_of(version: str) -> tuple[int, int, int, str]:
    """Kubernetes' order of versions: stable first, then beta, then alpha, the newest of each first."""
    rest = version.removeprefix("v")
    major, _, tail = rest.partition("beta") if "beta" in rest else rest.partition("alpha")
    if not version.startswith("v") or not major.isdigit() or (tail and not tail.isdigit()):
        return 3, 0, 0, version
    stage = 1 if "beta" in rest else 2 if "alpha" in rest else 0
    return stage, -int(major), -int(tail or 0), version
