# SPDX-License-Identifier: Apache-2.0
"""ValidatingAdmissionPolicies: rules in CEL about writes, which bindings put in force.

Owns which policies are evaluated, with which parameters, and what becomes of a rule that does not hold: the write is
refused, or its answer has a warning. A change of a policy or binding is in force at once; a real server needs a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from devcluster.apiserver import errors
from devcluster.apiserver.admission import matching
from devcluster.apiserver.admission.access import authorizer_value
from devcluster.apiserver.admission.matching import Expressions
from devcluster.apiserver.admission.policy_parameters import ParameterFailure, parameters_of
from devcluster.apiserver.admission.review import Review
from devcluster.apiserver.auth.rbac import Authorizer
from devcluster.apiserver.cel.syntax import CelError
from devcluster.apiserver.cel.values import Variables
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.errors import StatusCause, StatusError
from devcluster.apiserver.registry.resources import ResourceType

POLICIES: Final = "validatingadmissionpolicies.admissionregistration.k8s.io"
BINDINGS: Final = "validatingadmissionpolicybindings.admissionregistration.k8s.io"
_GROUP: Final = "admissionregistration.k8s.io"
_EXEMPT: Final = ("validatingadmissionpolic", "mutatingadmissionpolic")
"""How the names of policies and of their bindings begin."""
_REVIEWS: Final = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
_CODES: Final = {"Forbidden": 403, "RequestEntityTooLarge": 413, "Invalid": 422}


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that does not hold, or could not be evaluated."""

    message: str
    reason: str = ""
    actions: tuple[str, ...] = ("Deny",)


class Policies:
    """Evaluates the policies that are about a write."""

    def __init__(self, context: ServerContext, authorizer: Authorizer) -> None:
        self._context = context
        self._authorizer = authorizer
        self._expressions = Expressions()
        self._known: tuple[tuple[int, int], list[tuple[JsonObject, list[JsonObject]]]] = ((-1, -1), [])

    def concern(self, kind: ResourceType, operation: str, subresource: str) -> bool:
        """Whether a policy may be about such a write."""
        return any(self._covers(policy, kind, operation, subresource) for policy, _ in self._bound())

    def validate(self, review: Review) -> None:
        """Evaluate all policies that are about the write. Raises `StatusError` for the first that refuses it."""
        refused: StatusError | None = None
        for policy, bindings in self._bound():
            constraints = documents.child(policy, "spec", "matchConstraints")
            if not self._covers(policy, review.kind, review.operation, review.subresource, name=review.name):
                continue
            if not matching.selected(constraints, review, self._context):
                continue
            for binding in bindings:
                if not self._selects(binding, review):
                    continue
                for violation in self._violations(policy, binding, review):
                    error = _carry_out(violation, policy, binding, review)
                    refused = refused or error
        if refused is not None:
            raise refused

    def _bound(self) -> list[tuple[JsonObject, list[JsonObject]]]:
        """The policies that have bindings, with these."""
        store = self._context.store
        version = (store.collection(POLICIES).version, store.collection(BINDINGS).version)
        if self._known[0] != version:
            bindings: dict[str, list[JsonObject]] = {}
            for binding in self._context.objects(BINDINGS):
                bindings.setdefault(documents.child(binding, "spec").get("policyName", ""), []).append(binding)
            policies = [
                (policy, bindings.get(policy["metadata"]["name"], [])) for policy in self._context.objects(POLICIES)
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

    def _violations(self, policy: JsonObject, binding: JsonObject, review: Review) -> Iterator[Violation]:
        spec = documents.child(policy, "spec")
        try:
            found = parameters_of(spec, documents.child(binding, "spec"), review, self._context)
        except ParameterFailure as error:
            if spec.get("failurePolicy") != "Ignore":
                yield Violation(str(error))
            return
        actions = tuple(documents.child(binding, "spec").get("validationActions") or ())
        for parameter in found:
            yield from self._of_rules(spec, review, parameter, actions)

    def _of_rules(
        self, spec: JsonObject, review: Review, parameter: JsonObject | None, actions: tuple[str, ...]
    ) -> Iterator[Violation]:
        variables = self._variables(spec, review, parameter)
        ignores = spec.get("failurePolicy") == "Ignore"
        try:
            if not self._expressions.conditions_hold(documents.items(spec, "matchConditions"), variables):
                return
        except CelError as error:
            if not ignores:
                yield Violation(str(error), actions=actions)
            return
        for rule in documents.items(spec, "validations"):
            try:
                if self._expressions.value(rule["expression"], variables) is True:
                    continue
            except CelError as error:
                if not ignores:
                    yield Violation(str(error), actions=actions)
                continue
            yield Violation(self._message(rule, variables), rule.get("reason", ""), actions)

    def _message(self, rule: JsonObject, variables: Variables) -> str:
        made: JsonValue = ""
        if rule.get("messageExpression"):
            try:
                made = self._expressions.value(rule["messageExpression"], variables)
            except CelError:
                made = ""
        text = made.strip() if isinstance(made, str) else ""
        if text and "\n" not in text:
            return text
        return (rule.get("message") or "").strip() or f"failed expression: {rule['expression'].strip()}"

    def _variables(self, spec: JsonObject, review: Review, parameter: JsonObject | None) -> Variables:
        namespace = None
        if review.kind.namespaced:
            namespace = self._context.get("namespaces", review.namespace)
        variables: Variables = {
            "object": review.value,
            "oldObject": review.old,
            "request": review.request(""),
            "params": parameter,
            "namespaceObject": namespace,
            "authorizer": authorizer_value(self._authorizer, review),
        }
        variables["variables"] = _Variables(spec, self._expressions, variables)
        return variables


class _Variables(dict[str, JsonValue]):
    """The `variables` of a policy: each is evaluated when an expression uses it, and once."""

    def __init__(self, spec: JsonObject, expressions: Expressions, others: Variables) -> None:
        super().__init__()
        self._texts: dict[str, str] = {
            entry["name"]: entry["expression"] for entry in documents.items(spec, "variables")
        }
        self._expressions = expressions
        self._others = others

    def __contains__(self, name: object) -> bool:
        return name in self._texts

    def __missing__(self, name: str) -> JsonValue:
        try:
            found = self[name] = self._expressions.evaluate(self._texts[name], self._others)
        except CelError as error:
            raise CelError(f'composited variable "{name}" fails to evaluate: {error}') from error
        return found

    def get(self, name: str, default: JsonValue = None) -> JsonValue:
        """The variable; used by `has`."""
        return self[name] if name in self._texts else default


def _carry_out(violation: Violation, policy: JsonObject, binding: JsonObject, review: Review) -> StatusError | None:
    """Warn, or return the refusal."""
    named = f"ValidatingAdmissionPolicy '{policy['metadata']['name']}' with binding '{binding['metadata']['name']}'"
    if "Warn" in violation.actions and review.warnings is not None:
        review.warnings.append(f"Validation failed for {named}: {violation.message}")
    if "Deny" not in violation.actions:
        return None
    refused = errors.forbidden(review.kind.about(review.name), f"{named} denied request: {violation.message}")
    refused.reason = violation.reason or "Invalid"
    refused.code = _CODES[refused.reason]
    refused.causes = [StatusCause("", f"{named} denied request: {violation.message}")]
    return refused
