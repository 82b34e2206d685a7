# SPDX-License-Identifier: Apache-2.0
"""What the group visibility.kueue.x-k8s.io says about itself: discovery in both forms, and OpenAPI."""

from __future__ import annotations

import hashlib
from typing import Final

import orjson

from multikueue.api.constants import VISIBILITY_GROUP
from multikueue.api.meta import JsonObject
from multikueue.api.resource import CLUSTER_QUEUES, LOCAL_QUEUES, Resource

VERSIONS: Final = ("v1beta2", "v1beta1")
"""The preferred one first; they differ in nothing but their name."""
SUMMARY: Final = "PendingWorkloadsSummary"
SUBRESOURCE: Final = "pendingworkloads"
_PARENTS: Final = (CLUSTER_QUEUES, LOCAL_QUEUES)
_TITLE: Final = {"title": VISIBILITY_GROUP, "version": "unversioned"}
_METADATA: Final = {"type": "object", "description": "The metadata of an object."}


def group() -> JsonObject:
    """The APIGroup."""
    versions = [{"groupVersion": f"{VISIBILITY_GROUP}/{version}", "version": version} for version in VERSIONS]
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": VISIBILITY_GROUP,
        "versions": versions,
        "preferredVersion": versions[0],
    }


def group_list() -> JsonObject:
    """The APIGroupList."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group()]}


def resources(version: str) -> JsonObject:
    """The APIResourceList of a version; queues have no verbs of their own here."""
    found: list[JsonObject] = []
    for parent in _PARENTS:
        scope = {"namespaced": parent.namespaced}
        found.append(
            {"name": parent.plural, "singularName": parent.singular, **scope, "kind": parent.kind, "verbs": []}
        )
        name = f"{parent.plural}/{SUBRESOURCE}"
        found.append({"name": name, "singularName": "", **scope, "kind": SUMMARY, "verbs": ["get"]})
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{VISIBILITY_GROUP}/{version}",
        "resources": found,
    }


def aggregated_discovery(discovery_version: str) -> JsonObject:
    """The APIGroupDiscoveryList, of apidiscovery.k8s.io `v2` or `v2beta1`."""
    versions = [
        {"version": version, "resources": [_discovered(parent, version) for parent in _PARENTS]} for version in VERSIONS
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{discovery_version}",
        "metadata": {},
        "items": [{"metadata": {"name": VISIBILITY_GROUP, "creationTimestamp": None}, "versions": versions}],
    }


def _discovered(parent: Resource, version: str) -> JsonObject:
    kind = {"group": VISIBILITY_GROUP, "version": version}
    return {
        "resource": parent.plural,
        "responseKind": {**kind, "kind": parent.kind},
        "scope": "Namespaced" if parent.namespaced else "Cluster",
        "singularResource": parent.singular,
        "verbs": [],
        "subresources": [
            {"subresource": SUBRESOURCE, "responseKind": {**kind, "kind": SUMMARY}, "verbs": ["get"]},
        ],
    }


def openapi_index() -> JsonObject:
    """The index of OpenAPI v3."""
    return {"paths": {f"apis/{VISIBILITY_GROUP}/{version}": _entry(version) for version in VERSIONS}}


def openapi_v3(version: str) -> JsonObject:
    """The OpenAPI v3 document of one version."""
    schema = {"$ref": f"#/components/schemas/{_schema_name(version, SUMMARY)}"}
    answer = {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}}
    typed = {"offset": {"type": "integer", "format": "int64"}, "limit": {"type": "integer", "format": "int64"}}
    query = [{"name": name, "in": "query", "schema": kind} for name, kind in typed.items()]
    paths = {
        path: {"get": {"operationId": name, "parameters": [*_named(names, v3=True), *query], "responses": answer}}
        for path, name, names in _operations(version)
    }
    schemas = _schemas(version, prefix="#/components/schemas/")
    return {"openapi": "3.0.0", "info": _TITLE, "paths": paths, "components": {"schemas": schemas}}


def openapi_v2() -> JsonObject:
    """The OpenAPI v2 document of all versions."""
    paths: JsonObject = {}
    definitions: JsonObject = {}
    query = [{"name": name, "in": "query", "type": "integer", "uniqueItems": True} for name in ("offset", "limit")]
    for version in VERSIONS:
        schema = {"$ref": f"#/definitions/{_schema_name(version, SUMMARY)}"}
        for path, name, names in _operations(version):
            operation = {
                "operationId": name,
                "produces": ["application/json"],
                "parameters": [*_named(names, v3=False), *query],
                "responses": {"200": {"description": "OK", "schema": schema}},
            }
            paths[path] = {"get": operation}
        definitions.update(_schemas(version, prefix="#/definitions/"))
    return {"swagger": "2.0", "info": _TITLE, "paths": paths, "definitions": definitions}


def _entry(version: str) -> JsonObject:
    digest = hashlib.sha512(orjson.dumps(openapi_v3(version))).hexdigest().upper()
    return {"serverRelativeURL": f"/openapi/v3/apis/{VISIBILITY_GROUP}/{version}?hash={digest}"}


def _operations(version: str) -> list[tuple[str, str, list[str]]]:
    """Path, name and path parameters of each."""
    base, suffix = f"/apis/{VISIBILITY_GROUP}/{version}", f"{version.capitalize()}"
    return [
        (f"{base}/clusterqueues/{{name}}/{SUBRESOURCE}", f"readVisibility{suffix}ClusterQueuePending", ["name"]),
        (
            f"{base}/namespaces/{{namespace}}/localqueues/{{name}}/{SUBRESOURCE}",
            f"readVisibility{suffix}NamespacedLocalQueuePending",
            ["name", "namespace"],
        ),
    ]


def _named(names: list[str], *, v3: bool) -> list[JsonObject]:
    kind: JsonObject = {"schema": {"type": "string"}} if v3 else {"type": "string"}
    return [{"name": name, "in": "path", "required": True, **kind} for name in names]


def _schema_name(version: str, kind: str) -> str:
    return f"io.x-k8s.kueue.visibility.{version}.{kind}"


def _schemas(version: str, *, prefix: str) -> JsonObject:
    text, number = {"type": "string"}, {"type": "integer", "format": "int32", "default": 0}
    pending = {
        "type": "object",
        "description": "A workload that waits in a queue, and its position there, counted from 0.",
        "properties": {
            "metadata": _METADATA,
            "priority": number,
            "localQueueName": text,
            "positionInClusterQueue": number,
            "positionInLocalQueue": number,
        },
        "required": ["priority", "localQueueName", "positionInClusterQueue", "positionInLocalQueue"],
    }
    items = {"type": "array", "items": {"$ref": f"{prefix}{_schema_name(version, 'PendingWorkload')}"}}
    summary = {
        "type": "object",
        "description": "The workloads that wait in a queue, in the order in which they are considered.",
        "properties": {
            "apiVersion": text,
            "kind": text,
            "metadata": _METADATA,
            "items": items,
        },
        "required": ["items"],
        "x-kubernetes-group-version-kind": [{"group": VISIBILITY_GROUP, "version": version, "kind": SUMMARY}],
    }
    return {_schema_name(version, "PendingWorkload"): pending, _schema_name(version, SUMMARY): summary}
