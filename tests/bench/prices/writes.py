# SPDX-License-Identifier: Apache-2.0
"""A write of one kind with one verb, as the bytes that a client sends.

An update sends the whole object as the last answer had it; an apply of an object the whole manifest, one of a status
only that, as the manager does; a JSON patch of a status replaces it and tests the uid, as the agent does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from tests.bench.apiserver.raw import request
from tests.bench.prices.kinds import Body, WrittenKind

BACKGROUND: Final = "propagationPolicy=Background"
_MANAGER: Final = "fieldManager=bench"
_MEDIA: Final = {
    "merge patch": "application/merge-patch+json",
    "JSON patch": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}


class Verb(StrEnum):
    """How an object is written."""

    CREATE = "create"
    UPDATE = "update"
    MERGE = "merge patch"
    JSON = "JSON patch"
    APPLY = "apply"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class PricedWrite:
    """What is sent; `status` for the status subresource."""

    kind: WrittenKind
    verb: Verb
    status: bool = False

    @property
    def name(self) -> str:
        """Such as `Workload: status apply`."""
        return f"{self.kind.name}: {'status ' if self.status else ''}{self.verb}"

    def bytes(self, name: str, number: int, last: Body) -> bytes:
        """The request for the object `name`; `last` is the newest answer with it, empty before the first."""
        path = f"{self.kind.collection}/{name}"
        if self.verb is Verb.CREATE:
            return request("POST", f"{self.kind.collection}?{_MANAGER}", _dumped(self.kind.manifest(name)))
        if self.verb is Verb.DELETE:
            # The default for Jobs is to orphan pods, which needs a garbage collector.
            return request("DELETE", f"{path}?{BACKGROUND}")
        path = f"{path}/status?{_MANAGER}" if self.status else f"{path}?{_MANAGER}"
        changed = self._changed(number)
        if self.verb is Verb.UPDATE:
            return request("PUT", path, _dumped(_merged(last, changed)))
        if self.verb is Verb.MERGE:
            return request("PATCH", path, _dumped(changed), _MEDIA[self.verb])
        if self.verb is Verb.JSON:
            test = {"op": "test", "path": "/metadata/uid", "value": last["metadata"]["uid"]}
            return request("PATCH", path, _dumped([test, *self._operations(changed)]), _MEDIA[self.verb])
        applied = self.kind.manifest(name)
        if self.status:
            applied = {each: applied[each] for each in ("apiVersion", "kind")} | {"metadata": {"name": name}}
        return request("PATCH", f"{path}&force=true", _dumped(_merged(applied, changed)), _MEDIA[self.verb])

    def _changed(self, number: int) -> Body:
        if not self.status:
            return self.kind.change(number)
        if self.kind.status is None:
            raise ValueError(f"{self.kind.name} has no status")
        return {"status": self.kind.status(number)}

    def _operations(self, changed: Body) -> list[Body]:
        if self.status:
            return [{"op": "add", "path": "/status", "value": changed["status"]}]
        return [
            {"op": "add", "path": f"/{section}", "value": value}
            if section == "series"  # an Event has none at first
            else {"op": "add", "path": f"/{section}/{field}", "value": inner}
            for section, value in changed.items()
            for field, inner in value.items()
        ]


def writes_of(kind: WrittenKind) -> list[PricedWrite]:
    """Every verb, of the object and of its status if it has one."""
    own = [PricedWrite(kind, verb) for verb in Verb]
    if kind.status is None:
        return own
    return [*own, *(PricedWrite(kind, verb, status=True) for verb in Verb if verb not in (Verb.CREATE, Verb.DELETE))]


def _merged(old: Body, new: Body) -> Body:
    found: dict[str, Any] = dict(old)
    for name, value in new.items():
        both = isinstance(value, dict) and isinstance(found.get(name), dict)
        found[name] = _merged(found[name], value) if both else value
    return found


def _dumped(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()
