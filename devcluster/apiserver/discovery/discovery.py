# SPDX-License-Identifier: Apache-2.0
"""Discovery of groups, versions and resources, in the old form and the aggregated one."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from typing import Final

from devcluster.apiserver import errors
from devcluster.apiserver.aggregation.aggregator import Aggregator, Remote
from devcluster.apiserver.aggregation.local import group_priority, version_priority
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.http.requests import JSON, Answer, Request, answer
from devcluster.apiserver.registry.resources import Registry, ResourceType, age_of

_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
_VERSIONS: Final = ("v2", "v2beta1")


class Discovery:
    """Answers `/api`, `/apis` and the paths of groups and versions."""

    def __init__(self, registry: Registry, aggregator: Aggregator) -> None:
        self._registry = registry
        self._aggregator = aggregator
        self._kept: dict[str, tuple[tuple[int, int], Answer]] = {}

    def core(self, request: Request) -> Answer:
        """`/api`."""
        wanted = _aggregated(request)
        if wanted:
            return self._keep(f"api {wanted}", lambda: _list([self._group("")], wanted))
        addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": request.headers.get("host", "")}]
        body = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}
        return answer(200, body)

    def groups(self, request: Request) -> Answer:
        """`/apis`."""
        wanted = _aggregated(request)
        names = list(self.groups_served())
        if wanted:
            return self._keep(f"apis {wanted}", lambda: _list([self._group(name) for name in names], wanted))
        body = {"kind": "APIGroupList", "apiVersion": "v1", "groups": [self._old_group(name) for name in names]}
        return answer(200, body)

    def has(self, name: str) -> bool:
        """Whether this server or an aggregated one serves the group."""
        return bool(name) and name in self.groups_served()

    def groups_served(self) -> dict[str, list[str]]:
        """The named groups with their versions, preferred ones first, including those of aggregated servers."""
        priorities = {name: group_priority(name) for name in self._registry.groups if name}
        found = {name: list(self._registry.groups[name]) for name in priorities}
        for remote in self._aggregator.remotes.values():
            priority = remote.spec["groupPriorityMinimum"]
            priorities[remote.group] = max(priority, priorities.get(remote.group, 0))
            versions = found.setdefault(remote.group, [])
            if remote.version not in versions:
                versions.append(remote.version)
                versions.sort(key=lambda version, group=remote.group: self._rank(group, version))  # type: ignore[misc]
        return {name: found[name] for name in sorted(found, key=lambda name: (-priorities[name], name))}

    def _rank(self, group: str, version: str) -> tuple[int, tuple[int, int, int, str]]:
        remote = self._aggregator.remotes.get((group, version))
        priority = version_priority(group, version) if remote is None else remote.spec["versionPriority"]
        return -priority, age_of(version)

    def group(self, name: str) -> Answer:
        """`/apis/<group>`. Raises `StatusError`."""
        if not self.has(name):
            raise errors.no_resource()
        return answer(200, {"kind": "APIGroup", "apiVersion": "v1", **self._old_group(name)})

    def resources(self, group: str, version: str) -> Answer:
        """`/apis/<group>/<version>`. Raises `StatusError`."""
        if not self._registry.has(group, version):
            raise errors.no_resource()
        found = []
        for kind in self._registry.types(group, version):
            found.append(_old_resource(kind))
            for name, entry in sorted(kind.subresources.items()):
                response = entry["responseKind"]
                sub: JsonObject = {
                    "name": f"{kind.plural}/{name}",
                    "singularName": "",
                    "namespaced": kind.namespaced,
                    "kind": response["kind"],
                    "verbs": entry["verbs"],
                }
                own = kind.custom and response.get("group") == group
                if not own and (response.get("group") or response.get("version", version) != version):
                    sub.update({"group": response.get("group", ""), "version": response.get("version", "")})
                found.append(sub)
        name = f"{group}/{version}" if group else version
        body: JsonObject = {"kind": "APIResourceList", "groupVersion": name, "resources": found}
        if group:
            body = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": found}
        return answer(200, body)

    def _keep(self, key: str, make: object) -> Answer:
        kept = self._kept.get(key)
        state = (self._registry.generation, self._aggregator.generation)
        if kept is None or kept[0] != state:
            assert callable(make)
            kept = self._kept[key] = (state, make())
        return kept[1]

    def _old_group(self, name: str) -> JsonObject:
        versions = [{"groupVersion": f"{name}/{version}", "version": version} for version in self.groups_served()[name]]
        return {"name": name, "versions": versions, "preferredVersion": versions[0]}

    def _group(self, name: str) -> JsonObject:
        versions = []
        for version in self.groups_served()[name] if name else self._registry.groups[name]:
            remote = self._aggregator.remotes.get((name, version))
            if remote is not None:
                versions.append(_behind(remote))
                continue
            resources = [_resource(kind) for kind in self._registry.types(name, version)]
            versions.append({"version": version, "resources": resources, "freshness": "Current"})
        return {"metadata": {"name": name} if name else {}, "versions": versions}


def _behind(remote: Remote) -> JsonObject:
    """The entry of a version that another server serves; stale, without resources, if the server does not answer."""
    if not remote.available:
        return {"version": remote.version, "freshness": "Stale"}
    return {"version": remote.version, "resources": remote.resources or [], "freshness": "Current"}


def _aggregated(request: Request) -> str:
    accept = request.headers.get("accept", "")
    for part in accept.split(","):
        if "as=APIGroupDiscoveryList" in part:
            for version in _VERSIONS:
                if f"v={version};" in f"{part.strip()};":
                    return version
        elif part.strip().startswith(JSON):
            return ""
    return ""


def _list(groups: list[JsonObject], version: str) -> Answer:
    body = {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": groups,
    }
    raw = documents.dump(body)
    etag = hashlib.sha512(raw).hexdigest().upper()
    headers = {"Vary": "Accept", "ETag": f'"{etag}"'}
    return Answer(200, raw, _AGGREGATED.format(version), headers)


def _resource(kind: ResourceType) -> JsonObject:
    response = {"group": kind.group, "version": kind.version, "kind": kind.kind} if kind.custom else _bare(kind.kind)
    found: JsonObject = {
        "resource": kind.plural,
        "responseKind": response,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        found["shortNames"] = list(kind.short_names)
    if kind.categories:
        found["categories"] = list(kind.categories)
    if kind.subresources:
        names = ("subresource", "responseKind", "verbs")
        found["subresources"] = [
            {name: entry[name] for name in names} for _, entry in sorted(kind.subresources.items())
        ]
    return found


def _bare(kind: str) -> JsonObject:
    return {"group": "", "version": "", "kind": kind}


def _old_resource(kind: ResourceType) -> JsonObject:
    found: JsonObject = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        found["shortNames"] = list(kind.short_names)
    if kind.categories:
        found["categories"] = list(kind.categories)
    seed = f"{kind.group}/{kind.storage_version}/{kind.kind}"
    found["storageVersionHash"] = b64encode(hashlib.sha256(seed.encode()).digest()[:8]).decode()
    return found
