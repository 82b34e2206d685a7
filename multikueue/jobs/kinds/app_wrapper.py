# SPDX-License-Identifier: Apache-2.0
"""The pod sets of an AppWrapper: each component lists where in its object the pod templates are.

What admission adds is written to `podSetInfos` of the component, from which the AppWrapper's controller adds it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from multikueue.api.objects import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.parsing import MAX_INT32, parse_unsigned
from multikueue.core.printable import excerpt
from multikueue.jobs.declared.declaration import MAX_POD_SETS
from multikueue.jobs.declared.integration import DeclaredIntegration
from multikueue.jobs.declared.paths import Keys, shown, value_at, with_value, without_value
from multikueue.jobs.declared.pod_set_places import PodSetPlace, pod_set_name, require_distinct
from multikueue.jobs.declared.template_types import pod_template
from multikueue.jobs.framework.pod_templates import injected
from multikueue.jobs.framework.protocol import PodSetInfo

_COMPONENTS: Final[Keys] = ("spec", "components")
_PODS: Final[tuple[Keys, ...]] = (("spec", "template", "spec", "containers"), ("spec", "containers"))
_CONTAINERS: Final = ("initContainers", "containers")
_COUNTED: Final = frozenset(
    {
        *("affinity", "nodeSelector", "overhead", "priorityClassName", "resourceClaims", "resources"),
        *("runtimeClassName", "schedulingGates", "tolerations", "topologySpreadConstraints"),
    }
)
_NOT_COUNTED: Final = frozenset(
    {
        *("env", "envFrom", "lifecycle", "livenessProbe", "ports", "readinessProbe", "resizePolicy", "startupProbe"),
        *("stdin", "stdinOnce", "tty", "volumeDevices", "volumeMounts", "workingDir"),
    }
)
_MESSAGES: Final = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
_MAX_PATH: Final = 256
_STEP: Final = re.compile(r"([A-Za-z][A-Za-z0-9]*)((?:\[[0-9]{1,4}\])*)")


class AppWrapperIntegration(DeclaredIntegration):
    """`workload.codeflare.dev/appwrapper`."""

    def places(self, job: JsonObject) -> tuple[PodSetPlace, ...]:
        """The pod sets that the components list, named after the AppWrapper and counted from 0."""
        found: list[PodSetPlace] = []
        for keys, entry in _listed(job):
            at = shown(keys)
            if len(found) == MAX_POD_SETS:
                raise BadInput(f"expected at most {MAX_POD_SETS} pod sets, found more")
            inside = _template_keys(entry.get("path"), at=f"{at}.path")
            template = (*keys[:3], *inside)
            value = value_at(job, template)
            if value is None:
                raise BadInput(f"{at}.path: expected a pod template at {shown(template)}, found nothing")
            count = entry.get("replicas")
            found.append(
                PodSetPlace(
                    name=pod_set_name(f"{value_at(job, ('metadata', 'name'))}-{len(found)}", at="metadata.name"),
                    count=1 if count is None else parse_unsigned(count, field=f"{at}.replicas", maximum=MAX_INT32),
                    keys=template,
                    template=pod_template(value, at=shown(template)),
                    declared=self.spec.pod_sets[0],
                    scope=job,
                )
            )
        if not found:
            raise BadInput("spec.components: expected a component with podSets, found none")
        return require_distinct(found)

    def counted(self, pod_set: JsonObject) -> JsonObject:
        """Without fields that neither quota nor placement depends on, of which Kueue has only some."""
        template: JsonObject = pod_set.get("template") or {}
        spec: JsonObject = template.get("spec") or {}
        counted = {name: value for name, value in spec.items() if name in _COUNTED}
        groups = {name: [_counted_container(each) for each in spec[name]] for name in _CONTAINERS if spec.get(name)}
        return {**pod_set, "template": {**template, "spec": {**counted, **groups}}}

    def sent_spec(self, spec: JsonObject) -> JsonObject:
        """The spec of the Workload on a worker, which Kueue compares with what it counts of the AppWrapper."""
        return {**spec, "podSets": [self.counted(each) for each in spec.get("podSets") or ()]}

    def counted_template(self, job: JsonObject, place: PodSetPlace) -> JsonObject:
        """The template with the info of its component."""
        keys = self._info_keys(job, place)
        info = value_at(job, keys)
        return injected(place.template, _info(place.name, info, at=shown(keys))) if info else place.template

    def with_infos(self, job: JsonObject, infos: Sequence[PodSetInfo]) -> JsonObject:
        """The components with one info for each of their pod sets. Raises `InjectionConflict`."""
        super().with_infos(job, infos)  # for the conflicts that the AppWrapper's controller would have
        by_name = {info.name: info for info in infos}
        listed: dict[Keys, list[JsonObject]] = {}
        for place in self.places(job) if infos else ():
            listed.setdefault(self._info_keys(job, place)[:-1], []).append(_written(by_name[place.name]))
        for keys, entries in listed.items():
            job = with_value(job, keys, entries)
        return job

    def with_original(self, job: JsonObject, pod_sets: Sequence[JsonObject]) -> JsonObject:
        """Without infos."""
        for index, _ in enumerate(_components(job)):
            job = without_value(job, (*_COMPONENTS, index, "podSetInfos"))
        return job

    def _info_keys(self, job: JsonObject, place: PodSetPlace) -> Keys:
        component = place.keys[:3]
        earlier = [each for each in self.places(job) if each.keys[:3] == component]
        return (*component, "podSetInfos", [each.name for each in earlier].index(place.name))


def _counted_container(container: JsonObject) -> JsonObject:
    kept = {name: value for name, value in container.items() if name not in _NOT_COUNTED}
    name = str(container.get("image") or "").rpartition("/")[2]
    is_fixed = "@" in name or name.partition(":")[2] not in ("", "latest")
    return {**_MESSAGES, "imagePullPolicy": "IfNotPresent" if is_fixed else "Always", **kept}


def _components(job: JsonObject) -> list[JsonObject]:
    components = value_at(job, _COMPONENTS)
    if not isinstance(components, list) or not all(isinstance(each, dict) for each in components):
        raise BadInput(f"{shown(_COMPONENTS)}: expected a list of objects, found {excerpt(components)}")
    return components


def _listed(job: JsonObject) -> Iterator[tuple[Keys, JsonObject]]:
    """The entries of `podSets` of every component, and the keys to them."""
    for index, component in enumerate(_components(job)):
        keys: Keys = (*_COMPONENTS, index)
        entries = component.get("podSets") or []
        if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
            raise BadInput(f"{shown(keys)}.podSets: expected a list of objects, found {excerpt(entries)}")
        if not entries and any(value_at(component.get("template"), pods) for pods in _PODS):
            raise BadInput(f"{shown(keys)}.podSets: expected the pod sets of a component that has pods, found none")
        for position, entry in enumerate(entries):
            yield (*keys, "podSets", position), entry


def _template_keys(path: object, *, at: str) -> Keys:
    """The keys of a path such as `template.spec.groups[0].template`, which a user wrote."""
    if not isinstance(path, str) or len(path) > _MAX_PATH:
        raise BadInput(f"{at}: expected a path such as template.spec.template, found {excerpt(path)}")
    keys: list[str | int] = []
    for step in path.removeprefix(".").split("."):
        found = _STEP.fullmatch(step)
        if found is None:
            raise BadInput(f"{at}: expected a path such as template.spec.template, found {excerpt(path)}")
        keys.append(found[1])
        keys += [int(index) for index in re.findall(r"[0-9]+", found[2])]
    if keys[0] != "template":
        raise BadInput(f"{at}: expected a path that begins with template, found {excerpt(path)}")
    return tuple(keys)


def _written(info: PodSetInfo) -> JsonObject:
    fields = {
        "labels": dict(info.labels),
        "annotations": dict(info.annotations),
        "nodeSelector": dict(info.node_selector),
        "tolerations": list(info.tolerations),
        "schedulingGates": list(info.scheduling_gates),
    }
    return {name: value for name, value in fields.items() if value}


def _info(name: str, written: JsonObject, *, at: str) -> PodSetInfo:
    if not isinstance(written, dict):
        raise BadInput(f"{at}: expected an object, found {excerpt(written)}")
    metadata = {field: written.get(field) for field in ("labels", "annotations")}
    spec = {field: written.get(field) for field in ("nodeSelector", "tolerations", "schedulingGates")}
    pod_template({"metadata": metadata, "spec": spec}, at=at)
    return PodSetInfo(
        name=name,
        count=0,
        labels=metadata["labels"] or {},
        annotations=metadata["annotations"] or {},
        node_selector=spec["nodeSelector"] or {},
        tolerations=spec["tolerations"] or (),
        scheduling_gates=spec["schedulingGates"] or (),
    )
