# SPDX-License-Identifier: Apache-2.0
"""The audit log: who asked for what, and what came of it, one event a request.

Owns the event's form (`audit.k8s.io/v1`, level Metadata) and the file. A watch is noted when it begins, everything else
when it is answered.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import IO

from multikueue.core.timestamps import format_micro_time
from multikueue.devcluster.apiserver import documents, objects
from multikueue.devcluster.apiserver.documents import JsonObject
from multikueue.devcluster.apiserver.requests import Reply, Request, Stream
from multikueue.devcluster.apiserver.world import World

Audit = Callable[[JsonObject], None]
"""Takes each event."""


class AuditFile:
    """Appends events to a file, a line each; itself an `Audit`."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("ab")

    def __call__(self, event: JsonObject) -> None:
        self._file.write(documents.dump(event) + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def event(request: Request, reply: Reply, world: World) -> JsonObject:
    """What is noted of a request."""
    stamp = format_micro_time(world.now())
    found: JsonObject = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": objects.new_uid(world.rng),
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
