# SPDX-License-Identifier: Apache-2.0
"""The differences between a job's pod set and that of a Workload that a user created for it.

Owns which parts of a pod have to be equal, so that the Workload holds quota for the pods that run: the counts,
containers and init containers, node selector, tolerations, and every other field that determines amounts and flavors
(resources of the pod, overhead, runtime class, device claims, required node affinity). Defaults that an API server
sets in the containers of a job, but not of a Workload, are no difference, nor are two forms of one quantity.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from multikueue.api.objects import JsonObject
from multikueue.api.stored_template import stored_template
from multikueue.core.errors import BadInput
from multikueue.core.printable import printable
from multikueue.core.quantity import Quantity

_CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")
_EXACT: Final = ("runtimeClassName", "resourceClaims")
_AFFINITY: Final = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
_EMPTY: Final[tuple[object, ...]] = (None, "", 0, False, {}, [])
"""Values of a container's field that mean the same as an absent field."""
_DEFAULTS: Final[Mapping[str, object]] = {
    "apiVersion": "v1",
    "divisor": "0",
    "failureThreshold": 3,
    "path": "/",
    "periodSeconds": 10,
    "procMount": "Default",
    "protocol": "TCP",
    "scheme": "HTTP",
    "successThreshold": 1,
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "timeoutSeconds": 1,
}
"""The defaults that API servers set in containers, by field."""
_PULL_POLICY: Final = "imagePullPolicy"  # its default depends on the image
_LENGTH: Final = 60
_SHOWN: Final = 5


def differences(job: JsonObject, workload: JsonObject, *, at: str) -> tuple[str, ...]:
    """One text per difference: the path of the field below `at`, and the values of the job and of the Workload."""
    return tuple(_pod_set(job, workload, at))


def summary(found: Sequence[str]) -> str:
    """Several differences as one text; only the first few of many."""
    text = "; ".join(found[:_SHOWN])
    return text if len(found) <= _SHOWN else f"{text}; and {len(found) - _SHOWN} more"


def _pod_set(job: JsonObject, workload: JsonObject, at: str) -> Iterator[str]:
    for field in ("count", "minCount"):
        if job.get(field) != workload.get(field):
            yield _difference(f"{at}.{field}", job.get(field), workload.get(field))
    one, other = (stored_template(each.get("template") or {}).get("spec") or {} for each in (job, workload))
    path = f"{at}.template.spec"
    for field in _CONTAINERS:
        yield from _containers(one.get(field) or [], other.get(field) or [], f"{path}.{field}")
    yield from _resources(one.get("resources") or {}, other.get("resources") or {}, f"{path}.resources")
    yield from _amounts(one.get("overhead") or {}, other.get("overhead") or {}, f"{path}.overhead")
    yield from _selector(one.get("nodeSelector") or {}, other.get("nodeSelector") or {}, f"{path}.nodeSelector")
    if _tolerated(one) != _tolerated(other):
        yield _difference(f"{path}.tolerations", one.get("tolerations"), other.get("tolerations"))
    for field in _EXACT:
        yield from _values(one.get(field), other.get(field), f"{path}.{field}")
    yield from _values(_deep(one, _AFFINITY), _deep(other, _AFFINITY), f"{path}.{'.'.join(_AFFINITY)}")


def _containers(job: Sequence[JsonObject], workload: Sequence[JsonObject], path: str) -> Iterator[str]:
    names, others = ([each.get("name") for each in side] for side in (job, workload))
    if names != others:
        yield _difference(path, names, others)
        return
    for index, (one, other) in enumerate(zip(job, workload, strict=True)):
        where = f"{path}[{index}]"
        yield from _resources(one.get("resources") or {}, other.get("resources") or {}, f"{where}.resources")
        # This decides which init containers are sidecars.
        if one.get("restartPolicy") != other.get("restartPolicy"):
            yield _difference(f"{where}.restartPolicy", one.get("restartPolicy"), other.get("restartPolicy"))
        compared = {"resources", "restartPolicy"}
        yield from _values(_without(one, compared), _without(other, compared), where)


def _resources(job: JsonObject, workload: JsonObject, path: str) -> Iterator[str]:
    if not (_are_resources(job) and _are_resources(workload)):
        yield from _values(job, workload, path)
        return
    yield from _amounts(_requests(job), _requests(workload), f"{path}.requests")
    yield from _amounts(job.get("limits") or {}, workload.get("limits") or {}, f"{path}.limits")
    yield from _values(job.get("claims"), workload.get("claims"), f"{path}.claims")


def _are_resources(value: object) -> bool:
    """Whether the value has their shape: the schema of a declared kind may not hold it."""
    return isinstance(value, dict) and all(isinstance(value.get(part) or {}, dict) for part in ("requests", "limits"))


def _requests(resources: JsonObject) -> JsonObject:
    """The effective requests; a limit is the default of a request."""
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _amounts(job: JsonObject, workload: JsonObject, path: str) -> Iterator[str]:
    for name in _names(job, workload):
        one, other = job.get(name), workload.get(name)
        if one != other and (one is None or other is None or not _equal(one, other)):
            yield _difference(f"{path}[{name}]", one, other)


def _equal(one: object, other: object) -> bool:
    try:
        return Quantity.parse(str(one)) == Quantity.parse(str(other))
    except BadInput:
        return False


def _selector(job: JsonObject, workload: JsonObject, path: str) -> Iterator[str]:
    for name in _names(job, workload):
        if job.get(name) != workload.get(name):
            yield _difference(f"{path}[{name}]", job.get(name), workload.get(name))


def _tolerated(spec: JsonObject) -> list[str]:
    """The tolerations, whose order does not matter."""
    found: Iterable[JsonObject] = spec.get("tolerations") or ()
    return sorted(json.dumps({"operator": "Equal"} | each, sort_keys=True) for each in found)


def _values(job: object, workload: object, path: str) -> Iterator[str]:
    """Any other field, down to the ones that differ."""
    one, other = job or None, workload or None
    if one == other:
        return
    if isinstance(one, dict | None) and isinstance(other, dict | None):
        # An API server defaults hostPort to containerPort.
        ports = {"hostPort": (one or other or {}).get("containerPort")}
        mine, theirs = one or {}, other or {}
        for name in _names(mine, theirs):
            if not _defaulted(name, mine.get(name), theirs.get(name), ports):
                yield from _values(mine.get(name), theirs.get(name), f"{path}.{name}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            yield from _values(mine, theirs, f"{path}[{index}]")
    else:
        yield _difference(path, job, workload)


def _defaulted(name: str, job: object, workload: object, more: Mapping[str, object]) -> bool:
    """Whether one side omits the field and the other has its default."""
    if job not in _EMPTY and workload not in _EMPTY:
        return False
    value = workload if job in _EMPTY else job
    return value in _EMPTY or name == _PULL_POLICY or value == {**_DEFAULTS, **more}.get(name)


def _names(job: Mapping[str, object], workload: Mapping[str, object]) -> list[str]:
    return sorted(job.keys() | workload.keys())


def _without(container: JsonObject, names: Iterable[str]) -> JsonObject:
    return {name: value for name, value in container.items() if name not in names}


def _deep(value: object, path: Iterable[str]) -> object:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _difference(path: str, job: object, workload: object) -> str:
    return f"{printable(path)}: Job has {_shown(job)}, Workload has {_shown(workload)}"


def _shown(value: object) -> str:
    if value is None or value == [] or value == {}:
        return "nothing"
    text = printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return text if len(text) <= _LENGTH else f"{text[:_LENGTH]}…"
