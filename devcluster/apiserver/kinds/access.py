# SPDX-License-Identifier: Apache-2.0
"""Roles, cluster roles, and the bindings of both."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.kinds import selector_rules
from devcluster.apiserver.kinds.behaviour import KindBehaviour, RequestContext, age

_GROUP: Final = "rbac.authorization.k8s.io"


class RoleBehaviour(KindBehaviour):
    """Roles and cluster roles."""

    creates_on_update = True

    def prepare_create(self, value: JsonObject, request_context: RequestContext) -> None:
        """Store absent or empty rules as null."""
        super().prepare_create(value, request_context)
        value["rules"] = value.get("rules") or None

    def prepare_update(self, value: JsonObject, old: JsonObject, request_context: RequestContext) -> None:
        """Store absent or empty rules as null."""
        super().prepare_update(value, old, request_context)
        value["rules"] = value.get("rules") or None

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the object."""
        found = []
        for index, rule in enumerate(documents.items(value, "rules")):
            found += _rule_problems(rule, f"rules[{index}]", namespaced=bool(request_context.namespace))
        aggregation = value.get("aggregationRule")
        if isinstance(aggregation, dict):
            selectors = documents.items(aggregation, "clusterRoleSelectors")
            path = "aggregationRule.clusterRoleSelectors"
            if not selectors:
                text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
                found.append(field_errors.required(path, text))
            for index, selector in enumerate(selectors):
                problems = selector_rules.problems(selector, f"{path}[{index}]")
                if problems:
                    text = "Invalid value: null: invalid label selector."
                    found += [*problems, StatusCause("FieldValueInvalid", text, f"{path}[{index}]")]
        return found

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Created At."""
        return [value["metadata"]["name"], value["metadata"].get("creationTimestamp", "")]


def _rule_problems(rule: JsonObject, path: str, *, namespaced: bool) -> list[StatusCause]:
    found = []
    if not rule.get("verbs"):
        found.append(field_errors.required(f"{path}.verbs", "verbs must contain at least one value"))
    urls = rule.get("nonResourceURLs")
    if urls:
        where = f"{path}.nonResourceURLs"
        if namespaced:
            found.append(field_errors.invalid(where, urls, "namespaced rules cannot apply to non-resource URLs"))
        if any(rule.get(name) for name in ("apiGroups", "resources", "resourceNames")):
            text = "rules cannot apply to both regular resources and non-resource URLs"
            found.append(field_errors.invalid(where, urls, text))
        return found
    if not rule.get("apiGroups"):
        found.append(field_errors.required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
    if not rule.get("resources"):
        found.append(field_errors.required(f"{path}.resources", "resource rules must supply at least one resource"))
    return found


class BindingBehaviour(KindBehaviour):
    """Role bindings and cluster role bindings."""

    creates_on_update = True

    def default(self, value: JsonObject) -> None:
        """Set the API groups of the role and the subjects."""
        role = value.get("roleRef")
        if isinstance(role, dict) and not role.get("apiGroup"):
            role["apiGroup"] = _GROUP
        for subject in documents.items(value, "subjects"):
            if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
                subject["apiGroup"] = _GROUP

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the object."""
        found = []
        role = documents.child(value, "roleRef")
        if role.get("apiGroup") != _GROUP:
            found.append(field_errors.not_supported("roleRef.apiGroup", role.get("apiGroup", ""), [_GROUP]))
        kinds = ["Role", "ClusterRole"] if request_context.namespace else ["ClusterRole"]
        if role.get("kind") not in kinds:
            found.append(field_errors.not_supported("roleRef.kind", role.get("kind", ""), kinds))
        if not role.get("name"):
            found.append(field_errors.required("roleRef.name"))
        for index, subject in enumerate(documents.items(value, "subjects")):
            found += _subject_problems(subject, f"subjects[{index}]", namespaced=bool(request_context.namespace))
        if old is not None and role != old.get("roleRef"):
            shown = {"APIGroup": role.get("apiGroup"), "Kind": role.get("kind"), "Name": role.get("name")}
            found.append(field_errors.invalid("roleRef", shown, "cannot change roleRef"))
        return found

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Role, Age, Users, Groups, ServiceAccounts."""
        role = documents.child(value, "roleRef")
        subjects = documents.items(value, "subjects")

        def named(kind: str) -> str:
            return ", ".join(subject.get("name", "") for subject in subjects if subject.get("kind") == kind)

        accounts = ", ".join(
            f"{subject.get('namespace', '')}/{subject.get('name', '')}"
            for subject in subjects
            if subject.get("kind") == "ServiceAccount"
        )
        return [
            value["metadata"]["name"],
            f"{role.get('kind', '')}/{role.get('name', '')}",
            age(value, now),
            named("User"),
            named("Group"),
            accounts,
        ]


def _subject_problems(subject: JsonObject, path: str, *, namespaced: bool) -> list[StatusCause]:
    found = []
    kind, name, group = subject.get("kind", ""), subject.get("name", ""), subject.get("apiGroup", "")
    if not name:
        found.append(field_errors.required(f"{path}.name"))
    if kind == "ServiceAccount":
        if name:
            found += field_errors.name_problems(f"{path}.name", name)
        if group:
            found.append(field_errors.not_supported(f"{path}.apiGroup", group, [""]))
        if not namespaced and not subject.get("namespace"):
            found.append(field_errors.required(f"{path}.namespace"))
    elif kind in ("User", "Group"):
        if group != _GROUP:
            found.append(field_errors.not_supported(f"{path}.apiGroup", group, [_GROUP]))
    else:
        found.append(field_errors.not_supported(f"{path}.kind", kind, ["ServiceAccount", "User", "Group"]))
    return found
