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
from devcluster.apiserver.admission.matching import Expressions
from devcluster.apiserver.admission.policies.bindings import PolicyBindings
from devcluster.apiserver.admission.policies.parameters import ParameterFailure, parameter_kind, parameters_of
from devcluster.apiserver.admission.policies.variables import policy_variables
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
        self._bindings = PolicyBindings(context, policies=POLICIES, bindings=BINDINGS)

    def concern(self, kind: ResourceType, operation: str, subresource: str) -> bool:
        """Whether a policy may be about such a write."""
        return self._bindings.concern(kind, operation, subresource)

    def validate(self, review: Review) -> None:
        """Evaluate all policies that are about the write. Raises `StatusError` for the first that refuses it."""
        refused: StatusError | None = None
        for policy, bindings in self._bindings.about(review):
            try:
                parameter_kind(documents.child(policy, "spec"), self._context)
            except ParameterFailure as failure:
                if policy["spec"].get("failurePolicy") != "Ignore":
                    refused = refused or _carry_out(Violation(str(failure)), policy, None, review)
                continue
            for binding in bindings:
                for violation in self._violations(policy, binding, review):
                    error = _carry_out(violation, policy, binding, review)
                    refused = refused or error
        if refused is not None:
            raise refused

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
        variables = policy_variables(
            spec, review, self._context, access=self._authorizer, expressions=self._expressions, parameter=parameter
        )
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


def _carry_out(
    violation: Violation, policy: JsonObject, binding: JsonObject | None, review: Review
) -> StatusError | None:
    """Warn, or return the refusal."""
    named = f"ValidatingAdmissionPolicy '{policy['metadata']['name']}'"
    if binding is not None:
        named += f" with binding '{binding['metadata']['name']}'"
    if "Warn" in violation.actions and review.warnings is not None:
        review.warnings.append(f"Validation failed for {named}: {violation.message}")
    if "Deny" not in violation.actions:
        return None
    refused = errors.forbidden(review.kind.about(review.name), f"{named} denied request: {violation.message}")
    refused.reason = violation.reason or "Invalid"
    refused.code = _CODES[refused.reason]
    refused.causes = [StatusCause("", f"{named} denied request: {violation.message}")]
    return refused
