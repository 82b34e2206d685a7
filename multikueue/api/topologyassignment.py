# SPDX-License-Identifier: Apache-2.0
"""Where topology aware scheduling puts the pods of a pod set: the compressed form of v1beta2.

Owns the shape only; `api.conversion` turns it into the plain list of domains that v1beta1 has, and back.
"""

from typing import Annotated

from multikueue.api.meta import Int32, WireModel
from multikueue.api.schema import CelRule, Schema

DomainValue = Annotated[str, Schema(max_length=63)]
Positive = Annotated[Int32, Schema(minimum=1)]


class IndividualValues(WireModel):
    """A value for each domain of a slice: prefix, root, suffix."""

    prefix: Annotated[str | None, Schema(max_length=63)] = None
    suffix: Annotated[str | None, Schema(max_length=63)] = None
    roots: Annotated[tuple[DomainValue, ...], Schema(min_items=1, max_items=100_000, list_type="atomic")]


class LevelValues(WireModel):
    """The values of one level: one for all domains of the slice, or one for each."""

    SCHEMA = Schema(
        rules=(
            CelRule(
                "has(self.universal) != has(self.individual)",
                "exactly one of the fields in [universal individual] must be set",
            ),
        )
    )

    universal: Annotated[str | None, Schema(max_length=63)] = None
    individual: IndividualValues | None = None


class PodCounts(WireModel):
    """How many pods there are: the same number in all domains of the slice, or one for each."""

    SCHEMA = Schema(
        rules=(
            CelRule(
                "[has(self.universal),has(self.individual)].filter(x,x==true).size() == 1",
                "exactly one of the fields in [universal individual] must be set",
            ),
        )
    )

    universal: Positive | None = None
    individual: Annotated[tuple[Positive, ...] | None, Schema(min_items=1, max_items=100_000, list_type="atomic")] = (
        None
    )


class TopologySlice(WireModel):
    """Domains that follow each other and are written together."""

    SCHEMA = Schema(
        rules=(
            CelRule(
                "!has(self.podCounts.individual) || size(self.podCounts.individual) == self.domainCount",
                "podCounts.individual must have length equal to domainCount",
            ),
            CelRule(
                "self.valuesPerLevel.all(x, !has(x.individual) || size(x.individual.roots) == self.domainCount)",
                "valuesPerLevel.individual, if set, must have roots of length equal to domainCount"
                " of this TopologyAssignmentSlice",
            ),
        )
    )

    domain_count: Positive
    values_per_level: Annotated[tuple[LevelValues, ...], Schema(min_items=1, max_items=16, list_type="atomic")]
    pod_counts: PodCounts


class TopologyAssignment(WireModel):
    """Levels of the topology and, in slices, the domains that got pods."""

    SCHEMA = Schema(
        rules=(
            CelRule(
                "self.slices.all(x, size(x.valuesPerLevel) == size(self.levels))",
                "valuesPerLevel must have the same length as the number of levels in this TopologyAssignment",
            ),
        )
    )

    levels: Annotated[
        tuple[Annotated[str, Schema(max_length=317)], ...], Schema(min_items=1, max_items=16, list_type="atomic")
    ]
    slices: Annotated[tuple[TopologySlice, ...], Schema(max_items=1000, list_type="atomic")]
