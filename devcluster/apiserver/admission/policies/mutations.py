# SPDX-License-Identifier: Apache-2.0
"""What a mutation of a policy makes of an object: the merge of a configuration, or a JSON patch.

The results are completed as objects of their kind.
"""

from __future__ import annotations

from collections.abc import Iterator

from devcluster.apiserver import errors
from devcluster.apiserver.admission.policies.mutation_values import MutationFailed, as_configuration, as_patch_value
from devcluster.apiserver.admission.policies.patch_problems import PatchTestFailed, operate
from devcluster.apiserver.cel.values import CelMessage
from devcluster.apiserver.codec import decoding, documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.patch import typed
from devcluster.apiserver.patch.forms import problem as form_problem
from devcluster.apiserver.registry import objects
from devcluster.apiserver.registry.resources import ResourceType
from devcluster.apiserver.schema.node import ANY, TypeNode


def applied(made: CelMessage, value: JsonObject, kind: ResourceType) -> JsonObject:
    """The object with a configuration merged into it. Raises `MutationFailed`."""
    _check_names(made)
    configuration = {**as_configuration(made, kind.node), "apiVersion": value["apiVersion"], "kind": value["kind"]}
    problem = form_problem(configuration, kind.node)
    if problem is not None:
        raise MutationFailed(f"error applying patch: failed to convert patch object to typed object: {problem}")
    atomic = list(_atomics(configuration, kind.node, ""))
    if atomic:
        text = f"may not mutate atomic arrays, maps or structs: {', '.join(atomic)}"
        raise MutationFailed(f"error applying patch: invalid ApplyConfiguration: {text}")
    merged = typed.merge(value, configuration, kind.node)
    assert isinstance(merged, dict)
    problem = decoding.mismatched(merged, kind, restores=True)
    if problem is not None:
        # The schema allows any number for an integer.
        problem = problem.replace("unrecognized type: int", "cannot convert float64 to int")
        named = f"{kind.group}/{kind.version}, Kind={kind.kind}"
        raise MutationFailed(f"unable to convert unstructured object to {named}: {problem}")
    return completed(merged, kind)


def patched(operations: list[CelMessage], value: JsonObject, kind: ResourceType) -> JsonObject:
    """The object after a JSON patch; the object itself if a `test` of the patch fails.

    Raises `MutationFailed` if the patch does not apply, and `StatusError` if the result is no object of the kind.
    """
    listed = [_operation(made) for made in operations]
    found: JsonValue = value
    for operation in listed:
        try:
            found = operate(found, operation)
        except PatchTestFailed:
            return value
        except ValueError as error:
            raise MutationFailed(f"JSON Patch: {error}") from error
    if not isinstance(found, dict):
        raise errors.internal("the patched document is no object")
    result: JsonObject = documents.copy(found)
    problem = decoding.type_problem(result, kind) or decoding.mismatched(result, kind)
    if kind.custom and not result.get("kind"):
        problem = f"Object 'Kind' is missing in '{documents.dump(result).decode()}'"
    if problem is not None:
        raise errors.internal(problem)
    if not kind.custom:
        fields = decoding.unknown(result, kind)
        if fields:
            listed_fields = ", ".join(f'unknown field "{path}"' for path in fields)
            raise errors.internal(f"strict decoding error: {listed_fields}")
    return completed(result, kind)


def completed(value: JsonObject, kind: ResourceType) -> JsonObject:
    """A copy of a changed object, with its defaults."""
    found: JsonObject = documents.copy(value)
    found.setdefault("apiVersion", kind.api_version)
    found.setdefault("kind", kind.kind)
    decoding.clean(found, kind, "Ignore", [])
    decoding.settle(found, kind)
    objects.default(found, kind)
    return found


def _operation(made: CelMessage) -> JsonObject:
    found: JsonObject = {"op": made.fields.get("op", ""), "path": made.fields.get("path", "")}
    if made.fields.get("from"):
        found["from"] = made.fields["from"]
    if "value" in made.fields:
        value = made.fields["value"]
        if isinstance(value, CelMessage):
            _check_names(value)
        found["value"] = as_patch_value(value)
    return found


def _check_names(made: CelMessage) -> None:
    """Refuse a message whose parts have types that are not named after their fields."""
    problems = list(_misnamed(made, made.type))
    if problems:
        raise MutationFailed("type mismatch: " + "\n".join(problems))


def _misnamed(value: JsonValue, path: str) -> Iterator[str]:
    if isinstance(value, CelMessage):
        if value.type != path:
            which = "which matches field name path from root Object type"
            yield f'unexpected type name "{value.type}", expected "{path}", {which}'
        for name, entry in value.fields.items():
            yield from _misnamed(entry, f"{path}.{name}")
    elif isinstance(value, list):
        for item in value:
            yield from _misnamed(item, path)
    elif isinstance(value, dict):
        for entry in value.values():
            yield from _misnamed(entry, path)


def _atomics(value: JsonValue, kind: TypeNode, path: str) -> Iterator[str]:
    """The paths of atomic lists, maps and structs in a configuration."""
    if isinstance(value, dict):
        if kind.atomic:
            yield path
        for name, entry in value.items():
            if name in kind.properties:
                yield from _atomics(entry, kind.properties[name], f"{path}.{name}")
    elif isinstance(value, list) and kind.type == "array":
        if kind.list_type == "atomic":
            yield path
        for index, item in enumerate(value):
            yield from _atomics(item, kind.items or ANY, f"{path}[{index}]")
