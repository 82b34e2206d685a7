# SPDX-License-Identifier: Apache-2.0
"""MutatingAdmissionPolicies: changes of writes in CEL, which bindings put in force.

Owns which policies run with which parameters, the order of their mutations, and the answer if one fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from devcluster.apiserver import errors
from devcluster.apiserver.admission.matching import Expressions
from devcluster.apiserver.admission.policies.bindings import PolicyBindings
from devcluster.apiserver.admission.policies.mutation_values import MutationFailed
from devcluster.apiserver.admission.policies.mutations import applied, patched
from devcluster.apiserver.admission.policies.parameters import ParameterFailure, parameter_kind, parameters_of
from devcluster.apiserver.admission.policies.variables import policy_variables
from devcluster.apiserver.admission.review import Review
from devcluster.apiserver.admission.rounds import MutatorKey, Rounds
from devcluster.apiserver.auth.rbac import Authorizer
from devcluster.apiserver.cel.syntax import CelError
from devcluster.apiserver.cel.values import CelMessage, Variables
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.errors import StatusCause, StatusError
from devcluster.apiserver.registry.resources import ResourceType

POLICIES: Final = "mutatingadmissionpolicies.admissionregistration.k8s.io"
BINDINGS: Final = "mutatingadmissionpolicybindings.admissionregistration.k8s.io"
_OPERATIONS: Final = ("CREATE", "UPDATE")


@dataclass(frozen=True, slots=True)
class Invocation:
    """One run of a policy: with one binding, and with one of its parameters if any."""

    policy: JsonObject
    binding: JsonObject
    parameter: JsonObject | None

    @property
    def spec(self) -> JsonObject:
        """The spec of the policy."""
        return documents.child(self.policy, "spec")

    @property
    def key(self) -> MutatorKey:
        """The names of the three."""
        metadata = documents.metadata(self.parameter or {})
        names = metadata.get("namespace", ""), metadata.get("name", "")
        return self.policy["metadata"]["name"], self.binding["metadata"]["name"], *names


@dataclass(frozen=True, slots=True)
class PolicyFailure:
    """Why a policy failed, with the reason of the answer if it is the first."""

    policy: JsonObject
    binding: JsonObject | None
    message: str
    reason: str = ""

    @property
    def text(self) -> str:
        """The message of the answer."""
        name = self.policy["metadata"]["name"]
        if self.binding is None:
            return f'policy "{name}" denied request: {self.message}'
        return f"policy '{name}' with binding '{self.binding['metadata']['name']}' denied request: {self.message}"


class MutatingPolicies:
    """Runs the policies that are about a write."""

    def __init__(self, context: ServerContext, authorizer: Authorizer) -> None:
        self._context = context
        self._authorizer = authorizer
        self._expressions = Expressions()
        self._bindings = PolicyBindings(context, policies=POLICIES, bindings=BINDINGS)

    def concern(self, kind: ResourceType, operation: str, subresource: str) -> bool:
        """Whether a policy may be about such a write."""
        return operation in _OPERATIONS and self._bindings.concern(kind, operation, subresource)

    def mutate(self, review: Review, rounds: Rounds) -> None:
        """Run the policies of a round. Raises `StatusError` if one fails that must not."""
        if review.operation not in _OPERATIONS:
            return
        failures: list[PolicyFailure] = []
        invocations = list(self._invocations(review, failures))
        if invocations:
            rounds.begin(review.value)
            ran = [self._run(invocation, review, rounds, failures) for invocation in invocations]
            if any(ran):
                rounds.require()
            rounds.end(review.value)
        refused = [failure for failure in failures if failure.policy["spec"].get("failurePolicy") != "Ignore"]
        if refused:
            raise _refusal(refused, review)

    def _invocations(self, review: Review, failures: list[PolicyFailure]) -> Iterator[Invocation]:
        """The runs of all policies, decided before the first of them."""
        for policy, bindings in self._bindings.about(review):
            spec = documents.child(policy, "spec")
            try:
                parameter_kind(spec, self._context)
            except ParameterFailure as error:
                failures.append(PolicyFailure(policy, None, str(error)))
                continue
            for binding in bindings:
                try:
                    found = parameters_of(spec, documents.child(binding, "spec"), review, self._context)
                except ParameterFailure as error:
                    failures.append(PolicyFailure(policy, binding, str(error)))
                    continue
                for parameter in found:
                    yield Invocation(policy, binding, parameter)

    def _run(self, invocation: Invocation, review: Review, rounds: Rounds, failures: list[PolicyFailure]) -> bool:
        """Make the mutations of one run; whether one was made."""
        spec = invocation.spec
        try:
            conditions = documents.items(spec, "matchConditions")
            if not self._expressions.conditions_hold(conditions, self._variables(invocation, review)):
                return False
        except CelError as error:
            failures.append(PolicyFailure(invocation.policy, invocation.binding, str(error), "Invalid"))
            return False
        if rounds.skips(invocation.key):
            return False
        before, made = review.value, False
        for mutation in documents.items(spec, "mutations"):
            try:
                review.value = self._mutated(mutation, invocation, review)
                made = True
            except (CelError, MutationFailed) as error:
                failures.append(PolicyFailure(invocation.policy, invocation.binding, str(error), "Invalid"))
        repeats = spec.get("reinvocationPolicy") == "IfNeeded"
        rounds.note(invocation.key, changed=before != review.value, repeats=repeats)
        return made

    def _mutated(self, mutation: JsonObject, invocation: Invocation, review: Review) -> JsonObject:
        """The object after one mutation. Raises `CelError`, `MutationFailed` and `StatusError`."""
        assert review.value is not None
        variables = self._variables(invocation, review)
        if mutation.get("patchType") == "JSONPatch":
            made = self._expressions.value(mutation["jsonPatch"]["expression"], variables)
            if not isinstance(made, list):
                raise MutationFailed("type mismatch: JSONPatchType.expression should evaluate to array")
            return patched(made, review.value, review.kind)
        made = self._expressions.value(mutation["applyConfiguration"]["expression"], variables)
        if not isinstance(made, CelMessage):
            raise MutationFailed("unsupported return type from ApplyConfiguration expression")
        return applied(made, review.value, review.kind)

    def _variables(self, invocation: Invocation, review: Review) -> Variables:
        return policy_variables(
            invocation.spec,
            review,
            self._context,
            access=self._authorizer,
            expressions=self._expressions,
            parameter=invocation.parameter,
        )


def _refusal(failures: list[PolicyFailure], review: Review) -> StatusError:
    first = failures[0]
    metadata = documents.metadata(review.value or {})
    named = metadata.get("name") or metadata.get("generateName") or "Unknown"
    refused = errors.forbidden(review.kind.about(named), first.text)
    refused.reason = first.reason or refused.reason
    refused.message = first.text
    refused.causes = [StatusCause("", failure.text) for failure in failures]
    return refused
