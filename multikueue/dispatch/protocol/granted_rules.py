# SPDX-License-Identifier: Apache-2.0
"""Which rights the rules of a SelfSubjectRulesReview grant, so that these need no review each.

The rules come from the worker's API server: invalid ones grant nothing. What they do not grant is not missing, since an
authorizer other than RBAC may allow it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from multikueue.api.meta import JsonObject
from multikueue.dispatch.protocol.worker_rights import WorkerRight

_NO_NAMESPACE: Final = "no.namespace"  # with a dot, so that nobody can create it and bind roles there
RULES_REVIEW: Final[JsonObject] = {
    "apiVersion": "authorization.k8s.io/v1",
    "kind": "SelfSubjectRulesReview",
    "spec": {"namespace": _NO_NAMESPACE},
}
"""Asks for the rules of a namespace that has no RoleBinding, and so for those that hold in all namespaces."""


@dataclass(frozen=True, slots=True)
class GrantedRules:
    """The rules of one user; without any, nothing is known to be granted."""

    resources: tuple[Mapping[str, object], ...] = ()
    paths: tuple[Mapping[str, object], ...] = ()

    @classmethod
    def of(cls, answer: object) -> GrantedRules:
        """Those in the answer to `RULES_REVIEW`; none if an authorizer could not list all, since it may deny some."""
        status = answer.get("status") if isinstance(answer, Mapping) else None
        if not isinstance(status, Mapping) or status.get("incomplete") is not False:
            return cls()
        return cls(_rules(status.get("resourceRules")), _rules(status.get("nonResourceRules")))

    def grant(self, right: WorkerRight) -> bool:
        """Whether one of them grants this right for all objects."""
        if right.resource.startswith("/"):
            return any(
                _names(rule, "verbs", {right.verb, "*"}) and _covers_path(rule, right.resource) for rule in self.paths
            )
        qualified, _, subresource = right.resource.partition("/")
        plural, _, group = qualified.partition(".")
        wanted = {f"{plural}/{subresource}", f"*/{subresource}"} if subresource else {plural}
        return any(
            _names(rule, "verbs", {right.verb, "*"})
            and _names(rule, "apiGroups", {group, "*"})
            and _names(rule, "resources", {*wanted, "*"})
            and not rule.get("resourceNames")
            for rule in self.resources
        )


def _rules(found: object) -> tuple[Mapping[str, object], ...]:
    return tuple(each for each in found if isinstance(each, Mapping)) if isinstance(found, list) else ()


def _names(rule: Mapping[str, object], field: str, wanted: Iterable[str]) -> bool:
    found = rule.get(field)
    return isinstance(found, list) and any(each in found for each in wanted)


def _covers_path(rule: Mapping[str, object], path: str) -> bool:
    found = rule.get("nonResourceURLs")
    texts = [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
    return path in texts or any(each.endswith("*") and path.startswith(each[:-1]) for each in texts)
