# SPDX-License-Identifier: Apache-2.0
"""What services may not say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from multikueue.devcluster.apiserver import documents, words
from multikueue.devcluster.apiserver.documents import JsonObject, JsonValue
from multikueue.devcluster.apiserver.errors import Cause

_PROTOCOLS: Final = ["SCTP", "TCP", "UDP"]
_TYPES: Final = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]
_AFFINITIES: Final = ["ClientIP", "None"]
_LONGEST: Final = 86_400
_NAME: Final = re.compile("[-a-z0-9]+")
_RANGE: Final = "must be between 1 and 65535, inclusive"


def problems(spec: JsonObject, *, new: bool) -> list[Cause]:
    """What is wrong with the spec of a service."""
    found = [*_kind(spec), *_ports(documents.items(spec, "ports")), *_affinity(spec)]
    if new and spec.get("type") == "ClusterIP":
        for index, port in enumerate(documents.items(spec, "ports")):
            if port.get("nodePort"):
                text = "may not be used when `type` is 'ClusterIP'"
                found.append(words.forbidden(f"spec.ports[{index}].nodePort", text))
    return found


def _kind(spec: JsonObject) -> Iterator[Cause]:
    kind = spec.get("type")
    if kind not in _TYPES:
        yield words.unsupported("spec.type", kind, _TYPES)
    elif kind == "ExternalName":
        if not spec.get("externalName"):
            yield words.required("spec.externalName")
    elif not spec.get("ports") and spec.get("clusterIP") != "None":
        yield words.required("spec.ports")


def _affinity(spec: JsonObject) -> Iterator[Cause]:
    affinity = spec.get("sessionAffinity")
    if affinity not in _AFFINITIES:
        yield words.unsupported("spec.sessionAffinity", affinity, _AFFINITIES)
    seconds = documents.child(spec, "sessionAffinityConfig", "clientIP").get("timeoutSeconds")
    if affinity == "ClientIP" and isinstance(seconds, int) and not 0 < seconds <= _LONGEST:
        text = f"must be greater than 0 and less than {_LONGEST}"
        yield words.bad_value("spec.sessionAffinityConfig.clientIP.timeoutSeconds", seconds, text)


def _ports(ports: list[JsonObject]) -> Iterator[Cause]:
    names: set[JsonValue] = set()
    taken: set[tuple[JsonValue, JsonValue]] = set()
    for index, port in enumerate(ports):
        path, name, number, protocol = f"spec.ports[{index}]", port.get("name"), port.get("port"), port.get("protocol")
        if name:
            yield from words.name_problems(f"{path}.name", name, label=True)
            if name in names:
                yield Cause("FieldValueDuplicate", f'Duplicate value: "{name}"', f"{path}.name")
            names.add(name)
        elif len(ports) > 1:
            yield words.required(f"{path}.name")
        for field in ("port", "targetPort"):
            value = port.get(field)
            if isinstance(value, int) and not 0 < value < 1 << 16:
                yield words.bad_value(f"{path}.{field}", value, _RANGE)
        target = port.get("targetPort")
        if isinstance(target, str) and not _NAME.fullmatch(target):
            text = "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
            yield words.bad_value(f"{path}.targetPort", target, text)
        if protocol not in _PROTOCOLS:
            yield words.unsupported(f"{path}.protocol", protocol, _PROTOCOLS)
        if (protocol, number) in taken:
            shown = (
                f'{{"Name":"","Protocol":"{protocol}","AppProtocol":null,"Port":{number},"TargetPort":0,"NodePort":0}}'
            )
            yield Cause("FieldValueDuplicate", f"Duplicate value: {shown}", path)
        taken.add((protocol, number))
