# SPDX-License-Identifier: Apache-2.0
"""What pods and their containers may not say, beyond what they must have."""

from __future__ import annotations

from typing import Final

from multikueue.core.quantity import Quantity, QuantityError
from multikueue.devcluster.apiserver import documents, words
from multikueue.devcluster.apiserver.documents import JsonObject, JsonValue
from multikueue.devcluster.apiserver.errors import Cause

_MOST: Final = 2**31 - 1
_DNS: Final = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]
_EFFECTS: Final = ["NoSchedule", "PreferNoSchedule", "NoExecute"]
_STANDARD: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
WHOLE: Final = "must be an integer"
NOT_NEGATIVE: Final = "must be greater than or equal to 0"


def pod_problems(spec: JsonObject, path: str) -> list[Cause]:
    """What is wrong with a pod but its containers."""
    found = words.label_problems(f"{path}.nodeSelector", spec.get("nodeSelector"))
    policy = spec.get("dnsPolicy")
    if policy is not None and policy not in _DNS:
        found.append(words.one_of(f"{path}.dnsPolicy", policy, _DNS))
    seconds = spec.get("activeDeadlineSeconds")
    if seconds is not None and not 1 <= seconds <= _MOST:
        text = f"must be between 1 and {_MOST}, inclusive"
        found.append(words.bad_value(f"{path}.activeDeadlineSeconds", seconds, text))
    for index, toleration in enumerate(documents.items(spec, "tolerations")):
        found += _toleration_problems(toleration, f"{path}.tolerations[{index}]")
    seen: set[str] = set()
    for index, gate in enumerate(documents.items(spec, "schedulingGates")):
        name, where = gate.get("name", ""), f"{path}.schedulingGates[{index}]"
        found += words.key_problems(where, name)
        if name in seen:
            found.append(Cause("FieldValueDuplicate", f'Duplicate value: "{name}"', where))
        seen.add(name)
    return found


def _toleration_problems(toleration: JsonObject, path: str) -> list[Cause]:
    found = []
    operator, effect = toleration.get("operator") or "Equal", toleration.get("effect", "")
    if operator not in ("Equal", "Exists"):
        found.append(words.one_of(f"{path}.operator", operator, ["Equal", "Exists"]))
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        found.append(words.bad_value(f"{path}.effect", effect, text))
    elif effect and effect not in _EFFECTS:
        found.append(words.one_of(f"{path}.effect", effect, _EFFECTS))
    return found


def container_problems(container: JsonObject, path: str) -> list[Cause]:
    """What is wrong with the ports, variables and resources of a container."""
    found = []
    names: set[str] = set()
    for index, port in enumerate(documents.items(container, "ports")):
        where, number, name = f"{path}.ports[{index}]", port.get("containerPort", 0), port.get("name", "")
        if name and name in names:
            found.append(Cause("FieldValueDuplicate", f'Duplicate value: "{name}"', f"{where}.name"))
        names.add(name)
        if not 1 <= number <= 65535:
            text = "must be between 1 and 65535, inclusive"
            found.append(words.bad_value(f"{where}.containerPort", number, text))
        protocol = port.get("protocol", "TCP")
        if protocol not in ("SCTP", "TCP", "UDP"):
            found.append(words.one_of(f"{where}.protocol", protocol, ["SCTP", "TCP", "UDP"]))
    for index, variable in enumerate(documents.items(container, "env")):
        where = f"{path}.env[{index}]"
        if not variable.get("name"):
            found.append(words.required(f"{where}.name"))
        if variable.get("value") and variable.get("valueFrom"):
            text = "may not be specified when `value` is not empty"
            found.append(words.bad_value(f"{where}.valueFrom", "", text))
    resources = documents.child(container, "resources")
    for group in ("limits", "requests"):
        for resource, amount in documents.child(resources, group).items():
            found += resource_problems(resource, amount, f"{path}.resources.{group}[{resource}]", "containers")
    limits = documents.child(resources, "limits")
    for resource in documents.child(resources, "requests"):
        if "/" in resource and "kubernetes.io/" not in resource and resource not in limits:
            text = "Limit must be set for non overcommitable resources"
            found.append(words.required(f"{path}.resources.limits", text))
    return found


def resource_problems(resource: str, amount: JsonValue, path: str, where: str) -> list[Cause]:
    """What is wrong with the name of a resource, and with an amount of one that comes in whole numbers."""
    found = [Cause(cause.reason, cause.message, path) for cause in words.key_problems(path, resource)]
    standard = resource in _STANDARD or resource.startswith("hugepages-")
    if "/" not in resource:
        if where == "containers" and not standard:
            found.append(words.bad_value(path, resource, f"must be a standard resource for {where}"))
    elif "kubernetes.io/" not in resource:
        found += whole_problems(amount, path)
    return found


def whole_problems(amount: JsonValue, path: str) -> list[Cause]:
    """An amount that is no whole number."""
    try:
        parsed = Quantity.parse(amount)
    except QuantityError:
        return []
    if parsed != Quantity.of(parsed.ceil()):
        return [words.bad_value(path, str(parsed), WHOLE)]
    return []
