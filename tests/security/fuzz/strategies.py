# SPDX-License-Identifier: Apache-2.0
"""Which writes are tried: batches of them, drawn by Hypothesis.

Owns the choice of a target, of places in its body and of their values. Most writes differ from a valid one in one
to three places, so that the API server takes many of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from multikueue.api.resource import OWN_GROUP
from tests.security.fuzz import catalogue, values
from tests.security.fuzz.catalogue import Target
from tests.security.fuzz.writes import Edit, Place, Write, at, places

_SLOTS: Final = 8
_PLAIN: Final = 2  # Hypothesis begins with what is simplest, such as a batch of the same write
_VALID_SLOTS: Final = (2, 3, 6, 7, 0, 1)
"""Slots of the first writes, by how long their Jobs run; see `campaign.VALID_JOBS`."""


def batches(targets: Mapping[str, Target], *, size: int) -> st.SearchStrategy[list[Write]]:
    """Lists of so many writes; the first are valid Jobs of the tenant."""
    weighted = [target for target in targets.values() for _ in range(target.weight)]
    valid = [Write("tenant/jobs", slot) for slot in _VALID_SLOTS]
    odd = st.sampled_from(weighted).flatmap(_write)
    count = size - len(valid)
    return st.lists(odd, min_size=count, max_size=count).map(lambda found: [*valid, *found])


def drawn(targets: Mapping[str, Target], *, count: int, size: int, number: int | None) -> list[list[Write]]:
    """`count` batches; the same ones again for the same `number`."""
    found: list[list[Write]] = []

    @settings(
        max_examples=count + _PLAIN,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        derandomize=number is None,
        suppress_health_check=list(HealthCheck),
    )
    @given(batches(targets, size=size))
    def collect(batch: list[Write]) -> None:
        found.append(batch)

    (collect if number is None else seed(number)(collect))()
    return found[_PLAIN:]


@cache
def _slots() -> st.SearchStrategy[int]:
    return st.integers(0, _SLOTS - 1)


def _write(target: Target) -> st.SearchStrategy[Write]:
    return st.builds(
        lambda slot, edits: Write(target.name, slot, tuple(edits)),
        _slots(),
        st.sampled_from((1, 1, 1, 2, 3)).flatmap(
            lambda count: st.lists(_edit(target.name), min_size=count, max_size=count)
        ),
    )


_TARGETS: Final = catalogue.targets()


@cache
def _edit(name: str) -> st.SearchStrategy[Edit]:
    target = _TARGETS[name]
    body = target.body(0)
    found = places(body)
    anywhere = st.sampled_from(found)
    choices: list[st.SearchStrategy[Edit]] = [
        anywhere.flatmap(lambda place: _edit_at(place, at(body, place))),
        anywhere.flatmap(lambda place: st.builds(Edit, st.just(place), values.anything())),
    ]
    read = [place for place in found if values.careless_for(place[-1]) is not None]
    if read:
        choices += [st.sampled_from(read).flatmap(_careless_edit)] * 3
    if "metadata" in body:
        choices += [_annotation(("metadata", "annotations"))] * 3
        choices += [_label(("metadata", "labels"))]
    if at(body, ("spec", "template", "metadata")) is not None:
        choices += [_annotation(("spec", "template", "metadata", "annotations"))]
    for place, schema in target.schemas.items():
        made = values.of_schema(schema)
        choices += [st.builds(Edit, st.just(tuple(place)), made)] * 2
        for section, inner in (schema.get("properties") or {}).items():
            choices.append(st.builds(Edit, st.just((*place, section)), values.of_schema(inner, name=section)))
    return st.one_of(*choices)


def _edit_at(place: Place, value: Any) -> st.SearchStrategy[Edit]:
    return st.builds(Edit, st.just(place), values.variants(value))


def _careless_edit(place: Place) -> st.SearchStrategy[Edit]:
    return st.builds(Edit, st.just(place), st.sampled_from(values.careless_for(place[-1]) or (None,)))


def _annotation(below: Place) -> st.SearchStrategy[Edit]:
    known = sorted(catalogue.ANNOTATIONS)
    ours = [name for name in known if name.startswith(f"{OWN_GROUP}/")]
    return (st.sampled_from(ours) | st.sampled_from(known)).flatmap(
        lambda name: st.builds(
            Edit, st.just((*below, name)), values.near_misses(catalogue.ANNOTATIONS[name]) | values.texts()
        )
    )


def _label(below: Place) -> st.SearchStrategy[Edit]:
    known = sorted(catalogue.LABELS)
    return st.builds(
        lambda name, value: Edit((*below, name), value),
        st.sampled_from(known),
        st.sampled_from(values.LABEL_VALUES) | values.texts(),
    )
