# SPDX-License-Identifier: Apache-2.0
"""Privilege escalation checks on writes of roles and bindings.

The granted rules must be covered by rules that the writer has in the same namespace, unless the writer has the verb
`escalate` or `bind`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from devcluster.apiserver import errors
from devcluster.apiserver.admission.review import Review
from devcluster.apiserver.auth.rbac import Authorizer, covers_path
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.http.requests import MASTERS

_GROUP: Final = "rbac.authorization.k8s.io"
_ROLES: Final = frozenset({"roles", "clusterroles"})
_BINDINGS: Final = frozenset({"rolebindings", "clusterrolebindings"})
_EVERYTHING: Final = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)


class Escalation:
    """Checks writes of roles and bindings."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def check(self, review: Review) -> None:
        """Raises `StatusError` if the write grants rules that the writer does not have."""
        if review.kind.group != _GROUP or MASTERS in review.user.groups or self._authorizer.everything:
            return
        value = review.value
        if value is None:
            return
        if review.kind.plural in _ROLES:
            self._check_role(review, value)
        elif review.kind.plural in _BINDINGS:
            self._check_binding(review, value)

    def check_creation(self, review: Review) -> None:
        """Raises `StatusError` if the user may not create the object that an update would create."""
        self._authorizer.check(
            review.user,
            verb="create",
            group=review.kind.group,
            resource=review.kind.plural,
            namespace=review.namespace,
            name=review.name,
            sub="",
        )

    def _check_role(self, review: Review, value: JsonObject) -> None:
        old = review.old or {}
        if review.old is not None and all(
            (old.get(name) or None) == (value.get(name) or None) for name in ("rules", "aggregationRule")
        ):
            return
        if self._may(review, "escalate", review.kind.plural, value["metadata"].get("name", "")):
            return
        held = self._authorizer.rules(review.user, review.namespace)
        aggregates = value.get("aggregationRule")
        if aggregates and aggregates != old.get("aggregationRule") and uncovered(held, _EVERYTHING):
            about = review.kind.about(review.name)
            raise errors.forbidden(about, "must have cluster-admin privileges to use the aggregationRule")
        self._check_rules(review, held, documents.items(value, "rules"))

    def _check_binding(self, review: Review, value: JsonObject) -> None:
        old = review.old
        if old is not None and all(old.get(name) == value.get(name) for name in ("roleRef", "subjects")):
            return
        reference = documents.child(value, "roleRef")
        role, is_role = reference.get("name", ""), reference.get("kind") == "Role"
        if self._may(review, "bind", "roles" if is_role else "clusterroles", role):
            return
        granted = self._authorizer.role_rules(review.namespace if is_role else "", role)
        if granted is None:
            raise errors.not_found(review.kind.about(role))
        self._check_rules(review, self._authorizer.rules(review.user, review.namespace), granted)

    def _may(self, review: Review, verb: str, resource: str, name: str) -> bool:
        return self._authorizer.allows(
            review.user, verb=verb, group=_GROUP, resource=resource, namespace=review.namespace, name=name
        )

    def _check_rules(self, review: Review, held: list[JsonObject], granted: Iterable[JsonObject]) -> None:
        missing = uncovered(held, granted)
        if not missing:
            return
        user = review.user
        groups = " ".join(f'"{group}"' for group in user.groups)
        text = (
            f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n'
            + "\n".join(sorted(_shown(rule) for rule in missing))
        )
        unresolved = self._authorizer.missing(user, review.namespace)
        if unresolved:
            text += f"; resolution errors: [{errors.joined(unresolved).strip('[]')}]"
        raise errors.forbidden(review.kind.about(review.name), text)


def uncovered(held: Iterable[JsonObject], granted: Iterable[JsonObject]) -> list[JsonObject]:
    """The granted rules that the held ones do not cover, one for each resource or path."""
    held = list(held)
    found: dict[tuple[str, ...], JsonObject] = {}
    for rule in granted:
        for part in _parts(rule):
            if any(_covers(other, part) for other in held):
                continue
            place = tuple(str(part.get(name)) for name in part if name != "verbs")
            known = found.setdefault(place, {**part, "verbs": []})
            if part["verbs"][0] not in known["verbs"]:
                known["verbs"].append(part["verbs"][0])
    return list(found.values())


def _parts(rule: JsonObject) -> Iterator[JsonObject]:
    """The rule as several rules of one verb and one resource or path."""
    for verb in rule.get("verbs") or ():
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                part = {"verbs": [verb], "apiGroups": [group], "resources": [resource]}
                names = rule.get("resourceNames")
                if names:
                    yield from ({**part, "resourceNames": [name]} for name in names)
                else:
                    yield part
        for path in rule.get("nonResourceURLs") or ():
            yield {"verbs": [verb], "nonResourceURLs": [path]}


def _covers(rule: JsonObject, part: JsonObject) -> bool:
    if not {"*", part["verbs"][0]} & set(rule.get("verbs") or ()):
        return False
    if "nonResourceURLs" in part:
        (path,) = part["nonResourceURLs"]
        return any(covers_path(pattern, path) for pattern in rule.get("nonResourceURLs") or ())
    (resource,) = part["resources"]
    known = set(rule.get("resources") or ())
    if not {"*", part["apiGroups"][0]} & set(rule.get("apiGroups") or ()):
        return False
    sub = resource.partition("/")[2]
    if not {"*", resource} & known and not (sub and f"*/{sub}" in known):
        return False
    names = rule.get("resourceNames")
    return not names or set(part.get("resourceNames", ("",))) <= set(names)


def _shown(rule: JsonObject) -> str:
    def strings(name: str) -> str:
        return " ".join(f'"{entry}"' for entry in rule[name])

    fields = (
        ("APIGroups", "apiGroups"),
        ("Resources", "resources"),
        ("ResourceNames", "resourceNames"),
        ("NonResourceURLs", "nonResourceURLs"),
        ("Verbs", "verbs"),
    )
    return "{" + ", ".join(f"{shown_name}:[{strings(name)}]" for shown_name, name in fields if name in rule) + "}"
