# SPDX-License-Identifier: Apache-2.0
"""Subresources with an action of their own: scale, token, finalize.

`status` and `approval` are ordinary updates and handled by `writing`.
"""

from __future__ import annotations

from typing import Final

from devcluster.apiserver import errors
from devcluster.apiserver.auth import issuing
from devcluster.apiserver.auth.tokens import Tokens
from devcluster.apiserver.codec import decoding, documents, forms
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.http.requests import Answer, Request, RequestTarget, answer
from devcluster.apiserver.patch import json_patch
from devcluster.apiserver.registry import ownership, versions
from devcluster.apiserver.registry.resources import ResourceType
from devcluster.apiserver.registry.writing import Writer

_SCALE_PATHS: Final = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": "",
}


class Subresources:
    """Answers requests for subresources."""

    def __init__(self, context: ServerContext, writer: Writer, tokens: Tokens) -> None:
        self._context = context
        self._writer = writer
        self._tokens = tokens

    def get_scale(self, request: Request, kind: ResourceType, target: RequestTarget) -> Answer:
        """GET of `scale`. Raises `StatusError`."""
        value = self._object(kind, target)
        scale = _scale(versions.outward(value, kind), kind)
        form = forms.negotiate(request)
        if form.shape == "Table" and not kind.custom:
            return Answer(200, forms.scale(scale, form, self._context.now()))
        return answer(200, scale)

    async def write_scale(self, request: Request, kind: ResourceType, target: RequestTarget) -> Answer:
        """PUT or PATCH of `scale`. Raises `StatusError`."""
        paths = _paths(kind)
        body = decoding.decode(request)

        def transform(old: JsonObject) -> JsonObject:
            scale = _scale(old, kind)
            if request.method == "PUT":
                wanted: JsonValue = body
            elif "json-patch" in request.headers.get("content-type", ""):
                try:
                    wanted = json_patch.json_patch(scale, body)
                except json_patch.PatchFailed as error:
                    raise errors.rejected() from error
            else:
                wanted = json_patch.merge_patch(scale, body)
            replicas = documents.child(wanted, "spec").get("replicas", 0) if isinstance(wanted, dict) else None
            if not isinstance(replicas, int) or isinstance(replicas, bool):
                raise errors.bad_request(
                    f"json: cannot unmarshal {replicas!r} into Go struct field ScaleSpec.spec.replicas"
                )
            if replicas < 0:
                text = f"Invalid value: {replicas}: must be greater than or equal to 0"
                cause = errors.StatusCause("FieldValueInvalid", text, "spec.replicas")
                raise errors.invalid(errors.About(target.name, "autoscaling", "Scale"), [cause])
            version = documents.metadata(wanted).get("resourceVersion")
            new: JsonObject = documents.copy(old)
            if version and request.method == "PUT":
                new["metadata"]["resourceVersion"] = version
            _put(new, paths["specReplicasPath"], replicas)
            return new

        manager = ownership.manager_of(request)

        def track(old: JsonObject, new: JsonObject) -> None:
            # Managed fields of a scale have no time, as on a real server.
            ownership.track(old, new, kind, manager=manager, subresource="scale", now="")

        plain = RequestTarget(kind.group, kind.version, kind.plural, target.namespace, target.name)
        value = await self._writer.change_object(
            request,
            kind,
            plain,
            transform,
            manager=manager,
            insists=False,
            track=track,
            scale=lambda value: _scale(value, kind),
        )
        return answer(200, _scale(value, kind))

    def issue_token(self, request: Request, kind: ResourceType, target: RequestTarget) -> Answer:
        """POST of a service account's `token`. Raises `StatusError`."""
        return issuing.issue(request, self._object(kind, target), context=self._context, tokens=self._tokens)

    async def finalize(self, request: Request, kind: ResourceType, target: RequestTarget) -> Answer:
        """PUT of a namespace's `finalize`. Raises `StatusError`."""
        value = decoding.read(request, kind)
        value["metadata"].setdefault("name", target.name)
        return await self._writer.change(
            request, kind, target, lambda _: documents.copy(value), manager=ownership.manager_of(request), insists=False
        )

    def _object(self, kind: ResourceType, target: RequestTarget) -> JsonObject:
        found = self._context.get(kind.collection, kind.key(target.namespace, target.name))
        if found is None:
            raise errors.not_found(kind.about(target.name))
        return found


def _paths(kind: ResourceType) -> dict[str, str]:
    return {**_SCALE_PATHS, **kind.subresources["scale"].get("paths", {})}


def _scale(value: JsonObject, kind: ResourceType) -> JsonObject:
    paths = _paths(kind)
    metadata = value["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: JsonObject = {"replicas": next(documents.walk(value, paths["statusReplicasPath"]), 0)}
    if kind.custom:
        selector = next(documents.walk(value, paths["labelSelectorPath"]), "") if paths["labelSelectorPath"] else ""
    else:
        labels = documents.strings(documents.child(value, "spec", "selector").get("matchLabels"))
        selector = ",".join(f"{key}={entry}" for key, entry in sorted(labels.items()))
    if selector:
        status["selector"] = selector
    replicas = next(documents.walk(value, paths["specReplicasPath"]), 0)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def _put(value: JsonObject, path: str, entry: JsonValue) -> None:
    *parents, last = path.lstrip(".").split(".")
    for name in parents:
        value = value.setdefault(name, {})
    value[last] = entry
