# SPDX-License-Identifier: Apache-2.0
"""The fields of a job from which the counts of its pod sets follow, so that its size can be limited or copied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from multikueue.api.objects import JsonObject
from multikueue.jobs.declared.paths import Keys, value_at, with_value, without_value
from multikueue.jobs.declared.pod_set_places import PodSetPlace


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
