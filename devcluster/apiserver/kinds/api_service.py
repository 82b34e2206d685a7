# SPDX-License-Identifier: Apache-2.0
"""APIServices: group versions that this server or another one serves."""

from __future__ import annotations

import re
from base64 import b64decode
from datetime import datetime
from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.kinds.behaviour import KindBehaviour, RequestContext, age

_VERSION: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_PORT: Final = 443
_AVAILABLE: Final = {
    "type": "Available",
    "status": "True",
    "reason": "Local",
    "message": "Local APIServices are always available",
}
_LIMITS: Final = (("groupPriorityMinimum", 20_000), ("versionPriority", 1_000))


class ApiServiceBehaviour(KindBehaviour):
    """APIServices; they have no generation."""

    has_status = True

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        service = documents.child(value, "spec").get("service")
        if isinstance(service, dict):
            service.setdefault("port", _PORT)

    def prepare_create(self, value: JsonObject, request_context: RequestContext) -> None:
        """Set the status of a new one: what this server serves itself is available."""
        super().prepare_create(value, request_context)
        if documents.child(value, "spec").get("service") is None:
            value["status"] = {"conditions": [{**_AVAILABLE, "lastTransitionTime": request_context.now}]}

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the object."""
        spec = documents.child(value, "spec")
        group, version = spec.get("group", ""), spec.get("version", "")
        name, wanted = value["metadata"].get("name", ""), f"{version}.{group}"
        found = []
        if name != wanted:
            detail = f'must be `spec.version+"."+spec.group`: "{wanted}"'
            found.append(field_errors.invalid("metadata.name", name, detail))
        if group:
            found += field_errors.name_problems("spec.group", group)
        elif version != "v1":
            detail = "only v1 may have an empty group and it better be legacy kube"
            found.append(field_errors.required("spec.group", detail))
        if len(version) > 63 or _VERSION.fullmatch(version) is None:
            found.append(field_errors.invalid("spec.version", version, field_errors.DNS_1035_TEXT))
        for field, limit in _LIMITS:
            number = spec.get(field, 0)
            if not 0 < number <= limit:
                found.append(field_errors.invalid(f"spec.{field}", number, f"must be positive and less than {limit}"))
        return found + (_remote(spec) if spec.get("service") is not None else _local(spec))

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Service, Available, Age."""
        service = documents.child(value, "spec", "service")
        shown = f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"
        available = "Unknown"
        for condition in documents.items(value, "status", "conditions"):
            if condition.get("type") == "Available":
                state = condition.get("status", "")
                available = state if state == "True" else f"{state} ({condition.get('reason', '')})"
        return [value["metadata"]["name"], shown, available, age(value, now)]


def _local(spec: JsonObject) -> list[StatusCause]:
    found = []
    if spec.get("caBundle"):
        size = f"{len(b64decode(spec['caBundle']))} bytes"
        found.append(field_errors.invalid("spec.caBundle", size, "local APIServices may not have a caBundle"))
    if spec.get("insecureSkipTLSVerify"):
        detail = "local APIServices may not have insecureSkipTLSVerify"
        found.append(field_errors.invalid("spec.insecureSkipTLSVerify", True, detail))
    return found


def _remote(spec: JsonObject) -> list[StatusCause]:
    service = spec["service"]
    found = [field_errors.required(f"spec.service.{name}") for name in ("namespace", "name") if not service.get(name)]
    port = service.get("port", _PORT)
    if not 0 < port < 1 << 16:
        detail = "port is not valid: must be between 1 and 65535, inclusive"
        found.append(field_errors.invalid("spec.service.port", port, detail))
    if spec.get("insecureSkipTLSVerify") and spec.get("caBundle"):
        detail = "may not be true if caBundle is present"
        found.append(field_errors.invalid("spec.insecureSkipTLSVerify", True, detail))
    return found
