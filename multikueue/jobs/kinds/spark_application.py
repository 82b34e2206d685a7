# SPDX-License-Identifier: Apache-2.0
"""The pods of a SparkApplication, whose resources are fields of its own and in units of the JVM."""

from __future__ import annotations

import re
from typing import Any, Final

from multikueue.api.objects import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt
from multikueue.core.quantity import Quantity
from multikueue.jobs.declared.integration import DeclaredIntegration
from multikueue.jobs.declared.paths import Keys, shown, value_at, with_value, without_value
from multikueue.jobs.declared.pod_set_places import PodSetPlace
from multikueue.jobs.declared.template_types import pod_template
from multikueue.jobs.framework.protocol import InjectionConflict

_MEMORY: Final = re.compile(r"([0-9]{1,12})([kmgtp]?)b?", re.IGNORECASE)
_MEBIBYTE: Final = 2**20
_UNITS: Final = {"": 1, "k": 2**10, "m": _MEBIBYTE, "g": 2**30, "t": 2**40, "p": 2**50}
_DEFAULT_MEMORY: Final = "1g"
_LEAST_OVERHEAD: Final = 384  # MiB
_OVERHEAD_PERCENT: Final = {"Java": 10, "Scala": 10}
_OTHER_OVERHEAD_PERCENT: Final = 40
_FIELDS: Final = (
    ("labels", ("metadata", "labels")),
    ("annotations", ("metadata", "annotations")),
    ("nodeSelector", ("spec", "nodeSelector")),
    ("tolerations", ("spec", "tolerations")),
)
"""The fields of driver and executor, and where they are in a pod template."""


class SparkIntegration(DeclaredIntegration):
    """`sparkoperator.k8s.io/sparkapplication`."""

    def places(self, job: JsonObject) -> tuple[PodSetPlace, ...]:
        """The driver and the executors."""
        return tuple(
            PodSetPlace(
                name=declared.name,
                count=1 if (count := declared.count.of(job)) is None else count,
                keys=declared.template.keys or (),
                template=_template(job, declared.template.keys or (), name=declared.name),
                declared=declared,
                scope=job,
            )
            for declared in self.spec.pod_sets
        )

    def with_template(self, job: JsonObject, place: PodSetPlace, template: JsonObject) -> JsonObject:
        """The fields of the driver or the executors that Spark puts into their pods. Raises `InjectionConflict`."""
        if value_at(template, ("spec", "schedulingGates")):
            raise InjectionConflict(f'pod set "{place.name}": pods of Spark cannot have scheduling gates')
        for field, keys in _FIELDS:
            value = value_at(template, keys)
            where = (*place.keys, field)
            job = with_value(job, where, value) if value else without_value(job, where)
        return job


def _template(job: JsonObject, keys: Keys, *, name: str) -> JsonObject:
    at = shown(keys)
    pod = value_at(job, keys)
    if not isinstance(pod, dict):
        raise BadInput(f"{at}: expected an object, found {excerpt(pod)}")
    made: JsonObject = {
        "spec": {"containers": [{"name": f"spark-kubernetes-{name}", "resources": {"requests": _requests(job, keys)}}]}
    }
    for field, inside in _FIELDS:
        made = with_value(made, inside, pod[field]) if pod.get(field) else made
    if pod.get("priorityClassName"):
        made = with_value(made, ("spec", "priorityClassName"), pod["priorityClassName"])
    return pod_template(made, at=at)


def _requests(job: JsonObject, keys: Keys) -> dict[str, Any]:
    at = shown(keys)
    pod = value_at(job, keys)
    cores = pod.get("coreRequest")
    cpu = Quantity.parse(str(pod.get("cores") or 1) if cores is None else str(cores))
    memory = _mebibytes(pod.get("memory") or _DEFAULT_MEMORY, at=f"{at}.memory")
    overhead = pod.get("memoryOverhead")
    if overhead is not None:
        extra = _mebibytes(overhead, at=f"{at}.memoryOverhead")
    else:
        percent = _OVERHEAD_PERCENT.get(str(value_at(job, ("spec", "type"))), _OTHER_OVERHEAD_PERCENT)
        extra = max(_LEAST_OVERHEAD, memory * percent // 100)
    found: dict[str, Any] = {"cpu": str(cpu), "memory": str(Quantity.parse(f"{memory + extra}Mi"))}
    gpu = pod.get("gpu")
    if isinstance(gpu, dict) and gpu.get("name"):
        found[str(gpu["name"])] = str(Quantity.parse(str(gpu.get("quantity") or 0)))
    return found


def _mebibytes(text: object, *, at: str) -> int:
    found = _MEMORY.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise BadInput(f"{at}: expected memory such as 512m or 2g, found {excerpt(text)}")
    return -(-int(found[1]) * _UNITS[found[2].lower()] // _MEBIBYTE)
