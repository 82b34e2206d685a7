# SPDX-License-Identifier: Apache-2.0
"""The spec of pods and pod templates: defaults and validation."""

from __future__ import annotations

from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.kinds import pod_rules, quantities, volumes
from devcluster.apiserver.schema.values import quoted
from multikueue.core.quantity import Quantity, QuantityError

CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")


def default_spec(spec: JsonObject) -> None:
    """Set the defaults of a pod spec."""
    for group in CONTAINERS:
        for container in documents.items(spec, group):
            _default_container(container)
    for volume in documents.items(spec, "volumes"):
        volumes.default_volume(volume)
    quantities.settle_amounts(spec, "overhead")
    quantities.settle_resources(spec)
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    if isinstance(spec["terminationGracePeriodSeconds"], int) and spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    elif spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"]


def default_template(template: JsonValue) -> None:
    """Set the defaults of a pod template."""
    if isinstance(template, dict):
        spec = template.setdefault("spec", {})
        if isinstance(spec, dict):
            default_spec(spec)


def _default_container(container: JsonObject) -> None:
    image = container.get("image", "")
    if "imagePullPolicy" not in container and isinstance(image, str):
        container["imagePullPolicy"] = volumes.pull_policy(image)
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("resources", {})
    for port in documents.items(container, "ports"):
        port.setdefault("protocol", "TCP")
    for variable in documents.items(container, "env"):
        volumes.default_references(documents.child(variable, "valueFrom"))
    for name in _PROBES:
        probe = container.get(name)
        if isinstance(probe, dict):
            for field, value in (
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ):
                if not probe.get(field):
                    probe[field] = value
            _default_action(probe)
    lifecycle = container.get("lifecycle")
    if isinstance(lifecycle, dict):
        for name in ("postStart", "preStop"):
            if isinstance(lifecycle.get(name), dict):
                _default_action(lifecycle[name])
    quantities.settle_resources(container)


def _default_action(action: JsonObject) -> None:
    get = action.get("httpGet")
    if isinstance(get, dict):
        get.setdefault("path", "/")
        get.setdefault("scheme", "HTTP")
    call = action.get("grpc")
    if isinstance(call, dict):
        call.setdefault("service", "")


def limits_as_requests(spec: JsonObject) -> None:
    """Limits become requests where those are absent; for pods, not for templates."""
    for container in (*documents.items(spec, "initContainers"), *documents.items(spec, "containers")):
        resources = container.get("resources")
        limits = resources.get("limits") if isinstance(resources, dict) else None
        if isinstance(resources, dict) and isinstance(limits, dict) and limits:
            requests = resources.setdefault("requests", {})
            for name, amount in limits.items():
                requests.setdefault(name, amount)


def validate_spec(spec: JsonObject, path: str) -> list[StatusCause]:
    """The problems of a pod spec."""
    found: list[StatusCause] = []
    known = {volume.get("name") for volume in documents.items(spec, "volumes")}
    containers = documents.items(spec, "containers")
    if not containers:
        found.append(field_errors.required(f"{path}.containers"))
    seen: set[str] = set()
    for group in CONTAINERS:
        for index, container in enumerate(documents.items(spec, group)):
            found += _container_problems(container, f"{path}.{group}[{index}]", seen, known)
    policy = spec.get("restartPolicy")
    if policy not in ("Always", "OnFailure", "Never"):
        found.append(field_errors.not_supported(f"{path}.restartPolicy", policy, ["Always", "OnFailure", "Never"]))
    found += pod_rules.pod_problems(spec, path)
    for index, volume in enumerate(documents.items(spec, "volumes")):
        name = volume.get("name", "")
        if not name:
            found.append(field_errors.required(f"{path}.volumes[{index}].name"))
        elif not field_errors.is_label(name):
            found.append(field_errors.invalid(f"{path}.volumes[{index}].name", name, field_errors.LABEL_TEXT))
    for index, toleration in enumerate(documents.items(spec, "tolerations")):
        where = f"{path}.tolerations[{index}]"
        if toleration.get("operator") == "Exists" and toleration.get("value"):
            found.append(
                field_errors.invalid(
                    f"{where}.operator", toleration["value"], "value must be empty when `operator` is 'Exists'"
                )
            )
    return found


def _container_problems(container: JsonObject, path: str, seen: set[str], known: set[JsonValue]) -> list[StatusCause]:
    found: list[StatusCause] = []
    name = container.get("name", "")
    if not name:
        found.append(field_errors.required(f"{path}.name"))
    elif not field_errors.is_label(name):
        found.append(field_errors.invalid(f"{path}.name", name, field_errors.LABEL_TEXT))
    elif name in seen:
        found.append(field_errors.duplicate(f"{path}.name", name))
    seen.add(name)
    if not container.get("image"):
        found.append(field_errors.required(f"{path}.image"))
    policy = container.get("imagePullPolicy")
    if policy not in ("Always", "IfNotPresent", "Never"):
        found.append(field_errors.not_supported(f"{path}.imagePullPolicy", policy, ["Always", "IfNotPresent", "Never"]))
    for index, mount in enumerate(documents.items(container, "volumeMounts")):
        where = f"{path}.volumeMounts[{index}]"
        if mount.get("name") not in known:
            found.append(
                StatusCause("FieldValueNotFound", f"Not found: {quoted(mount.get('name', ''))}", f"{where}.name")
            )
        if not mount.get("mountPath"):
            found.append(field_errors.required(f"{where}.mountPath"))
    found += pod_rules.container_problems(container, path)
    resources = documents.child(container, "resources")
    for group in ("limits", "requests"):
        for resource, amount in documents.child(resources, group).items():
            limit = documents.child(resources, "limits").get(resource)
            where = f"{path}.resources.{group}"
            try:
                if group == "requests" and limit is not None and Quantity.parse(amount) > Quantity.parse(limit):
                    detail = f"must be less than or equal to {resource} limit of {limit}"
                    found.append(field_errors.invalid(where, amount, detail))
                if Quantity.parse(amount) < Quantity(0):
                    detail = "must be greater than or equal to 0"
                    found.append(field_errors.invalid(f"{where}[{resource}]", amount, detail))
            except QuantityError as error:
                found.append(field_errors.invalid(f"{where}[{resource}]", amount, str(error)))
    return found
