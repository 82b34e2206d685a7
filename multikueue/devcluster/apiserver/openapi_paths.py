# SPDX-License-Identifier: Apache-2.0
"""What can be done with a custom resource, as OpenAPI v3 tells it: paths, operations, parameters, bodies and answers.

The words are ours; names, types and media types are those of a real server, since clients are made from them.
"""

from __future__ import annotations

from typing import Final

from multikueue.devcluster.apiserver.documents import JsonObject
from multikueue.devcluster.apiserver.resources import ResourceType

SCHEMAS: Final = "#/components/schemas/"
META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
SCALE: Final = "io.k8s.api.autoscaling.v1.Scale"
PATCHES: Final = ("application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json")
_MEDIA: Final = ("application/json", "application/yaml")
_WORDS: Final = {"200": "OK", "201": "Created", "202": "Accepted"}
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
    "allowWatchBookmarks": "Whether a watch may be sent bookmarks.",
    "continue": "Where the last page of a list ended, as that page said.",
    "fieldSelector": "Only objects whose fields are so.",
    "labelSelector": "Only objects whose labels are so.",
    "limit": "How many objects a page may have.",
    "resourceVersion": "The version to read at, or to watch from.",
    "resourceVersionMatch": "How the version is meant: Exact or NotOlderThan.",
    "sendInitialEvents": "Whether a watch begins with what is there already.",
    "shardSelector": "Only objects of these shards, where a server knows shards.",
    "timeoutSeconds": "How long a watch may last.",
    "watch": "Whether to be told of changes instead of what there is.",
}
_READING: Final = {"resourceVersion": _LISTING["resourceVersion"]}
_WRITING: Final = {
    "dryRun": "When present, indicates that modifications should not be persisted.",
    "fieldManager": "The name of the actor or entity that is making these changes.",
    "fieldValidation": "How the server treats unknown or duplicate fields: Ignore, Warn or Strict.",
}
_PATCHING: Final = {**_WRITING, "force": "Whether an apply takes fields from those who own them."}
_DELETING: Final = {
    "dryRun": _WRITING["dryRun"],
    "gracePeriodSeconds": "How many seconds the object may take to end.",
    "ignoreStoreReadErrorWithClusterBreakingPotential": "Whether what cannot be read is removed all the same.",
    "orphanDependents": "Deprecated: whether what the object owns is kept. Use propagationPolicy.",
    "propagationPolicy": "What becomes of what the object owns: Orphan, Background or Foreground.",
}


def paths(kind: ResourceType, name: str) -> JsonObject:
    """The paths of one version of a custom resource; `name` is that of its type."""
    base = f"/apis/{kind.group}/{kind.version}"
    of_all = f"{base}/{kind.plural}"
    collection = f"{base}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else of_all
    place = ["namespace"] if kind.namespaced else []
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    status = f"{META}Status"
    found: JsonObject = {
        collection: {
            "get": _operation("list", gvk, _LISTING, answers={"200": f"{name}List"}),
            "post": _operation("post", gvk, _WRITING, takes=name, answers=dict.fromkeys(("200", "201", "202"), name)),
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
        told = _one(gvk, SCALE if subresource == "scale" else name)
        found[f"{collection}/{{name}}/{subresource}"] = {**told, "parameters": _inside(["name", *place])}
    return found


def _one(gvk: JsonObject, name: str) -> JsonObject:
    """What can be done with one object besides deleting it."""
    patch = _operation("patch", gvk, _PATCHING, answers={"200": name})
    content = {media: {"schema": {"$ref": f"{SCHEMAS}{META}Patch"}} for media in PATCHES}
    patch["requestBody"] = {"content": content, "required": True}
    return {
        "get": _operation("get", gvk, _READING, answers={"200": name}),
        "put": _operation("put", gvk, _WRITING, takes=name, answers=dict.fromkeys(("200", "201"), name)),
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
        code: {"description": _WORDS[code], "content": _content(name)} for code, name in answers.items()
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


def _parameters(words: dict[str, str]) -> list[JsonObject]:
    return [{"name": name, "in": "query", "description": text, "schema": _form(name)} for name, text in words.items()]


def _form(name: str) -> JsonObject:
    type = "boolean" if name in _BOOLEANS else "integer" if name in _INTEGERS else "string"
    return {"type": type, "uniqueItems": True}


def _inside(places: list[str]) -> list[JsonObject]:
    """What holds for everything at a path: what is filled in, and how the answer is to look."""
    words = {"name": "The name of the object.", "namespace": "The namespace of the object."}
    filled: list[JsonObject] = [
        {"name": name, "in": "path", "description": words[name], "required": True, "schema": _form(name)}
        for name in places
    ]
    return [*filled, *_parameters({"pretty": "Whether the answer is set out to be read."})]
