# SPDX-License-Identifier: Apache-2.0
"""Kinds of networking: network policies, ingresses and their classes, ranges of services, endpoints."""

from __future__ import annotations

from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.kinds import selector_rules
from devcluster.apiserver.kinds.behaviour import KindBehaviour, RequestContext

_DIRECTIONS: Final = {"ingress": "from", "egress": "to"}
"""The rules of each direction, and their field with the other side."""
_PROTOCOL: Final = "TCP"


class NetworkPolicyBehaviour(KindBehaviour):
    """Network policies."""

    generation = True

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        spec = value.setdefault("spec", {})
        for direction in _DIRECTIONS:
            for rule in documents.items(spec, direction):
                for port in documents.items(rule, "ports"):
                    port.setdefault("protocol", _PROTOCOL)
        if not spec.get("policyTypes"):
            spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of its selectors."""
        spec = documents.child(value, "spec")
        found = selector_rules.problems(spec.get("podSelector"), "spec.podSelector")
        for direction, side in _DIRECTIONS.items():
            for index, rule in enumerate(documents.items(spec, direction)):
                for number, peer in enumerate(documents.items(rule, side)):
                    path = f"spec.{direction}[{index}].{side}[{number}]"
                    for field in ("podSelector", "namespaceSelector"):
                        found += selector_rules.problems(peer.get(field), f"{path}.{field}")
        return found


class IngressClassBehaviour(KindBehaviour):
    """Ingress classes."""

    generation = True

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        parameters = documents.child(value, "spec").get("parameters")
        if isinstance(parameters, dict):
            parameters.setdefault("scope", "Cluster")


class IngressBehaviour(KindBehaviour):
    """Ingresses."""

    has_status = True
    generation = True

    def default(self, value: JsonObject) -> None:
        """A resource as backend always shows its group."""
        spec = documents.child(value, "spec")
        paths = [path for rule in documents.items(spec, "rules") for path in documents.items(rule, "http", "paths")]
        for backend in (documents.child(spec, "defaultBackend"), *(documents.child(path, "backend") for path in paths)):
            resource = backend.get("resource")
            if isinstance(resource, dict):
                resource.setdefault("apiGroup", None)


class ServiceRangeBehaviour(KindBehaviour):
    """Ranges of service addresses; they have no generation."""

    has_status = True

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The ranges stay; only a second one may come."""
        if old is None:
            return []
        ranges = documents.child(value, "spec").get("cidrs")
        given, known = ranges or [], documents.child(old, "spec").get("cidrs") or []
        if len(given) != len(known) and (len(known), len(given)) != (1, 2):
            return [field_errors.immutable("spec.cidrs", ranges)]
        pairs = enumerate(zip(given, known, strict=False))
        return [field_errors.immutable(f"spec.cidrs[{index}]", new) for index, (new, before) in pairs if new != before]


class EndpointsBehaviour(KindBehaviour):
    """Endpoints, the older form of endpoint slices."""

    warning = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        for subset in documents.items(value, "subsets"):
            for port in documents.items(subset, "ports"):
                port.setdefault("protocol", _PROTOCOL)


class EndpointSliceBehaviour(KindBehaviour):
    """Endpoint slices."""

    generation = True

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        for port in documents.items(value, "ports"):
            port.setdefault("name", "")
            port.setdefault("protocol", _PROTOCOL)

    def spec_changed(self, value: JsonObject, old: JsonObject) -> bool:
        """Labels count as well."""
        before = documents.metadata(old).get("labels")
        return super().spec_changed(value, old) or documents.metadata(value).get("labels") != before
