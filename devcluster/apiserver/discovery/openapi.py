# SPDX-License-Identifier: Apache-2.0
"""OpenAPI: the documents that kubectl validates, explains and edits with.

Owns the v3 index, the v3 document of each group version, made of the table of definitions and the schemas of custom
resources, and a v2 document of the same. Made at the first request, and cached until the registry changes. Documents
of aggregated APIs come from their backends; the index lists them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from devcluster.apiserver import errors
from devcluster.apiserver.aggregation.aggregator import Aggregator
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.discovery import custom_schemas, openapi_binary, openapi_paths
from devcluster.apiserver.http.requests import Answer, Request
from devcluster.apiserver.registry.resources import Registry, ResourceType
from devcluster.apiserver.schema import builtin

_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_SCHEMAS: Final = openapi_paths.SCHEMAS
_META: Final = openapi_paths.META
_PATCHES: Final = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
_NEEDED: Final = ("DeleteOptions", "Status", "APIResourceList", "WatchEvent")
_NEEDED_BY_CUSTOM: Final = ("DeleteOptions", "Status", "Patch")


class OpenApi:
    """Answers `/openapi`."""

    def __init__(self, registry: Registry, aggregator: Aggregator) -> None:
        self._registry = registry
        self._aggregator = aggregator
        self._kept: dict[str, bytes] = {}
        self._generation = -1

    def index(self) -> Answer:
        """`/openapi/v3`."""
        paths = {}
        for group, versions in self._registry.groups.items():
            for version in versions:
                path = f"apis/{group}/{version}" if group else f"api/{version}"
                mark = hashlib.sha512(f"{path} {self._registry.generation}".encode()).hexdigest().upper()
                paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={mark}"}
        for remote in self._aggregator.remotes.values():
            paths.update(remote.documents)
        return Answer(200, documents.dump({"paths": paths}))

    def document(self, path: str) -> Answer:
        """`/openapi/v3/<path>`. Raises `StatusError`."""
        parts = path.strip("/").split("/")
        group = parts[1] if len(parts) == 3 and parts[0] == "apis" else ""
        version = parts[-1]
        if (parts[0] == "api") is bool(group) or not self._registry.has(group, version):
            raise errors.no_resource()
        return Answer(200, self._keep(f"v3 {group}/{version}", lambda: documents.dump(self._make(group, version))))

    def v2(self, request: Request) -> Answer:
        """`/openapi/v2`, which kubectl reads in its binary form only."""
        if "proto-openapi" in request.headers.get("accept", "").partition(",")[0]:
            return Answer(200, self._keep("v2 binary", lambda: openapi_binary.encode(self._make_v2())), _PROTOBUF)
        return Answer(200, self._keep("v2", lambda: documents.dump(self._make_v2())))

    def _keep(self, key: str, make: Callable[[], bytes]) -> bytes:
        if self._generation != self._registry.generation:
            self._kept.clear()
            self._generation = self._registry.generation
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = make()
        return found

    def _make(self, group: str, version: str) -> JsonObject:
        schemas: JsonObject = {}
        paths: JsonObject = {}
        for kind in self._registry.types(group, version):
            name = self._add(schemas, kind)
            paths.update(openapi_paths.paths(kind, name) if kind.custom else _paths(kind, name))
            if kind.custom and "scale" in kind.subresources:
                _close(openapi_paths.SCALE, schemas)
        needed = _NEEDED if group in self._registry.builtin_groups else _NEEDED_BY_CUSTOM
        for name in needed:
            _close(f"{_META}{name}", schemas)
        return {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": builtin.table("version.json")["gitVersion"]},
            "paths": paths,
            "components": {"schemas": schemas},
        }

    def _make_v2(self) -> JsonObject:
        schemas: JsonObject = {}
        paths: JsonObject = {}
        for kind in self._registry.types():
            name = self._add(schemas, kind, v2=True)
            for path, item in _paths(kind, name).items():
                paths[path] = {
                    verb: {
                        "x-kubernetes-group-version-kind": operation["x-kubernetes-group-version-kind"],
                        "x-kubernetes-action": operation["x-kubernetes-action"],
                        "consumes": list(_patches(kind)) if verb == "patch" else ["*/*"],
                        "parameters": [
                            {"name": p["name"], "in": p["in"], "type": "string", "uniqueItems": True}
                            for p in operation.get("parameters", ())
                        ],
                        "responses": {"200": {"description": "OK", "schema": {"$ref": f"#/definitions/{name}"}}},
                    }
                    for verb, operation in item.items()
                }
        return {
            "swagger": "2.0",
            "info": {"title": "Kubernetes", "version": builtin.table("version.json")["gitVersion"]},
            "paths": paths,
            "definitions": {name: _as_v2(schema) for name, schema in schemas.items()},
        }

    def _add(self, schemas: JsonObject, kind: ResourceType, *, v2: bool = False) -> str:
        if not kind.custom:
            name = builtin.definition_of(kind.group, kind.version, kind.kind) or ""
            if name:
                _close(name, schemas)
                listed = name + "List"
                if listed in builtin.definitions():
                    _close(listed, schemas)
            return name
        name = ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])
        schemas[name] = custom_schemas.version_2(kind) if v2 else custom_schemas.version_3(kind)
        _close(f"{_META}ObjectMeta", schemas)
        _close(f"{_META}ListMeta", schemas)
        schemas[f"{name}List"] = {
            "description": f"{kind.list_kind} is a list of {kind.kind}",
            "type": "object",
            "required": ["items"],
            "properties": {
                **custom_schemas.TYPE_FIELDS,
                "items": {
                    "description": f"The {kind.plural}.",
                    "type": "array",
                    "items": {"$ref": f"{_SCHEMAS}{name}"},
                },
                "metadata": {
                    "description": "The resourceVersion of the list, and the token of its next page.",
                    "allOf": [{"$ref": f"{_SCHEMAS}{_META}ListMeta"}],
                },
            },
            "x-kubernetes-group-version-kind": [{"group": kind.group, "version": kind.version, "kind": kind.list_kind}],
            **custom_schemas.selectable(kind),
        }
        return name


def _close(name: str, schemas: JsonObject) -> None:
    """Add a definition and all definitions that it references."""
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current in schemas or current not in builtin.definitions():
            continue
        schemas[current] = builtin.definitions()[current]
        waiting += _references(schemas[current])


def _references(schema: JsonValue) -> list[str]:
    if isinstance(schema, dict):
        found = [schema["$ref"].removeprefix(_SCHEMAS)] if isinstance(schema.get("$ref"), str) else []
        for entry in schema.values():
            if isinstance(entry, dict | list):
                found += _references(entry)
        return found
    if isinstance(schema, list):
        return [name for entry in schema for name in _references(entry)]
    return []


def _as_v2(schema: JsonValue) -> JsonValue:
    if isinstance(schema, dict):
        if list(schema.get("allOf", ())) and len(schema["allOf"]) == 1 and "$ref" in schema["allOf"][0]:
            schema = {**{k: v for k, v in schema.items() if k not in ("allOf", "default")}, **schema["allOf"][0]}
        if schema.get("format") == "int-or-string":
            return {"description": schema.get("description", ""), "type": "string", "format": "int-or-string"}
        if schema.get("oneOf") and "type" not in schema:
            schema = {**{k: v for k, v in schema.items() if k != "oneOf"}, "type": "string"}
        found: JsonObject = {}
        for key, entry in schema.items():
            if key in ("oneOf", "anyOf", "not", "nullable") and not isinstance(entry, dict):
                continue
            if key == "$ref" and isinstance(entry, str):
                found[key] = entry.replace(_SCHEMAS, "#/definitions/")
            elif key == "properties" and isinstance(entry, dict):
                # By property name: a property may be called oneOf.
                found[key] = {name: _as_v2(part) for name, part in entry.items()}
            else:
                found[key] = _as_v2(entry)
        return found
    if isinstance(schema, list):
        return [_as_v2(entry) for entry in schema]
    return schema


def _patches(kind: ResourceType) -> tuple[str, ...]:
    """The media types of patches; clients use the strategic one if it is listed."""
    return tuple(media for media in _PATCHES if not (kind.custom and "strategic" in media))


def _paths(kind: ResourceType, name: str) -> JsonObject:
    base = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    collection = f"{base}{scope}/{kind.plural}"
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    found: JsonObject = {collection: {}, f"{collection}/{{name}}": {}}

    def operation(action: str, *, writes: bool) -> JsonObject:
        content = {"application/json": {"schema": {"$ref": f"{_SCHEMAS}{name}"}}} if name else {}
        made: JsonObject = {
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk,
            "responses": {"200": {"description": "OK", "content": content}},
        }
        if writes:
            made["parameters"] = [
                {"name": p, "in": "query", "description": text, "schema": {"type": "string", "uniqueItems": True}}
                for p, text in openapi_paths.WRITING.items()
            ]
        return made

    if "list" in kind.verbs:
        found[collection]["get"] = operation("list", writes=False)
    if "create" in kind.verbs:
        found[collection]["post"] = operation("post", writes=True)
    one = found[f"{collection}/{{name}}"]
    if "get" in kind.verbs:
        one["get"] = operation("get", writes=False)
    if "update" in kind.verbs:
        one["put"] = operation("put", writes=True)
    if "patch" in kind.verbs:
        one["patch"] = operation("patch", writes=True)
        one["patch"]["requestBody"] = {
            "content": {media: {"schema": {"$ref": f"{_SCHEMAS}{_META}Patch"}} for media in _patches(kind)}
        }
    if "delete" in kind.verbs:
        one["delete"] = operation("delete", writes=True)
    return {path: item for path, item in found.items() if item}
