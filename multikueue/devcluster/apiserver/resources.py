# SPDX-License-Identifier: Apache-2.0
"""Which resources are served: built-in ones from the discovery table, and those of custom resource definitions.

Owns `ResourceType` and the registry of them by group, version and plural. Promises that a change of a definition is
seen by the next request. What a kind does of its own hangs on it as its `Behaviour`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from multikueue.devcluster.apiserver import documents
from multikueue.devcluster.apiserver.documents import JsonObject
from multikueue.devcluster.apiserver.errors import About
from multikueue.devcluster.apiserver.kinds import behaviour, catalog
from multikueue.devcluster.apiserver.kinds.behaviour import Behaviour
from multikueue.devcluster.apiserver.schema import builtin
from multikueue.devcluster.apiserver.schema.node import Node
from multikueue.devcluster.apiserver.schema.structural import Structural

# What this server has no use for: streams into containers, proxies, and a version that is another form of a better one.
_UNSERVED_SUBRESOURCES: Final = frozenset({"attach", "exec", "portforward", "proxy", "ephemeralcontainers", "resize"})
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
    node: Node
    behaviour: Behaviour
    collection: str
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = VERBS
    subresources: Mapping[str, JsonObject] = field(default_factory=dict)
    """Discovery's entries by name."""
    storage_version: str = ""
    definition: JsonObject | None = None
    """The custom resource definition it comes from."""
    version_entry: JsonObject = field(default_factory=dict)
    """The version's entry in that definition."""
    warning: str = ""
    """What everybody is told who uses this version."""
    storage_node: Node | None = None
    """What the storage version of a custom resource looks like, if that is another one."""
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
        """What stands in `apiVersion`."""
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
        """An object of this type, by its plural."""
        return About(name, self.group, self.plural, uid)

    def about_kind(self, name: str = "") -> About:
        """An object of this type, by its kind, as validation names it."""
        return About(name, self.group, self.kind)

    def key(self, namespace: str, name: str) -> str:
        """Where an object is stored."""
        return f"{namespace}/{name}" if self.namespaced else name


class Registry:
    """All resources that are served now."""

    def __init__(self) -> None:
        self._types: dict[tuple[str, str, str], ResourceType] = {}
        self._groups: dict[str, list[str]] = {}
        self.generation = 0
        """Grows with each change, so that documents made of the registry can be kept."""
        for document in (*builtin.table("discovery.json")["api"], *builtin.table("discovery.json")["apis"]):
            self._read(document)
        self.builtin_groups: Final = frozenset(self._groups)
        """The groups that are there whatever is installed."""

    def find(self, group: str, version: str, plural: str) -> ResourceType | None:
        """The resource at that place."""
        return self._types.get((group, version, plural))

    def by_kind(self, group: str, version: str, kind: str) -> ResourceType | None:
        """The resource whose objects are of that kind."""
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
        """Serve these too."""
        for found in types:
            self._types[found.group, found.version, found.plural] = found
            versions = self._groups.setdefault(found.group, [])
            if found.version not in versions:
                versions.append(found.version)
                versions.sort(key=age_of)
        self.generation += 1

    def remove(self, group: str, plural: str) -> None:
        """Serve this one no more, in any version."""
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
        if sub["subresource"] not in _UNSERVED_SUBRESOURCES
    }
    made = catalog.behaviour(group, plural)
    if type(made) is Behaviour and definition is not None:
        made = behaviour.of_definition(builtin.node(definition), has_status="status" in subresources)
    collection = f"{plural}.{group}" if group else plural
    return ResourceType(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        singular=item["singularResource"],
        namespaced=item["scope"] == "Namespaced",
        node=builtin.node(definition) if definition is not None else Node(),
        behaviour=made,
        collection="events" if plural == "events" else collection,
        short_names=tuple(item.get("shortNames", ())),
        categories=tuple(item.get("categories", ())),
        verbs=tuple(item["verbs"]),
        subresources=subresources,
        storage_version="v1",
    )


def age_of(version: str) -> tuple[int, int, int, str]:
    """Kubernetes' order of versions: stable first, then beta, then alpha, the newest of each first."""
    rest = version.removeprefix("v")
    major, _, tail = rest.partition("beta") if "beta" in rest else rest.partition("alpha")
    if not version.startswith("v") or not major.isdigit() or (tail and not tail.isdigit()):
        return 3, 0, 0, version
    stage = 1 if "beta" in rest else 2 if "alpha" in rest else 0
    return stage, -int(major), -int(tail or 0), version
