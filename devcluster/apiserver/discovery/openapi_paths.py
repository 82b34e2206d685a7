# SPDX-License-Identifier: Apache-2.0
"""The paths of a custom resource in OpenAPI v3: operations, parameters, bodies and answers.

Descriptions are ours; names, types and media types are those of a real server, since clients are generated from them.
"""

from __future__ import annotations

from typing import Final

from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.registry.resources import ResourceType

SCHEMAS: Final = "#/components/schemas/"
META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
SCALE: Final = "io.k8s.api.autoscaling.v1.Scale"
PATCHES: Final = ("application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json")
_MEDIA: Final = ("application/json", "application/yaml")
_DESCRIPTIONS: Final = {"200": "OK", "201": "Created", "202": "Accepted"}
_BOOLEANS: Final = frozenset(
    {
        "allowWatchBookmarks",
        "force",
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "orphanDependents",
        "sendInitialEvents",
        "watch",
    }
)
_INTEGERS: Final = frozenset({"gracePeriodSeconds", "limit", "timeoutSeconds"})
_LISTING: Final = {
    "allowWatchBookmarks": "Whether the watch gets bookmark events.",
    "continue": "The continue token of the previous page.",
    "fieldSelector": "Only objects whose fields match.",
    "labelSelector": "Only objects whose labels match.",
    "limit": "The maximal number of objects in a page.",
    "resourceVersion": "The version to read at, or to watch from.",
    "resourceVersionMatch": "How resourceVersion is used: Exact or NotOlderThan.",
    "sendInitialEvents": "Whether the watch begins with the existing objects.",
    "shardSelector": "Only objects of these shards, if the server has shards.",
    "timeoutSeconds": "The maximal duration of the watch.",
    "watch": "Whether to watch for changes instead of listing.",
}
_READING: Final = {"resourceVersion": _LISTING["resourceVersion"]}
WRITING: Final = {
    "dryRun": "With All, the write is validated but not stored.",
    "fieldManager": "The name under which the write owns fields.",
    "fieldValidation": "How the server treats unknown or duplicate fields: Ignore, Warn or Strict.",
}
_PATCHING: Final = {**WRITING, "force": "Whether an apply takes over fields of other managers."}
_DELETING: Final = {
    "dryRun": WRITING["dryRun"],
    "gracePeriodSeconds": "The grace period in seconds.",
    "ignoreStoreReadErrorWithClusterBreakingPotential": "Whether an object that cannot be read is removed.",
    "orphanDependents": "Deprecated: whether dependents are orphaned. Use propagationPolicy.",
    "propagationPolicy": "How dependents are deleted: Orphan, Background or Foreground.",
}


def paths(kind: ResourceType, name: str) -> JsonObject:
    """The paths of one version of a custom resource; `name` is the name of its schema."""
    base = f"/apis/{kind.group}/{kind.version}"
    of_all = f"{base}/{kind.plural}"
    collection = f"{base}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else of_all
    place = ["namespace"] if kind.namespaced else []
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    status = f"{META}Status"
    found: JsonObject = {
        collection: {
            "get": _operation("list", gvk, _LISTING, answers={"200": f"{name}List"}),
            "post": _operation("post", gvk, WRITING, takes=name, answers=dict.fromkeys(("200", "201", "202"), name)),
            "delete": _operation("deletecollection", gvk, _LISTING, answers={"200": status}),
            "parameters": _inside(place),
        },
        f"{collection}/{{name}}": {
            **_one(gvk, name),
            "delete": _operation(
                "delete",
                gvk,
                _DELETING,
                takes=f"{META}DeleteOptions",
                answers={"200": status, "202": status},
                needed=False,
            ),
            "parameters": _inside(["name", *place]),
        },
    }
    if kind.namespaced:
        found[of_all] = {
            "get": _operation("list", gvk, {}, answers={"200": f"{name}List"}),
            "parameters": sorted([*_inside([]), *_parameters(_LISTING)], key=lambda entry: str(entry["name"])),
        }
    for subresource in kind.subresources:
        shown = _one(gvk, SCALE if subresource == "scale" else name)
        found[f"{collection}/{{name}}/{subresource}"] = {**shown, "parameters": _inside(["name", *place])}
    return found


def _one(gvk: JsonObject, name: str) -> JsonObject:
    """The operations on one object, except delete."""
    patch = _operation("patch", gvk, _PATCHING, answers={"200": name})
    content = {media: {"schema": {"$ref": f"{SCHEMAS}{META}Patch"}} for media in PATCHES}
    patch["requestBody"] = {"content": content, "required": True}
    return {
        "get": _operation("get", gvk, _READING, answers={"200": name}),
        "put": _operation("put", gvk, WRITING, takes=name, answers=dict.fromkeys(("200", "201"), name)),
        "patch": patch,
    }


def _operation(
    action: str,
    gvk: JsonObject,
    parameters: dict[str, str],
    *,
    answers: dict[str, str],
    takes: str = "",
    needed: bool = True,
) -> JsonObject:
    responses: JsonObject = {
        code: {"description": _DESCRIPTIONS[code], "content": _content(name)} for code, name in answers.items()
    }
    found: JsonObject = {
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": gvk,
        "responses": {**responses, "401": {"description": "Unauthorized"}},
    }
    if parameters:
        found["parameters"] = _parameters(parameters)
    if takes:
        found["requestBody"] = {"content": _content(takes), **({"required": True} if needed else {})}
    return found


def _content(name: str) -> JsonObject:
    return {media: {"schema": {"$ref": f"{SCHEMAS}{name}"}} for media in _MEDIA}


def _parameters(descriptions: dict[str, str]) -> list[JsonObject]:
    return [
        {"name": name, "in": "query", "description": text, "schema": _form(name)} for name, text in descriptions.items()
    ]


def _form(name: str) -> JsonObject:
    type = "boolean" if name in _BOOLEANS else "integer" if name in _INTEGERS else "string"
    return {"type": type, "uniqueItems": True}


def _inside(places: list[str]) -> list[JsonObject]:
    """The parameters of all operations of a path."""
    descriptions = {"name": "The name of the object.", "namespace": "The namespace of the object."}
    filled: list[JsonObject] = [
        {"name": name, "in": "path", "description": descriptions[name], "required": True, "schema": _form(name)}
        for name in places
    ]
    return [*filled, *_parameters({"pretty": "Whether the answer is indented."})]
