# SPDX-License-Identifier: Apache-2.0
"""exec, attach, portforward and proxy: what the API server decides before it calls a kubelet.

Owns which pod, container and port a request means, and the texts of refusals. A proxy of a service reaches only
addresses of pods in its namespace, whatever its EndpointSlices hold.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import parse_qsl, urlencode

from devcluster.apiserver import errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.errors import About
from devcluster.apiserver.http.requests import Reply, Request, RequestTarget

_SLICES: Final = "endpointslices.discovery.k8s.io"
_SERVICE_LABEL: Final = "kubernetes.io/service-name"
_SCHEMES: Final = frozenset({"", "http", "https"})
_STREAM_OPTIONS: Final = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}


@dataclass(frozen=True, slots=True)
class KubeletRequest:
    """A request to a kubelet."""

    pod: JsonObject
    path: str
    query: str


class Kubelets(Protocol):
    """Calls kubelets; provided by the process that runs the pods."""

    def logs(self, request: Request, target: RequestTarget) -> Coroutine[object, object, Reply]:
        """The answer to `pods/log`."""

    def stream(self, request: Request, requested: KubeletRequest) -> Coroutine[object, object, Reply]:
        """The connection, passed on to the kubelet."""

    def forward(self, request: Request, requested: KubeletRequest) -> Coroutine[object, object, Reply]:
        """The answer of a container in a pod."""


class PodAccess:
    """Resolves a request to a pod, container and port."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context

    def stream(self, request: Request, target: RequestTarget) -> KubeletRequest:
        """The kubelet request of exec, attach or portforward. Raises `StatusError`."""
        pod = self._pod(target.namespace, target.name)
        name, what = target.name, target.subresource
        if what == "portforward":
            path = f"/portForward/{target.namespace}/{name}"
            query = [("port", request.query["ports"])] if request.query.get("ports") else []
        else:
            container = _container(pod, request.query.get("container", ""))
            path = f"/{what}/{target.namespace}/{name}/{container}"
            query = [(short, "1") for option, short in _STREAM_OPTIONS.items() if request.flag(option)]
            pairs = parse_qsl(request.query_text, keep_blank_values=True)
            query += [pair for pair in pairs if pair[0] == "command" and what == "exec"]
        if not documents.child(pod, "spec").get("nodeName"):
            raise errors.bad_request(f"pod {name} does not have a host assigned")
        return KubeletRequest(pod, path, urlencode(query))

    def proxy(self, request: Request, target: RequestTarget) -> KubeletRequest:
        """The kubelet request of a proxy to a pod or a service. Raises `StatusError`."""
        what = "pod" if target.resource == "pods" else "service"
        parts = target.name.split(":")
        if len(parts) == 1:
            parts = ["", *parts, ""]
        elif len(parts) == 2:
            parts = ["", *parts]
        if len(parts) != 3 or parts[0] not in _SCHEMES or not parts[1]:
            raise errors.bad_request(f'invalid {what} request "{target.name}"')
        scheme, name, port = parts
        if scheme == "https":
            raise errors.service_unavailable(
                f"error trying to reach service: {what} {name} is virtual and speaks no TLS"
            )
        if what == "pod":
            pod, number = self._pod(target.namespace, name), port
            if not number:
                number = str(next((each["containerPort"] for each in _ports(pod)), 80))
            if not number.isdecimal():
                raise errors.bad_request(f'invalid pod request "{target.name}": the port of a pod is a number')
            if not documents.child(pod, "status").get("podIP"):
                raise errors.bad_request("address not allowed")
        else:
            pod, number = self._behind(target.namespace, name, port, shown=target.name)
        path = f"/podProxy/{target.namespace}/{pod['metadata']['name']}/{number}/{target.rest}"
        if target.rest and request.path.endswith("/"):
            path += "/"
        return KubeletRequest(pod, path, request.query_text)

    def _pod(self, namespace: str, name: str) -> JsonObject:
        pod = self._context.get("pods", f"{namespace}/{name}")
        if pod is None:
            raise errors.not_found(About(name, "", "pods"))
        return pod

    def _behind(self, namespace: str, name: str, port: str, *, shown: str) -> tuple[JsonObject, str]:
        """A ready pod behind a service, and its port."""
        service = self._context.get("services", f"{namespace}/{name}")
        if service is None:
            raise errors.not_found(About(name, "", "services"))
        if port.isdecimal():
            entries = documents.items(service, "spec", "ports")
            entry = next((entry for entry in entries if str(entry.get("port")) == port), None)
            if entry is None:
                raise errors.service_unavailable(f'no service port {port} found for service "{name}"')
            port = entry.get("name", "")
        found: list[tuple[JsonObject, str]] = []
        for value in self._context.objects(_SLICES, namespace=namespace):
            if documents.strings(value["metadata"].get("labels")).get(_SERVICE_LABEL) != name:
                continue
            numbers = [str(each["port"]) for each in documents.items(value, "ports") if each.get("name", "") == port]
            for endpoint in documents.items(value, "endpoints"):
                pod = self._target(namespace, endpoint)
                if pod is not None and documents.child(endpoint, "conditions").get("ready") is not False:
                    found += [(pod, number) for number in numbers]
        if not found:
            raise errors.service_unavailable(f'no endpoints available for service "{shown}"')
        return random.choice(found)

    def _target(self, namespace: str, endpoint: JsonObject) -> JsonObject | None:
        """The pod that an endpoint names, if the pod has its addresses."""
        reference = documents.child(endpoint, "targetRef")
        if reference.get("kind") != "Pod":
            return None
        pod = self._context.get("pods", f"{namespace}/{reference.get('name', '')}")
        if pod is None:
            return None
        own = [entry.get("ip") for entry in documents.items(pod, "status", "podIPs")]
        return pod if all(address in own for address in endpoint.get("addresses") or ()) else None


def _container(pod: JsonObject, requested: str) -> str:
    """The name of the requested container. Raises `StatusError`."""
    name = pod["metadata"]["name"]
    known = [
        entry["name"]
        for kind in ("initContainers", "containers", "ephemeralContainers")
        for entry in documents.items(pod, "spec", kind)
    ]
    if requested and requested not in known:
        raise errors.bad_request(f"container {requested} is not valid for pod {name}")
    if requested:
        return requested
    containers = documents.items(pod, "spec", "containers")
    if len(containers) != 1:
        text = f"a container name must be specified for pod {name}, choose one of: [{' '.join(known)}]"
        raise errors.bad_request(text)
    found: str = containers[0]["name"]
    return found


def _ports(pod: JsonObject) -> list[JsonObject]:
    return [port for each in documents.items(pod, "spec", "containers") for port in documents.items(each, "ports")]
