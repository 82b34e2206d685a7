# SPDX-License-Identifier: Apache-2.0
"""Role-based access control.

Owns the evaluation of roles and bindings, aggregated cluster roles included. Rules are collected once for each change
of a role or binding, so a check only walks the rules of the user.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from devcluster.apiserver import errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.http.requests import MASTERS, Request, RequestTarget, User
from devcluster.apiserver.kinds.selector_rules import selects
from devcluster.apiserver.registry.selectors import named

_COLLECTIVE: Final = frozenset({"list", "watch", "deletecollection"})
_GROUP: Final = "rbac.authorization.k8s.io"
_CLUSTER_ROLES: Final = f"clusterroles.{_GROUP}"
_ROLES: Final = f"roles.{_GROUP}"
_CLUSTER_BINDINGS: Final = f"clusterrolebindings.{_GROUP}"
_BINDINGS: Final = f"rolebindings.{_GROUP}"


@dataclass(frozen=True, slots=True)
class Grant:
    """Rules that a binding gives to a subject, in one namespace or everywhere."""

    order: int
    namespace: str
    rules: tuple[JsonObject, ...]
    reason: str
    """The binding, for reviews."""
    missing: str = ""
    """The error if the role of the binding does not exist."""


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """Whether a request is allowed, and the reason if there is one."""

    allowed: bool
    reason: str = ""


_MASTER: Final = AccessDecision(allowed=True)


class Authorizer:
    """Decides what users may do."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._grants: dict[tuple[str, str], list[Grant]] = {}
        self._users: dict[tuple[str, tuple[str, ...]], list[Grant]] = {}
        self._rules: dict[tuple[str, str], tuple[JsonObject, ...]] = {}
        self._cluster_rules: dict[tuple[str, str], tuple[JsonObject, ...]] = {}
        self._seen: tuple[int, ...] = ()
        self.everything = False
        """Allow everything; for tests of other things."""

    def decide(
        self, user: User, *, verb: str, group: str, resource: str, namespace: str = "", name: str = "", sub: str = ""
    ) -> AccessDecision:
        """Whether the user may do that to the resource."""
        if self.everything or MASTERS in user.groups:
            return _MASTER
        wanted = f"{resource}/{sub}" if sub else resource

        def fits(rule: JsonObject) -> bool:
            return _fits(rule, verb=verb, group=group, resource=wanted, sub=sub, name=name)

        return self._decide(user, namespace, fits)

    def decide_path(self, user: User, *, verb: str, path: str) -> AccessDecision:
        """Whether the user may request a path that is no resource."""
        if self.everything or MASTERS in user.groups:
            return _MASTER

        def fits(rule: JsonObject) -> bool:
            return _has(rule.get("verbs"), verb) and any(
                covers_path(url, path) for url in rule.get("nonResourceURLs") or ()
            )

        return self._decide(user, "", fits)

    def allows(
        self, user: User, *, verb: str, group: str, resource: str, namespace: str = "", name: str = "", sub: str = ""
    ) -> bool:
        """Whether the user may do that to the resource."""
        return self.decide(
            user, verb=verb, group=group, resource=resource, namespace=namespace, name=name, sub=sub
        ).allowed

    def rules(self, user: User, namespace: str) -> list[JsonObject]:
        """All rules the user has in a namespace."""
        if MASTERS in user.groups:
            return [
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                {"verbs": ["*"], "nonResourceURLs": ["*"]},
            ]
        return [rule for grant in self._of(user) if grant.namespace in ("", namespace) for rule in grant.rules]

    def missing(self, user: User, namespace: str) -> list[str]:
        """Errors for the roles of the user's bindings that do not exist."""
        found = (grant.missing for grant in self._of(user) if grant.namespace in ("", namespace))
        return list(dict.fromkeys(filter(None, found)))

    def role_rules(self, namespace: str, name: str) -> tuple[JsonObject, ...] | None:
        """The rules of a role, or of a cluster role if there is no namespace; None if it does not exist."""
        self._gather()
        return self._rules.get((namespace, name))

    def check_path(self, user: User, *, verb: str, path: str) -> None:
        """Raises `StatusError` unless the user may request that path."""
        decision = self.decide_path(user, verb=verb, path=path)
        if not decision.allowed:
            text = f'User "{user.name}" cannot {verb} path "{path}"{_because(decision)}'
            raise errors.StatusError(403, "Forbidden", f"forbidden: {text}", errors.About())

    def check_request(self, request: Request, target: RequestTarget, *, verb: str, user: User) -> None:
        """Raises `StatusError` unless the user may do that to the target; a field selector can give the name."""
        if MASTERS in user.groups:
            return
        name = target.name
        if not name and verb in _COLLECTIVE and "fieldSelector" in request.query:
            name = named(request.query["fieldSelector"])
        self.check(
            user,
            verb=verb,
            group=target.group,
            resource=target.resource,
            namespace=target.namespace,
            name=name,
            sub=target.subresource,
        )

    def check(self, user: User, *, verb: str, group: str, resource: str, namespace: str, name: str, sub: str) -> None:
        """Raises `StatusError` unless the user may do that."""
        if self.everything or MASTERS in user.groups:
            return
        decision = self.decide(user, verb=verb, group=group, resource=resource, namespace=namespace, name=name, sub=sub)
        if decision.allowed:
            return
        shown = f"{resource}/{sub}" if sub else resource
        where = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
        text = f'User "{user.name}" cannot {verb} resource "{shown}" in API group "{group}"{where}'
        raise errors.forbidden(errors.About(name, group, resource), text + _because(decision))

    def _decide(self, user: User, namespace: str, fits: Callable[[JsonObject], bool]) -> AccessDecision:
        for grant in self._of(user):
            if grant.namespace in ("", namespace) and any(map(fits, grant.rules)):
                return AccessDecision(allowed=True, reason=grant.reason)
        missing = self.missing(user, namespace)
        if not missing:
            return AccessDecision(allowed=False)
        return AccessDecision(allowed=False, reason=f"RBAC: {errors.joined(missing)}")

    def _of(self, user: User) -> list[Grant]:
        self._gather()
        key = (user.name, user.groups)
        found = self._users.get(key)
        if found is None:
            every = [("User", user.name), *(("Group", group) for group in user.groups)]
            # One binding may name the same user several times; its rules count once.
            unique = {grant.order: grant for subject in reversed(every) for grant in self._grants.get(subject, ())}
            found = self._users[key] = sorted(unique.values(), key=lambda grant: grant.order)
        return found

    def _gather(self) -> None:
        store = self._context.store
        seen = tuple(store.collection(name).version for name in (_CLUSTER_ROLES, _ROLES, _CLUSTER_BINDINGS, _BINDINGS))
        if seen == self._seen:
            return
        if seen[:1] != self._seen[:1]:  # changes seldom, and each aggregated role reads all the others
            roles = {role["metadata"]["name"]: role for role in self._context.objects(_CLUSTER_ROLES)}
            self._cluster_rules = {("", name): tuple(_rules(role, roles)) for name, role in roles.items()}
        rules = dict(self._cluster_rules)
        for role in self._context.objects(_ROLES):
            metadata = role["metadata"]
            rules[metadata["namespace"], metadata["name"]] = tuple(role.get("rules") or ())
        self._rules = rules
        self._grants, self._users = {}, {}
        for collection in (_CLUSTER_BINDINGS, _BINDINGS):
            for binding in self._context.objects(collection):
                self._add(binding)
        self._seen = seen

    def _add(self, binding: JsonObject) -> None:
        namespace = binding["metadata"].get("namespace", "")
        reference = documents.child(binding, "roleRef")
        kind, role = reference.get("kind", ""), reference.get("name", "")
        granted = self._rules.get((namespace if kind == "Role" else "", role))
        missing = "" if granted is not None else f'{kind.lower()}.{_GROUP} "{role}" not found'
        about = f'"{binding["metadata"]["name"]}{"/" if namespace else ""}{namespace}"'
        order = sum(map(len, self._grants.values()))
        for subject in documents.items(binding, "subjects"):
            key, named = subject.get("kind", ""), subject.get("name", "")
            shown = f'{key} "{named}"'
            if key == "ServiceAccount":
                home = subject.get("namespace") or namespace
                key, shown, named = "User", f'{key} "{named}/{home}"', f"system:serviceaccount:{home}:{named}"
            reason = f'RBAC: allowed by {binding["kind"]} {about} of {kind} "{role}" to {shown}'
            grant = Grant(order, namespace, granted or (), reason, missing)
            self._grants.setdefault((key, named), []).append(grant)


def covers_path(pattern: str, path: str) -> bool:
    """Whether a path of a rule covers a requested path, or another rule's."""
    return pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern[:-1]))


def _because(decision: AccessDecision) -> str:
    return f": {decision.reason}" if decision.reason else ""


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
