# SPDX-License-Identifier: Apache-2.0
"""Defaulting and validation of an object before it is stored, for the manager's webhooks and `mkctl simulate`.

Selects the functions of `api.defaulting` and `api.validation` for each kind. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from multikueue.api import codec, defaulting, validation
from multikueue.api.featuregates import Gate
from multikueue.api.meta import KubeObject
from multikueue.api.objects import JsonObject
from multikueue.api.resource import CLUSTER_QUEUES, COHORTS, JOBS, RESOURCE_FLAVORS, WORKLOADS, Resource
from multikueue.api.validation import FieldError
from multikueue.core.errors import BadInput

Validate = Callable[[Any, Any], list[FieldError]]
"""What is wrong with a new object that replaces an old one, or none."""


def default(resource: Resource, obj: JsonObject, *, gate: Gate) -> JsonObject:
    """`obj` with what the mutating webhook of its kind fills in; a Job needs its surroundings, and is left as it is."""
    if resource == WORKLOADS:
        return defaulting.default_workload(obj, gate=gate)
    found = _DEFAULTED.get(resource)
    return obj if found is None else found(obj)


def refusals(
    resource: Resource,
    new: JsonObject,
    old: JsonObject | None = None,
    *,
    gate: Gate,
    has_default_queue: bool = False,
) -> tuple[str, ...]:
    """Why the validating webhook refuses `new`, one text a field; a kind without a webhook only has to be readable.

    `has_default_queue` is, for a Job, whether its namespace has a LocalQueue named `default`.
    """
    model = codec.model_of(resource.group, resource.version, resource.kind)
    if model is None:
        return ()
    return refusals_as(model, _rules(resource, gate, has_default_queue), new, old)


def refusals_as(model: type[KubeObject], rules: Validate, new: JsonObject, old: JsonObject | None) -> tuple[str, ...]:
    """Why objects of that model are refused by these rules, each text once."""
    try:
        loaded = codec.load_as(model, new)
        replaced = None if old is None else codec.load_as(model, old)
    except BadInput as error:
        return (str(error),)
    return tuple(dict.fromkeys(map(str, rules(loaded, replaced))))


def _rules(resource: Resource, gate: Gate, has_default_queue: bool) -> Validate:
    if resource == WORKLOADS:
        return partial(validation.validate_workload, gate=gate)
    if resource == CLUSTER_QUEUES:
        return partial(validation.validate_cluster_queue, gate=gate)
    if resource == JOBS:
        return partial(validation.validate_job, has_default_queue=has_default_queue)
    return _VALIDATED.get(resource, _anything)


def _anything(new: KubeObject, old: KubeObject | None) -> list[FieldError]:
    del new, old
    return []


_DEFAULTED: Final[Mapping[Resource, Callable[[JsonObject], JsonObject]]] = {
    CLUSTER_QUEUES: defaulting.default_cluster_queue,
    RESOURCE_FLAVORS: defaulting.default_resource_flavor,
}
_VALIDATED: Final[Mapping[Resource, Validate]] = {
    COHORTS: validation.validate_cohort,
    RESOURCE_FLAVORS: validation.validate_resource_flavor,
}
