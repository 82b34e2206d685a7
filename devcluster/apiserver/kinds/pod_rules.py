# SPDX-License-Identifier: Apache-2.0
"""Validation of pods and their containers, beyond the required fields."""

from __future__ import annotations

from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.kinds import selector_rules
from multikueue.core.quantity import Quantity, QuantityError

_MOST: Final = 2**31 - 1
_DNS: Final = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]
_EFFECTS: Final = ["NoSchedule", "PreferNoSchedule", "NoExecute"]
_POD_NAMES: Final = {"serviceAccountName": False, "hostname": True, "subdomain": True, "priorityClassName": False}
"""The names in a pod spec, and whether each must be a DNS label instead of a subdomain."""
_PROBES: Final = {"livenessProbe": 1, "readinessProbe": None, "startupProbe": 1}
"""The probes, and the only `successThreshold` that each can have."""
_PROBE_NUMBERS: Final = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)
_AFFINITY_TERMS: Final = {
    "requiredDuringSchedulingIgnoredDuringExecution": "",
    "preferredDuringSchedulingIgnoredDuringExecution": "podAffinityTerm",
}
"""The fields of an affinity to pods, and where the term is in their entries."""
_HANDLERS: Final = frozenset({"exec", "httpGet", "tcpSocket", "grpc"})
_STANDARD: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
WHOLE: Final = "must be an integer"
NOT_NEGATIVE: Final = "must be greater than or equal to 0"


def pod_problems(spec: JsonObject, path: str) -> list[StatusCause]:
    """The problems of a pod's spec, apart from its containers."""
    found = field_errors.label_problems(f"{path}.nodeSelector", spec.get("nodeSelector"))
    policy = spec.get("dnsPolicy")
    if policy is not None and policy not in _DNS:
        found.append(field_errors.not_supported(f"{path}.dnsPolicy", policy, _DNS))
    seconds = spec.get("activeDeadlineSeconds")
    if seconds is not None and not 1 <= seconds <= _MOST:
        text = f"must be between 1 and {_MOST}, inclusive"
        found.append(field_errors.invalid(f"{path}.activeDeadlineSeconds", seconds, text))
    for index, toleration in enumerate(documents.items(spec, "tolerations")):
        found += _toleration_problems(toleration, f"{path}.tolerations[{index}]")
    for field, label in _POD_NAMES.items():
        if spec.get(field):
            found += field_errors.name_problems(f"{path}.{field}", spec[field], label=label)
    context = documents.child(spec, "securityContext")
    found += _user_problems(context, f"{path}.securityContext")
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        found += _id_problems(group, f"{path}.securityContext.supplementalGroups[{index}]")
    found += _placement_problems(spec, path)
    seen: set[str] = set()
    for index, gate in enumerate(documents.items(spec, "schedulingGates")):
        name, where = gate.get("name", ""), f"{path}.schedulingGates[{index}]"
        found += field_errors.key_problems(where, name)
        if name in seen:
            found.append(field_errors.duplicate(where, name))
        seen.add(name)
    return found


def _placement_problems(spec: JsonObject, path: str) -> list[StatusCause]:
    """The problems of the selectors of other pods."""
    found: list[StatusCause] = []
    for index, spread in enumerate(documents.items(spec, "topologySpreadConstraints")):
        where = f"{path}.topologySpreadConstraints[{index}].labelSelector"
        found += selector_rules.problems(spread.get("labelSelector"), where)
    for kind in ("podAffinity", "podAntiAffinity"):
        for field, inside in _AFFINITY_TERMS.items():
            for index, entry in enumerate(documents.items(spec, "affinity", kind, field)):
                term = documents.child(entry, inside) if inside else entry
                where = ".".join(filter(None, (f"{path}.affinity.{kind}.{field}[{index}]", inside)))
                for name in ("labelSelector", "namespaceSelector"):
                    found += selector_rules.problems(term.get(name), f"{where}.{name}")
    return found


def _user_problems(context: JsonObject, path: str) -> list[StatusCause]:
    """The problems of the users and groups in a security context of a pod or a container."""
    found = []
    for field in ("fsGroup", "runAsUser", "runAsGroup"):
        if context.get(field) is not None:
            found += _id_problems(context[field], f"{path}.{field}")
    return found


def _id_problems(number: int, path: str) -> list[StatusCause]:
    if 0 <= number <= _MOST:
        return []
    return [field_errors.invalid(path, number, f"must be between 0 and {_MOST}, inclusive")]


def _toleration_problems(toleration: JsonObject, path: str) -> list[StatusCause]:
    found = []
    operator, effect = toleration.get("operator") or "Equal", toleration.get("effect", "")
    if operator not in ("Equal", "Exists"):
        found.append(field_errors.not_supported(f"{path}.operator", operator, ["Equal", "Exists"]))
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        found.append(field_errors.invalid(f"{path}.effect", effect, text))
    elif effect and effect not in _EFFECTS:
        found.append(field_errors.not_supported(f"{path}.effect", effect, _EFFECTS))
    return found


def container_problems(container: JsonObject, path: str) -> list[StatusCause]:
    """The problems of the ports, variables, probes, users and resources of a container."""
    found = []
    names: set[str] = set()
    for index, port in enumerate(documents.items(container, "ports")):
        where, number, name = f"{path}.ports[{index}]", port.get("containerPort", 0), port.get("name", "")
        if name and name in names:
            found.append(field_errors.duplicate(f"{where}.name", name))
        names.add(name)
        if not 1 <= number <= 65535:
            text = "must be between 1 and 65535, inclusive"
            found.append(field_errors.invalid(f"{where}.containerPort", number, text))
        protocol = port.get("protocol", "TCP")
        if protocol not in ("SCTP", "TCP", "UDP"):
            found.append(field_errors.not_supported(f"{where}.protocol", protocol, ["SCTP", "TCP", "UDP"]))
    for index, variable in enumerate(documents.items(container, "env")):
        where = f"{path}.env[{index}]"
        if not variable.get("name"):
            found.append(field_errors.required(f"{where}.name"))
        if variable.get("value") and variable.get("valueFrom"):
            text = "may not be specified when `value` is not empty"
            found.append(field_errors.invalid(f"{where}.valueFrom", "", text))
        for field in ("configMapKeyRef", "secretKeyRef"):
            reference = documents.child(variable, "valueFrom").get(field)
            if isinstance(reference, dict):
                found += _key_reference_problems(reference, f"{where}.valueFrom.{field}")
    for index, source in enumerate(documents.items(container, "envFrom")):
        for field in ("configMapRef", "secretRef"):
            if isinstance(source.get(field), dict):
                found += _source_problems(source[field], f"{path}.envFrom[{index}].{field}")
    for field, threshold in _PROBES.items():
        if isinstance(container.get(field), dict):
            found += _probe_problems(container[field], f"{path}.{field}", threshold)
    found += _user_problems(documents.child(container, "securityContext"), f"{path}.securityContext")
    resources = documents.child(container, "resources")
    for group in ("limits", "requests"):
        for resource, amount in documents.child(resources, group).items():
            found += resource_problems(resource, amount, f"{path}.resources.{group}[{resource}]", "containers")
    limits = documents.child(resources, "limits")
    for resource in documents.child(resources, "requests"):
        if "/" in resource and "kubernetes.io/" not in resource and resource not in limits:
            text = "Limit must be set for non overcommitable resources"
            found.append(field_errors.required(f"{path}.resources.limits", text))
    return found


def _key_reference_problems(reference: JsonObject, path: str) -> list[StatusCause]:
    """The problems of a reference to a key of a ConfigMap or a Secret."""
    found = field_errors.name_problems(f"{path}.name", reference.get("name") or "")
    if not reference.get("key"):
        return [*found, field_errors.required(f"{path}.key")]
    return found + field_errors.config_key_problems(f"{path}.key", reference["key"])


def _source_problems(reference: JsonObject, path: str) -> list[StatusCause]:
    """The problems of a reference to a whole ConfigMap or Secret."""
    if not reference.get("name"):
        return [field_errors.required(f"{path}.name")]
    return field_errors.name_problems(f"{path}.name", reference["name"])


def _probe_problems(probe: JsonObject, path: str, threshold: int | None) -> list[StatusCause]:
    found = [
        field_errors.invalid(f"{path}.{field}", probe[field], NOT_NEGATIVE)
        for field in _PROBE_NUMBERS
        if probe.get(field) is not None and probe[field] < 0
    ]
    if not _HANDLERS & probe.keys():
        found.append(field_errors.required(path, "must specify a handler type"))
    if threshold is not None and probe.get("successThreshold", threshold) != threshold:
        found.append(
            field_errors.invalid(f"{path}.successThreshold", probe["successThreshold"], f"must be {threshold}")
        )
    return found


def resource_problems(resource: str, amount: JsonValue, path: str, where: str) -> list[StatusCause]:
    """The problems of a resource's name, and of the amount if only whole numbers are valid."""
    found = [StatusCause(cause.reason, cause.message, path) for cause in field_errors.key_problems(path, resource)]
    standard = resource in _STANDARD or resource.startswith("hugepages-")
    if "/" not in resource:
        if where == "containers" and not standard:
            found.append(field_errors.invalid(path, resource, f"must be a standard resource for {where}"))
    elif "kubernetes.io/" not in resource:
        found += whole_problems(amount, path)
    return found


def whole_problems(amount: JsonValue, path: str) -> list[StatusCause]:
    """The problem of an amount that is no whole number."""
    try:
        parsed = Quantity.parse(amount)
    except QuantityError:
        return []
    if parsed != Quantity.of(parsed.ceil()):
        return [field_errors.invalid(path, str(parsed), WHOLE)]
    return []
