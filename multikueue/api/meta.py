# SPDX-License-Identifier: Apache-2.0
"""The base of all wire models, and the types of Kubernetes that many kinds share.

Owns `WireModel`, `KubeObject`, object metadata, conditions, selectors, taints and tolerations, and the field types for
quantities and times. Promises that unknown fields survive a round trip, that models are immutable values, and that a
module of models imports fast: validators are built on first use.
"""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, ClassVar, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from multikueue.api.objects import JsonObject as JsonObject
from multikueue.api.resource import Resource
from multikueue.api.schema import (
    CONDITION_REASON,
    DNS_LABEL,
    DNS_SUBDOMAIN,
    LABEL_KEY,
    CelRule,
    Column,
    Schema,
)
from multikueue.core import conditions
from multikueue.core.keys import Key
from multikueue.core.quantity import Quantity
from multikueue.core.timestamps import format_time

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


class _QuantitySchema:
    @classmethod
    def __get_pydantic_core_schema__(cls, source: type, handler: "GetCoreSchemaHandler") -> "CoreSchema":
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(
            _read_quantity, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )


def _read_quantity(value: str | int | float | Quantity) -> Quantity:
    return value if isinstance(value, Quantity) else Quantity.parse(value)


class _TimeSchema:
    @classmethod
    def __get_pydantic_core_schema__(cls, source: type, handler: "GetCoreSchemaHandler") -> "CoreSchema":
        from pydantic_core import core_schema

        return core_schema.datetime_schema(
            tz_constraint="aware", serialization=core_schema.plain_serializer_function_ser_schema(format_time)
        )


Amount: TypeAlias = Annotated[Quantity, _QuantitySchema]
"""A quantity: read exactly, written canonically."""
Time: TypeAlias = Annotated[datetime, _TimeSchema]
"""A time with a zone: written in whole seconds of UTC, as Kubernetes does."""
Int32: TypeAlias = Annotated[int, Schema(format="int32")]
Int64: TypeAlias = Annotated[int, Schema(format="int64")]
ObjectName: TypeAlias = Annotated[str, Schema(max_length=253, pattern=DNS_SUBDOMAIN)]
"""The name of a queue, a cohort or a flavor."""
PodSetName: TypeAlias = Annotated[str, Schema(max_length=63, pattern=DNS_LABEL)]
CheckName: TypeAlias = Annotated[str, Schema(min_length=1, max_length=316)]
ClusterName: TypeAlias = Annotated[str, Schema(max_length=256)]
Labels: TypeAlias = dict[str, str]
Resources: TypeAlias = dict[str, Amount]


def _camel(name: str) -> str:
    # pydantic's generator runs three regular expressions per field, which slows the import of all kinds down.
    head, *rest = name.split("_")
    return head + "".join([part.capitalize() for part in rest])


class WireModel(BaseModel):
    """A JSON object; fields without a definition are kept."""

    model_config = ConfigDict(
        extra="allow",
        alias_generator=_camel,
        populate_by_name=True,
        defer_build=True,
        frozen=True,
        arbitrary_types_allowed=True,
    )

    SCHEMA: ClassVar[Schema] = Schema()


class OwnerReference(WireModel):
    """The owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(WireModel):
    """Metadata of an object; fields without a definition, such as `managedFields`, are kept."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: Labels = Field(default_factory=dict)
    annotations: Labels = Field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class KubeObject(WireModel):
    """A named object; each kind sets RESOURCE and the columns of kubectl."""

    RESOURCE: ClassVar[Resource]
    COLUMNS: ClassVar[tuple[Column, ...]] = ()
    SELECTABLE_FIELDS: ClassVar[tuple[str, ...]] = ()

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)

    @property
    def key(self) -> Key:
        """Namespace and name; the namespace is empty for a cluster-scoped kind."""
        return Key(self.metadata.namespace, self.metadata.name)


class WireCondition(WireModel):
    """One entry of `status.conditions`."""

    type: Annotated[str, Schema(max_length=316, pattern=LABEL_KEY)]
    status: Annotated[str, Schema(enum=("True", "False", "Unknown"))]
    reason: Annotated[str, Schema(min_length=1, max_length=1024, pattern=CONDITION_REASON, required=True)] = ""
    message: Annotated[str, Schema(max_length=32768, required=True)] = ""
    last_transition_time: Time
    observed_generation: Annotated[Int64 | None, Schema(minimum=0)] = None

    def value(self) -> conditions.Condition:
        """The condition as a value of the engine and the planners."""
        return conditions.Condition(
            type=self.type,
            status=self.status,
            reason=self.reason,
            message=self.message,
            last_transition_time=self.last_transition_time,
            observed_generation=self.observed_generation,
        )

    @classmethod
    def of(cls, value: conditions.Condition) -> "WireCondition":
        """The wire form of `value`."""
        condition = cls(
            type=value.type,
            status=value.status,
            reason=value.reason,
            message=value.message,
            last_transition_time=value.last_transition_time,
        )
        if value.observed_generation is None:
            return condition
        return condition.model_copy(update={"observed_generation": value.observed_generation})


Conditions: TypeAlias = Annotated[tuple[WireCondition, ...], Schema(max_items=16, map_keys=("type",))]


class LabelSelectorRequirement(WireModel):
    """One expression of a label selector."""

    key: str
    operator: str
    values: Annotated[tuple[str, ...], Schema(list_type="atomic")] = ()


class WireLabelSelector(WireModel):
    """Labels and expressions that must all hold; empty selects everything, an absent one nothing."""

    SCHEMA: ClassVar[Schema] = Schema(map_type="atomic")

    match_labels: Labels = Field(default_factory=dict)
    match_expressions: Annotated[tuple[LabelSelectorRequirement, ...], Schema(list_type="atomic")] = ()


class WireTaint(WireModel):
    """A taint of a node."""

    key: str
    value: str = ""
    effect: str
    time_added: Time | None = None


class WireToleration(WireModel):
    """A toleration of a pod."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


_EFFECTS = "['NoSchedule', 'PreferNoSchedule', 'NoExecute']"
_EFFECTS_MESSAGE = "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'"
TAINT_RULES = (CelRule(f"self.all(x, x.effect in {_EFFECTS})", _EFFECTS_MESSAGE),)
TOLERATION_RULES = (
    CelRule(
        "self.all(x, !has(x.key) ? x.operator == 'Exists' : true)",
        "operator must be Exists when 'key' is empty, which means 'match all values and all keys'",
    ),
    CelRule(
        "self.all(x, has(x.tolerationSeconds) ? x.effect == 'NoExecute' : true)",
        "effect must be 'NoExecute' when 'tolerationSeconds' is set",
    ),
    CelRule(
        "self.all(x, !has(x.operator) || x.operator in ['Equal', 'Exists'])",
        "supported toleration values: 'Equal'(default), 'Exists'",
    ),
    CelRule(
        "self.all(x, has(x.operator) && x.operator == 'Exists' ? !has(x.value) : true)",
        "a value must be empty when 'operator' is 'Exists'",
    ),
    CelRule(f"self.all(x, !has(x.effect) || x.effect in {_EFFECTS})", _EFFECTS_MESSAGE),
)


class FairSharing(WireModel):
    """The weight of a queue or cohort in fair sharing."""

    weight: Annotated[Amount, Schema(defaulted=True)] = Quantity.of(1)


class FairSharingStatus(WireModel):
    """The share of a queue or cohort; the largest int64 if it borrows with weight 0."""

    weighted_share: Int64
