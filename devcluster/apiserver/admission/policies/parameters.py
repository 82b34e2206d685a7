# SPDX-License-Identifier: Apache-2.0
"""The parameters of an admission policy: the objects that a binding refers to."""

from __future__ import annotations

from devcluster.apiserver.admission.review import Review
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.kinds.selector_rules import selects
from devcluster.apiserver.registry import versions
from devcluster.apiserver.registry.resources import ResourceType


class ParameterFailure(Exception):
    """The parameters cannot be determined; the text says why."""


def parameter_kind(policy: JsonObject, context: ServerContext) -> ResourceType | None:
    """The kind of a policy's parameters; None without parameters. Raises `ParameterFailure` if it is unknown."""
    wanted = policy.get("paramKind")
    if not wanted:
        return None
    group, _, version = wanted.get("apiVersion", "").rpartition("/")
    kind = context.registry.by_kind(group, version, wanted.get("kind", ""))
    if kind is None:
        named = f"'{group}/{version}, Kind={wanted.get('kind', '')}'"
        text = f"failed to find resource referenced by paramKind: {named}"
        raise ParameterFailure(f"failed to configure policy: {text}")
    return kind


def parameters_of(
    policy: JsonObject, binding: JsonObject, review: Review, context: ServerContext
) -> list[JsonObject | None]:
    """The objects with which a policy is evaluated, one after another; None without parameters.

    An empty list if the binding refers to none and allows that. `policy` and `binding` are the specs.

    Raises `ParameterFailure`.
    """
    kind, reference = parameter_kind(policy, context), binding.get("paramRef")
    if kind is None or not reference:
        return [None]
    namespace = _namespace(kind, reference, review)
    found: list[JsonObject | None] = []
    if reference.get("name"):
        one = context.get(kind.collection, kind.key(namespace, reference["name"]))
        found = [] if one is None else [one]
    else:
        selector = reference.get("selector")
        listed = context.objects(kind.collection, namespace=namespace)
        found = [one for one in listed if selects(selector, documents.strings(one["metadata"].get("labels")))]
    if not found and reference.get("parameterNotFoundAction") == "Deny":
        text = "no params found for policy binding with `Deny` parameterNotFoundAction"
        raise ParameterFailure(f"failed to configure binding: {text}")
    return [versions.outward(one, kind) for one in found if one is not None]


def _namespace(kind: ResourceType, reference: JsonObject, review: Review) -> str:
    """The namespace of the parameters; that of the write, unless the reference gives one."""
    given: str = reference.get("namespace") or ""
    if not kind.namespaced:
        if given:
            text = "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
            raise ParameterFailure(f"failed to configure binding: {text}")
        return ""
    own = review.namespace if review.kind.namespaced else ""
    if review.kind.collection == "namespaces" and review.operation != "CREATE":
        own = review.name  # a real server takes a namespace for an object in itself
    if not given and not own:
        text = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
        raise ParameterFailure(f"failed to configure binding: {text}")
    return given or own
