# SPDX-License-Identifier: Apache-2.0
"""The audit log: one event for each request, in the form of `audit.k8s.io/v1` at level Metadata.

A watch is logged when it begins, every other request when it has been answered.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import IO

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.http.requests import Reply, Request, Stream
from devcluster.apiserver.registry import objects
from multikueue.core.timestamps import format_micro_time

Audit = Callable[[JsonObject], None]
"""Takes each event."""


class AuditFile:
    """Appends each event to a file as one line; an `Audit`."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("ab")

    def __call__(self, event: JsonObject) -> None:
        self._file.write(documents.dump(event) + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def event(request: Request, reply: Reply, context: ServerContext) -> JsonObject:
    """The event of a request."""
    stamp = format_micro_time(context.now())
    found: JsonObject = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": objects.new_uid(context.rng),
        "stage": "ResponseStarted" if isinstance(reply, Stream) else "ResponseComplete",
        "requestURI": request.path + (f"?{request.query_text}" if request.query_text else ""),
        "verb": request.verb or request.method.lower(),
        "user": request.user.document(),
        "userAgent": request.headers.get("user-agent", ""),
        "responseStatus": {"metadata": {}, "code": reply.status},
        "requestReceivedTimestamp": stamp,
        "stageTimestamp": stamp,
    }
    target = request.target
    if target is not None and target.resource:
        about = {
            "resource": target.resource,
            "namespace": target.namespace,
            "name": target.name,
            "apiGroup": target.group,
            "apiVersion": target.version,
            "subresource": target.subresource,
        }
        found["objectRef"] = {key: value for key, value in about.items() if value}
    return found
