# SPDX-License-Identifier: Apache-2.0
"""Topology assignments in the two forms of v1beta1 and v1beta2.

v1beta1 lists every domain with its values and its number of pods. v1beta2 has slices of consecutive domains, in which
equal values are written once. `expand(compress(domains))` gives the same domains in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from multikueue.api.objects import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.parsing import MAX_INT32, parse_unsigned

MAX_DOMAINS_IN_SLICE: Final = 100_000
MAX_DOMAINS: Final = 100_000
"""The limit of all slices together; a few bytes of a slice may expand to any number of domains."""


def compress(assignment: JsonObject) -> JsonObject:
    """The v1beta2 form of a v1beta1 assignment: one slice, or more where there are too many domains for one."""
    levels = list(assignment.get("levels") or ())
    domains: Sequence[JsonObject] = assignment.get("domains") or ()
    for index, domain in enumerate(domains):
        if len(domain.get("values") or ()) != len(levels):
            raise BadInput(
                f"topologyAssignment.domains[{index}].values: expected {len(levels)} values, one per level,"
                f" got {len(domain.get('values') or ())}"
            )
    slices = [
        _slice(domains[start : start + MAX_DOMAINS_IN_SLICE], len(levels))
        for start in range(0, len(domains), MAX_DOMAINS_IN_SLICE)
    ]
    return {"levels": levels, "slices": slices}


def expand(assignment: JsonObject) -> JsonObject:
    """The v1beta1 form of a v1beta2 assignment. Raises `BadInput` where a slice contradicts itself or is too long."""
    domains: list[JsonObject] = []
    for index, entry in enumerate(assignment.get("slices") or ()):
        where = f"topologyAssignment.slices[{index}]"
        length = parse_unsigned(entry["domainCount"], field=f"{where}.domainCount", maximum=MAX_DOMAINS - len(domains))
        columns = [_values(level, length, where) for level in entry["valuesPerLevel"]]
        counts = _spread(entry["podCounts"], length, f"{where}.podCounts")
        domains += [
            {"values": [column[position] for column in columns], "count": counts[position]}
            for position in range(length)
        ]
    return {"levels": list(assignment.get("levels") or ()), "domains": domains}


def _slice(domains: Sequence[JsonObject], levels: int) -> JsonObject:
    counts = [
        parse_unsigned(domain["count"], field="topologyAssignment.domains.count", maximum=MAX_INT32)
        for domain in domains
    ]
    return {
        "domainCount": len(domains),
        "valuesPerLevel": [_level([str(domain["values"][level]) for domain in domains]) for level in range(levels)],
        "podCounts": {"universal": counts[0]} if len(set(counts)) == 1 else {"individual": counts},
    }


def _level(values: list[str]) -> JsonObject:
    if len(set(values)) == 1:
        return {"universal": values[0]}
    prefix = _common_prefix(values)
    rests = [value[len(prefix) :] for value in values]
    suffix = _common_prefix([rest[::-1] for rest in rests])[::-1]
    roots = [rest[: len(rest) - len(suffix)] for rest in rests]
    individual: JsonObject = {"roots": roots}
    if prefix:
        individual["prefix"] = prefix
    if suffix:
        individual["suffix"] = suffix
    return {"individual": individual}


def _common_prefix(values: list[str]) -> str:
    # What the first and the last in order share, all between them share too.
    first, last = min(values), max(values)
    length = next((at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))
    return first[:length]


def _values(level: JsonObject, length: int, where: str) -> list[str]:
    individual = level.get("individual")
    if individual is None:
        return [str(level["universal"])] * length
    roots = individual["roots"]
    if len(roots) != length:
        raise BadInput(f"{where}.valuesPerLevel: expected {length} roots, got {len(roots)}")
    prefix, suffix = individual.get("prefix") or "", individual.get("suffix") or ""
    return [f"{prefix}{root}{suffix}" for root in roots]


def _spread(counts: JsonObject, length: int, where: str) -> list[Any]:
    individual = counts.get("individual")
    if individual is None:
        return [counts["universal"]] * length
    if len(individual) != length:
        raise BadInput(f"{where}: expected {length} counts, got {len(individual)}")
    return list(individual)
