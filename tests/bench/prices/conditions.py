# SPDX-License-Identifier: Apache-2.0
"""What writes are measured under: webhooks that are asked, and versions that a definition serves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from enum import StrEnum
from itertools import count
from time import monotonic, sleep
from typing import Final

from multikueue.api import crds
from multikueue.api.resource import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    WORKLOADS,
    Resource,
)
from tests.bench.prices import hook
from tests.bench.prices.hook import HookProcess
from tests.bench.prices.kinds import KINDS, NAMESPACE, Body
from tests.bench.prices.meter import Meter

_PATIENCE: Final = 60.0
_OLD: Final = "v1beta1"
_MERGE: Final = "application/merge-patch+json"
_PROBES: Final = count()


class Asked(StrEnum):
    """A webhook for every write of the measured kinds."""

    NONE = "no webhook"
    EXCLUDED = "excluded by matchConditions"
    VALIDATING = "validating"
    MUTATING = "mutating, changes nothing"
    LABELLING = "mutating, adds a label"

    @property
    def path(self) -> str:
        """Where it is served."""
        return {Asked.LABELLING: hook.LABEL, Asked.EXCLUDED: hook.EXCLUDED}.get(self, hook.ALLOW)

    @property
    def configuration(self) -> Resource:
        """The kind of its configuration."""
        if self in (Asked.MUTATING, Asked.LABELLING):
            return MUTATING_WEBHOOK_CONFIGURATIONS
        return VALIDATING_WEBHOOK_CONFIGURATIONS


class Served(StrEnum):
    """The versions of Workloads that the API server serves; one is stored."""

    ONE = "one version"
    TWO = "two versions, no webhook"
    CONVERTED = "two versions, conversion webhook"


@contextmanager
def asking(meter: Meter, process: HookProcess, asked: Asked) -> Iterator[None]:
    """That webhook is installed and in force."""
    if asked is Asked.NONE:
        yield
        return
    path = asked.configuration.path()
    name = "bench-prices"
    manifest = {
        "apiVersion": asked.configuration.api_version,
        "kind": asked.configuration.kind,
        "metadata": {"name": name},
        "webhooks": [_hook(process, asked), _probe(process)],
    }
    meter.ask("POST", path, manifest)
    try:
        _wait_until_probed(meter, process, wanted=True)
        yield
    finally:
        meter.ask("DELETE", f"{path}/{name}")
        _wait_until_probed(meter, process, wanted=False)


def serve(meter: Meter, process: HookProcess, served: Served) -> None:
    """Change the definition of Workloads and wait until it is in force."""
    definition = _definition(process, served)
    path = CUSTOM_RESOURCE_DEFINITIONS.path(name=WORKLOADS.qualified)
    # Members that a merge patch does not name stay, so the conversion is always named.
    conversion = definition["spec"].get("conversion") or {"strategy": "None", "webhook": None}
    spec = {"versions": definition["spec"]["versions"], "conversion": conversion}
    meter.ask("PATCH", path, {"spec": spec}, _MERGE)
    old = f"{WORKLOADS.at(_OLD).path(NAMESPACE)}?limit=1"
    deadline = monotonic() + _PATIENCE
    while (meter.status_of("GET", old) == 200) is (served is Served.ONE):
        if monotonic() > deadline:
            raise TimeoutError(f"not within {_PATIENCE:.0f} s: {served}")
        sleep(0.1)
    meter.settle()


def definitions() -> list[Body]:
    """The definitions of the measured kinds with one version each, as the list of prices begins with."""
    custom = {kind.resource for kind in KINDS if "." in kind.resource.group and not _is_built_in(kind.resource)}
    found = []
    for resource in sorted(custom, key=lambda each: each.qualified):
        definition = crds.definition(resource)
        definition["spec"]["versions"] = [each for each in definition["spec"]["versions"] if each["storage"]]
        definition["spec"].pop("conversion", None)
        found.append(definition)
    return found


def _is_built_in(resource: Resource) -> bool:
    return resource.group.endswith(".k8s.io") and not resource.group.startswith("kueue.")


def _definition(process: HookProcess, served: Served) -> Body:
    target = crds.ConversionWebhook(url=f"{process.url}{crds.CONVERSION_PATH}", ca_bundle=process.ca_bundle)
    definition = deepcopy(crds.definition(WORKLOADS, webhook=target))
    spec = definition["spec"]
    if served is Served.CONVERTED:
        return definition
    current = next(each for each in spec["versions"] if each["storage"])
    spec.pop("conversion")
    spec["versions"] = [current]
    if served is Served.TWO:
        # Without conversion both versions need the same fields. What is equal in all versions a server keeps once for
        # all of them, and then refuses selectable fields for want of a schema beside them.
        schema = {"openAPIV3Schema": current["schema"]["openAPIV3Schema"] | {"description": "The older version."}}
        older = {name: value for name, value in current.items() if name != "selectableFields"}
        spec["versions"].insert(0, older | {"name": _OLD, "storage": False, "schema": schema})
    return definition


def _hook(process: HookProcess, asked: Asked) -> Body:
    resources = [
        f"{kind.resource.plural}{subresource}"
        for kind in KINDS
        if kind.resource != CONFIG_MAPS
        for subresource in ("", *(("/status",) if kind.status is not None else ()))
    ]
    entry = _entry(process, "measured", asked.path, resources)
    if asked is Asked.EXCLUDED:
        expression = "request.userInfo.username != 'multikueue-admin'"
        entry["matchConditions"] = [{"name": "not-by-us", "expression": expression}]
    return entry


def _probe(process: HookProcess) -> Body:
    return _entry(process, "probe", hook.PROBE, [CONFIG_MAPS.plural])


def _entry(process: HookProcess, name: str, path: str, resources: list[str]) -> Body:
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": resources}
    return {
        "name": f"{name}.bench.multikueue.io",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": f"{process.url}{path}", "caBundle": process.ca_bundle},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
        "rules": [rule],
    }


def _wait_until_probed(meter: Meter, process: HookProcess, *, wanted: bool) -> None:
    """Both webhooks of a configuration come into force and end together; ConfigMaps show when."""
    deadline = monotonic() + _PATIENCE
    path = CONFIG_MAPS.path(NAMESPACE)
    while True:
        name = f"probe-{next(_PROBES)}"
        before = process.counts()[hook.PROBE]
        meter.ask("POST", path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
        asked = process.counts()[hook.PROBE] > before
        meter.ask("DELETE", f"{path}/{name}")
        if asked is wanted:
            return
        if monotonic() > deadline:
            raise TimeoutError(f"not within {_PATIENCE:.0f} s: webhooks are asked, or no longer")
        sleep(0.1)
