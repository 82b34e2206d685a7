# SPDX-License-Identifier: Apache-2.0
"""Bindings of pods to nodes: the subresource `binding`, and the resource of that name, which old schedulers write."""

from __future__ import annotations

from devcluster.apiserver import errors, field_errors
from devcluster.apiserver.codec import decoding, documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.http.requests import Answer, Request, RequestTarget, answer
from devcluster.apiserver.registry import options
from devcluster.apiserver.registry.resources import ResourceType


class Bindings:
    """Binds pods."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context

    async def bind(self, request: Request, kind: ResourceType, target: RequestTarget) -> Answer:
        """POST of a binding; the node need not exist. Raises `StatusError`."""
        options.check(request)
        body = decoding.decode(request)
        binding = body if isinstance(body, dict) else {}
        given = documents.metadata(binding)
        if target.name and given.get("name") != target.name:
            raise errors.bad_request("name in URL does not match name in Binding object")
        name = target.name or given.get("name", "")
        node = _node(binding)
        key = kind.key(target.namespace, name)
        pod = self._context.get(kind.collection, key)
        if pod is None:
            raise errors.not_found(kind.about(name))
        wrong = _precondition(given, pod["metadata"])
        if wrong:
            text = f"StorageError: invalid object, Code: 4, Key: /registry/pods/{key}, ResourceVersion: 0,"
            raise errors.conflict(kind.about(name), f"{text} AdditionalErrorMsg: Precondition failed: {wrong}")
        refused = _refusal(pod, name)
        if refused:
            raise errors.conflict(errors.About(name, "", "pods/binding"), refused)
        if not options.dry_run(request):
            self._context.store.put(kind.collection, key, self._bound(pod, given, node))
        return answer(201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})

    def _bound(self, pod: JsonObject, given: JsonObject, node: str) -> JsonObject:
        """The pod on its node, with the labels and annotations of the binding."""
        metadata = dict(pod["metadata"])
        for field in ("labels", "annotations"):
            if given.get(field):
                metadata[field] = {**(metadata.get(field) or {}), **given[field]}
        conditions = [
            entry for entry in documents.items(pod, "status", "conditions") if entry.get("type") != "PodScheduled"
        ]
        condition = {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": self._context.stamp(),
        }
        status = {**documents.child(pod, "status"), "conditions": [*conditions, condition]}
        return {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": node}, "status": status}


def _node(binding: JsonObject) -> str:
    """The name of the node. Raises `StatusError`; a real server answers 500 as well."""
    target = documents.child(binding, "target")
    kind, name = target.get("kind") or "Node", target.get("name") or ""
    if kind != "Node":
        cause = field_errors.not_supported("target.kind", kind, ["Node", "<empty>"])
        raise errors.StatusError(500, "", f"{cause.field}: {cause.message}")
    if not name:
        raise errors.StatusError(500, "", "target.name: Required value")
    return str(name)


def _precondition(given: JsonObject, metadata: JsonObject) -> str:
    """Which of uid and version of the pod are not those of the binding; empty if it names none."""
    for field, shown in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        wanted, found = given.get(field), metadata[field]
        if wanted and wanted != found:
            return f"{shown} in precondition: {wanted}, {shown} in object meta: {found}"
    return ""


def _refusal(pod: JsonObject, name: str) -> str:
    """Why the pod cannot be bound; empty if it can."""
    if pod["metadata"].get("deletionTimestamp"):
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if pod["spec"].get("nodeName"):
        return f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
    if pod["spec"].get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""
