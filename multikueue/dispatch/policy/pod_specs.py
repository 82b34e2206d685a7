# SPDX-License-Identifier: Apache-2.0
"""The pod specs in a manifest, each with the path of its field.

They are found by their shape, so one function serves Jobs, the pod sets of a Workload and custom resources. Parts of
pod specs count as well: overrides that an operator merges into its pods, and options of which it makes a container.
Nothing is hidden by what is around it, since a user may give an outer object the fields of a pod spec.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_CONTAINER_LISTS: Final = ("initContainers", "containers", "ephemeralContainers")
_CONTAINER_NAMES: Final = frozenset(_CONTAINER_LISTS)
_PARTS: Final = frozenset(
    {
        "serviceAccountName",
        "serviceAccount",
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "nodeName",
        "priorityClassName",
        "volumes",
        "securityContext",
    }
)
# `dict` first: to ask whether it is a `Mapping` is slow.
_OBJECT: Final = (dict, Mapping)
_LIST: Final = (list, tuple)
_NESTED: Final = (*_LIST, *_OBJECT)
_INNER: Final = frozenset({*_CONTAINER_LISTS, "volumes", "securityContext"})
"""The fields of a pod spec whose values have fields of these names, but are no parts of a pod spec."""
_DEFAULT_ACCOUNT: Final = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSpecAt:
    """A pod spec, the path of its field, and the annotations of its template.

    `partial`: the rest of it is elsewhere, such as its service account.
    """

    path: str
    spec: Mapping[str, Any]
    annotations: Mapping[str, Any] = field(default_factory=dict)
    partial: bool = False

    @property
    def annotations_path(self) -> str:
        """The path of those annotations."""
        return f"{self.path.removesuffix('.spec')}.metadata.annotations"

    def containers(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Each container of any type with its path."""
        for name in _CONTAINER_LISTS:
            yield from items(self.spec.get(name), f"{self.path}.{name}")

    def service_accounts(self) -> Iterator[tuple[str, str]]:
        """Each service account that it names, with the path of the field; the default one if it names none."""
        named = [(f"{self.path}.{name}", self.spec.get(name)) for name in ("serviceAccountName", "serviceAccount")]
        found = [(path, str(value)) for path, value in named if value]
        yield from found or ([] if self.partial else [(named[0][0], _DEFAULT_ACCOUNT)])


def pod_specs(manifest: Mapping[str, Any], path: str = "") -> Iterator[PodSpecAt]:
    """Every pod spec in the manifest, in its order; `path` is the path of the manifest itself."""
    # Not by recursion: the depth of a manifest is not trusted.
    waiting: list[tuple[str, object, Mapping[str, Any], bool]] = [(path, manifest, {}, False)]
    while waiting:
        where, value, metadata, inner = waiting.pop()
        if isinstance(value, _OBJECT):
            whole = not _CONTAINER_NAMES.isdisjoint(value)
            if whole:
                annotations = metadata.get("annotations")
                yield PodSpecAt(
                    path=where, spec=value, annotations=annotations if isinstance(annotations, Mapping) else {}
                )
            elif not inner and not _PARTS.isdisjoint(value):
                yield from _parts(where, value)
            beside = value.get("metadata")
            beside = beside if isinstance(beside, Mapping) else {}
            prefix = f"{where}." if where else ""
            fields = [
                (f"{prefix}{name}", entry, beside if name == "spec" else {}, inner or (whole and name in _INNER))
                for name, entry in value.items()
                if isinstance(entry, _NESTED)
            ]
            waiting.extend(reversed(fields))
        elif isinstance(value, _LIST):
            entries: list[tuple[str, object, Mapping[str, Any], bool]] = [
                (f"{where}[{index}]", entry, {}, inner)
                for index, entry in enumerate(value)
                if isinstance(entry, _NESTED)
            ]
            waiting.extend(reversed(entries))


def _parts(path: str, value: Mapping[str, Any]) -> Iterator[PodSpecAt]:
    """A part of a pod spec; with a security context it may be the container that an operator makes of it."""
    yield PodSpecAt(path=path, spec=value, partial=True)
    if "securityContext" in value:
        yield PodSpecAt(path=path, spec={"containers": [value]}, partial=True)


def items(value: object, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects of a list, each with its path; nothing for another type."""
    if isinstance(value, list | tuple):
        for index, entry in enumerate(value):
            if isinstance(entry, Mapping):
                yield f"{path}[{index}]", entry
