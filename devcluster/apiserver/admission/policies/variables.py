# SPDX-License-Identifier: Apache-2.0
"""The variables of a policy's expressions about one write."""

from __future__ import annotations

from devcluster.apiserver.admission.access import authorizer_value
from devcluster.apiserver.admission.matching import Expressions
from devcluster.apiserver.admission.review import Review
from devcluster.apiserver.auth.rbac import Authorizer
from devcluster.apiserver.cel.syntax import CelError
from devcluster.apiserver.cel.values import Variables
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.context import ServerContext


def policy_variables(
    spec: JsonObject,
    review: Review,
    context: ServerContext,
    *,
    access: Authorizer,
    expressions: Expressions,
    parameter: JsonObject | None,
) -> Variables:
    """The variables, among them those that the policy declares."""
    namespace = None
    if review.kind.namespaced:
        namespace = context.get("namespaces", review.namespace)
    variables: Variables = {
        "object": review.value,
        "oldObject": review.old,
        "request": review.request(""),
        "params": parameter,
        "namespaceObject": namespace,
        "authorizer": authorizer_value(access, review),
    }
    variables["variables"] = _Composed(spec, expressions, variables)
    return variables


class _Composed(dict[str, JsonValue]):
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
