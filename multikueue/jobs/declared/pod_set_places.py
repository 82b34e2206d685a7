# SPDX-License-Identifier: Apache-2.0
"""Where the pod sets of a job are: their names, counts and templates, and the keys to the templates.

Jobs of custom resources need not have a schema, so that every value is checked before it is used. The fields from which
the counts follow are known, so that the size of a job can be limited or copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from multikueue.api import names
from multikueue.api.objects import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt
from multikueue.jobs.declared.declaration import MAX_POD_SETS, DeclaredPodSet
from multikueue.jobs.declared.paths import JobPath, Keys, shown, value_at, with_value, without_value
from multikueue.jobs.declared.template_types import pod_template


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSetPlace:
    """One pod set of a job."""

    name: str
    count: int
    keys: Keys
    """From the job to the template, which need not be there: controllers have defaults."""
    template: JsonObject
    declared: DeclaredPodSet
    scope: JsonObject
    """What paths of the declaration are read in: the job, and `each` and `key` of a `forEach`."""


def pod_set_places(job: JsonObject, declared: Iterable[DeclaredPodSet]) -> tuple[PodSetPlace, ...]:
    """The pod sets in the order of the declaration. Raises `BadInput`."""
    places: list[PodSetPlace] = []
    for each in declared:
        for scope, entry in _scopes(job, each):
            if each.when is None or each.when.holds(scope):
                place = _place(each, scope, entry)
                if place is not None:
                    places.append(place)
            if len(places) > MAX_POD_SETS:
                raise BadInput(f"expected at most {MAX_POD_SETS} pod sets, found more")
    if not places:
        raise BadInput(
            f"expected pod sets at {', '.join(dict.fromkeys(_where(each) for each in declared))}, found none"
        )
    return require_distinct(places)


def require_distinct(places: Iterable[PodSetPlace]) -> tuple[PodSetPlace, ...]:
    """The pod sets, each of which has another name. Raises `BadInput`."""
    found: dict[str, PodSetPlace] = {}
    for place in places:
        if place.name in found:
            raise BadInput(f'two pod sets have the name "{place.name}": {_at(found[place.name])} and {_at(place)}')
        found[place.name] = place
    return tuple(found.values())


def pod_set_name(value: Any, *, at: str) -> str:
    """The name of a pod set, in lower case. Raises `BadInput`."""
    name = str(value).lower() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    problem = next(names.dns_label(name), "")
    if problem:
        raise BadInput(f"{at}: expected the name of a pod set, found {excerpt(value)}: {problem}")
    return name


def _scopes(job: JsonObject, declared: DeclaredPodSet) -> Iterator[tuple[JsonObject, Keys]]:
    """What the paths are read in, and the keys to the entry; once without `forEach`."""
    if declared.for_each is None:
        yield job, ()
        return
    keys = declared.for_each.keys or ()
    entries = value_at(job, keys)
    if entries is None:
        return
    if not isinstance(entries, list | dict):
        raise BadInput(f"{shown(keys)}: expected a list or an object, found {excerpt(entries)}")
    pairs = enumerate(entries) if isinstance(entries, list) else entries.items()
    for key, entry in pairs:
        yield {**job, "each": entry, "key": key}, (*keys, key)


def _place(declared: DeclaredPodSet, scope: JsonObject, entry: Keys) -> PodSetPlace | None:
    inside = declared.template.keys or ()
    keys = (*entry, *inside[1:]) if entry else inside
    found = value_at(scope, inside)
    if found is None:
        if declared.optional:
            return None
        raise BadInput(f"{shown(keys)}: expected a pod template, found nothing")
    path = declared.name_path
    name = declared.name if path is None else pod_set_name(path.value(scope), at=_resolved(path, entry))
    count = declared.count.of(scope)
    if count is None:
        where = declared.count.path or "the paths of its declaration"
        raise BadInput(f'the count of pod set "{name}": expected a number, found nothing at {where}')
    return PodSetPlace(
        name=name, count=count, keys=keys, template=pod_template(found, at=shown(keys)), declared=declared, scope=scope
    )


def _resolved(path: JobPath, entry: Keys) -> str:
    keys = path.keys or ()
    return shown((*entry, *keys[1:]) if entry and keys[:1] == ("each",) else keys)


def _where(declared: DeclaredPodSet) -> str:
    return shown((declared.for_each or declared.template).keys or ())


def _at(place: PodSetPlace) -> str:
    return shown(place.keys)


def size_fields(place: PodSetPlace) -> Iterator[Keys]:
    """The keys to the fields that the count of the pod set is computed from; not to those that a query finds."""
    entries = place.declared.for_each
    for path in place.declared.count.paths:
        keys = path.keys
        if keys is None:
            continue
        if entries is not None and keys[:1] == ("each",):
            yield (*(entries.keys or ()), place.scope["key"], *keys[1:])
        else:
            yield keys


def with_sizes(job: JsonObject, places: Iterable[PodSetPlace], *, of: Iterable[PodSetPlace], other: JsonObject) -> Any:
    """The job with these fields as they are in another one; `places` are its pod sets, `of` those of the other."""
    sources = {place.name: place for place in of}
    for place in places:
        source = sources.get(place.name)
        if source is None:
            continue
        for keys, from_keys in zip(size_fields(place), size_fields(source), strict=True):
            value = value_at(other, from_keys)
            job = without_value(job, keys) if value is None else with_value(job, keys, value)
    return job


def limited_fields(job: JsonObject, places: Iterable[PodSetPlace], sizes: Mapping[str, int]) -> Any:
    """The job in which no pod set has more pods than `sizes`, as far as one field of each can be lowered for that.

    The caller looks at the counts again: those of a rule that is no product may be as before.
    """
    for place in places:
        most = sizes.get(place.name, place.count)
        if place.count <= most:
            continue
        for keys in size_fields(place):
            value = value_at(job, keys)
            if isinstance(value, int) and value > 0 and place.count % value == 0:
                job = with_value(job, keys, most // (place.count // value))
                break
    return job
