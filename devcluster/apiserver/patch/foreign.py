# SPDX-License-Identifier: Apache-2.0
"""The check of an object against the versions that its field managers wrote in.

A real server converts the object to each of these versions, which fails for a version that the kind does not have and
for a field that the version does not declare. Only for kinds whose conversion changes nothing but `apiVersion`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.patch import forms
from devcluster.apiserver.schema.node import TypeNode


class VersionMismatch(Exception):
    """An object does not fit a version of one of its managers."""


class ForeignVersions:
    """The schemas of all versions of a kind, for an object with managers in other versions than the request's."""

    def __init__(self, group: str, nodes: Mapping[str, TypeNode], *, requested: str) -> None:
        self._group = group
        self._nodes = nodes
        self._requested = requested

    def check(self, value: JsonObject, api_versions: Iterable[str], doing: Callable[[str], str] = lambda _: "") -> None:
        """Check an object without managed fields; `doing` begins the text. Raises `VersionMismatch`."""
        for api_version in dict.fromkeys(api_versions):
            if api_version == self._requested:
                continue
            group, _, version = api_version.rpartition("/")
            node = self._nodes.get(version) if group == self._group else None
            if node is None:
                problem: str | None = f"request to convert CR to an invalid group/version: {api_version}"
            else:
                problem = forms.problem(value, node)
            if problem is not None:
                raise VersionMismatch(doing(api_version) + problem)
