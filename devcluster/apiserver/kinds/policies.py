# SPDX-License-Identifier: Apache-2.0
"""ValidatingAdmissionPolicies, MutatingAdmissionPolicies and their bindings: defaults, validation, table rows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.cel import messages
from devcluster.apiserver.cel.types import BOOL, DYN, STRING, Type
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.kinds import selector_rules
from devcluster.apiserver.kinds.behaviour import KindBehaviour, RequestContext, age
from devcluster.apiserver.kinds.webhooks import rule_problems
from devcluster.apiserver.kinds.write_expressions import SCOPE, checked, type_problems

_NAME: Final = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
_REASONS: Final = ["Forbidden", "Invalid", "RequestEntityTooLarge"]
_ACTIONS: Final = ["Audit", "Deny", "Warn"]
_NO_PARAMS: Final = "<unset>"
_CHANGING: Final = ["*", "CONNECT", "CREATE", "UPDATE"]
_REINVOCATIONS: Final = ["IfNeeded", "Never"]
_PATCHES: Final = {
    "ApplyConfiguration": ("applyConfiguration", messages.OBJECT),
    "JSONPatch": ("jsonPatch", messages.PATCHES),
}
"""The types of patches: the field with their expression, and its type."""


class PolicyBehaviour(KindBehaviour):
    """ValidatingAdmissionPolicies."""

    generation = True
    has_status = True
    unconditional = False

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        spec = value.setdefault("spec", {})
        spec.setdefault("failurePolicy", "Fail")
        if spec.get("matchConstraints") is not None:
            _default_constraints(spec["matchConstraints"])

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the object."""
        spec = documents.child(value, "spec")
        scope, found = _common_problems(spec)
        if not documents.items(spec, "variables"):
            del scope["variables"]
        rules, notes = documents.items(spec, "validations"), documents.items(spec, "auditAnnotations")
        if not rules and not notes:
            text = "validations or auditAnnotations must contain at least one item"
            found += [field_errors.required(f"spec.{field}", text) for field in ("validations", "auditAnnotations")]
        for index, rule in enumerate(rules):
            found += _validation_problems(rule, f"spec.validations[{index}]", scope)
        return found

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Validations, ParamKind, Age."""
        spec = documents.child(value, "spec")
        count = len(documents.items(spec, "validations"))
        return [value["metadata"]["name"], count, _shown_kind(spec), age(value, now)]


class MutatingPolicyBehaviour(PolicyBehaviour):
    """MutatingAdmissionPolicies."""

    has_status = False

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the object."""
        spec = documents.child(value, "spec")
        scope, found = _common_problems(spec)
        found += _operation_problems(documents.child(spec, "matchConstraints"), "spec.matchConstraints")
        mutations, reinvocation = documents.items(spec, "mutations"), spec.get("reinvocationPolicy")
        if not mutations:
            found.append(field_errors.required("spec.mutations", "mutations must contain at least one item"))
        for index, mutation in enumerate(mutations):
            found += _mutation_problems(mutation, f"spec.mutations[{index}]", scope)
        if not reinvocation:
            found.append(field_errors.required("spec.reinvocationPolicy"))
        elif reinvocation not in _REINVOCATIONS:
            found.append(field_errors.not_supported("spec.reinvocationPolicy", reinvocation, _REINVOCATIONS))
        return found

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Mutations, ParamKind, Age."""
        spec = documents.child(value, "spec")
        count = len(documents.items(spec, "mutations"))
        return [value["metadata"]["name"], count, _shown_kind(spec), age(value, now)]


class PolicyBindingBehaviour(KindBehaviour):
    """ValidatingAdmissionPolicyBindings."""

    generation = True
    unconditional = False

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        constraints = documents.child(value, "spec").get("matchResources")
        if constraints is not None:
            _default_constraints(constraints)

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the object."""
        spec = documents.child(value, "spec")
        return _binding_problems(spec) + _action_problems(spec.get("validationActions") or [])

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, PolicyName, ParamRef, Age."""
        spec = documents.child(value, "spec")
        reference = spec.get("paramRef")
        shown = _NO_PARAMS
        if reference:
            named, namespace = reference.get("name", ""), reference.get("namespace", "")
            shown = f"{namespace or '*'}/{named}" if named else _printed(reference.get("selector") or {})
        return [value["metadata"]["name"], spec.get("policyName", ""), shown, age(value, now)]


class MutatingBindingBehaviour(PolicyBindingBehaviour):
    """MutatingAdmissionPolicyBindings."""

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the object."""
        spec = documents.child(value, "spec")
        return _binding_problems(spec) + _operation_problems(
            documents.child(spec, "matchResources"), "spec.matchResources"
        )


def _shown_kind(spec: JsonObject) -> str:
    kind = spec.get("paramKind")
    return f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else _NO_PARAMS


def _common_problems(spec: JsonObject) -> tuple[dict[str, Type], list[StatusCause]]:
    """The variables of the expressions of a policy, and the problems of what policies of both kinds have."""
    scope: dict[str, Type] = dict(SCOPE)
    found = _fails(spec)
    if spec.get("paramKind") is not None:
        scope["params"] = DYN
        found += _required(spec["paramKind"], "spec.paramKind", ("apiVersion", "kind"))
    if spec.get("matchConstraints") is None:
        found.append(field_errors.required("spec.matchConstraints"))
    else:
        found += _constraint_problems(spec["matchConstraints"], "spec.matchConstraints", required=True)
    found += _condition_problems(spec, scope)
    variables: dict[str, Type] = {}
    for index, variable in enumerate(documents.items(spec, "variables")):
        path, name, text = f"spec.variables[{index}]", variable.get("name", ""), variable.get("expression", "")
        known = {**scope, "variables": Type("kubernetes.variables", fields=dict(variables))}
        if not name.strip():
            found.append(field_errors.required(f"{path}.name", "name is not specified"))
        elif not _NAME.fullmatch(name):
            found.append(field_errors.invalid(f"{path}.name", name, "must be a valid CEL identifier"))
        if not text.strip():
            found.append(field_errors.required(f"{path}.expression", "expression is not specified"))
            continue
        kind, problems = checked(text, known, f"{path}.expression")
        found += problems
        variables[name] = kind
    return {**scope, "variables": Type("kubernetes.variables", fields=variables)}, found


def _binding_problems(spec: JsonObject) -> list[StatusCause]:
    found = _required(spec, "spec", ("policyName",))
    name = spec.get("policyName", "")
    if name and not field_errors.is_subdomain(name):
        found.append(field_errors.invalid("spec.policyName", name, field_errors.SUBDOMAIN_TEXT))
    if spec.get("paramRef") is not None:
        found += _reference_problems(spec["paramRef"])
    if spec.get("matchResources") is not None:
        found += _constraint_problems(spec["matchResources"], "spec.matchResources", required=False)
    return found


def _operation_problems(constraints: JsonObject, path: str) -> list[StatusCause]:
    """The operations that have no object to change."""
    return [
        field_errors.not_supported(f"{path}.resourceRules.operations", operation, _CHANGING)
        for rule in documents.items(constraints, "resourceRules")
        for operation in rule.get("operations") or ()
        if operation not in _CHANGING
    ]


def _mutation_problems(mutation: JsonObject, path: str, scope: dict[str, Type]) -> list[StatusCause]:
    kind = mutation.get("patchType")
    if not kind:
        return [field_errors.required(f"{path}.patchType")]
    if kind not in _PATCHES:
        return [field_errors.not_supported(f"{path}.patchType", kind, sorted(_PATCHES))]
    found = []
    for name, (field, wanted) in _PATCHES.items():
        given, where = mutation.get(field), f"{path}.{field}"
        if name != kind:
            if given is not None:
                text = f"must not be specified when patchType is {kind}"
                found.append(field_errors.invalid(where, f"{{{field}}}", text))
            continue
        if given is None:
            found.append(field_errors.required(where, f"must be specified when patchType is {kind}"))
            continue
        text = given.get("expression", "").strip()
        where = f"{where}.expression"
        found += type_problems(text, scope, where, wanted, patches=True) if text else [field_errors.required(where)]
    return found


def _printed(selector: JsonObject) -> str:
    """A label selector as Go prints it."""
    labels = "".join(f"{key}: {text}," for key, text in sorted(documents.child(selector, "matchLabels").items()))
    terms = "".join(
        f"LabelSelectorRequirement{{Key:{term.get('key', '')},Operator:{term.get('operator', '')},"
        f"Values:[{' '.join(term.get('values') or ())}],}},"
        for term in documents.items(selector, "matchExpressions")
    )
    expressions = f"[]LabelSelectorRequirement{{{terms}}}"
    return f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:{expressions},}}"


def _default_constraints(constraints: JsonObject) -> None:
    constraints.setdefault("matchPolicy", "Equivalent")
    constraints.setdefault("namespaceSelector", {})
    constraints.setdefault("objectSelector", {})
    for field in ("resourceRules", "excludeResourceRules"):
        for rule in documents.items(constraints, field):
            rule.setdefault("scope", "*")


def _required(value: JsonObject, path: str, fields: Iterable[str]) -> list[StatusCause]:
    return [field_errors.required(f"{path}.{field}") for field in fields if not value.get(field)]


def _fails(spec: JsonObject) -> list[StatusCause]:
    given = spec.get("failurePolicy")
    if given in ("Fail", "Ignore"):
        return []
    return [field_errors.not_supported("spec.failurePolicy", given, ["Fail", "Ignore"])]


def _constraint_problems(constraints: JsonObject, path: str, *, required: bool) -> list[StatusCause]:
    found = []
    policy = constraints.get("matchPolicy")
    if policy not in ("Equivalent", "Exact"):
        found.append(field_errors.not_supported(f"{path}.matchPolicy", policy, ["Equivalent", "Exact"]))
    for field in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(documents.items(constraints, field)):
            found += rule_problems(rule, f"{path}.{field}[{index}]", star_is_alone=False)
    for field in ("namespaceSelector", "objectSelector"):
        found += selector_rules.problems(constraints.get(field), f"{path}.{field}")
    if required and not constraints.get("resourceRules"):
        found.append(field_errors.required(f"{path}.resourceRules"))
    return found


def _condition_problems(spec: JsonObject, scope: dict[str, Type]) -> list[StatusCause]:
    found = []
    seen: set[str] = set()
    for index, condition in enumerate(documents.items(spec, "matchConditions")):
        path, name = f"spec.matchConditions[{index}]", condition.get("name", "")
        text = condition.get("expression", "")
        if not text.strip():
            found.append(field_errors.required(f"{path}.expression"))
        else:
            found += type_problems(text, scope, f"{path}.expression", BOOL)
        if not name:
            found.append(field_errors.required(f"{path}.name"))
        elif name in seen:
            found.append(field_errors.duplicate(f"{path}.name", name))
        seen.add(name)
    return found


def _validation_problems(rule: JsonObject, path: str, scope: dict[str, Type]) -> list[StatusCause]:
    found = []
    text, message, made = rule.get("expression", ""), rule.get("message", ""), rule.get("messageExpression", "")
    if not text.strip():
        found.append(field_errors.required(f"{path}.expression", "expression is not specified"))
    else:
        found += type_problems(text.strip(), scope, f"{path}.expression", BOOL)
    if made:
        found += type_problems(made.strip(), scope, f"{path}.messageExpression", STRING)
    if message and not message.strip():
        found.append(field_errors.invalid(f"{path}.message", message, "must be non-empty if specified"))
    elif "\n" in message.strip():
        found.append(field_errors.invalid(f"{path}.message", message, "must not contain line breaks"))
    reason = rule.get("reason")
    if reason is not None and reason not in _REASONS:
        found.append(field_errors.not_supported(f"{path}.reason", reason, _REASONS))
    return found


def _reference_problems(reference: JsonObject) -> list[StatusCause]:
    found = []
    name, selector = reference.get("name"), reference.get("selector")
    if name and selector is not None:
        text = "name and selector are mutually exclusive"
        found += [field_errors.forbidden(f"spec.paramRef.{field}", text) for field in ("name", "selector")]
    elif not name and selector is None:
        found.append(field_errors.required("spec.paramRef", "one of name or selector must be specified"))
    found += selector_rules.problems(selector, "spec.paramRef.selector")
    action = reference.get("parameterNotFoundAction")
    if not action:
        found.append(field_errors.required("spec.paramRef.parameterNotFoundAction"))
    elif action not in ("Allow", "Deny"):
        allowed = ["Deny", "Allow"]
        found.append(field_errors.not_supported("spec.paramRef.parameterNotFoundAction", action, allowed))
    return found


def _action_problems(actions: list[str]) -> list[StatusCause]:
    path = "spec.validationActions"
    if not actions:
        return [field_errors.required(path, "at least one validation action is required")]
    found = []
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            found.append(field_errors.not_supported(f"{path}[{index}]", action, _ACTIONS))
        if action in actions[:index]:
            found.append(field_errors.duplicate(f"{path}[{index}]", action))
    if {"Deny", "Warn"} <= set(actions):
        text = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API "
            "response and headers serves no purpose)"
        )
        found.append(field_errors.invalid(path, list(actions), text))
    return found
