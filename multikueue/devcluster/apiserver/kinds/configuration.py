# SPDX-License-Identifier: Apache-2.0
"""Kinds that hold settings: config maps, secrets, accounts, quotas, leases, classes, roles, webhooks."""

from __future__ import annotations

import re
from base64 import b64encode
from datetime import datetime
from typing import Final

from multikueue.devcluster.apiserver import documents, words
from multikueue.devcluster.apiserver.documents import JsonObject, JsonValue
from multikueue.devcluster.apiserver.errors import Cause
from multikueue.devcluster.apiserver.kinds import podspec
from multikueue.devcluster.apiserver.kinds.behaviour import Behaviour, Occasion, age

_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_KEY_TEXT: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_RBAC: Final = "rbac.authorization.k8s.io"


def _key_problems(value: JsonObject, field: str) -> list[Cause]:
    found = []
    for key in documents.child(value, field):
        if _KEY.fullmatch(key) is None:
            found.append(words.bad_value(f"{field}[{key}]", key, _KEY_TEXT))
    return found


def _frozen(value: JsonObject, old: JsonObject | None, fields: tuple[str, ...]) -> list[Cause]:
    """An object that said it is immutable stays as it is."""
    if old is None or not old.get("immutable"):
        return []
    found = []
    if not value.get("immutable"):
        found.append(words.forbidden("immutable", "field is immutable when `immutable` is set"))
    found += [
        words.forbidden(name, "field is immutable when `immutable` is set")
        for name in fields
        if value.get(name) != old.get(name)
    ]
    return found


class ConfigMapBehaviour(Behaviour):
    """Config maps."""

    def validate(self, value: JsonObject, old: JsonObject | None, occasion: Occasion) -> list[Cause]:
        """What is wrong with it."""
        found = _key_problems(value, "data") + _key_problems(value, "binaryData")
        return found + _frozen(value, old, ("data", "binaryData"))

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Data, Age."""
        count = len(documents.child(value, "data")) + len(documents.child(value, "binaryData"))
        return [value["metadata"]["name"], count, age(value, now)]


class SecretBehaviour(Behaviour):
    """Secrets."""

    def default(self, value: JsonObject) -> None:
        """Plain strings are encoded."""
        if not value.get("type"):
            value["type"] = "Opaque"
        plain = value.pop("stringData", None)
        if isinstance(plain, dict) and plain:
            data = value.get("data")
            encoded = {key: b64encode(str(text).encode()).decode() for key, text in plain.items()}
            value["data"] = {**(data if isinstance(data, dict) else {}), **encoded}

    def validate(self, value: JsonObject, old: JsonObject | None, occasion: Occasion) -> list[Cause]:
        """What is wrong with it."""
        found = _key_problems(value, "data")
        if old is not None and value.get("type") != old.get("type"):
            found.append(words.immutable("type", value.get("type")))
        return found + _frozen(value, old, ("data",))

    def fields(self, value: JsonObject) -> dict[str, str]:
        """What field selectors may ask for."""
        return {"type": value.get("type", "")}

    @property
    def selectable(self) -> tuple[str, ...]:
        """The names that `fields` knows."""
        return ("type",)

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Type, Data, Age."""
        return [
            value["metadata"]["name"],
            value.get("type", ""),
            len(documents.child(value, "data")),
            age(value, now),
        ]


class ServiceAccountBehaviour(Behaviour):
    """Service accounts."""

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Age."""
        return [value["metadata"]["name"], age(value, now)]


class ResourceQuotaBehaviour(Behaviour):
    """Resource quotas."""

    has_status = True

    def default(self, value: JsonObject) -> None:
        """Amounts in their canonical form."""
        hard = documents.child(value, "spec", "hard")
        for name, amount in hard.items():
            hard[name] = podspec.canonical(amount)

    def prepare_create(self, value: JsonObject, occasion: Occasion) -> None:
        """A new one counts nothing yet."""
        value["status"] = {}

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Request, Limit, Age."""
        status = documents.child(value, "status")
        hard, used = documents.child(status, "hard"), documents.child(status, "used")
        requests: list[str] = []
        limits: list[str] = []
        for name in sorted(hard):
            (limits if name.startswith("limits.") else requests).append(f"{name}: {used.get(name, '0')}/{hard[name]}")
        return [value["metadata"]["name"], ", ".join(requests), ", ".join(limits), age(value, now)]


class LimitRangeBehaviour(Behaviour):
    """Limit ranges."""

    def default(self, value: JsonObject) -> None:
        """What a container gets when it asks for nothing follows from the largest it may have."""
        for limit in documents.items(value, "spec", "limits"):
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

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Created At."""
        return [value["metadata"]["name"], value["metadata"].get("creationTimestamp", "")]


class LeaseBehaviour(Behaviour):
    """Leases."""

    creates_on_update = True
    unconditional = False

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Holder, Age."""
        return [value["metadata"]["name"], documents.child(value, "spec").get("holderIdentity") or "", age(value, now)]


class PriorityClassBehaviour(Behaviour):
    """Priority classes."""

    generation = True

    def default(self, value: JsonObject) -> None:
        """Fill in what clients may leave out."""
        value.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def validate(self, value: JsonObject, old: JsonObject | None, occasion: Occasion) -> list[Cause]:
        """What is wrong with it."""
        found = []
        if old is not None:
            if value.get("value") != old.get("value"):
                found.append(words.forbidden("value", "may not be changed in an update."))
            if value.get("preemptionPolicy") != old.get("preemptionPolicy"):
                found.append(words.immutable("preemptionPolicy", value.get("preemptionPolicy")))
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
