# SPDX-License-Identifier: Apache-2.0
"""Label and field selectors of list, watch and deletecollection.

Owns reading them with Kubernetes' errors, and the test whether an object is meant.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from multikueue.core.errors import BadInput
from multikueue.core.selectors import LabelSelector, parse_selector
from multikueue.devcluster.apiserver import documents, errors
from multikueue.devcluster.apiserver.documents import JsonObject
from multikueue.devcluster.apiserver.resources import ResourceType

_TERM: Final = re.compile(r"((?:[^=!\\,]|\\.)*)(==|!=|=)((?:[^\\,]|\\.)*)")
_COMMON: Final = ("metadata.name", "metadata.namespace")


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a resource are meant."""

    labels: LabelSelector | None = None
    fields: tuple[tuple[str, bool, str], ...] = ()
    """Field, whether equal or not, value."""

    @property
    def everything(self) -> bool:
        """Whether nothing is left out."""
        return self.labels is None and not self.fields

    @property
    def name(self) -> str | None:
        """The one name that is asked for, if it is."""
        for field, equal, value in self.fields:
            if field == "metadata.name" and equal:
                return value
        return None

    def matches(self, value: JsonObject, kind: ResourceType) -> bool:
        """Whether the object is meant."""
        metadata = documents.metadata(value)
        if self.labels is not None and not self.labels.matches(documents.strings(metadata.get("labels"))):
            return False
        if not self.fields:
            return True
        known: dict[str, str] | None = None
        for field, equal, wanted in self.fields:
            if field == "metadata.name":
                actual = metadata.get("name", "")
            elif field == "metadata.namespace":
                actual = metadata.get("namespace", "")
            else:
                if known is None:
                    known = kind.behaviour.fields(value)
                actual = known.get(field, "")
            if (actual == wanted) is not equal:
                return False
        return True


EVERYTHING: Final = Selection()


def selection(query: dict[str, str], kind: ResourceType) -> Selection:
    """What the parameters of a request select. Raises `StatusError`."""
    labels = query.get("labelSelector", "")
    fields = query.get("fieldSelector", "")
    if not labels and not fields:
        return EVERYTHING
    try:
        parsed = parse_selector(labels) if labels else None
    except BadInput as error:
        raise errors.bad_request(f"unable to parse requirement: {error}") from error
    return Selection(parsed if parsed and parsed.requirements else None, tuple(_fields(fields, kind)))


def _fields(text: str, kind: ResourceType) -> list[tuple[str, bool, str]]:
    found = []
    for part in re.split(r"(?<!\\),", text) if text else ():
        if not part:
            continue
        match = _TERM.fullmatch(part)
        if match is None:
            raise errors.bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        field = match[1]
        if field not in _COMMON and field not in kind.behaviour.selectable:
            if kind.custom:
                raise errors.bad_request(f"field label not supported: {field}")
            if not kind.behaviour.selectable:
                known = '"metadata.name", "metadata.namespace"'
                raise errors.bad_request(f'"{field}" is not a known field selector: only {known}')
            raise errors.bad_request(f"field label not supported: {field}")
        value = re.sub(r"\\(.)", r"\1", match[3])
        found.append((field, match[2] != "!=", value))
    return found
