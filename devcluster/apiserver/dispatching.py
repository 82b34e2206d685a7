# SPDX-License-Identifier: Apache-2.0
"""Which handler answers a request for a resource or a subresource.

Owns the choice by verb and subresource, and the errors for a verb that the resource does not have. Authorization has
been checked before.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Final

from devcluster.apiserver import errors
from devcluster.apiserver.admission.admission import AdmissionChain
from devcluster.apiserver.auth.rbac import Authorizer
from devcluster.apiserver.codec import documents, forms
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.http.pod_access import Kubelets, PodAccess
from devcluster.apiserver.http.requests import Answer, Reply, Request, RequestTarget
from devcluster.apiserver.registry import versions
from devcluster.apiserver.registry.deleting import Deleter
from devcluster.apiserver.registry.patching import Patcher
from devcluster.apiserver.registry.reading import Reader
from devcluster.apiserver.registry.resources import ResourceType
from devcluster.apiserver.registry.reviews import Reviews
from devcluster.apiserver.registry.subresources.actions import Subresources
from devcluster.apiserver.registry.subresources.bindings import Bindings
from devcluster.apiserver.registry.subresources.evictions import Evictions
from devcluster.apiserver.registry.writing import Writer

KUBELET_SUBRESOURCES: Final = frozenset({"log", "exec", "attach", "portforward", "proxy"})
_REVIEW_GROUPS: Final = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
_WRITES: Final = {"POST": "CREATE", "PUT": "UPDATE", "PATCH": "UPDATE", "DELETE": "DELETE"}
_METHODS: Final = {
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "delete": "DELETE",
}


class RequestDispatcher:
    """Passes authorized requests to the handlers of resources."""

    def __init__(
        self,
        context: ServerContext,
        authorizer: Authorizer,
        admission: AdmissionChain,
        *,
        reader: Reader,
        writer: Writer,
        patcher: Patcher,
        deleter: Deleter,
        subresources: Subresources,
        evictions: Evictions,
        reviews: Reviews,
    ) -> None:
        self._context = context
        self._authorizer = authorizer
        self._admission = admission
        self._reader = reader
        self._writer = writer
        self._patcher = patcher
        self._deleter = deleter
        self._subresources = subresources
        self._bindings = Bindings(context)
        self._evictions = evictions
        self._reviews = reviews
        self._pods = PodAccess(context)
        self._kubelets: Kubelets | None = None

    def connect_kubelets(self, kubelets: Kubelets) -> None:
        """Answer logs, exec, attach, portforward and proxy with these kubelets from now on."""
        self._kubelets = kubelets

    def may_wait(self, kind: ResourceType, method: str, target: RequestTarget) -> bool:
        """Whether a kubelet or a webhook may have to answer before the request can be answered."""
        if target.subresource in KUBELET_SUBRESOURCES or versions.waits(kind):
            return True
        operation = _WRITES.get(method)
        if operation is None:
            return False
        # An apply or a PUT may turn out to be a create.
        return self._admission.waits(kind, operation, target.subresource) or (
            operation == "UPDATE" and self._admission.waits(kind, "CREATE", target.subresource)
        )

    def dispatch(
        self, request: Request, kind: ResourceType, target: RequestTarget, verb: str
    ) -> Reply | Coroutine[object, object, Reply]:
        """The answer, or a coroutine that returns it. Raises `StatusError`."""
        if target.subresource:
            return self._subresource(request, kind, target)
        review = kind.group in _REVIEW_GROUPS
        forms.check(request, kind, listed=verb == "list", tables=not review)
        if review and verb == "create":
            return self._reviews.create(request, kind, target)
        if verb not in kind.verbs:
            raise errors.no_resource() if target.name and "get" not in kind.verbs else errors.method_not_allowed()
        if not target.name and verb in ("update", "patch"):
            raise errors.bad_request("name must be provided") if kind.custom else errors.method_not_allowed()
        if kind.namespaced and not target.namespace and verb in ("create", "deletecollection"):
            raise errors.method_not_allowed()
        match verb:
            case "get":
                if versions.waits(kind):
                    return self._reader.get_converted(request, kind, target)
                return self._reader.get(request, kind, target)
            case "list":
                if versions.waits(kind):
                    return self._reader.list_converted(request, kind, target)
                return self._reader.list_all(request, kind, target)
            case "watch":
                return self._reader.watch(request, kind, target)
            case "create":
                if target.name and not kind.custom:
                    raise errors.method_not_allowed()
                if kind.plural == "bindings":
                    return self._bind(request, target)
                return self._writer.create(request, kind, target)
            case "update":
                return self._writer.replace(request, kind, target)
            case "patch":
                return self._patcher.patch(request, kind, target)
            case "delete":
                return self._deleter.delete(request, kind, target)
        return self._deleter.delete_collection(request, kind, target)

    def _bind(self, request: Request, target: RequestTarget) -> Coroutine[object, object, Reply]:
        pods = self._context.registry.find("", "v1", "pods")
        assert pods is not None
        return self._bindings.bind(request, pods, target)

    def _subresource(
        self, request: Request, kind: ResourceType, target: RequestTarget
    ) -> Reply | Coroutine[object, object, Reply]:
        name, method = target.subresource, request.method
        entry = kind.subresources.get(name)
        if entry is None:
            raise errors.not_found(kind.about(target.name)) if kind.custom else errors.no_resource()
        if kind.custom and name == "status" and method in ("POST", "DELETE"):
            raise errors.unsupported_verb(kind.about(), "create" if method == "POST" else "delete")
        if method not in {_METHODS.get(verb) for verb in entry["verbs"]} and (name, method) != ("proxy", "HEAD"):
            raise errors.method_not_allowed()
        match name:
            case "scale":
                if method == "GET":
                    return self._subresources.get_scale(request, kind, target)
                return self._subresources.write_scale(request, kind, target)
            case "binding":
                return self._bindings.bind(request, kind, target)
            case "eviction":
                return self._evictions.evict(request, kind, target)
            case "token":
                return self._subresources.issue_token(request, kind, target)
            case "finalize":
                return self._subresources.finalize(request, kind, target)
            case "log":
                return self._log(request, kind, target)
            case "exec" | "attach" | "portforward":
                return self._stream(request, target)
            case "proxy":
                forwarded = self._pods.proxy(request, target)
                return self._kubelets_of(forwarded.pod).forward(request, forwarded)
        if method == "GET":
            return self._reader.get(request, kind, target)
        if method == "PUT":
            return self._writer.replace(request, kind, target)
        return self._patcher.patch(request, kind, target)

    def _log(
        self, request: Request, kind: ResourceType, target: RequestTarget
    ) -> Reply | Coroutine[object, object, Reply]:
        pod = self._context.get(kind.collection, kind.key(target.namespace, target.name))
        if pod is None:
            raise errors.not_found(kind.about(target.name))
        fields = ("containers", "initContainers", "ephemeralContainers")
        containers = [entry["name"] for field in fields for entry in documents.items(pod, "spec", field)]
        container = request.query.get("container", "")
        if container and container not in containers:
            raise errors.bad_request(f"container {container} is not valid for pod {target.name}")
        if not documents.child(pod, "spec").get("nodeName"):
            return Answer(200, b"", "text/plain")
        return self._kubelets_of(pod).logs(request, target)

    def _stream(self, request: Request, target: RequestTarget) -> Coroutine[object, object, Reply]:
        if request.method == "GET":
            # WebSocket clients can only GET; a user who may only read must not run commands.
            self._authorizer.check_request(request, target, verb="create", user=request.user)
        opened = self._pods.stream(request, target)
        return self._kubelets_of(opened.pod).stream(request, opened)

    def _kubelets_of(self, pod: JsonObject) -> Kubelets:
        if self._kubelets is None:
            node = documents.child(pod, "spec").get("nodeName", "")
            raise errors.service_unavailable(f"error dialing backend: no kubelet is known for node {node}")
        return self._kubelets
