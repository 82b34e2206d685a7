# SPDX-License-Identifier: Apache-2.0
"""Which policies of a kind are in force, with which bindings, and which of them are about a write.

A change of a policy or binding is in force at once; a real server needs a second.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from devcluster.apiserver.admission import matching
from devcluster.apiserver.admission.review import Review
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.registry.resources import ResourceType

Bound: TypeAlias = tuple[JsonObject, list[JsonObject]]
"""A policy and its bindings."""
_GROUP: Final = "admissionregistration.k8s.io"
_EXEMPT: Final = ("validatingadmissionpolic", "mutatingadmissionpolic")
"""How the names of policies and of their bindings begin."""
_REVIEWS: Final = frozenset({"authentication.k8s.io", "authorization.k8s.io"})


class PolicyBindings:
    """The policies of one kind that have bindings."""

    def __init__(self, context: ServerContext, *, policies: str, bindings: str) -> None:
        self._context = context
        self._policies = policies
        self._bindings = bindings
        self._known: tuple[tuple[int, int], list[Bound]] = ((-1, -1), [])

    def concern(self, kind: ResourceType, operation: str, subresource: str) -> bool:
        """Whether a policy may be about such a write."""
        return any(self._covers(policy, kind, operation, subresource) for policy, _ in self._bound())

    def about(self, review: Review) -> list[Bound]:
        """The policies that are about the write, by name, each with the bindings that select it."""
        found = []
        for policy, bindings in self._bound():
            constraints = documents.child(policy, "spec", "matchConstraints")
            if not self._covers(policy, review.kind, review.operation, review.subresource, name=review.name):
                continue
            if matching.selected(constraints, review, self._context):
                found.append((policy, [binding for binding in bindings if self._selects(binding, review)]))
        return found

    def _bound(self) -> list[Bound]:
        """The policies that have bindings, with these."""
        store = self._context.store
        version = (store.collection(self._policies).version, store.collection(self._bindings).version)
        if self._known[0] != version:
            bindings: dict[str, list[JsonObject]] = {}
            for binding in self._context.objects(self._bindings):
                bindings.setdefault(documents.child(binding, "spec").get("policyName", ""), []).append(binding)
            policies = [
                (policy, bindings.get(policy["metadata"]["name"], []))
                for policy in self._context.objects(self._policies)
            ]
            self._known = (version, [(policy, found) for policy, found in policies if found])
        return self._known[1]

    def _covers(
        self, policy: JsonObject, kind: ResourceType, operation: str, subresource: str, *, name: str | None = None
    ) -> bool:
        if kind.group in _REVIEWS or (kind.group == _GROUP and kind.plural.startswith(_EXEMPT)):
            return False  # a policy could lock out whoever wants to change it
        return self._within(documents.child(policy, "spec", "matchConstraints"), kind, operation, subresource, name)

    def _within(
        self, constraints: JsonObject, kind: ResourceType, operation: str, subresource: str, name: str | None
    ) -> bool:
        """Whether the rules of the constraints are about such a write; excluded are only writes of a known name."""
        policy: str = constraints.get("matchPolicy", "Equivalent")

        def covered(field: str) -> bool:
            return matching.covers(
                documents.items(constraints, field),
                self._context,
                kind,
                operation=operation,
                subresource=subresource,
                policy=policy,
                name=name,
            )

        if name is not None and covered("excludeResourceRules"):
            return False
        return not constraints.get("resourceRules") or covered("resourceRules")

    def _selects(self, binding: JsonObject, review: Review) -> bool:
        constraints = documents.child(binding, "spec", "matchResources")
        return self._within(
            constraints, review.kind, review.operation, review.subresource, review.name
        ) and matching.selected(constraints, review, self._context)
