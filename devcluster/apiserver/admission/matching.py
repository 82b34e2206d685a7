# SPDX-License-Identifier: Apache-2.0
"""Which writes a webhook or an admission policy is about: its rules, selectors and match conditions."""

from __future__ import annotations

from typing import Final

from devcluster.apiserver import errors
from devcluster.apiserver.admission.review import Review
from devcluster.apiserver.cel.budget import LIMITED, limited
from devcluster.apiserver.cel.compile import Expression
from devcluster.apiserver.cel.syntax import CelError
from devcluster.apiserver.cel.values import Variables
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.kinds.selector_rules import selects
from devcluster.apiserver.registry.resources import ResourceType

VARIABLES: Final = frozenset({"object", "oldObject", "request", "authorizer", "namespaceObject", "params", "variables"})
"""The variables of expressions about a write."""


class Expressions:
    """Compiled expressions, each compiled once."""

    def __init__(self) -> None:
        self._compiled: dict[str, Expression] = {}

    def evaluate(self, text: str, variables: Variables) -> JsonValue:
        """The value of an expression. Raises `CelError`."""
        expression = self._compiled.get(text)
        if expression is None:
            expression = self._compiled[text] = Expression(text, variables=VARIABLES | {LIMITED})
        with limited(variables):
            return expression.evaluate(variables)

    def value(self, text: str, variables: Variables) -> JsonValue:
        """The value of an expression. Raises `CelError` with the expression in its text."""
        try:
            return self.evaluate(text, variables)
        except CelError as error:
            raise CelError(f"expression '{text}' resulted in error: {error}") from error

    def conditions_hold(self, conditions: list[JsonObject], variables: Variables) -> bool:
        """Whether all match conditions are true; a false one wins over failed ones.

        Raises `CelError` if none is false and some failed.
        """
        failed: list[str] = []
        for condition in conditions:
            try:
                if self.value(condition.get("expression", "true"), variables) is not True:
                    return False
            except CelError as error:
                failed.append(str(error))
        if failed:
            raise CelError(errors.joined(failed))
        return True


def covers(
    rules: list[JsonObject],
    context: ServerContext,
    kind: ResourceType,
    *,
    operation: str,
    subresource: str,
    policy: str = "Equivalent",
    name: str | None = None,
) -> bool:
    """Whether one of the rules is about such a write; `name` is compared with `resourceNames`, unless it is None."""
    resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
    wanted = {resource, f"{kind.plural}/*" if subresource else "*", "*/*"}
    if subresource:
        wanted.add(f"*/{subresource}")
    scope = "Namespaced" if kind.namespaced else "Cluster"
    for rule in rules:
        operations, resources = rule.get("operations") or (), rule.get("resources") or ()
        if not {"*", operation} & set(operations) or not {"*", kind.group} & set(rule.get("apiGroups") or ()):
            continue
        if not _version_fits(rule, policy, kind, context) or rule.get("scope", "*") not in ("*", scope):
            continue
        names = rule.get("resourceNames")
        if names and name is not None and name not in names:
            continue
        if wanted & set(resources):
            return True
    return False


def _version_fits(rule: JsonObject, policy: str, kind: ResourceType, context: ServerContext) -> bool:
    named = set(rule.get("apiVersions") or ())
    if {"*", kind.version} & named:
        return True
    if policy == "Exact":
        return False
    # matchPolicy Equivalent: a served version that the rule names matches as well.
    return any(context.registry.find(kind.group, version, kind.plural) for version in named)


def selected(constraints: JsonObject, review: Review, context: ServerContext) -> bool:
    """Whether the namespace selector and the object selector match."""
    kind = review.kind
    labels: dict[str, str] | None = None
    if kind.namespaced:
        namespace = context.get("namespaces", review.namespace) or {}
        labels = documents.strings(documents.metadata(namespace).get("labels"))
    elif kind.collection == "namespaces":
        labels = documents.strings(documents.metadata(review.value or review.old or {}).get("labels"))
    if labels is not None and not selects(constraints.get("namespaceSelector"), labels):
        return False
    selector = constraints.get("objectSelector")
    return not selector or any(
        selects(selector, documents.strings(documents.metadata(value).get("labels")))
        for value in (review.value, review.old)
        if value is not None
    )
