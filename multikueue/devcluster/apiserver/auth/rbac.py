# SPDX-License-Identifier: Apache-2.0
"""Role-based access control: what users may do.

Owns the evaluation of roles and bindings, aggregation of cluster roles included. Rules are gathered once for each
change of a role or binding, so an answer costs a walk over the user's own rules.
"""

from __future__ import annotations

from collections.abc import Callable
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

    order: int
    namespace: str
    rules: tuple[JsonObject, ...]
    reason: str
    """Which binding gives them, for reviews."""
    missing: str = ""
    """The role that the binding is of and that is not there."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether something is allowed, and why, as far as there is something to say."""

    allowed: bool
    reason: str = ""


_MASTER: Final = Decision(allowed=True)


class Authorizer:
    """Says what users may do."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._grants: dict[tuple[str, str], list[Grant]] = {}
        self._users: dict[tuple[str, tuple[str, ...]], list[Grant]] = {}
        self._rules: dict[tuple[str, str], tuple[JsonObject, ...]] = {}
        self._cluster_rules: dict[tuple[str, str], tuple[JsonObject, ...]] = {}
        self._seen: tuple[int, ...] = ()
        self.everything = False
        """Let everybody do everything; for tests of other things."""

    def decide(
        self, user: User, *, verb: str, group: str, resource: str, namespace: str = "", name: str = "", sub: str = ""
    ) -> Decision:
        """Whether the user may do that to the resource."""
        if self.everything or MASTERS in user.groups:
            return _MASTER
        wanted = f"{resource}/{sub}" if sub else resource

        def fits(rule: JsonObject) -> bool:
            return _fits(rule, verb=verb, group=group, resource=wanted, sub=sub, name=name)

        return self._decide(user, namespace, fits)

    def decide_path(self, user: User, *, verb: str, path: str) -> Decision:
        """Whether the user may ask for a path that is no resource."""
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
        """The roles that the user's bindings are of and that are not there."""
        found = (grant.missing for grant in self._of(user) if grant.namespace in ("", namespace))
        return list(dict.fromkeys(filter(None, found)))

    def role_rules(self, namespace: str, name: str) -> tuple[JsonObject, ...] | None:
        """The rules of a role, or of a cluster role when there is no namespace; None when it is not there."""
        self._gather()
        return self._rules.get((namespace, name))

    def check_path(self, user: User, *, verb: str, path: str) -> None:
        """Raises `StatusError` unless the user may ask for that path."""
        decision = self.decide_path(user, verb=verb, path=path)
        if not decision.allowed:
            text = f'User "{user.name}" cannot {verb} path "{path}"{_because(decision)}'
            raise errors.StatusError(403, "Forbidden", f"forbidden: {text}", errors.About())

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

    def _decide(self, user: User, namespace: str, fits: Callable[[JsonObject], bool]) -> Decision:
        for grant in self._of(user):
            if grant.namespace in ("", namespace) and any(map(fits, grant.rules)):
                return Decision(allowed=True, reason=grant.reason)
        missing = self.missing(user, namespace)
        if not missing:
            return Decision(allowed=False)
        return Decision(allowed=False, reason=f"RBAC: {listed(missing)}")

    def _of(self, user: User) -> list[Grant]:
        self._gather()
        key = (user.name, user.groups)
        found = self._users.get(key)
        if found is None:
            every = [("User", user.name), *(("Group", group) for group in user.groups)]
            # One binding may name the same user in several ways, and gives what it gives once.
            unique = {grant.order: grant for subject in reversed(every) for grant in self._grants.get(subject, ())}
            found = self._users[key] = sorted(unique.values(), key=lambda grant: grant.order)
        return found

    def _gather(self) -> None:
        store = self._world.store
        seen = tuple(store.collection(name).version for name in (_CLUSTER_ROLES, _ROLES, _CLUSTER_BINDINGS, _BINDINGS))
        if seen == self._seen:
            return
        if seen[:1] != self._seen[:1]:  # seldom, and each that aggregates others looks at all of them
            roles = {role["metadata"]["name"]: role for role in self._world.objects(_CLUSTER_ROLES)}
            self._cluster_rules = {("", name): tuple(_rules(role, roles)) for name, role in roles.items()}
        rules = dict(self._cluster_rules)
        for role in self._world.objects(_ROLES):
            metadata = role["metadata"]
            rules[metadata["namespace"], metadata["name"]] = tuple(role.get("rules") or ())
        self._rules = rules
        self._grants, self._users = {}, {}
        for collection in (_CLUSTER_BINDINGS, _BINDINGS):
            for binding in self._world.objects(collection):
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


def listed(texts: list[str]) -> str:
    """Several errors as one."""
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def covers_path(pattern: str, path: str) -> bool:
    """Whether a path of a rule covers one that is asked for, or another rule's."""
    return pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern[:-1]))


def _because(decision: Decision) -> str:
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
