# SPDX-License-Identifier: Apache-2.0
"""Events in their two forms: field selectors, validation and table cells. Causes name fields as the older form does."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents, times
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.kinds.behaviour import KindBehaviour, RequestContext

_REQUIRED: Final = ("reportingController", "reportingInstance", "action", "reason")
_LIMITS: Final = {
    "reportingInstance": ("reportingInstance", 128),
    "action": ("action", 128),
    "reason": ("reason", 128),
    "note": ("message", 1024),
}
_DEPRECATED: Final = {
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "deprecatedSource": "source",
}
_ABOUT: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


class EventBehaviour(KindBehaviour):
    """Events, in both of their forms."""

    creates_on_update = True

    def default(self, value: JsonObject) -> None:
        """Set empty values for fields without a default."""
        value.setdefault("eventTime", None)
        if "involvedObject" in value:
            value.setdefault("reportingComponent", "")
            value.setdefault("reportingInstance", "")

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """It must be in the namespace of its object."""
        namespace = documents.child(value, "involvedObject").get("namespace")
        if old is None and namespace and namespace != value["metadata"].get("namespace"):
            return [field_errors.invalid("involvedObject.namespace", namespace, "does not match event.namespace")]
        return []

    def fields(self, value: JsonObject) -> dict[str, str]:
        """The fields that selectors can use."""
        about = documents.child(value, "involvedObject") or documents.child(value, "regarding")
        source = documents.child(value, "source").get("component") or value.get("reportingComponent", "")
        found = {f"involvedObject.{name}": about.get(name, "") for name in _ABOUT}
        found.update({f"regarding.{name}": about.get(name, "") for name in _ABOUT})
        return {
            **found,
            "reason": value.get("reason", ""),
            "reportingComponent": value.get("reportingComponent", "") or source,
            "reportingController": value.get("reportingController", "") or source,
            "source": source,
            "type": value.get("type", ""),
        }

    @property
    def selectable(self) -> tuple[str, ...]:
        """The names that this form has."""
        return tuple(name for name in self.fields({}) if not name.startswith(("regarding.", "reportingController")))

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Last Seen, Type, Reason, Object, Subobject, Source, Message, First Seen, Count, Name."""
        about = documents.child(value, "involvedObject") or documents.child(value, "regarding")
        source = documents.child(value, "source") or documents.child(value, "deprecatedSource")
        first = value.get("firstTimestamp") or value.get("deprecatedFirstTimestamp") or value.get("eventTime")
        last = value.get("lastTimestamp") or value.get("deprecatedLastTimestamp") or first
        series = documents.child(value, "series")
        if series.get("lastObservedTime"):
            last = series["lastObservedTime"]
        component = source.get("component") or value.get("reportingComponent") or value.get("reportingController", "")
        host = source.get("host") or value.get("reportingInstance") or ""
        count = series.get("count") or value.get("count") or value.get("deprecatedCount") or 1
        return [
            times.duration(last, now),
            value.get("type", ""),
            value.get("reason", ""),
            f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
            about.get("fieldPath", ""),
            f"{component}, {host}" if host else component,
            str(value.get("message") or value.get("note") or "").strip(),
            times.duration(first, now),
            count,
            value["metadata"]["name"],
        ]


class NewEventBehaviour(EventBehaviour):
    """Events in their newer form, which requires more fields."""

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of a new one."""
        return _problems(value) if old is None else []

    @property
    def selectable(self) -> tuple[str, ...]:
        """The names that this form has."""
        older = ("involvedObject.", "reportingComponent", "source")
        return tuple(name for name in self.fields({}) if not name.startswith(older))


def _problems(value: JsonObject) -> list[StatusCause]:
    """All problems of the event."""
    found = []
    if value.get("type") not in ("Normal", "Warning"):
        found.append(_wrong("type", f"has invalid value: {value.get('type') or ''}"))
    if not value.get("eventTime"):
        return [field_errors.required("eventTime"), *found]
    found += [field_errors.required(name) for name in _REQUIRED if not value.get(name)]
    found += field_errors.key_problems("reportingController", value.get("reportingController") or "")
    for name, (shown, most) in _LIMITS.items():
        if len((value.get(name) or "").encode()) > most:
            found.append(_wrong(shown, f"can have at most {most} characters"))
    found += [_wrong(shown, "needs to be unset") for name, shown in _DEPRECATED.items() if value.get(name)]
    count = documents.child(value, "series").get("count")
    if isinstance(count, int) and count < 2:  # a single event is no series
        found.append(_wrong("series.count", "should be at least 2"))
    return found


def _wrong(field: str, text: str) -> StatusCause:
    return field_errors.invalid(field, "", text)
