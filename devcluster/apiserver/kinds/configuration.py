# SPDX-License-Identifier: Apache-2.0
"""Kinds of settings: config maps, secrets, service accounts, quotas, limit ranges, leases, priority classes."""

from __future__ import annotations

from base64 import b64encode
from datetime import datetime
from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.kinds import quantities
from devcluster.apiserver.kinds.behaviour import KindBehaviour, RequestContext, age
from multikueue.core.quantity import Quantity

_RBAC: Final = "rbac.authorization.k8s.io"


def _key_problems(value: JsonObject, field: str) -> list[StatusCause]:
    found = []
    for key in documents.child(value, field):
        found += field_errors.config_key_problems(f"{field}[{key}]", key)
    return found


def _frozen(value: JsonObject, old: JsonObject | None, fields: tuple[str, ...]) -> list[StatusCause]:
    """Problems of a change to an object that is marked immutable."""
    if old is None or not old.get("immutable"):
        return []
    found = []
    if not value.get("immutable"):
        found.append(field_errors.forbidden("immutable", "field is immutable when `immutable` is set"))
    found += [
        field_errors.forbidden(name, "field is immutable when `immutable` is set")
        for name in fields
        if value.get(name) != old.get(name)
    ]
    return found


class ConfigMapBehaviour(KindBehaviour):
    """Config maps."""

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the object."""
        found = _key_problems(value, "data") + _key_problems(value, "binaryData")
        for key in documents.child(value, "data").keys() & documents.child(value, "binaryData").keys():
            found.append(field_errors.invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
        return found + _frozen(value, old, ("data", "binaryData"))

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Data, Age."""
        count = len(documents.child(value, "data")) + len(documents.child(value, "binaryData"))
        return [value["metadata"]["name"], count, age(value, now)]


_BASIC: Final = ("username", "password")


_TOKEN: Final = "kubernetes.io/service-account-token"
_ACCOUNT: Final = "kubernetes.io/service-account.name"
_NEEDED: Final[dict[str, tuple[str, ...]]] = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


class SecretBehaviour(KindBehaviour):
    """Secrets."""

    def default(self, value: JsonObject) -> None:
        """Encode `stringData` into `data`."""
        if not value.get("type"):
            value["type"] = "Opaque"
        plain = value.pop("stringData", None)
        if isinstance(plain, dict) and plain:
            data = value.get("data")
            encoded = {key: b64encode(str(text).encode()).decode() for key, text in plain.items()}
            value["data"] = {**(data if isinstance(data, dict) else {}), **encoded}

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the object."""
        found = _key_problems(value, "data")
        data = documents.child(value, "data")
        if value.get("type") == "kubernetes.io/basic-auth" and not any(name in data for name in _BASIC):
            found += [field_errors.required(f"data[{name}]") for name in _BASIC]
        found += [field_errors.required(f"data[{name}]") for name in _NEEDED.get(value["type"], ()) if name not in data]
        if value["type"] == _TOKEN and not (value["metadata"].get("annotations") or {}).get(_ACCOUNT):
            found.append(field_errors.required(f"metadata.annotations[{_ACCOUNT}]"))
        if old is not None and value.get("type") != old.get("type"):
            found.append(field_errors.immutable("type", value.get("type")))
        return found + _frozen(value, old, ("data",))

    def fields(self, value: JsonObject) -> dict[str, str]:
        """The fields that selectors can use."""
        return {"type": value.get("type", "")}

    @property
    def selectable(self) -> tuple[str, ...]:
        """The names of `fields`."""
        return ("type",)

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Type, Data, Age."""
        return [
            value["metadata"]["name"],
            value.get("type", ""),
            len(documents.child(value, "data")),
            age(value, now),
        ]


class ServiceAccountBehaviour(KindBehaviour):
    """Service accounts."""

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Age."""
        return [value["metadata"]["name"], age(value, now)]


_CALLED: Final = {"min": "min", "max": "max", "default": "default", "defaultRequest": "default request"}
# Lower bound, upper bound, the field of the error, and the field whose amount it shows.
_ORDERED: Final = (
    ("min", "max", "min", "min"),
    ("min", "defaultRequest", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "max", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "default", "defaultRequest", "defaultRequest"),
    ("min", "default", "default", "min"),
    ("default", "max", "default", "max"),
)


_LIMITS: Final = ("min", "max", "default", "defaultRequest", "maxLimitRequestRatio")


class LimitRangeBehaviour(KindBehaviour):
    """Limit ranges."""

    def default(self, value: JsonObject) -> None:
        """Defaults of a container follow from its maximum; amounts are canonical."""
        for limit in documents.items(value, "spec", "limits"):
            quantities.settle_amounts(limit, *_LIMITS)
            if limit.get("type") == "Container":
                limit.setdefault("default", {})
                limit.setdefault("defaultRequest", {})
                for name, amount in documents.child(limit, "max").items():
                    limit["default"].setdefault(name, amount)
                for name, amount in limit["default"].items():
                    limit["defaultRequest"].setdefault(name, amount)
                for name, amount in documents.child(limit, "min").items():
                    limit["defaultRequest"].setdefault(name, amount)
                for name in ("default", "defaultRequest"):
                    if not limit[name]:
                        del limit[name]

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the object."""
        found = []
        types: set[JsonValue] = set()
        for index, limit in enumerate(documents.items(value, "spec", "limits")):
            path, kind = f"spec.limits[{index}]", limit.get("type")
            if kind in types:
                found.append(field_errors.duplicate(f"{path}.type", kind))
            types.add(kind)
            for lower, upper, where, shown in _ORDERED:
                for name, amount in documents.child(limit, lower).items():
                    other = documents.child(limit, upper).get(name)
                    if other is not None and Quantity.parse(amount) > Quantity.parse(other):
                        text = f"{_CALLED[lower]} value {amount} is greater than {_CALLED[upper]} value {other}"
                        shown_amount = documents.child(limit, shown)[name]
                        found.append(field_errors.invalid(f"{path}.{where}[{name}]", shown_amount, text))
        return found

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Created At."""
        return [value["metadata"]["name"], value["metadata"].get("creationTimestamp", "")]


def _drop_coordination(value: JsonObject) -> None:
    spec = documents.child(value, "spec")
    for name in ("strategy", "preferredHolder"):
        spec.pop(name, None)


class LeaseBehaviour(KindBehaviour):
    """Leases."""

    creates_on_update = True
    unconditional = False

    def prepare_create(self, value: JsonObject, request_context: RequestContext) -> None:
        """Drop the fields of coordinated leader election, which is disabled."""
        super().prepare_create(value, request_context)
        _drop_coordination(value)

    def prepare_update(self, value: JsonObject, old: JsonObject, request_context: RequestContext) -> None:
        """The same."""
        super().prepare_update(value, old, request_context)
        _drop_coordination(value)

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the object."""
        spec = documents.child(value, "spec")
        found = []
        seconds, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
        if seconds is not None and seconds <= 0:
            found.append(field_errors.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
        if transitions is not None and transitions < 0:
            text = "must be greater than or equal to 0"
            found.append(field_errors.invalid("spec.leaseTransitions", transitions, text))
        return found

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Holder, Age."""
        return [value["metadata"]["name"], documents.child(value, "spec").get("holderIdentity") or "", age(value, now)]


_HIGHEST: Final = 1_000_000_000


_SYSTEM: Final = frozenset({"system-cluster-critical", "system-node-critical"})
_POLICIES: Final = ["PreemptLowerPriority", "Never"]


class PriorityClassBehaviour(KindBehaviour):
    """Priority classes."""

    generation = True

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        value.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def spec_changed(self, value: JsonObject, old: JsonObject) -> bool:
        """Nothing counts: the generation stays 1."""
        return False

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the object."""
        found = []
        given, name = value.get("value"), str(value["metadata"].get("name", ""))
        if old is None and isinstance(given, int) and given > _HIGHEST and not name.startswith("system-"):
            text = f"maximum allowed value of a user defined priority is {_HIGHEST}"
            found.append(field_errors.forbidden("value", text))
        if old is None and name.startswith("system-") and name not in _SYSTEM:
            text = "priority class names with 'system-' prefix are reserved for system use only. error: "
            found.append(field_errors.forbidden("metadata.name", f"{text}{name} is not a known system priority class"))
        policy = value.get("preemptionPolicy")
        if policy not in _POLICIES:
            found.append(field_errors.not_supported("preemptionPolicy", policy, _POLICIES))
        if old is not None:
            if value.get("value") != old.get("value"):
                found.append(field_errors.forbidden("value", "may not be changed in an update."))
            if value.get("preemptionPolicy") != old.get("preemptionPolicy"):
                found.append(field_errors.immutable("preemptionPolicy", value.get("preemptionPolicy")))
        return found

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Value, Global-Default, Age, Preemption Policy."""
        return [
            value["metadata"]["name"],
            value.get("value", 0),
            bool(value.get("globalDefault")),
            age(value, now),
            value.get("preemptionPolicy") or "",
        ]
