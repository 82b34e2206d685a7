# SPDX-License-Identifier: Apache-2.0
"""Replication controllers, pod templates and controller revisions: defaults and validation; no controller runs them."""

from __future__ import annotations

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.kinds import pod_spec
from devcluster.apiserver.kinds.behaviour import KindBehaviour, RequestContext


class ReplicationControllerBehaviour(KindBehaviour):
    """Replication controllers, the older form of replica sets."""

    has_status = True
    generation = True

    def default(self, value: JsonObject) -> None:
        """Set the defaults; selector and labels are those of the template."""
        spec = value.setdefault("spec", {})
        pod_spec.default_template(spec.get("template"))
        spec.setdefault("replicas", 1)
        labels = documents.child(spec, "template", "metadata").get("labels")
        if labels:
            if not spec.get("selector"):
                spec["selector"] = dict(labels)
            if not value["metadata"].get("labels"):
                value["metadata"]["labels"] = dict(labels)

    def prepare_create(self, value: JsonObject, request_context: RequestContext) -> None:
        """Set the status of a new one."""
        super().prepare_create(value, request_context)
        value["status"] = {"replicas": 0}


class PodTemplateBehaviour(KindBehaviour):
    """Pod templates."""

    generation = True

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        pod_spec.default_template(value.setdefault("template", {}))

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the pods."""
        return pod_spec.validate_spec(documents.child(value, "template", "spec"), "template.spec")


class RevisionBehaviour(KindBehaviour):
    """Controller revisions, whose data does not change."""

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the object."""
        data, revision = value.get("data"), value.get("revision", 0)
        found = []
        if data is None:
            found.append(field_errors.required("data", "data is mandatory"))
        elif old is not None and data != old.get("data"):
            found.append(field_errors.immutable("data", data))
        if isinstance(revision, int) and revision < 0:
            found.append(field_errors.invalid("revision", revision, "must be greater than or equal to 0"))
        return found
