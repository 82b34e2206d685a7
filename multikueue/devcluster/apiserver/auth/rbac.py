# SPDX-License-Identifier: Apache-2.0
"""Role-based access control: what users may do.

Owns the evaluation of roles and bindings, aggregation of cluster roles included. Rules are gathered once for each
change of a role or binding, so an answer costs a walk over the user's own rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from multikueue.devcluster.apiserver import documents, errors
from multikueue.devcluster.apiserver.admission import selects
from multikueue.devcluster.apiserver.documents import JsonObject
from multikueue.devcluster.apiserver.requests import MASTERS, User
from multikueue.devcluster.apiserver.world import World

_GROUP: Final = "rbac.authorization.k8s.io"
_CLUSTER_ROLES: Final = f"clusterroles.{_GROUP}"
_ROLES: Final = f"roles.{_GROUP}"
_CLUSTER_BINDINGS: Final = f"clusterrolebindings.{_GROUP}"
_BINDINGS: Final = f"rolebindings.{_GROUP}"


@dataclass(frozen=True, slots=True)
class Grant:
    """Rules that a subject has, in one namespace or everywhere."""

    namespace: str
    rules: tuple[JsonObject, ...]


class Authorizer:
    """Says what users may do."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._grants: dict[tuple[str, str], list[Grant]] = {}
        self._seen: tuple[int, ...] = ()
        self.everything = False
        """Let everybody do everything; for tests of other things."""

    def allows(
        self, user: User, *, verb: str, group: str, resource: str, namespace: str = "", name: str = "", sub: str = ""
    ) -> bool:
        """Whether the user may do that to the resource."""
        if self.everything or MASTERS in user.groups:
            return True
        wanted = f"{resource}/{sub}" if sub else resource
        for grant in self._of(user):
            if grant.namespace and grant.namespace != namespace:
                continue
            for rule in grant.rules:
                if _fits(rule, verb=verb, group=group, resource=wanted, sub=sub, name=name):
                    return True
        return False

    def allows_path(self, user: User, *, verb: str, path: str) -> bool:
        """Whether the user may ask for a path that is no resource."""
        if self.everything or MASTERS in user.groups:
            return True
        for grant in self._of(user):
            if grant.namespace:
                continue
            for rule in grant.rules:
                if _has(rule.get("verbs"), verb) and any(
                    url in ("*", path) or (url.endswith("*") and path.startswith(url[:-1]))
                    for url in rule.get("nonResourceURLs") or ()
                ):
                    return True
        return False

    def rules(self, user: User, namespace: str) -> list[JsonObject]:
        """All rules the user has in a namespace."""
        if MASTERS in user.groups:
            return [
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                {"verbs": ["*"], "nonResourceURLs": ["*"]},
            ]
        return [rule for grant in self._of(user) if grant.namespace in ("", namespace) for rule in grant.rules]

    def check_path(self, user: User, *, verb: str, path: str) -> None:
        """Raises `StatusError` unless the user may ask for that path."""
        if not self.allows_path(user, verb=verb, path=path):
            text = f'User "{user.name}" cannot {verb} path "{path}"'
            raise errors.StatusError(403, "Forbidden", f"forbidden: {text}", errors.About())

    def check(self, user: User, *, verb: str, group: str, resource: str, namespace: str, name: str, sub: str) -> None:
        """Raises `StatusError` unless the user may do that."""
        if self.everything or MASTERS in user.groups:
            return
        if self.allows(user, verb=verb, group=group, resource=resource, namespace=namespace, name=name, sub=sub):
            return
        shown = f"{resource}/{sub}" if sub else resource
        where = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
        text = f'User "{user.name}" cannot {verb} resource "{shown}" in API group "{group}"{where}'
        raise errors.forbidden(errors.About(name, group, resource), text)

    def _of(self, user: User) -> Iterator[Grant]:
        self._gather()
        yield from self._grants.get(("User", user.name), ())
        for group in user.groups:
            yield from self._grants.get(("Group", group), ())

    def _gather(self) -> None:
        store = self._world.store
        seen = tuple(store.collection(name).version for name in (_CLUSTER_ROLES, _ROLES, _CLUSTER_BINDINGS, _BINDINGS))
        if seen == self._seen:
            return
        roles = {role["metadata"]["name"]: role for role in self._world.objects(_CLUSTER_ROLES)}
        rules = {("", name): tuple(_rules(role, roles)) for name, role in roles.items()}
        for role in self._world.objects(_ROLES):
            metadata = role["metadata"]
            rules[metadata["namespace"], metadata["name"]] = tuple(role.get("rules") or ())
        grants: dict[tuple[str, str], list[Grant]] = {}
        for collection in (_CLUSTER_BINDINGS, _BINDINGS):
            for binding in self._world.objects(collection):
                namespace = binding["metadata"].get("namespace", "")
                reference = documents.child(binding, "roleRef")
                home = namespace if reference.get("kind") == "Role" else ""
                granted = rules.get((home, reference.get("name", "")), ())
                for subject in documents.items(binding, "subjects"):
                    kind, name = subject.get("kind", ""), subject.get("name", "")
                    if kind == "ServiceAccount":
                        kind, name = "User", f"system:serviceaccount:{subject.get('namespace', namespace)}:{name}"
                    grants.setdefault((kind, name), []).append(Grant(namespace, granted))
        self._grants = grants
        self._seen = seen


def _rules(role: JsonObject, roles: dict[str, JsonObject]) -> list[JsonObject]:
    aggregation = role.get("aggregationRule")
    if not aggregation:
        return list(role.get("rules") or ())
    found: list[JsonObject] = []
    for selector in documents.items(aggregation, "clusterRoleSelectors"):
        for other in roles.values():
            if other is not role and selects(selector, documents.strings(documents.metadata(other).get("labels"))):
                found += _rules(other, roles)
    return found


def _has(values: list[str] | None, wanted: str) -> bool:
    return bool(values) and (wanted in (values or ()) or "*" in (values or ()))


def _fits(rule: JsonObject, *, verb: str, group: str, resource: str, sub: str, name: str) -> bool:
    if not _has(rule.get("verbs"), verb) or not _has(rule.get("apiGroups"), group):
        return False
    resources = rule.get("resources") or ()
    if "*" not in resources and resource not in resources and not (sub and f"*/{sub}" in resources):
        return False
    names = rule.get("resourceNames")
    return not names or (bool(name) and name in names)
